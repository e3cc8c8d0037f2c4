"""The command that a run suggests in its last line: it has the places of the run, so it runs as printed."""

import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.checks.findings import FindingKind
from tierctl.cli.app import Command, named_command
from tierctl.errors import ExitCode
from tierctl.wire.files import checkpoints

from tests.cli.shell import Ran, tierctl
from tests.verify.cases import CASES
from tests.verify.tiers import Spoilt
from tests.wire.files.flat import read as read_flat

Capture = Callable[[str], Path]


def repeat_an_entry(path: Path) -> None:
    """Append the first entry of a flat file again: it can be compacted then."""
    data = path.read_bytes()
    first = read_flat(data).entries[0]
    path.write_bytes(data + data[first.start : first.end])


WHERE = "--metadata {root}/before --remote {root}/before-remote"
LOGS = "--log-dir {root}/before"


def following(ran: Ran) -> list[str]:
    """Return the words of the suggested command; none if the run suggests no command."""
    return shlex.split(ran.summary.partition("; next: ")[2])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"verify {WHERE} {LOGS}", f"verify --deep {WHERE} {LOGS}"),
        (
            f"status {WHERE} --log-dir {{root}}/after --now 2026-11-22",
            f"verify {WHERE} --log-dir {{root}}/after --now 2026-11-22T00:00:00Z",
        ),
        (
            f"report --output json {WHERE} --log-dir {{root}}/after",
            f"verify {WHERE} --log-dir {{root}}/after",
        ),
        (
            f"verify {WHERE} --log-dir {{root}}/after --layout kafka",
            None,
        ),
        (
            f"sweep {WHERE} --log-start-offset orders-0=1800 --topic orders --plan-out '{{tmp}}/a plan'",
            f"apply '{{tmp}}/a plan' {WHERE}",
        ),
        (
            f"verify --profile p --config-file {{tmp}}/t.toml {LOGS}",
            f"verify --deep {LOGS} --profile p --config-file {{tmp}}/t.toml",
        ),
        (
            "config show --broker-config {tmp}/server.properties",
            "doctor --broker-config {tmp}/server.properties",
        ),
    ],
)
def test_it_runs_as_it_is_printed(line: str, expected: str | None, capture: Capture, tmp_path: Path) -> None:
    root = capture("tiered-cluster")
    (tmp_path / "t.toml").write_text(
        f"[profiles.p]\nmetadata = '{root}/before'\nremote = '{root}/before-remote'\n"
    )
    (tmp_path / "server.properties").write_text("log.cleanup.policy=delete\n")
    places = {"root": root, "tmp": tmp_path}
    ran = tierctl(*shlex.split(line.format(**places)))
    if expected is None:
        assert following(ran) == []
        return
    assert following(ran) == shlex.split(f"tierctl {expected.format(**places)}"), ran.err
    again = tierctl(*following(ran)[1:], cwd=tmp_path)
    assert again.code in {ExitCode.OK, ExitCode.PARTIAL, ExitCode.REFUSED}, again.err


def test_a_copy_to_another_tier_is_verified_there(capture: Capture, tmp_path: Path) -> None:
    root = capture("tiered-cluster")
    (tmp_path / "metadata").mkdir()
    source = ("--metadata", root / "before", "--from-remote", root / "before-remote", "--topic", "orders")
    target = ("--to-metadata", tmp_path / "metadata", "--remote", tmp_path / "tier")
    ran = tierctl("copy", *source, *target, "--apply")
    assert ran.code == 0, ran.err
    words = ["tierctl", "verify", *map(str, ("--metadata", tmp_path / "metadata", *target[2:]))]
    assert following(ran) == words
    assert tierctl(*words[1:]).code == 0


def test_a_plan_that_would_be_refused_is_not_suggested(capture: Capture, tmp_path: Path) -> None:
    root, configs = capture("tiered-cluster"), tmp_path / "topics.properties"
    configs.write_text("orders.retention.ms=1\n")
    where = WHERE.format(root=root).split()
    ran = tierctl("sweep", *where, "--topic", "orders", "--topic-configs", configs, "--now", "+1d")
    assert "note: --apply would refuse this: the plan is decided as of" in ran.err
    assert ": a plan, nothing changed: 1" in ran.summary
    assert following(ran) == []


