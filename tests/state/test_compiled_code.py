"""The folder of compiled code: that of another version stays, and a file that is cut is written again."""

import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tierctl import kernel


def test_the_code_of_a_version_in_use_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of an older tierctl compiles beside one of a newer one."""
    (tmp_path / "archive.zip").touch()
    monkeypatch.setattr(kernel, "_PACKAGE", tmp_path / "archive.zip" / "tierctl")
    monkeypatch.setattr(kernel, "_digest", lambda: "new")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    in_use, unused = (tmp_path / "tierctl" / f"kernels-{name}" for name in ("old", "oldest"))
    for folder in (in_use, unused):
        folder.mkdir(parents=True)
        (folder / "code.nbi").touch()
    long_ago_s = time.time() - kernel.KEPT_S - 60
    os.utime(unused, (long_ago_s, long_ago_s))
    assert kernel._cache_folder() == tmp_path / "tierctl" / "kernels-new"
    assert (in_use / "code.nbi").exists()
    assert not unused.exists()


def _after(number: int) -> int:
    return number + 1


def _compiled(folder: Path) -> Callable[[int], int]:
    compiled = pytest.importorskip("tierctl.compiled")
    made: Callable[[int], int] = compiled.dispatcher(_after, folder, makes_arrays=False)
    return made


@pytest.mark.parametrize("kept", [0, 7, -3])
@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
def test_code_that_lost_its_end_is_compiled_again(tmp_path: Path, suffix: str, kept: int) -> None:
    """Each run ended with EOFError until somebody removed the folder."""
    assert _compiled(tmp_path)(3) == 4
    (damaged,) = tmp_path.glob(f"*{suffix}")
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:kept])
    assert _compiled(tmp_path)(3) == 4
    assert sorted(each.suffix for each in tmp_path.iterdir()) == [".nbc", ".nbi"]
    assert damaged.stat().st_size > len(whole) * 0.9


@pytest.fixture
def small_files() -> Iterator[None]:
    """Have files of at most 1,000 bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.usefixtures("small_files")
def test_a_run_compiles_where_code_can_not_be_kept(tmp_path: Path) -> None:
    assert _compiled(tmp_path)(3) == 4
    assert not list(tmp_path.glob("*.nbc"))
