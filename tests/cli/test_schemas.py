"""The output of --output json matches the schema files, for every command with this option."""

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tierctl.cli.docs.messages import command_tree
from tierctl.cli.docs.write import kinds_of_rows, schemas
from tierctl.commands.delete import LeakedTopic
from tierctl.model import Uuid
from tierctl.report import render, to_json
from tierctl.report.render import View

from tests.cli.shell import tierctl
from tests.commands.restore.test_unused import node_with_new_topic
from tests.report.test_table import Terminal
from tests.support.formatted import formatted_node, saved_topics

SCHEMAS = Path(__file__).parents[2] / "tierctl" / "report" / "schema_files"
Line = tuple[str, str, str]
Capture = Callable[[str], Path]

TIER = "--metadata {root}/before --remote {root}/before-remote"
LOGS = "--metadata {root}/before --log-dir {root}/before --topic-configs {tmp}/configs"
SEGMENT = "--topic payments --partition 0 --offset 700"
INDEXES = ("offset", "timestamp", "leader-epoch", "producer-snapshot", "transaction")
READ: list[Line] = [
    ("segments", "segments --metadata {root}/before --all", "segments"),
    ("segments", f"segments {TIER} --sizes", "sizes"),
    ("segments", "segments --metadata {root}/before --sizes", "sizes"),
    ("segments", "segments --metadata {root}/before --sizes --by epoch", "epoch-sizes"),
    ("segments", "segments --metadata {root}/before --log-dir {root}/before --offsets", "offsets"),
    ("segments", "segments --metadata {root}/before --log-dir {root}/after --check", "findings"),
    ("verify", f"verify {TIER} --log-dir {{root}}/after", "findings"),
    ("status", "status --metadata {root}/before --log-dir {root}/before", "status"),
    ("status", "status --metadata {root}/before --log-dir {root}/after --show problems", "status-problems"),
    ("status", "status --metadata {root}/after --state-dir {tmp}/state --show runs", "last-runs"),
    ("report", "report --metadata {root}/before --log-dir {root}/before", "report-sizes"),
    ("report", "report --metadata {root}/after --log-dir {root}/after --show growth", "report-growth"),
    ("report", f"report --show expirations {LOGS} --now 2026-11-22", "report-expirations"),
    (
        "report",
        f"report --what-if orders.retention.ms=1d {TIER} --price-per-gb-month 1 --now 2026-11-25",
        "what-if",
    ),
    (
        "explain",
        "explain orders 0 --metadata {root}/before --log-dir {root}/before --topic-configs {tmp}/configs",
        "explanations",
    ),
    ("doctor", f"doctor {TIER} --log-dir {{root}}/before --state-dir {{tmp}}/state", "checks"),
    ("restore check", f"restore check {TIER}", "checks"),
    ("format", "format --metadata {root}/after", "events"),
    ("fetch", f"fetch {TIER} --limit 5", "records"),
    ("fetch", f"fetch {TIER} --erase-report 1", "key-occurrences"),
    ("cache show", "cache show {tmp}/flat", "cache-entries"),
    ("cache show", "cache show {tmp}/torn.rlmcache {tmp}/empty.rlmcache", "cache-entries"),
    ("cache verify", "cache verify {tmp}/flat {tmp}/torn.rlmcache", "cache-checks"),
    ("cache build", "cache build --metadata {root}/after --out {tmp}/other", "cache-files"),
    ("cache compact", "cache compact {tmp}/flat {tmp}/torn.rlmcache", "cache-rewrites"),
    ("offsets show", "offsets show {tmp}/high", "committed-offsets"),
    ("offsets check", "offsets check {tmp}/high --metadata {root}/before", "unsafe-offsets"),
    ("offsets repair", "offsets repair {tmp}/high --metadata {root}/before", "offset-repairs"),
    ("offsets repair", "offsets repair {tmp}/bad --force --metadata {root}/before", "offset-repairs"),
    ("config show", "config show --topic-configs {tmp}/configs", "settings"),
    ("pipeline run", "pipeline run --metadata {root}/before --warehouse {tmp}/warehouse", "commits"),
    *(("fetch", f"fetch {TIER} {SEGMENT} --index {index}", f"{index}-index") for index in INDEXES),
]
PLANS = {
    "sweep": "sweep --metadata {tmp}/before --remote {tmp}/before-remote --log-start-offset orders-0=1800",
    "delete": "delete --metadata {tmp}/after --remote {tmp}/after-remote --topic payments --mark "
    "--i-know-it-is-deleted C-_VDc3nSdCk0xVcuxBnAA",
    "copy": "copy --metadata {tmp}/metadata --remote {tmp}/tier --log-dir {untiered} --assume-enabled "
    "--topic 'ledger'",
    "rebuild": "rebuild --metadata {tmp}/rebuilt --remote {tmp}/before-remote",
    "restore log": "restore log --remote {tmp}/before-remote --topic orders --log-dir {tmp}/new "
    "--as-id AAAAAAAAAAAAAAAAAAAAAQ",
    "restore into": "restore into {tmp}/node --log-dir {tmp}/node --remote {tmp}/before-remote "
    "--topics-file {tmp}/topics.yaml --deletes-are-denied",
    "restore new-ids": "restore new-ids --metadata {tmp}/again --log-dir {tmp}/again "
    "--remote {tmp}/before-remote --topic orders --assume-enabled",
    "apply": "apply {tmp}/plan.json --metadata {tmp}/before --remote {tmp}/before-remote",
}