def test_a_written_log_is_checked_by_no_command_on_files(capture: Capture, tmp_path: Path) -> None:
    """verify of the old topic compares nothing with the new log, and finds that its topic was recreated."""
    root, new = capture("tiered-cluster"), tmp_path / "new"
    for number in range(2):
        (new / f"clicks-{number}").mkdir(parents=True)
        (new / f"clicks-{number}" / "partition.metadata").write_text(
            "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n"
        )
    (new / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=other\n")
    where = f"--metadata {root}/after --remote {root}/after-remote --topic clicks --log-dir {new}"
    ran = tierctl("restore", "log", *where.split(), "--apply")
    assert ran.code == ExitCode.OK, ran.err
    assert following(ran) == []
    assert "now start the brokers, and verify with tierctl restore check, with the old topic's" in ran.err


@pytest.fixture
def tier(writable: Callable[[str], Path]) -> Spoilt:
    return Spoilt(writable("tiered-cluster/before"), writable("tiered-cluster/before-remote"))


def run_to_the_end(*words: object) -> list[str]:
    """Run a command, and then each command that the one before suggests; return what each of them does."""
    ran, seen = tierctl(*words), list[str]()
    while line := following(ran):
        command, arguments = named_command(line[1:])
        assert isinstance(command, Command)
        flags = [flag for flag in ("--apply", "--deep", "--find") if flag in arguments]
        seen.append(" ".join([*line[1 : len(line) - len(arguments)], *flags]))
        assert len(seen) == len(set(seen)), ran.summary
        ran = tierctl(*line[1:])
        assert ran.code in {ExitCode.OK, ExitCode.PARTIAL, ExitCode.CORRUPT}, (line, ran.err)
    return seen


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "sweep {where} --log-dir {metadata} --log-start-offset orders-0=1800 --state-dir {tmp}/s",
            ["sweep --apply", "verify", "verify --deep"],
        ),
        (
            "sweep {where} --log-start-offset orders-0=1800 --plan-out {tmp}/plan",
            ["apply", "apply --apply", "verify", "verify --deep"],
        ),
        (
            "offsets check --metadata {metadata} --log-dir {tmp}/high",
            ["offsets repair", "offsets repair --apply"],
        ),
        (
            "verify --metadata {metadata} --log-dir {tmp}/high --log-dir {metadata}",
            ["offsets repair", "offsets repair --apply"],
        ),
        ("cache compact {tmp}/flat", ["cache compact --apply"]),
        ("report {where} --log-dir {tmp}/deleted", ["verify"]),
        ("segments --check {where} --log-dir {metadata} --now -2000d", []),
    ],
)
def test_each_suggestion_runs(line: str, expected: list[str], tier: Spoilt, tmp_path: Path) -> None:
    assert tierctl("cache", "build", "--metadata", tier.metadata, "--out", tmp_path / "flat").code == 0
    repeat_an_entry(next((tmp_path / "flat").glob("orders-0-*")))
    (tmp_path / "high").mkdir()
    (tmp_path / "high" / "meta.properties").write_text("version=1\nnode.id=1\n")
    (tmp_path / "high" / "_rlmm_committed_offsets").write_bytes(
        checkpoints.write_committed_offsets({0: 99_999})
    )
    shutil.copytree(tier.metadata, tmp_path / "deleted", ignore=shutil.ignore_patterns("shortlived-*"))
    where = f"--metadata {tier.metadata} --remote {tier.remote}"
    words = shlex.split(line.format(where=where, metadata=tier.metadata, tmp=tmp_path))
    assert run_to_the_end(*words) == expected


@pytest.mark.parametrize(
    ("case", "has_logs", "expected"),
    [
        ("deletion stuck", True, ["sweep", "sweep --apply", "verify", "verify --deep"]),
        ("copy dangling", False, []),
        ("copy dangling", True, ["copy"]),
        ("copied twice", False, []),
        ("partition marked", False, ["delete", "delete --apply", "verify", "verify --deep"]),
        ("topic gone", True, []),
    ],
)
def test_each_suggestion_about_a_finding_runs(
    case: str, has_logs: bool, expected: list[str], tier: Spoilt, tmp_path: Path
) -> None:
    """verify suggests a repair if its command has all that it needs; status suggests the same one."""
    CASES[case].spoil(tier)
    (tmp_path / "topics").write_text("clicks.remote.storage.enable=true\nclicks.retention.ms=-1\n")
    logs = ("--log-dir", tier.metadata, "--topic-configs", tmp_path / "topics") if has_logs else ()
    where = ("--metadata", tier.metadata, "--remote", tier.remote, *logs)
    status, verify = following(tierctl("status", *where)), following(tierctl("verify", *where))
    if expected:
        assert status == verify
    assert run_to_the_end("verify", *where) == expected


def test_the_commands_of_findings_exist() -> None:
    for kind in FindingKind:
        if kind.row.command is not None:
            command, arguments = named_command(kind.row.command.split())
            assert isinstance(command, Command), kind
            options = {option for each in command.options for option in each.opts}
            assert {each for each in arguments if each.startswith("--")} <= options, kind
