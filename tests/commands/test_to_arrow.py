"""The Arrow tables of the Python API have the same rows as the commands' JSON output."""

import inspect
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pyarrow as pa
import pytest
from tierctl import commands as c
from tierctl.cli.docs.write import kinds_of_rows
from tierctl.commands.config import SETTINGS
from tierctl.commands.pipeline import COMMITS
from tierctl.errors import UsageError
from tierctl.model import IndexType
from tierctl.model.choices import EngineName
from tierctl.report.columns import Columns, Kind
from tierctl.report.results import TableResult, arrow_table

from tests.cli.shell import tierctl

Capture = Callable[..., Path]
NOW_MS = 1_800_000_000_000


class Where:
    """A captured cluster, and a folder of flat files with a damaged one."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.metadata, self.remote = str(root / "before"), str(root / "before-remote")
        self.logs, self.later_logs = [root / "before"], [root / "after"]
        self.flat = folder / "flat"
        self.folder = folder

    @property
    def topic(self) -> dict[str, Any]:
        return {"metadata": self.metadata, "now_ms": NOW_MS}

    @property
    def tier(self) -> dict[str, Any]:
        return {**self.topic, "remote": self.remote}


CASES: dict[str, tuple[Callable[[Where], TableResult], str]] = {
    "segments": (lambda w: c.segments(c.SegmentsRequest(**w.topic)), "segments {topic}"),
    "findings": (
        lambda w: c.verify(c.VerifyRequest(**w.tier, log_dir=w.later_logs)),
        "verify {topic} --remote {remote} --log-dir {later_logs}",
    ),
    "explanations": (
        lambda w: c.explain(
            c.ExplainRequest(
                **w.topic, log_dir=w.logs, topic=["orders"], partition=[0], topic_configs=w.folder / "configs"
            )
        ),
        "explain orders 0 {topic} --log-dir {metadata} --topic-configs {folder}/configs",
    ),
    "records": (
        lambda w: c.fetch(c.FetchRequest(metadata=w.metadata, remote=w.remote, limit=5)),
        "fetch --metadata {metadata} --remote {remote} --limit 5",
    ),
    "cache-entries": (lambda w: c.show_cache(c.ShowCacheRequest(files=[w.flat])), "cache show {flat}"),
    "unsafe-offsets": (
        lambda w: c.check_offsets(c.OffsetsRequest(file=w.folder / "high", metadata=w.metadata)),
        "offsets check {folder}/high --metadata {metadata}",
    ),
    "events": (
        lambda w: c.format_records(c.FormatRequest(metadata=w.metadata, style="json")),
        "format --metadata {metadata}",
    ),
    "steps": (
        lambda w: c.sweep(c.SweepRequest(**w.tier, topic_configs=w.folder / "configs")),
        "sweep {topic} --remote {remote} --topic-configs {folder}/configs",
    ),
}


@pytest.fixture(scope="module")
def where(capture: Capture, module_folder: Path) -> Where:
    folder, root = module_folder, capture("tiered-cluster")
    tierctl("cache", "build", "--metadata", root / "after", "--out", folder / "flat").ok()
    torn = next((folder / "flat").glob("orders-0-*.rlmcache"))
    torn.write_bytes(torn.read_bytes()[:-3])
    (folder / "configs").write_text("orders.retention.ms=604800000\norders.retention.bytes=4000000\n")
    (folder / "wrong").write_text("orders.retention.byts=1\n")
    (folder / "high").write_text("0\n1\n0 9999\n")
    return Where(root, folder)


def printed(columns: Columns, row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of a table as JSON prints it; a missing key is null."""
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
    named = {name: getattr(where, name) for name in ("metadata", "remote", "flat", "folder")}
    words = line.format(
        **named, later_logs=where.later_logs[0], topic=f"--metadata {where.metadata} --now {NOW_MS}"
    ).split()
    expected = [json.loads(each) for each in tierctl(*words, "--output", "jsonl").lines]
    table = use_case(where).to_arrow()
    columns = next(each for each in kinds_of_rows() if each.name == name)
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
    """Rows of the command line's options are left out, because a request has none."""
    shown = c.show_config(c.ConfigRequest(topic_configs=where.folder / "configs"), [])
    table = shown.to_arrow()
    assert table.column_names == [column.name for column in SETTINGS.all]
    assert [row["setting"] for row in table.to_pylist()] == [each.setting for each in shown]


def test_a_commit_of_the_pipeline() -> None:
    commit = c.PipelineCommit(commit=3, metadata_partitions=2, offsets=7, events=5, warehouse="/tables")
    (row,) = commit.to_arrow().to_pylist()
    assert row == {name: getattr(commit, name) for name in COMMITS.by_name}


@pytest.mark.matrix
@pytest.mark.usefixtures("spark")
def test_records_that_executors_render(where: Where) -> None:
    request = c.FetchRequest(metadata=where.metadata, remote=where.remote, topic=["payments"], limit=9)
    spark = replace(request, engine=EngineName.SPARK, master="local[2]")
    here, there = c.fetch(request), c.fetch(spark)
    assert isinstance(here, TableResult)
    assert isinstance(there, TableResult)
    assert here.to_arrow().equals(there.to_arrow())


def test_text_that_is_no_json_is_refused(where: Where) -> None:
    result = c.format_records(c.FormatRequest(metadata=where.metadata, style="kafka"))
    with pytest.raises(UsageError, match="lines of the form kafka are no table"):
        result.to_arrow()


NO_ROWS = {
    "ObjectBytes": "bytes as they are stored",
    "FollowerState": "files of a follower",
    "RepeatedDeletes": "results that are tables",
    "SubmitLine": "a command line",
    "NamesResult": "why names were not checked",
}
"""The results of public functions without `to_arrow`, and what each contains instead of rows."""


def results() -> set[type]:
    """Return the classes that the public functions of `tierctl.commands` return."""
    found: set[type] = set()
    for function in filter(inspect.isfunction, (getattr(c, name) for name in c.__all__)):
        result = get_type_hints(function)["return"]
        each = get_args(result) if isinstance(result, UnionType) else (result,)
        found.update(get_origin(kind) or kind for kind in each)
    return found


def test_every_public_result_is_a_table() -> None:
    without = {each.__name__ for each in results() if not issubclass(each, TableResult)}
    assert without == NO_ROWS.keys()


@pytest.mark.parametrize("columns", kinds_of_rows(), ids=lambda columns: columns.name)
def test_a_table_without_rows_has_the_types_of_one_with_rows(columns: Columns) -> None:
    values: dict[str, Any] = {"string": "x", "integer": 1 << 40, "number": 0.5, "boolean": True}
    row = {
        each.name: [(1, 2)] if each.kind is Kind.PAIRS else values.get(each.kind.json_type, [{}])
        for each in columns.all
    }
    full, empty = arrow_table([row], columns), arrow_table([], columns)
    assert full.schema.equals(empty.schema, check_metadata=True)
    assert not [field.name for field in full.schema if pa.types.is_null(field.type)]
