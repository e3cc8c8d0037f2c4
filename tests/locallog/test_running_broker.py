"""A running broker changes its log directory while it is read."""

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tierctl.errors import NotFoundError
from tierctl.locallog import folders as files_module
from tierctl.locallog import log_end, read_log_dirs
from tierctl.locallog.folders import list_log_files

from tests.locallog.made import PARTITION, batch, write_log


def _three_segments(folder: Path) -> Path:
    return write_log(folder, [[batch(n, 2) for n in range(base, base + 20, 2)] for base in (0, 20, 40)])


def test_a_segment_deleted_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention deletes the first segment after the folder was listed, so the log is read again."""
    folder = _three_segments(tmp_path)
    read_log_end = log_end.read_log_end
    reads: list[int] = []

    def delete_first(segments: Any, *args: Any, **more: Any) -> Any:
        reads.append(len(segments))
        for path in folder.glob(f"{0:020d}.*"):
            path.rename(path.with_name(path.name + ".deleted"))
        return read_log_end(segments, *args, **more)

    monkeypatch.setattr(log_end, "read_log_end", delete_first)
    (log,) = read_log_dirs([tmp_path])
    assert ([s.base_offset for s in log.segments], log.log_start_offset) == ([20, 40], 20)
    assert reads == [3, 2]


def test_a_file_that_stays_missing(tmp_path: Path) -> None:
    folder = _three_segments(tmp_path)
    (folder / "partition.metadata").unlink()
    with pytest.raises(NotFoundError, match=r"partition\.metadata"):
        read_log_dirs([tmp_path])


def test_a_topic_deleted_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker renames the folder of a deleted topic: the partition is missing, without an error."""
    folder = _three_segments(tmp_path)
    write_log(tmp_path / "other", [[batch(0)]])

    def delete_topic(*_args: Any, **_more: Any) -> Any:
        if folder.exists():
            folder.rename(tmp_path / f"{PARTITION}.5bdc1fcf2ea94c4aa0b0b1a8-delete")
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "gone")

    monkeypatch.setattr(log_end, "read_log_end", delete_topic)
    assert read_log_dirs([tmp_path]) == []
    with pytest.raises(NotFoundError, match="gone"):
        read_log_dirs([tmp_path / "other"])


def test_two_segments_added_during_one_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """readdir may return only the later one; the segment before it would seem to reach up to that offset."""
    folder = _three_segments(tmp_path)
    listings = [[0, 40], [0, 20, 40], [0, 20, 40], *([[n] for n in range(100)])]
    shown: Iterator[list[int]] = iter(listings)
    monkeypatch.setattr(files_module, "_numbers", lambda *_args: iter(next(shown)))
    assert [s.base_offset for s in list_log_files(folder).segments] == [0, 20, 40]
    with pytest.raises(OSError, match="all the time"):
        list_log_files(folder)
