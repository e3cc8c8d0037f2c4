"""The Python API: the names of use cases are functions, and the example of tierctl-python(7) runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tierctl.cli.docs.man import SOURCES
from tierctl.commands import CopyRequest, copy

from tests.cli.shell import environment
from tests.support.topic_settings import enabled

MANUAL = SOURCES / "python.md"

IMPORTS = [
    "import tierctl.commands.sweep; from tierctl.commands import SweepRequest, sweep",
    "from tierctl.commands.sweep import SweepRequest; from tierctl.commands import sweep",
    "import tierctl.commands.apply, tierctl.commands as c; SweepRequest, sweep = c.SweepRequest, c.sweep",
]


@pytest.mark.parametrize("imports", IMPORTS)
def test_a_use_case_is_a_function_whatever_was_imported_first(imports: str) -> None:
    code = f"{imports}; assert callable(sweep) and sweep.__name__ == 'sweep'; SweepRequest(metadata='x')"
    subprocess.run([sys.executable, "-c", code], check=True, env=environment())


def test_importing_the_package_imports_no_use_case() -> None:
    code = "import sys, tierctl.commands; print(sorted(m for m in sys.modules if m.startswith('tierctl.c')))"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, env=environment(), capture_output=True, text=True
    )
    assert done.stdout == "['tierctl.commands']\n"


def test_pyarrow_does_not_import_pandas_and_can_still_convert_to_it() -> None:
    code = (
        "import sys, pyarrow as pa; from tierctl.commands import segments; array = pa.array([1, 2]);"
        "print('pandas' in sys.modules, list(array.to_pandas()), 'pandas' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, env=environment(), capture_output=True, text=True
    )
    assert done.stdout == "False [1, 2] True\n"


def test_every_exported_name_is_there_and_converts_nothing_to_arrow() -> None:
    # A union of result classes has no name.
    code = (
        "import sys, tierctl.commands as c, tierctl.wire.arrays as arrays;"
        "arrays.start_without_pandas = lambda: None;"
        "print([getattr(getattr(c, n), '__name__', n) for n in c.__all__] == c.__all__);"
        "print('pandas' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, env=environment(), capture_output=True, text=True
    )
    assert done.stdout == "True\nFalse\n"


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
