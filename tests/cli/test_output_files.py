"""Files named by options: a full disk ends the run with exit code 5, a wrong path with 2."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.commands import BuildCacheRequest, build_cache
from tierctl.errors import LockedError, OutputError, UsageError, output_error
from tierctl.files import FileSystem, exclusive
from tierctl.metadata.state_dir import LOCK

from tests.cli.shell import tierctl


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EIO, OutputError),
        (errno.EACCES, UsageError),
        (errno.ENOENT, UsageError),
    ],
)
def test_the_error_of_a_file(number: int, kind: type) -> None:
    error = output_error("--html x", OSError(number, "why"))
    assert (type(error), error.message) == (kind, "--html x: why")
    assert error.hint


@pytest.mark.parametrize("args", [("sweep", "--plan-out"), ("report", "--html")], ids=lambda args: args[1])
def test_a_full_disk_ends_with_5(
    args: tuple[str, str], capture: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = capture("tiered-cluster") / "before"
    write = FileSystem.write

    def fill(self: FileSystem, fd: int, data: bytes | memoryview, path: Path) -> None:
        if path.name.startswith("asked-for"):
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, fd, data, path)

    monkeypatch.setattr(FileSystem, "write", fill)
    remote = ("--remote", root.with_name("before-remote")) if args[0] == "sweep" else ()
    where = ("--metadata", root, "--log-dir", root, *remote)
    ran = tierctl(args[0], *where, args[1], tmp_path / "asked-for")
    assert ran.code == 5, ran.err
    assert f"{args[1]} {tmp_path / 'asked-for'}: No space left on device" in ran.err


def test_a_second_build_of_caches_says_that_another_runs(
    capture: Callable[[str], Path], tmp_path: Path
) -> None:
    metadata = str(capture("tiered-cluster") / "before")
    with exclusive(tmp_path, LOCK), pytest.raises(LockedError, match=str(tmp_path)):
        build_cache(BuildCacheRequest(metadata=metadata, out=tmp_path))
    assert {each.name for each in tmp_path.iterdir()} == {LOCK}
    assert build_cache(BuildCacheRequest(metadata=metadata, out=tmp_path)).rows
