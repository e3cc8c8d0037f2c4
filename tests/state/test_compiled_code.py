"""The folder of compiled code: that of another version stays while processes of it may run."""

import os
import time
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
