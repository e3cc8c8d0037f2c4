"""Files and folders that this user may not read: they are named, and the rest of the work is done."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tierctl.metadata.cache_files import SNAPSHOT_NAME
from tierctl.metadata.state_dir import LOCK
from tierctl.wire.files.flatfile import write_snapshot

from tests.cli.shell import environment, tierctl
from tests.cli.test_messages import repeat_an_entry
from tests.support.faults import BOUND_BY_MODES
from tests.support.killing import Zygote


@pytest.fixture(scope="module")
def bound(module_folder: Path) -> Iterator[Zygote]:
    """Return a function that runs a command line in a process that may read only what modes allow."""
    zygote = Zygote(module_folder, BOUND_BY_MODES)
    yield zygote
    zygote.close()


@pytest.fixture
def root(writable: Callable[[str], Path]) -> Path:
    return writable("tiered-cluster")


UNREADABLE = {
    "--broker-config": "broker_file",
    "--topic-configs": "topic_file",
    "--command-config": "client_file",
    "--config-file": "tierctl_settings",
    "--aiven-private-key": "secrets",
    "--state-dir": "state_dir_access",
    "--log-dir": "log_dir_access",
}
"""The check of doctor that reports what each option names."""


@pytest.mark.parametrize("where", ["", "folder/"])
def test_doctor_reports_it_and_makes_the_other_checks(
    where: str, root: Path, tmp_path: Path, bound: Zygote
) -> None:
    """The files themselves may not be read, or the folder in which they are."""
    options = list(UNREADABLE)[slice(0, 3, 2) if where else slice(None)]
    (tmp_path / "file").write_text("client.id=a\n")
    (tmp_path / "file").chmod(0)
    (tmp_path / "folder").mkdir(mode=0)
    named = {each: "folder" if each in {"--state-dir", "--log-dir"} else f"{where}file" for each in options}
    words = (word for option, name in named.items() for word in (option, tmp_path / name))
    ran = bound("doctor", *words, "--remote", root / "before-remote", "-o", "jsonl")
    assert ran.code == 3, ran.err
    found = {(each["check"], each["severity"]) for each in ran.rows}
    assert found >= {("store_list", "ok"), ("store_read", "ok")}
    assert found >= {(UNREADABLE[option], "error") for option in options}


@pytest.mark.parametrize("folder", ["before-remote", "before-remote/*/orders-0-*"])
def test_doctor_lists_the_folders_of_a_tier(folder: str, root: Path, bound: Zygote) -> None:
    (closed,) = root.glob(folder)
    closed.chmod(0)
    ran = bound("doctor", "--metadata", root / "before", "--remote", root / "before-remote", "-o", "jsonl")
    found = [each for each in ran.rows if each["check"] == "store_list"]
    assert ran.code == 3, ran.err
    assert [(each["severity"], each["subject"]) for each in found] == [("error", str(closed))]


def test_copy_of_an_enabled_topic_names_the_folder(
    writable: Callable[[str], Path], tmp_path: Path, bound: Zygote
) -> None:
    root = writable("untiered-broker")
    folder = root / "local/ledger-0"
    folder.chmod(0)
    (tmp_path / "topics").write_text("ledger.remote.storage.enable=true\nbills.remote.storage.enable=false\n")
    ran = bound(
        *("copy", "--metadata", root / "tiered-metadata", "--remote", root / "tiered-remote"),
        *("--log-dir", root / "local", "--topic-configs", tmp_path / "topics"),
    )
    assert ran.code == 7, ran.err
    assert f"unreadable: {folder}" in ran.err


def test_fetch_prints_what_the_tier_and_the_other_logs_have(root: Path, bound: Zygote) -> None:
    folder = root / "before/orders-0"
    folder.chmod(0)
    where = ("--metadata", root / "before", "--remote", root / "before-remote", "--log-dir", root / "before")
    ran = bound("fetch", "--topic", "orders", *where, "-o", "jsonl")
    assert ran.code == 7, ran.err
    assert f"{folder} can't be read: Permission denied; offsets that only {folder} has are left" in ran.err
    ends = {each["partition"]: each["offset"] for each in ran.rows}
    assert ends == {0: 2999, 1: 3666, 2: 3665}


@pytest.mark.parametrize(
    ("index", "why"),
    [
        (None, r"reading .*\.leader_epoch_checkpoint"),
        ("0\n1\n3 x\n", "leader-epoch checkpoint, line 3 at byte 4 of the leader-epoch index of "),
        (
            "0\n2\n0 0\n77 1\n",
            r"expected those of the segment, epoch \d+ from \d+.*, found epoch 0 from 0, epoch ",
        ),
    ],
    ids=["no right", "damaged", "of another segment"],
)
def test_sweep_deletes_nothing_without_a_lineage(
    index: str | None, why: str, root: Path, tmp_path: Path, bound: Zygote
) -> None:
    """Without a log, the lineage is that of the newest segment in the tier."""
    (tmp_path / "topics").write_text("orders.retention.ms=1\n")
    where = ("--metadata", root / "before", "--remote", root / "before-remote", "--topic", "orders")
    words = ("sweep", *where, "--topic-configs", tmp_path / "topics", "-o", "jsonl")
    whole = {row["partition"] for row in bound(*words).rows}
    assert whole == {0, 1, 2}
    newest = max(root.glob("before-remote/*/orders-0-*/*.leader_epoch_checkpoint"))
    if index is None:
        newest.chmod(0)
    else:
        newest.write_text(index)
    ran = bound(*words)
    assert ran.code == 7, ran.err
    assert {row["partition"] for row in ran.rows} == {1, 2}
    assert re.search(rf"no lineage of \S+:orders-0: .*{why}", ran.err)
    assert bound("explain", "orders-0", *where[:4], "--topic-configs", tmp_path / "topics").code == 7


@pytest.mark.parametrize(
    "line",
    [
        "status --metadata {closed}/metadata",
        "status --metadata {closed}",
        "status --metadata {metadata} --state-dir {closed}/state",
        "segments --metadata {metadata} --state-dir {kept}/state",
        "verify --metadata {metadata} --remote {closed}/tier",
        "segments --metadata {metadata} --remote {closed} --sizes",
        "fetch --metadata {metadata} --remote {closed} --topic clicks",
        "cache show {closed}/file",
        "cache build --metadata {metadata} --out {kept}/cache",
        "cache compact {kept} --apply",
        "offsets show {closed}/file",
        "sweep --metadata {metadata} --remote {remote} --log-dir {metadata} --plan-out {kept}/plan",
        "report --metadata {metadata} --html {kept}/page.html",
        "report --metadata {metadata} --html {closed}/page.html",
    ],
)
def test_a_missing_right_ends_with_one_code(
    line: str, capture: Callable[[str], Path], tmp_path: Path, bound: Zygote
) -> None:
    """Whichever command it is, and whether a folder or a file in it is closed."""
    root = capture("tiered-cluster")
    places = {"metadata": root / "before", "remote": root / "before-remote"}
    for name, mode in (("closed", 0), ("kept", 0o500)):
        places[name] = tmp_path / name
        places[name].mkdir()
        if "compact" in line:
            tierctl("cache", "build", "--metadata", root / "before", "--out", places[name])
            (places[name] / LOCK).unlink()
            repeat_an_entry(next(places[name].glob("orders-0-*")))
        places[name].chmod(mode)
    ran = bound(*(word.format(**places) for word in line.split()))
    assert ran.code == 11, ran.err
    assert "may not" in ran.err or "Permission denied" in ran.err
    assert "\nhint: " in ran.err


@pytest.mark.parametrize("is_link", [False, True])
@pytest.mark.parametrize("line", ["offsets check", "offsets repair --apply", "cache verify"])
def test_a_partition_whose_cache_cannot_be_looked_for(
    line: str, is_link: bool, tmp_path: Path, bound: Zygote
) -> None:
    """It may be behind the others, so that no offset is known to be safe; lost+found is root's alone."""
    offsets = tmp_path / "_rlmm_committed_offsets"
    offsets.write_text("0\n1\n2 35\n")
    for number, held in enumerate((34, 30)):
        (tmp_path / f"orders-{number}").mkdir()
        (tmp_path / f"orders-{number}" / SNAPSHOT_NAME).write_bytes(write_snapshot(2, held, []))
    closed = tmp_path / "orders-1"
    (tmp_path / "lost+found").mkdir(mode=0)
    if is_link:
        closed.rename(tmp_path / "disk")
        closed.symlink_to(tmp_path / "not-mounted")
    else:
        closed.chmod(0)
    ran = bound(*line.split(), "--log-dir", tmp_path)
    assert (ran.code, ran.out) == (5 if is_link else 11, ""), ran.err
    why = "it is a symbolic link to nothing" if is_link else "Permission denied"
    assert f"error: {closed}: {why}" in ran.err
    assert offsets.read_text() == "0\n1\n2 35\n"


