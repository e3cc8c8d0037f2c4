"""Fetch whole remote segments to local files, for work that needs all bytes of a segment.

A spooled segment takes at most its size, and at most INDEX_BYTES_MAX per index, on the local disk; its files
are deleted when its `with` block ends.
"""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tierctl.errors import LockedError, RemoteResourceNotFound, RemoteStorageError, SpoolError
from tierctl.files import exclusive
from tierctl.model import IndexType, RemoteLogSegmentMetadata
from tierctl.storage.base import SegmentReader

CHUNK_BYTES = 1 << 20
INDEX_BYTES_MAX = 1 << 28
_PREFIX = "tierctl-spool-"
_LOCK = "lock"
_ATTEMPTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFiles:
    """The local files of a segment; `indexes` lacks the indexes that the segment does not have.

    A spooled log that is longer than its metadata say is truncated one byte after that size.
    """

    log: Path
    indexes: Mapping[IndexType, Path]

    def index_bytes(self) -> dict[IndexType, bytes | None]:
        """Return the content of every index; None for an index that the segment does not have."""
        return {kind: self.indexes[kind].read_bytes() if kind in self.indexes else None for kind in IndexType}


@contextmanager
def spool_folder(parent: Path | None = None) -> Iterator[Path]:
    """Create a folder for spooled segments, and delete it at the end; delete folders of killed runs, too.

    `parent` defaults to the folder for temporary files (TMPDIR).
    """
    base = Path(tempfile.gettempdir()) if parent is None else parent
    for left in base.glob(f"{_PREFIX}*"):
        _remove_abandoned(left)
    with ExitStack() as held:
        yield _locked_folder(base, held)


def _locked_folder(base: Path, held: ExitStack) -> Path:
    """Return a new folder that is locked until `held` closes.

    If another run deletes the folder as abandoned before it is locked, create another one.
    """
    for _ in range(_ATTEMPTS):
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        with ExitStack() as own, suppress(LockedError, FileNotFoundError):
            own.callback(shutil.rmtree, folder, ignore_errors=True)
            own.enter_context(exclusive(folder, _LOCK))
            if (folder / _LOCK).exists():
                held.push(own.pop_all())
                return folder
    raise LockedError(f"other runs deleted {_ATTEMPTS} new folders in {base}", hint="run again")


def _remove_abandoned(folder: Path) -> None:
    """Remove a spool folder that no process has locked; leave folders that this user may not read."""
    with suppress(OSError, LockedError):
        if not (folder / _LOCK).exists():
            return
        with exclusive(folder, _LOCK):
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def spooled(
    remote: SegmentReader, metadata: RemoteLogSegmentMetadata, folder: Path
) -> Iterator[SegmentFiles]:
    """Fetch a segment and its indexes into `folder`, and delete the files at the end.

    Raise RemoteResourceNotFound if the store has no log of the segment, RemoteStorageError if the store
    fails, and SpoolError if the local disk does.
    """
    own = folder / str(metadata.segment_id)
    try:
        own.mkdir()
        log = own / "log"
        with remote.fetch_log_segment(metadata, 0) as stream:
            _write(stream, log, metadata.segment_size_in_bytes + 1)
        indexes = {}
        for kind in IndexType:
            path = own / kind.value
            with suppress(RemoteResourceNotFound), remote.fetch_index(metadata, kind) as stream:
                if _write(stream, path, INDEX_BYTES_MAX + 1) > INDEX_BYTES_MAX:
                    raise RemoteStorageError(
                        f"the {kind.value} index of {metadata.segment_id} has over {INDEX_BYTES_MAX} bytes"
                    )
                indexes[kind] = path
        yield SegmentFiles(log=log, indexes=indexes)
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _write(stream: BinaryIO, path: Path, size_bytes_max: int) -> int:
    """Write at most `size_bytes_max` bytes of `stream` to `path`; return their number."""
    written = 0
    try:
        with path.open("wb") as file:
            while written < size_bytes_max and (
                chunk := stream.read(min(CHUNK_BYTES, size_bytes_max - written))
            ):
                file.write(chunk)
                written += len(chunk)
    except OSError as e:
        raise SpoolError(
            f"spooling to {path}: {e.strerror or e}", hint="set TMPDIR to a folder with more room"
        ) from e
    return written
