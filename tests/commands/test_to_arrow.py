"""The tables of Arrow that the Python API returns have the rows that the commands print as JSON."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tierctl import commands as c
from tierctl.report import tables
from tierctl.report.arrow import arrow_table
from tierctl.report.arrow.result import TableResult
from tierctl.report.columns import Columns, Kind
from tierctl.storage.base import IndexType

from tests.cli.shell import environment, tierctl

Capture = Callable[..., Path]
ROOT = Path(__file__).parents[2]
NOW_MS = 1_800_000_000_000


class Where:
    """A captured cluster, and a state directory with a damaged file."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.metadata, self.remote = str(root / "before"), str(root / "before-remote")
        self.logs, self.later_logs = [root / "before"], [root / "after"]
        self.state = folder / "state"
        self.folder = folder

    @property
    def topic(self) -> dict[str, Any]:
        return {"metadata": self.metadata, "now_ms": NOW_MS}

    @property
    def tier(self) -> dict[str, Any]:
        return {**self.topic, "remote": self.remote}


CASES: dict[str, tuple[Callable[[Where], TableResult], str]] = {
    "segments": (lambda w: c.segments(c.SegmentsRequest(**w.topic)), "segments {topic}"),
    "sizes": (lambda w: c.segments(c.SegmentsRequest(**w.topic, sizes=True)), "segments {topic} --sizes"),
    "offsets": (
        lambda w: c.segments(c.SegmentsRequest(**w.topic, log_dir=w.logs, offsets=True)),
        "segments {topic} --log-dir {metadata} --offsets",
    ),
    "segment-findings": (
        lambda w: c.segments(c.SegmentsRequest(**w.topic, log_dir=w.later_logs, check=True)),
        "segments {topic} --log-dir {later_logs} --check",
    ),
    "findings": (
        lambda w: c.verify(c.VerifyRequest(**w.tier, log_dir=w.later_logs)),
        "verify {topic} --remote {remote} --log-dir {later_logs}",
    ),
    "status": (lambda w: c.status(c.StatusRequest(**w.topic)), "status {topic}"),
    "explanations": (
        lambda w: c.explain(
            c.ExplainRequest(
                **w.topic, log_dir=w.logs, topic=["orders"], partition=[0], topic_configs=w.folder / "configs"
            )
        ),
        "explain orders 0 {topic} --log-dir {metadata} --topic-configs {folder}/configs",
    ),
    "records": (
        lambda w: c.fetch(c.FetchRequest(metadata=w.metadata, remote=w.remote, max_records=5)),
        "fetch --metadata {metadata} --remote {remote} --max-records 5",
    ),
    "cache-entries": (
        lambda w: c.show_cache(c.CacheRequest(state_dir=w.state)),
        "cache show --state-dir {state}",
    ),
    "cache-checks": (
        lambda w: c.verify_cache(c.CacheRequest(state_dir=w.state)),
        "cache verify --state-dir {state}",
    ),
    "cache-rewrites": (
        lambda w: c.compact_cache(c.CompactCacheRequest(state_dir=w.state)),
        "cache compact --state-dir {state}",
    ),
    "unsafe-offsets": (
        lambda w: c.check_offsets(c.OffsetsRequest(file=w.folder / "high", metadata=w.metadata)),
        "offsets check {folder}/high --metadata {metadata}",
    ),
    "offset-repairs": (
        lambda w: c.repair_offsets(c.RepairOffsetsRequest(file=w.folder / "high", metadata=w.metadata)),
        "offsets repair {folder}/high --metadata {metadata}",
    ),
    "checks": (
        lambda w: c.doctor(c.DoctorRequest(metadata=w.metadata, remote=w.remote)),
        "doctor --metadata {metadata} --remote {remote}",
    ),
    "setting-problems": (
        lambda w: c.check_config(c.ConfigRequest(topic_configs=w.folder / "wrong"), c.FilesToCheck()),
        "config check --topic-configs {folder}/wrong",
    ),
    "steps": (
        lambda w: c.sweep(c.SweepRequest(**w.tier, topic_configs=w.folder / "configs")),
        "sweep {topic} --remote {remote} --topic-configs {folder}/configs",
    ),
}