NO_KEYS = {
    "missing": "No such file or directory",
    "folder": "it is no regular file",
    "closed/key.pem": "Permission denied",
}


@pytest.mark.parametrize("name", NO_KEYS)
@pytest.mark.parametrize("command", ["verify", "doctor"])
def test_a_private_key_that_cannot_be_opened_is_a_wrong_setting(
    command: str, name: str, root: Path, tmp_path: Path, bound: Zygote
) -> None:
    for folder, mode in (("folder", 0o700), ("closed", 0)):
        (tmp_path / folder).mkdir(mode=mode)
    where = ("--metadata", root / "before", "--remote", root / "before-remote")
    ran = bound(command, *where, "--aiven-private-key", f"key1={tmp_path / name}")
    assert (ran.code, ran.out) == (2, ""), ran.err
    assert f"error: --aiven-private-key {tmp_path / name} can't be read: {NO_KEYS[name]}\n" in ran.err
    assert "hint: name a file with an RSA private key" in ran.err


@pytest.mark.parametrize(
    ("name", "reason"), [("missing", "No such file or directory"), ("", "Is a directory")]
)
def test_a_file_of_options_that_cannot_be_opened_names_its_option(
    name: str, reason: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    for ran in (
        tierctl("segments", "--config-file", file),
        tierctl("segments", env=environment(TIERCTL_CONFIG_FILE=str(file))),
    ):
        assert (ran.code, f"error: {file}: {reason}\n" in ran.err) == (2, True)
        assert "hint: --config-file, or TIERCTL_CONFIG_FILE, takes a tierctl.toml" in ran.err
