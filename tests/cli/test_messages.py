"""Stderr: the line that ends a run, --quiet, -v, and JSON for programs."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.cli.shell import Ran, environment, tierctl

Capture = Callable[[str], Path]
SCHEMAS = Path(__file__).parents[2] / "tierctl" / "report" / "schema_files"
ERROR, MESSAGE = (json.loads((SCHEMAS / f"{name}.schema.json").read_text()) for name in ("error", "message"))


TOPICS = ("clicks", "metrics", "orders", "payments", "shortlived")


@pytest.fixture
def tier(capture: Capture) -> list[str]:
    root = capture("tiered-cluster")
    return ["--metadata", str(root / "before"), "--remote", str(root / "before-remote")]


@pytest.mark.parametrize(
    ("line", "summary"),
    [
        (
            "segments --limit 1",
            r"segments: 36 segments of 5 topics, 32\.6 MiB; 1 of 36 rows printed \(--limit\) \(",
        ),
        (
            "verify",
            r"verify: 36 segments of 5 topics, 18[0-9] objects: no problems .*; next: .*--deep",
        ),
        (
            "sweep --log-start-offset orders-0=1800 --limit 2",
            r"sweep: a plan, .*: 3 steps .*; 2 of 3 rows printed \(--limit\); [0-9]+ partitions skipped",
        ),
        (
            "sweep --log-start-offset orders-0=1800 --plan-out {tmp}/plan.json",
            r"sweep: a plan, .*; next: tierctl apply {tmp}/plan.json",
        ),
        ("fetch --topic payments --limit 3", r"fetch: 3 records of 1 topic"),
        ("status", r"status: 5 topics, 32\.6 MiB; no problems in metadata \("),
        ("report", r"report: 5 topics: 32\.6 MiB tier; no segments .*; no problems in metadata, objects \("),
    ],
)
def test_a_run_ends_with_what_was_done(line: str, summary: str, tier: list[str], tmp_path: Path) -> None:
    command, *args = line.format(tmp=tmp_path).split()
    ran = tierctl(command, *tier, *args)
    assert re.match(summary.replace("{tmp}", str(tmp_path)), ran.summary), (ran.summary, ran.err)


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


def messages(ran: Ran) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ran.raw_err.splitlines()]


@pytest.mark.parametrize(
    ("args", "env", "code", "kind"),
    [
        (["segments", "--metadata", "nowhere", "-o", "json"], {}, 10, "NotFoundError"),
        (["segments", "--metadata", "nowhere", "-ojson"], {}, 10, "NotFoundError"),
        (["segments", "--metadata", "nowhere"], {"TIERCTL_OUTPUT": "json"}, 10, "NotFoundError"),
        (["segments", "--output=json"], {}, 2, "UsageError"),
        (["segmnets", "--output", "json"], {}, 2, "UsageError"),
    ],
)
def test_errors_are_json_where_the_output_is(
    args: list[str], env: dict[str, str], code: int, kind: str, tmp_path: Path
) -> None:
    ran = tierctl(*args, env=environment(**env), cwd=tmp_path)
    (message,) = messages(ran)
    jsonschema.validate(message, ERROR)
    assert (ran.code, message["error"]["code"], message["error"]["kind"]) == (code, code, kind)


def test_every_message_is_json_where_the_output_is(tier: list[str]) -> None:
    ran = tierctl("sweep", *tier, "-o", "json", "--log-start-offset", "orders-0=1800", "-v")
    *others, last = messages(ran)
    for message in (*others, last):
        jsonschema.validate(message, MESSAGE)
    assert {key for message in others for key in message} == {"detail", "message"}
    assert last["summary"]["command"] == "sweep"
    words = [
        "tierctl",
        "sweep",
        *tier,
        *["-o", "json", "--log-start-offset", "orders-0=1800", "-v", "--apply"],
    ]
    assert shlex.split(last["summary"]["next"]) == words


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
        ("sweep --apply", "change.run", "while the plan was carried out: the next run finishes or withdraws"),
        ("sweep --apply", "histories.Histories.examine", "nothing was changed"),
        ("sweep", "histories.Histories.examine", "nothing was changed"),
    ],
)
def test_an_interrupted_run_says_what_was_changed(
    words: str, patched: str, said: str, tier: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_args: object, **_more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"tierctl.commands.{patched}", interrupt)
    line = [*words.split(), *tier, "--log-start-offset", "orders-0=1800"]
    ran = tierctl(*line)
    assert (ran.code, ran.out) == (130, "")
    assert f"sweep: stopped by SIGINT; {said}" in ran.summary
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


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("sweep --threads x", "'--threads': expected a whole number, found 'x'"),
        ("sweep --max-fraction x", "'--max-fraction': expected a number, found 'x'"),
        ("sweep --max-fraction 3", "'--max-fraction': expected a value less than or equal to 1, found '3'"),
    ],
)
def test_a_wrong_number(line: str, expected: str) -> None:
    ran = tierctl(*line.split())
    assert (ran.code, ran.out) == (2, "")
    assert f"error: Invalid value for {expected}\n" in ran.err