def check(value: Any, name: str) -> None:
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(value)


def widest(rows: list[Any], name: str, width: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the length of the longest line of a table on a terminal with `width` columns."""
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "dumb")
    columns = next(each for each in kinds_of_rows() if each.name == name)
    render(rows, "table", columns, View(), stream=(out := Terminal()))
    return max(map(len, out.getvalue().splitlines()))


@pytest.fixture(scope="module")
def state(capture: Capture, module_folder: Path) -> dict[str, Path]:
    """Return paths for command lines: a captured cluster, and folders with state and damaged files."""
    root, folder = capture("tiered-cluster"), module_folder
    build = ("cache", "build", "--metadata", root / "after", "--state-dir", folder / "state")
    assert tierctl(*build, "--out", folder / "flat").code == 0
    whole = next((folder / "flat").glob("orders-0-*.rlmcache")).read_bytes()
    (folder / "torn.rlmcache").write_bytes(whole[:-3])
    (folder / "empty.rlmcache").touch()
    (folder / "configs").write_text("orders.retention.ms=604800000\norders.retention.bytes=4000000\n")
    (folder / "high").write_text("0\n1\n0 9999\n")
    (folder / "bad").write_text("0\nx\n")
    return {"root": root, "tmp": folder}


@pytest.mark.parametrize(
    ("line", "schema"),
    [
        # Spark takes ten seconds; tests/commands/test_to_arrow.py has a row of a commit.
        pytest.param(*row, id=" ".join(row), marks=[pytest.mark.matrix] * (name == "pipeline run"))
        for name, *row in READ
    ],
)
def test_rows_are_as_their_schema_says_and_fit_a_terminal(
    line: str, schema: str, state: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    args = line.format(**state).split()
    ran = tierctl(*args, "--output", "json")
    rows = json.loads(ran.out)
    assert rows, ran.err
    for row in rows[:200]:
        check(row, schema)
    for width in (80, 200):
        assert widest(rows[:200], schema, width, monkeypatch) <= width


def test_plans_and_outcomes_are_as_their_schema_says_and_fit_a_terminal(
    capture: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("before", "before-remote", "after", "after-remote"):
        shutil.copytree(capture("tiered-cluster") / name, tmp_path / name)
    (tmp_path / "metadata").mkdir()
    (tmp_path / "tier").mkdir()
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=new\n")
    formatted_node(tmp_path / "node")
    (tmp_path / "topics.yaml").write_text(saved_topics(tmp_path / "before-remote"))
    for folder in (tmp_path / "before").glob("__*"):
        shutil.copytree(folder, tmp_path / "again" / folder.name)
    node_with_new_topic(tmp_path / "before-remote", tmp_path / "again", "orders")
    paths = {"tmp": tmp_path, "untiered": capture("untiered-broker") / "local"}
    plan_out = ["--plan-out", tmp_path / "plan.json"]
    for command, line in PLANS.items():
        args: list[Any] = line.replace("'", "").format(**paths).split()
        ran = tierctl(*args, *(plan_out if command == "sweep" else []), "--output", "json")
        assert json.loads(ran.out)["steps"], ran.err
        check(json.loads(ran.out), "plan")
        assert widest(json.loads(ran.out)["steps"], "steps", 80, monkeypatch) <= 80
        for row in tierctl(*args, "--output", "jsonl").lines:
            check(json.loads(row), "steps")
    check(json.loads((tmp_path / "plan.json").read_text()), "plan")
    for command in ("apply", "delete", "copy", "rebuild", "restore log"):
        args = PLANS[command].replace("'", "").format(**paths).split()
        applied = json.loads(tierctl(*args, "--apply", "--output", "json").out)
        check(applied, "plan")
        assert applied["outcomes"]
        for outcome in applied["outcomes"]:
            check(outcome, "outcomes")
        assert widest(applied["outcomes"], "outcomes", 80, monkeypatch) <= 80


def test_the_state_of_a_follower(tier: list[str]) -> None:
    words = ("--topic", "payments", "--partition", 0, "--auxiliary-state", 1000, "-o", "json")
    ran = tierctl("fetch", *tier, *words)
    check(json.loads(ran.out), "follower-state")


def test_leaked_topics() -> None:
    leaked = LeakedTopic(
        topic="orders",
        topic_id=Uuid("2QZ5FAXaQrqgUzsReWnweA"),
        partitions=1,
        segments=2,
        log_bytes=3,
        delete_state=None,
    )
    check(json.loads(to_json(asdict(leaked))), "leaked-topics")


def test_every_command_with_json_is_checked() -> None:
    having = {
        " ".join(node.path)
        for node in command_tree().walk()
        if not node.children and any("--output" in option.names for option in node.options)
    }
    # tests/live/test_backup_config.py checks the rows of this command, which needs a cluster.
    assert having == {command for command, _, _ in READ} | PLANS.keys() | {"backup-config"}


ELSEWHERE = {
    "plan": "test_plans_and_outcomes_are_as_their_schema_says_and_fit_a_terminal",
    "steps": "test_plans_and_outcomes_are_as_their_schema_says_and_fit_a_terminal",
    "outcomes": "test_plans_and_outcomes_are_as_their_schema_says_and_fit_a_terminal",
    "follower-state": "test_the_state_of_a_follower",
    "leaked-topics": "test_leaked_topics",
    "error": "tests/cli/test_messages.py",
    "message": "tests/cli/test_messages.py",
    "saved-topics": "tests/live/test_backup_config.py",
    "group-losses": "tests/live/test_what_if.py",
}
"""Schemas that the commands of READ do not cover, and the test that checks each."""


def test_every_schema_is_checked() -> None:
    files = {path.name.removesuffix(".schema.json") for path in SCHEMAS.iterdir()}
    assert files == {schema for _, _, schema in READ} | ELSEWHERE.keys()


def test_every_schema_is_valid_and_has_a_version() -> None:
    for schema in schemas().values():
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["$id"].endswith(f":{schema['format_version']}")


@pytest.mark.parametrize(
    "change", [{"partition": "0"}, {"partition": None}, {"more": 1}, {"state": 3}], ids=str
)
def test_a_schema_refuses_other_rows(change: dict[str, Any], state: dict[str, Path]) -> None:
    row = json.loads(tierctl("segments", "--metadata", state["root"] / "before", "-o", "jsonl").lines[0])
    with pytest.raises(jsonschema.ValidationError):
        check(row | change, "segments")
    del row["partition"]
    with pytest.raises(jsonschema.ValidationError):
        check(row, "segments")