@pytest.fixture(scope="module")
def where(capture: Capture, tmp_path_factory: pytest.TempPathFactory) -> Where:
    folder, root = tmp_path_factory.mktemp("arrow"), capture("tiered-cluster")
    ran = tierctl("cache", "build", "--metadata", root / "after", "--state-dir", folder / "state")
    assert ran.code == 0, ran.err
    torn = next((folder / "state").glob("orders-0-*.rlmcache"))
    torn.write_bytes(torn.read_bytes()[:-3])
    (folder / "configs").write_text("orders.retention.ms=604800000\norders.retention.bytes=4000000\n")
    (folder / "wrong").write_text("orders.retention.byts=1\n")
    (folder / "high").write_text("0\n1\n0 9999\n")
    return Where(root, folder)


def printed(columns: Columns, row: dict[str, Any]) -> dict[str, Any]:
    """A row of a table as JSON prints it; a key that JSON leaves out is null."""
    return {name: _printed(columns.by_name[name].kind, value) for name, value in row.items()}


def _printed(kind: Kind, value: Any) -> Any:
    if value is None:
        return None
    if kind is Kind.PAIRS:
        return [[pair["leader_epoch"], pair["offset"]] for pair in value]
    return json.loads(value) if kind is Kind.LIST else value


@pytest.mark.parametrize("name", CASES)
def test_tables_have_the_rows_of_json(name: str, where: Where) -> None:
    use_case, line = CASES[name]
    named = {name: getattr(where, name) for name in ("metadata", "remote", "state", "folder")}
    words = line.format(
        **named, later_logs=where.later_logs[0], topic=f"--metadata {where.metadata} --now {NOW_MS}"
    ).split()
    expected = [json.loads(each) for each in tierctl(*words, "--output", "jsonl").lines]
    table = use_case(where).to_arrow()
    columns = next(each for each in tables.ALL if each.name == name)
    assert table.column_names == [column.name for column in columns.all]
    assert table.schema.field(0).metadata == {b"meaning": columns.all[0].meaning.encode()}
    found = [printed(columns, row) for row in table.to_pylist()]
    assert found
    assert found == [{column.name: row.get(column.name) for column in columns.all} for row in expected]


def test_entries_of_an_index(where: Where) -> None:
    request = c.FetchRequest(
        metadata=where.metadata,
        remote=where.remote,
        topic=["payments"],
        partition=[0],
        offset="700",
        index=IndexType.OFFSET,
        output="json",
    )
    result = c.fetch(request)
    assert isinstance(result, c.IndexEntries)
    table = result.to_arrow()
    assert table.column_names == ["offset", "position"]
    assert table.num_rows > 1


def test_settings_in_force(where: Where) -> None:
    """Without the options of the command line, which no request has."""
    shown = c.show_config(c.ConfigRequest(topic_configs=where.folder / "configs"), [])
    table = shown.to_arrow()
    assert table.column_names == [column.name for column in tables.SETTINGS.all]
    assert [row["setting"] for row in table.to_pylist()] == [each.setting for each in shown]


@pytest.mark.parametrize("columns", tables.ALL, ids=lambda columns: columns.name)
def test_a_table_without_rows_has_the_types_of_one_with_rows(columns: Columns) -> None:
    values: dict[str, Any] = {"string": "x", "integer": 1 << 40, "number": 0.5, "boolean": True}
    row = {
        each.name: [(1, 2)] if each.kind is Kind.PAIRS else values.get(each.kind.json_type, [{}])
        for each in columns.all
    }
    full, empty = arrow_table([row], columns), arrow_table([], columns)
    assert full.schema.equals(empty.schema, check_metadata=True)
    assert not [field.name for field in full.schema if pa.types.is_null(field.type)]


def test_the_notebook_runs(where: Where) -> None:
    arguments = ["-m", "tests.commands.notebook", where.metadata, where.remote, str(where.folder / "configs")]
    done = subprocess.run(
        [sys.executable, *arguments],
        check=False,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    polars, pandas, sql, sizes, *_ = done.stdout.splitlines()
    assert polars == sql == sizes
    assert dict(eval(polars)) == eval(pandas)
