"""Files and folders that this user may not read: they are named, and the rest of the work is done."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.shell import Ran, tierctl_process
from tests.support.faults import BOUND_BY_MODES


def bound(*args: object) -> Ran:
    return tierctl_process(*args, prefix=BOUND_BY_MODES)


@pytest.fixture
def root(capture: Callable[[str], Path], tmp_path: Path) -> Path:
    copied = Path(shutil.copytree(capture("tiered-cluster"), tmp_path / "cluster"))
    (tmp_path / "file").write_text("client.id=a\n")
    (tmp_path / "file").chmod(0)
    return copied


@pytest.mark.parametrize(
    ("option", "check"),
    [
        ("--broker-config", "broker_file"),
        ("--command-config", "client_file"),
    ],
)
def test_doctor_with_a_file_in_such_a_folder(option: str, check: str, root: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir(mode=0)
    ran = bound("doctor", option, tmp_path / "folder/file", "--remote", root / "before-remote", "-o", "jsonl")
    assert ran.code == 3, ran.err
    assert {"check": check, "severity": "error"}.items() <= ran.rows[0].items()


@pytest.mark.parametrize(
    ("option", "check"),
    [
        ("--broker-config", "broker_file"),
        ("--topic-configs", "topic_file"),
        ("--command-config", "client_file"),
        ("--config-file", "tierctl_settings"),
        ("--aiven-private-key", "secrets"),
        ("--state-dir", "state_dir_access"),
        ("--log-dir", "log_dir_access"),
    ],
)
def test_doctor_reports_it_and_makes_the_other_checks(
    option: str, check: str, root: Path, tmp_path: Path
) -> None:
    if option in {"--state-dir", "--log-dir"}:
        (tmp_path / "file").unlink()
        (tmp_path / "file").mkdir(mode=0)
    ran = bound("doctor", option, tmp_path / "file", "--remote", root / "before-remote", "-o", "jsonl")
    made = {each["check"]: each["severity"] for each in ran.rows if each["severity"] != "not_checked"}
    assert ran.code == 3, ran.err
    assert made["store_list"] == made["store_read"] == "ok"
    assert made[check] == "error"


@pytest.mark.parametrize("folder", ["before-remote", "before-remote/*", "before-remote/*/orders-0-*"])
def test_doctor_lists_the_folders_of_a_tier(folder: str, root: Path) -> None:
    (closed,) = root.glob(folder)
    closed.chmod(0)
    ran = bound("doctor", "--metadata", root / "before", "--remote", root / "before-remote", "-o", "jsonl")
    found = [each for each in ran.rows if each["check"] == "store_list"]
    assert ran.code == 3, ran.err
    assert [(each["severity"], each["subject"]) for each in found] == [("error", str(closed))]


@pytest.mark.parametrize("settings", ["", "bills.remote.storage.enable=false\n"])
def test_copy_of_an_enabled_topic_names_the_folder(
    settings: str, capture: Callable[[str], Path], tmp_path: Path
) -> None:
    root = Path(shutil.copytree(capture("untiered-broker"), tmp_path / "broker"))
    folder = root / "local/ledger-0"
    folder.chmod(0)
    (tmp_path / "topics").write_text(f"ledger.remote.storage.enable=true\n{settings}")
    ran = bound(
        *("copy", "--metadata", root / "tiered-metadata", "--remote", root / "tiered-remote"),
        *("--log-dir", root / "local", "--topic-configs", tmp_path / "topics"),
    )
    assert ran.code == 7, ran.err
    assert f"unreadable: {folder}" in ran.err


def test_fetch_prints_what_the_tier_and_the_other_logs_have(root: Path) -> None:
    folder = root / "before/orders-0"
    folder.chmod(0)
    where = ("--metadata", root / "before", "--remote", root / "before-remote", "--log-dir", root / "before")
    ran = bound("fetch", "--topic", "orders", *where, "-o", "jsonl")
    assert ran.code == 7, ran.err
    assert f"{folder} can't be read: Permission denied; offsets that only {folder} has are left" in ran.err
    ends = {each["partition"]: each["offset"] for each in ran.rows}
    assert ends == {0: 2999, 1: 3666, 2: 3665}
