"""The Python API: names of use cases are functions, whichever module is imported first."""

import subprocess
import sys

import pytest

from tests.cli.shell import environment

IMPORTS = [
    "from tierctl.commands import SweepRequest, sweep",
    "from tierctl.commands import sweep, SweepRequest",
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


def test_every_exported_name_is_there() -> None:
    code = "import tierctl.commands as c; print([getattr(c, n).__name__ for n in c.__all__] == c.__all__)"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, env=environment(), capture_output=True, text=True
    )
    assert done.stdout == "True\n"
