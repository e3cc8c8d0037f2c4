"""Stderr: the line that ends a run and the command that it suggests, --quiet, -v, and JSON."""

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tierctl.checks.findings import FindingKind
from tierctl.cli.app import Command, named_command
from tierctl.errors import ExitCode
from tierctl.wire.files import checkpoints

from tests.cli.shell import Ran, environment, tierctl
from tests.verify.cases import CASES
from tests.verify.tiers import Spoilt
from tests.wire.files.flat import read as read_flat

Capture = Callable[[str], Path]
SCHEMAS = Path(__file__).parents[2] / "tierctl" / "report" / "schema_files"
ERROR, MESSAGE = (json.loads((SCHEMAS / f"{name}.schema.json").read_text()) for name in ("error", "message"))


TOPICS = ("clicks", "metrics", "orders", "payments", "shortlived")


@pytest.mark.parametrize(
    ("line", "summary"),
    [
        (
            "segments --limit 1",
            r"segments: 36 segments of 5 topics, 32\.6 MiB; 1 of 36 rows printed \(--limit\) \(",
        ),
        (
            "sweep --log-start-offset orders-0=1800 --limit 2",
            r"sweep: a plan, .*: 3 steps .*; 2 of 3 rows printed \(--limit\); [0-9]+ partitions skipped",
        ),
        (
            "report --limit 2 -o table",
            r"report: .*; 2 of 5 rows printed \(--limit\); growth: 2 of 5 rows printed \(--limit\) \(",
        ),
        ("report --limit 2 --what-if *.retention.ms=3d", r"report: .*; 2 of 6 rows printed \(--limit\) \("),
        ("verify --topic payments", r"verify: 5 segments of 1 topic, 185 objects listed: "),
        ("fetch --topic payments --limit 3", r"fetch: 3 records of 1 topic"),
        ("status", r"status: 5 topics, 32\.6 MiB; no problems in metadata \("),
        ("report", r"report: 5 topics: 32\.6 MiB tier; no segments .*; no problems in metadata, objects \("),
    ],
)
def test_a_run_ends_with_what_was_done(line: str, summary: str, tier: list[str]) -> None:
    command, *args = line.split()
    ran = tierctl(command, *tier, *args)
    assert re.match(summary, ran.summary), (ran.summary, ran.err)


@pytest.mark.parametrize(
    ("name", "segments", "problems"),
    [
        ("tiered-cluster", "25 segments of 4 topics", "no problems"),
        ("finite-metadata", "19 segments of 5 topics", "11 problems"),
    ],
)
def test_verify_segments_and_report_count_the_same(
    name: str, segments: str, problems: str, capture: Capture, tmp_path: Path
) -> None:
    """A topic whose segments are all deleted has none, and information is no problem."""
    root = capture(name)
    where = ["--metadata", root / "after", "--remote", root / "after-remote", "--log-dir", root / "after"]
    assert f"segments: {segments}, " in tierctl("segments", *where).summary
    for command in (["verify"], ["report", "--html", tmp_path / "page.html"]):
        ran = tierctl(*command, *where)
        assert f"{segments}, " in ran.summary
        assert f": {problems}" in ran.summary


@pytest.mark.parametrize("command", ["segments --check", "segments", "delete"])
def test_a_run_that_ends_with_an_error_printed_before_says_so(
    command: str, capture: Capture, writable: Capture
) -> None:
    metadata = writable("tiered-cluster/before")
    (log,) = (metadata / "__remote_log_metadata-2").glob("*0.log")
    log.write_bytes(log.read_bytes()[:100] + b"?" + log.read_bytes()[101:])
    remote = capture("tiered-cluster") / "before-remote"
    ran = tierctl(*command.split(), "--metadata", metadata, "--remote", remote)
    assert (ran.code, ran.err.count("error: "), "tierctl verify lists" in ran.err) == (7, 1, True)
    assert "; 1 error printed above (" in ran.summary


def test_quiet_prints_errors_only(tier: list[str]) -> None:
    ran = tierctl("sweep", *tier, "-q")
    assert (ran.code, ran.err, ran.summary) == (0, "", "")
    failed = tierctl("segments", "--metadata", "nowhere", "--quiet")
    assert (failed.code, "nowhere has no metadata topic" in failed.err) == (10, True)


def test_verbose_prints_what_is_opened(tier: list[str]) -> None:
    assert "metadata topic: file:" not in tierctl("segments", *tier).err
    ran = tierctl("segments", *tier, "-v")
    assert f"metadata topic: file://{tier[1]}\n" in ran.err
    failed = tierctl("segments", "--metadata", "nowhere", "-vv")
    assert "\nTraceback" in failed.err


def test_a_traceback_is_printed_as_messages_are() -> None:
    ran = tierctl("cache", "show", "/no\x1b[2J", "-v")
    assert "Traceback" in ran.raw_err
    assert (ran.code, "\x1b" in ran.raw_err, ran.raw_err.count("/no\\x1b[2J")) == (10, False, 2)


def messages(ran: Ran) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ran.raw_err.splitlines()]


