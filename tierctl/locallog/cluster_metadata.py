"""What a node's copy of KRaft's cluster metadata (`__cluster_metadata-0`) says about one topic.

Brokers have a copy, too, in the metadata log directory, which is by default the first one. It may lack the
latest changes, but no older ones.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from tierctl.errors import CorruptInputError
from tierctl.locallog.files import list_segments, opened
from tierctl.locallog.formatted_node import CLUSTER_METADATA
from tierctl.wire.batches.record_batch import batches
from tierctl.wire.kraft.registration import TopicRegistration

_SNAPSHOT = re.compile(r"(\d{20})-\d{10}\.checkpoint\Z")


def read_registration(log_dir: Path, topic: str) -> TopicRegistration | None:
    """Return the state of `topic`; None if the directory has no cluster metadata.

    Raises CorruptInputError for damaged or missing records, and OSError.
    """
    folder = log_dir / CLUSTER_METADATA
    if not folder.is_dir():
        return None
    found = TopicRegistration(topic)
    snapshots = sorted(path for path in folder.iterdir() if _SNAPSHOT.match(path.name))
    logs = [segment.log for segment in list_segments(folder)]
    begin = 0 if not snapshots else int(snapshots[-1].name[:20])
    if logs and int(logs[0].stem) > begin:
        raise CorruptInputError(
            f"cluster metadata in {folder}",
            expected=f"a snapshot that reaches to offset {int(logs[0].stem)}",
            found=f"one to offset {begin}" if snapshots else "no snapshot",
        )
    count = 0
    for path, first in [*((path, 0) for path in snapshots[-1:]), *((path, begin) for path in logs)]:
        try:
            for value in _values(path, first):
                found.replay(value)
                count += 1
        except CorruptInputError as e:
            raise e.within(str(path)) from None
    # A controller-to-be has an empty folder: it says nothing about topics.
    return found if count else None


def _values(path: Path, first_offset: int) -> Iterator[bytes]:
    """Yield the values of the records in a file from `first_offset` on."""
    with opened(path) as data:
        for batch in batches(data):
            if batch.head.is_control:
                continue
            for record in batch.records():
                if record.offset >= first_offset and record.value is not None:
                    yield record.value
