"""Read the objects of a segment whole, before it is published or another set is given up for it."""

from tierctl.apply.copy.source import check_and_hash
from tierctl.errors import (
    AuthenticationError,
    CorruptInputError,
    RemoteResourceNotFound,
    RemoteStorageError,
    RemoteTierMissing,
    UsageError,
)
from tierctl.model import RemoteLogSegmentMetadata
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.storage import RemoteStorageManager
from tierctl.storage.spool import spool_folder, spooled


def why_unsound(
    remote: RemoteStorageManager, segment: RemoteLogSegmentMetadata, *, may_lack_indexes: bool = False
) -> Reason | None:
    """Return why the segment's bytes are not sound, or can't be read; None if they are sound.

    With `may_lack_indexes`, indexes that are missing count as sound: they follow from the log. Raise
    RemoteTierMissing.
    """
    try:
        with spool_folder() as spool, spooled(remote, segment, spool) as files:
            indexes = files.index_bytes()
            if may_lack_indexes:
                indexes = {kind: data for kind, data in indexes.items() if data is not None}
            _, problem = check_and_hash(segment, files.log, indexes)
    except (CorruptInputError, RemoteResourceNotFound) as e:
        return _damaged(e.message)
    except RemoteTierMissing:
        raise
    except (UsageError, AuthenticationError, RemoteStorageError) as e:
        return Reason(ReasonKind.NOT_UNDERSTOOD, detail=f"{e.message}; {e.hint or 'see tierctl verify'}")
    return None if problem is None else _damaged(problem.message)


def _damaged(problem: str) -> Reason:
    return Reason(ReasonKind.NOT_UNDERSTOOD, detail=f"its objects are damaged: {problem}")