@pytest.mark.parametrize(
    ("line", "env", "code", "kind"),
    [
        ("segments --metadata nowhere -ojson", {}, 10, "NotFoundError"),
        ("segments --metadata nowhere -qo json", {}, 10, "NotFoundError"),
        ("segments --metadata nowhere --sizes -o json --sort -objects", {}, 10, "NotFoundError"),
        ("segments --metadata nowhere", {"TIERCTL_OUTPUT": "json"}, 10, "NotFoundError"),
        ("segments --output=json", {}, 2, "UsageError"),
        ("segmnets --output json", {}, 2, "UsageError"),
    ],
)
def test_errors_are_json_where_the_output_is(
    line: str, env: dict[str, str], code: int, kind: str, tmp_path: Path
) -> None:
    ran = tierctl(*line.split(), env=environment(**env), cwd=tmp_path)
    (message,) = messages(ran)
    jsonschema.validate(message, ERROR)
    assert (ran.code, message["error"]["code"], message["error"]["kind"]) == (code, code, kind)


def test_a_refused_value_that_was_not_typed_has_its_place(tier: list[str], tmp_path: Path) -> None:
    (tmp_path / "tierctl.toml").write_text('[profiles.p]\ncolumns = "nosuch"\n')
    line = ("segments", *tier, "--output", "csv")
    found = {
        "TIERCTL_COLUMNS": tierctl(*line, env=environment(TIERCTL_COLUMNS="nosuch"), cwd=tmp_path),
        "tierctl.toml, line 2: columns": tierctl(*line, "--profile", "p", cwd=tmp_path),
    }
    for place, ran in found.items():
        assert (ran.code, f"--columns has the value of {place}" in ran.err) == (2, True), ran.err
    typed = tierctl(*line, "--columns", "nosuch", env=environment(TIERCTL_COLUMNS="objects"), cwd=tmp_path)
    assert (typed.code, "has the value of" in typed.err) == (2, False)


def test_every_message_is_json_where_the_output_is(tier: list[str]) -> None:
    line = ["sweep", *tier, "-o", "json", "--log-start-offset", "orders-0=1800", "-v"]
    ran = tierctl(*line)
    *others, last = messages(ran)
    for message in (*others, last):
        jsonschema.validate(message, MESSAGE)
    assert {key for message in others for key in message} == {"detail", "message", "warning"}
    assert last["summary"]["command"] == "sweep"
    assert shlex.split(last["summary"]["next"]) == ["tierctl", *line, "--apply"]


def test_a_next_command_has_the_override_or_is_left_out(capture: Capture, tmp_path: Path) -> None:
    """The next command must find what a run with another key.prefix has stored."""
    broker, settings = capture("untiered-broker") / "local", tmp_path / "topics.properties"
    settings.write_text("ledger.remote.storage.enable=true\n")
    where = ["--metadata", "metadata", "--remote", "tier", "--layout", "aiven", "--log-dir", str(broker)]
    words = [*where, "--topic-configs", str(settings), "--override", "rsm.config.key.prefix=some-"]
    planned = tierctl("copy", *words, "--plan-out", "plan.json", "-o", "json", cwd=tmp_path)
    following = shlex.split(messages(planned)[-1]["summary"]["next"])
    done = tierctl(*following[1:], "--apply", "-o", "json", cwd=tmp_path)
    assert (done.code, messages(done)[-1]["summary"]["next"]) == (0, None)
    assert list(tmp_path.glob("tier/some-ledger-*/0/*.log"))


def test_damage_says_where(capture: Capture, tmp_path: Path) -> None:
    damaged = tmp_path / "torn.rlmcache"
    damaged.write_bytes(b"\x00\x07")
    ran = tierctl("offsets", "show", damaged, "-o", "json")
    (message,) = messages(ran)
    jsonschema.validate(message, ERROR)
    assert (ran.code, message["error"]["where"]) == (7, str(damaged))


