"""Read the objects of a segment whole, before it is published or another set is given up for it."""

from collections.abc import Collection

from tierctl.apply.copy.source import check_and_hash
from tierctl.errors import (
    AuthenticationError,
    CorruptInputError,
    RemoteResourceNotFound,
    RemoteStorageError,
    RemoteTierMissing,
    UsageError,
)
from tierctl.model import IndexType, RemoteLogSegmentMetadata
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.storage import RemoteStorageManager
from tierctl.storage.spool import spool_folder, spooled


def why_unsound(remote: RemoteStorageManager, segment: RemoteLogSegmentMetadata) -> Reason | None:
    """Return why the segment's bytes are not sound, or can't be read; None if they are sound.

    Raise RemoteTierMissing.
    """
    return _why(remote, segment, tuple(IndexType))


def why_log_unsound(remote: RemoteStorageManager, segment: RemoteLogSegmentMetadata) -> Reason | None:
    """Return why the segment's log is not sound, or can't be read; None if it is: indexes follow from it.

    Raise RemoteTierMissing.
    """
    return _why(remote, segment, ())


def _why(
    remote: RemoteStorageManager, segment: RemoteLogSegmentMetadata, indexes: Collection[IndexType]
) -> Reason | None:
    try:
        with spool_folder() as spool, spooled(remote, segment, spool, indexes) as files:
            there = files.index_bytes() if indexes else {}
            _, problem = check_and_hash(segment, files.log, there)
    except (CorruptInputError, RemoteResourceNotFound) as e:
        return _damaged(e.message)
    except RemoteTierMissing:
        raise
    except (UsageError, AuthenticationError, RemoteStorageError) as e:
        return Reason(ReasonKind.NOT_UNDERSTOOD, detail=f"{e.message}; {e.hint or 'see tierctl verify'}")
    return None if problem is None else _damaged(problem.message)


def _damaged(problem: str) -> Reason:
    return Reason(ReasonKind.NOT_UNDERSTOOD, detail=f"its objects are damaged: {problem}")
