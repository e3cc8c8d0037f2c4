"""The Python API: use cases are functions, results are streams, and the example of tierctl-python(7) runs."""

import re
import subprocess
import sys
from collections.abc import Callable, Generator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tierctl import commands
from tierctl.cli.docs.man import SOURCES
from tierctl.commands import CopyRequest, copy
from tierctl.commands.apply import ApplyRequest
from tierctl.commands.change import Change
from tierctl.commands.copy.command import Copy
from tierctl.commands.delete import Delete
from tierctl.commands.submit import DeployMode
from tierctl.commands.sweep import Sweep
from tierctl.errors import ExitCode, UsageError
from tierctl.model import TopicPartition
from tierctl.model.choices import IsolationLevel
from tierctl.report.results import Stream

from tests.cli.shell import environment
from tests.support.topic_settings import enabled

MANUAL = SOURCES / "python.md"


def printed(code: str) -> str:
    """Return what a new interpreter prints."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, env=environment(), stdout=subprocess.PIPE, text=True).stdout


def test_pyarrow_does_not_import_pandas_and_can_still_convert_to_it() -> None:
    code = (
        "import sys, pyarrow as pa; from tierctl.commands import segments; array = pa.array([1, 2]);"
        "print('pandas' in sys.modules, list(array.to_pandas()), 'pandas' in sys.modules)"
    )
    assert printed(code) == "False [1, 2] True\n"


def test_every_use_case_is_imported_when_it_is_used_and_is_a_function() -> None:
    """It is one, too, after its module was imported under the same name; and none converts to Arrow."""
    # A union of result classes has no name.
    code = (
        "import sys, tierctl.commands as c;"
        "print(sorted(m for m in sys.modules if m.startswith('tierctl.c')));"
        "import tierctl.wire.arrays as arrays;"
        "arrays.start_without_pandas = lambda: None;"
        "import tierctl.commands.sweep; from tierctl.commands import SweepRequest, sweep;"
        "import tierctl.commands.apply;"
        "print(sweep.__name__, c.apply.__name__, SweepRequest(metadata='x').metadata);"
        "print([getattr(getattr(c, n), '__name__', n) for n in c.__all__] == c.__all__);"
        "print('pandas' in sys.modules)"
    )
    assert printed(code).splitlines() == ["['tierctl.commands']", "sweep apply x", "True", "False"]


def test_the_example_of_the_manual_runs(
    capture_copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The example sweeps the folders `metadata` and `tier` that the README's `copy` has filled."""
    (example,) = re.findall(r"```python\n(from pathlib.*?)```", MANUAL.read_text(), re.DOTALL)
    assert "from tierctl.commands import SweepRequest, sweep\n" in example
    monkeypatch.chdir(capture_copy)
    (capture_copy / "topics.properties").write_text("bills.retention.bytes=2000000\n")
    logs, (_, settings) = Path("broker"), enabled(Path("broker"))
    copied = copy(
        CopyRequest(metadata="metadata", remote="tier", log_dir=[logs], topic_configs=settings, apply=True)
    )
    assert copied.exit_code == 0
    exec(compile(example, str(MANUAL), "exec"), {})
    deleted = [
        line for line in capsys.readouterr().out.splitlines() if line.endswith("retention.bytes 2000000")
    ]
    assert deleted[0].split(":")[1].startswith("bills-0 0 599 ")
    assert len(deleted) > 5


@pytest.fixture
def capture_copy(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a folder with a copy of the captured log directory `broker`."""
    source: Path = request.getfixturevalue("capture")("untiered-broker")
    (tmp_path / "broker").symlink_to(source / "local")
    return tmp_path


Where = dict[str, str]


@pytest.fixture
def where(capture: Callable[[str], Path]) -> Where:
    root = capture("tiered-cluster")
    return {"metadata": str(root / "before"), "remote": str(root / "before-remote")}


def test_records_stream_and_a_caller_may_stop(where: Where) -> None:
    request = commands.FetchRequest(**where, topic=["orders"], partition=[0])
    result = commands.fetch(request)
    assert isinstance(result, commands.RecordRows)
    with result:
        first = next(iter(result))
    assert (first["topic"], first["partition"], first["offset"]) == ("orders", 0, 0)
    assert list(result) == []


def test_a_text_stands_for_what_the_command_line_makes_of_it() -> None:
    written: dict[str, Any] = {
        "metadata": Path("metadata"),
        "log_dir": ["broker"],
        "partition": ["0", "orders-1"],
        "isolation": "read_committed",
        "throttle_fetch": "2K",
        "limit": np.int64(3),
    }
    request = commands.FetchRequest(**written)
    assert request.metadata == "metadata"
    assert request.log_dir == (Path("broker"),)
    assert request.partition == (0, TopicPartition("orders", 1))
    assert request.isolation is IsolationLevel.READ_COMMITTED
    assert (request.throttle_fetch, request.limit, type(request.limit)) == (2048, 3, int)
    chosen: dict[str, Any] = {"deploy_mode": "cluster"}
    assert commands.SubmitRequest(**chosen).deploy_mode is DeployMode.CLUSTER


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("apply", "no", "bool"),
        ("apply", 1, "bool"),
        ("topic", "orders", "a sequence of str"),
        ("log_dir", Path("broker"), "a sequence of Path"),
        ("partition", 0, "a sequence of int or TopicPartition"),
        ("topic", [None], "a sequence of str"),
        ("remote", b"tier", "str or None"),
        ("engine", "sparkle", "local or spark"),
        ("threads", 0, "int from 1 to 256"),
        ("threads", True, "int from 1 to 256"),
        ("max_fraction", float("nan"), "float or None from 0 to 1"),
    ],
)
def test_a_value_of_another_type_is_refused(field: str, value: Any, expected: str) -> None:
    """A text for `partition` would select all partitions, and `apply="no"` would carry the plan out."""
    with pytest.raises(UsageError, match=f"SweepRequest: {field} can't be ") as refused:
        commands.SweepRequest(**{field: value})
    assert refused.value.hint == f"expected {expected}"


def test_a_stream_has_its_exit_code_at_the_end_and_closes_early() -> None:
    closed: list[str] = []

    def items() -> Generator[int, None, ExitCode]:
        try:
            yield 1
            yield 2
        finally:
            closed.append("closed")
        return ExitCode.PARTIAL

    stream = Stream(items())
    assert (list(stream), stream.exit_code, closed) == ([1, 2], ExitCode.PARTIAL, ["closed"])
    with Stream(items()) as stopped:
        assert next(iter(stopped)) == 1
    assert (stopped.exit_code, closed) == (ExitCode.OK, ["closed"] * 2)


CHANGES = (Copy, Sweep, Delete)
OF_APPLY = {field.name for field in fields(ApplyRequest)}
WITHOUT_EFFECT = {"interval": "a plan is carried out once"}
BOTH = {
    "topic": "--assume-enabled goes with the topics that were named; apply narrows them",
    "metadata_partitions": "apply uses the number that the plan was decided with",
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.command)
def test_apply_decides_with_every_field(change: type[Change[Any]]) -> None:
    own = {field.name for field in fields(change.request_type)} - OF_APPLY
    assert own == set(change.saved) - BOTH.keys() | (own & WITHOUT_EFFECT.keys())
