"""Compiled kernels in tests: a fixture with both forms, and one process that compiles them for all others.

`python -m tests.support.kernels` compiles what is not compiled yet.
"""

import shutil
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from tierctl import kernel
from tierctl.kernel import use_compiled, use_interpreted

from tests.cli.shell import tierctl
from tests.support.captures import unpack
from tests.support.made_once import make_once

_MADE = Path(__file__).parents[2] / ".cache" / "kernels"
"""Has a folder for each version of the kernels that is compiled."""


@pytest.fixture(params=["interpreted", "compiled"], scope="module")
def both_forms(request: pytest.FixtureRequest) -> Iterator[str]:
    """Use one form of all kernels for the tests of a module, and interpreted kernels afterwards."""
    if request.param == "compiled":
        pytest.importorskip("numba")
        use_compiled()
    try:
        yield request.param
    finally:
        use_interpreted()


def compile_kernels() -> None:
    """Compile the kernels, unless that was done; another process that does it is waited for."""
    folder = kernel._cache_folder()
    if folder is not None and find_spec("numba") is not None:
        make_once(_MADE / folder.name, _compile)


def _compile(_made: Path) -> None:
    """Run commands that call nearly every kernel, so that Numba keeps its compiled form."""
    use_compiled()
    with tempfile.TemporaryDirectory() as name:
        folder = unpack("tiered-cluster", Path(name), "4.3.0")
        tier = ("--metadata", folder / "before", "--remote", folder / "before-remote")
        tierctl("segments", "--sizes", *tier[:2])
        tierctl("format", *tier[:2])
        tierctl("fetch", "--topic", "orders", "--partition", 0, *tier)
        tierctl("verify", "--deep", *tier)


def keep_for_workers() -> None:
    """Copy the compiled kernels to where Python workers of Spark, which have an archive, look for theirs."""
    found, user = kernel._cache_folder(), kernel._user_cache()
    if found is not None and user is not None:
        # It has the mode of the folder that is copied: a cache that others may write is not used.
        make_once(user / found.name, lambda copy: shutil.copytree(found, copy, dirs_exist_ok=True))


if __name__ == "__main__":
    compile_kernels()