@pytest.mark.parametrize(
    ("words", "patched", "said"),
    [
        ("sweep --apply", "commands.change.run", "a plan was begun: the next run finishes or withdraws"),
        ("sweep --apply", "commands.change.Change.conclude", "a plan was begun: the next run finishes"),
        ("sweep --apply", "cli.display.show_outcomes", "a plan was begun: the next run finishes"),
        ("sweep --apply", "commands.change.leased", "nothing was changed"),
        ("sweep --apply", "commands.histories.Histories.examine", "nothing was changed"),
        ("sweep", "commands.histories.Histories.examine", "nothing was changed"),
        ("copy --apply", "commands.mutation.Mutation.inspect_tier", "no step of a plan was begun"),
    ],
)
def test_an_interrupted_run_says_what_was_changed(
    words: str, patched: str, said: str, tier: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its first step, copy may have made the metadata topic; after the last, rows are printed."""

    def interrupt(*_args: object, **_more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tierctl.commands.change.run", lambda *_args, **_more: [])
    monkeypatch.setattr(f"tierctl.{patched}", interrupt)
    command, *more = words.split()
    decides = ["--log-start-offset", "orders-0=1800"] if command == "sweep" else ["--log-dir", tier[1]]
    line = [command, *more, *tier, *decides]
    ran = tierctl(*line)
    assert (ran.code, ran.out) == (130, "")
    assert f"{command}: stopped by SIGINT; {said}" in ran.summary
    assert shlex.split(ran.summary.partition("; next: ")[2]) == ["tierctl", *line]


@pytest.mark.parametrize(
    ("settings", "noted", "skipped"),
    [
        ("orders.retention.ms=-1", [], True),
        ("orders.retention.bytes=3000000", ["orders"], True),
        ("".join(f"{name}.retention.bytes=-1\n" for name in TOPICS), sorted(TOPICS), False),
    ],
)
def test_a_topic_without_retention_has_one_note(
    settings: str, noted: list[str], skipped: bool, tier: list[str], tmp_path: Path
) -> None:
    """A topic without any settings is skipped with that reason, and has no second note about its age."""
    (tmp_path / "topics").write_text(settings + "\n")
    ran = tierctl("sweep", *tier, "--topic-configs", tmp_path / "topics")
    notes = [line for line in ran.err.splitlines() if line.startswith("note: ")]
    about_age = [line for line in notes if "retention.ms is not stated" in line]
    assert len(about_age) == bool(noted)
    assert all(f"note: {', '.join(noted)}: " in line for line in about_age)
    assert any("no settings are known" in line for line in notes) is skipped


def repeat_an_entry(path: Path) -> None:
    """Append the first entry of a flat file again: it can be compacted then."""
    data = path.read_bytes()
    first = read_flat(data).entries[0]
    path.write_bytes(data + data[first.start : first.end])


WHERE = "--metadata {root}/before --remote {root}/before-remote"
LOGS = "--log-dir {root}/before"
SWEPT = "--log-start-offset orders-0=1800 --detailed-exitcode"


def following(ran: Ran) -> list[str]:
    """Return the words of the suggested command; none if the run suggests no command."""
    return shlex.split(ran.summary.partition("; next: ")[2])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            f"status {WHERE} --log-dir {{root}}/after --now 2026-11-22",
            f"verify {WHERE} --log-dir {{root}}/after --now 2026-11-22T00:00:00Z",
        ),
        (f"verify {WHERE} --log-dir {{root}}/after --layout kafka", None),
        (
            f"sweep {WHERE} --log-start-offset orders-0=1800 --topic orders --plan-out '{{tmp}}/a plan'",
            f"apply '{{tmp}}/a plan' {WHERE}",
        ),
        (
            f"sweep {WHERE} {SWEPT} --plan-out {{tmp}}/plan --max-fraction 0.9 --no-lease --threads 2",
            f"apply {{tmp}}/plan --max-fraction 0.9 {WHERE} --no-lease --threads 2",
        ),
        (
            f"sweep {WHERE} {SWEPT} --plan-out {{tmp}}/plan --truncated-metadata accept --kafka-version 4.3",
            f"apply {{tmp}}/plan --kafka-version 4.3 {WHERE} --truncated-metadata accept",
        ),
        (
            f"delete {WHERE} --log-dir {{tmp}} --all-log-dirs --topic orders --mark --plan-out {{tmp}}/plan",
            f"apply {{tmp}}/plan --all-log-dirs {WHERE} --log-dir {{tmp}}",
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
    shutil.copytree(root / "before/clicks-0", tmp_path / "clicks-0")
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
def whole_tier(writable: Callable[[str], Path]) -> Spoilt:
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
def test_each_suggestion_runs(line: str, expected: list[str], whole_tier: Spoilt, tmp_path: Path) -> None:
    assert tierctl("cache", "build", "--metadata", whole_tier.metadata, "--out", tmp_path / "flat").code == 0
    repeat_an_entry(next((tmp_path / "flat").glob("orders-0-*")))
    (tmp_path / "high").mkdir()
    (tmp_path / "high" / "meta.properties").write_text("version=1\nnode.id=1\n")
    (tmp_path / "high" / "_rlmm_committed_offsets").write_bytes(
        checkpoints.write_committed_offsets({0: 99_999})
    )
    shutil.copytree(whole_tier.metadata, tmp_path / "deleted", ignore=shutil.ignore_patterns("shortlived-*"))
    where = f"--metadata {whole_tier.metadata} --remote {whole_tier.remote}"
    words = shlex.split(line.format(where=where, metadata=whole_tier.metadata, tmp=tmp_path))
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
    case: str, has_logs: bool, expected: list[str], whole_tier: Spoilt, tmp_path: Path
) -> None:
    """verify suggests a repair if its command has all that it needs; status suggests the same one."""
    CASES[case].spoil(whole_tier)
    (tmp_path / "topics").write_text("clicks.remote.storage.enable=true\nclicks.retention.ms=-1\n")
    logs = ("--log-dir", whole_tier.metadata, "--topic-configs", tmp_path / "topics") if has_logs else ()
    where = ("--metadata", whole_tier.metadata, "--remote", whole_tier.remote, *logs)
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
