"""What the README and tierctl-spark(7) show of Spark runs on captured data."""

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.shell import tierctl
from tests.docs.documents import COMMANDS, DOCUMENTS
from tests.docs.running import check, replaced

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

EXAMPLES = [each for document in DOCUMENTS for each in document.blocks("python") if "tierctl.spark" in each]


@pytest.fixture
def names(capture: Callable[[str], Path]) -> Mapping[str, object]:
    """Return the values that replace names in documents."""
    root = capture("tiered-cluster")
    found = {
        "/var/lib/kafka/data": "before",
        "kafka://broker1:9092": "before",
        "s3://archive/tier": "before-remote",
    }
    return {name: root / folder for name, folder in found.items()}


def test_command_lines_run(spark: "SparkSession", names: Mapping[str, object], tmp_path: Path) -> None:
    mine = {each.line: each for each in COMMANDS if each.runs_spark}
    assert mine
    for command in mine.values():
        program, *words = shlex.split(replaced(command.line, names))
        assert program == "tierctl"
        check(command, tierctl(*words, cwd=tmp_path), names)


def test_the_tables_of_the_python_api(
    spark: "SparkSession", names: Mapping[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run the example of tierctl-python(7) that passes a result to pandas, polars, DuckDB and Spark."""
    (page,) = (each for each in DOCUMENTS if each.name == "python.md")
    (example,) = (each for each in page.blocks("python") if "to_arrow" in each)
    (tmp_path / "metadata").symlink_to(str(names["/var/lib/kafka/data"]))
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {"spark": spark}
    exec(example, found)
    *_, last = example.strip().splitlines()
    assert eval(last, found).count() == found["listed"].num_rows > 0


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_of_the_data_sources_run(
    example: str, spark: "SparkSession", names: Mapping[str, object]
) -> None:
    found: dict[str, Any] = {"spark": spark}
    exec(replaced(example, names), found)
    tables = [value for value in found.values() if hasattr(value, "schema")]
    assert len(tables) == 2
    assert all(table.limit(5).count() == 5 for table in tables)
