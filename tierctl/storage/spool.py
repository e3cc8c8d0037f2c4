"""A remote segment fetched to local files, for work that needs all of it at once.

One segment takes at most its size, and INDEX_BYTES_MAX an index; it goes when its block ends.
"""

import mmap
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tierctl.errors import LockedError, RemoteResourceNotFound, RemoteStorageError
from tierctl.files import exclusive
from tierctl.model import IndexType, RemoteLogSegmentMetadata
from tierctl.storage.base import RemoteStorageManager
from tierctl.wire.batches.batch_heads import Buffer

CHUNK_BYTES = 1 << 20
INDEX_BYTES_MAX = 1 << 28
_PREFIX = "tierctl-spool-"
_LOCK = "lock"
_ATTEMPTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class SpooledSegment:
    """A segment's files; an index that the store doesn't have is not among `indexes`.

    The log is cut one byte after the size its metadata say: enough to see that there is more.
    """

    log: Path
    indexes: Mapping[IndexType, Path]

    def index_bytes(self) -> dict[IndexType, bytes | None]:
        """Every index whole, None for those that are not there."""
        return {kind: self.indexes[kind].read_bytes() if kind in self.indexes else None for kind in IndexType}

    @contextmanager
    def log_bytes(self) -> Iterator[Buffer]:
        """The log as a buffer that takes no memory of its own."""
        with self.log.open("rb") as stream:
            if not self.log.stat().st_size:
                yield b""
                return
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                yield mapped


@contextmanager
def spool_folder(parent: Path | None = None) -> Iterator[Path]:
    """A new folder for spooled segments, gone afterwards; what killed runs left beside it goes, too.

    `parent` defaults to the folder for temporary files (TMPDIR).
    """
    base = Path(tempfile.gettempdir()) if parent is None else parent
    for left in base.glob(f"{_PREFIX}*"):
        _remove_abandoned(left)
    with ExitStack() as held:
        yield _locked_folder(base, held)


def _locked_folder(base: Path, held: ExitStack) -> Path:
    """A new folder that is `held`; one that another run took for abandoned before that is given up."""
    for _ in range(_ATTEMPTS):
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        with ExitStack() as own, suppress(LockedError, FileNotFoundError):
            own.callback(shutil.rmtree, folder, ignore_errors=True)
            own.enter_context(exclusive(folder, _LOCK))
            if (folder / _LOCK).exists():
                held.push(own.pop_all())
                return folder
    raise LockedError(f"other runs took {_ATTEMPTS} new folders in {base}", hint="run again")


def _remove_abandoned(folder: Path) -> None:
    """Remove a spool whose owner is gone; one that is ours to look at, and locked, is in use."""
    with suppress(OSError, LockedError):
        if not (folder / _LOCK).exists():
            return
        with exclusive(folder, _LOCK):
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def spooled(
    remote: RemoteStorageManager, metadata: RemoteLogSegmentMetadata, folder: Path
) -> Iterator[SpooledSegment]:
    """Fetch a segment and its indexes into `folder`.

    Raises RemoteResourceNotFound when there is no log, RemoteStorageError when the store, or the local
    disk, fails.
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
        yield SpooledSegment(log=log, indexes=indexes)
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _write(stream: BinaryIO, path: Path, size_bytes_max: int) -> int:
    written = 0
    try:
        with path.open("wb") as file:
            while written < size_bytes_max and (
                chunk := stream.read(min(CHUNK_BYTES, size_bytes_max - written))
            ):
                file.write(chunk)
                written += len(chunk)
    except OSError as e:
        raise RemoteStorageError(
            f"spooling to {path}: {e.strerror or e}", hint="set TMPDIR to a folder with more room"
        ) from e
    return written
