"""States of remote segments and of partition deletes, and the transitions between them that Kafka allows."""

from enum import StrEnum


class _State(StrEnum):
    @property
    def id(self) -> int:
        """The byte of the state in records; members have Kafka's order."""
        return list(type(self)).index(self)


class RemoteLogSegmentState(_State):
    """States of a remote segment (org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState)."""

    COPY_SEGMENT_STARTED = "COPY_SEGMENT_STARTED"
    COPY_SEGMENT_FINISHED = "COPY_SEGMENT_FINISHED"
    DELETE_SEGMENT_STARTED = "DELETE_SEGMENT_STARTED"
    DELETE_SEGMENT_FINISHED = "DELETE_SEGMENT_FINISHED"


class RemotePartitionDeleteState(_State):
    """States of a partition's deletion (Kafka's RemotePartitionDeleteState, same package)."""

    DELETE_PARTITION_MARKED = "DELETE_PARTITION_MARKED"
    DELETE_PARTITION_STARTED = "DELETE_PARTITION_STARTED"
    DELETE_PARTITION_FINISHED = "DELETE_PARTITION_FINISHED"


STATE_NAMES = tuple(str(state) for state in (*RemoteLogSegmentState, *RemotePartitionDeleteState))
"""The names of all states of segments and of partition deletes."""

_S = RemoteLogSegmentState
_P = RemotePartitionDeleteState

# None is the state before the first event. A state may follow itself, since retries repeat events.
SEGMENT_TRANSITIONS: dict[RemoteLogSegmentState | None, frozenset[RemoteLogSegmentState]] = {
    None: frozenset({_S.COPY_SEGMENT_STARTED}),
    _S.COPY_SEGMENT_STARTED: frozenset(
        {_S.COPY_SEGMENT_STARTED, _S.COPY_SEGMENT_FINISHED, _S.DELETE_SEGMENT_STARTED}
    ),
    _S.COPY_SEGMENT_FINISHED: frozenset({_S.COPY_SEGMENT_FINISHED, _S.DELETE_SEGMENT_STARTED}),
    _S.DELETE_SEGMENT_STARTED: frozenset({_S.DELETE_SEGMENT_STARTED, _S.DELETE_SEGMENT_FINISHED}),
    _S.DELETE_SEGMENT_FINISHED: frozenset({_S.DELETE_SEGMENT_FINISHED}),
}

PARTITION_TRANSITIONS: dict[RemotePartitionDeleteState | None, frozenset[RemotePartitionDeleteState]] = {
    None: frozenset({_P.DELETE_PARTITION_MARKED}),
    _P.DELETE_PARTITION_MARKED: frozenset({_P.DELETE_PARTITION_MARKED, _P.DELETE_PARTITION_STARTED}),
    _P.DELETE_PARTITION_STARTED: frozenset({_P.DELETE_PARTITION_STARTED, _P.DELETE_PARTITION_FINISHED}),
    _P.DELETE_PARTITION_FINISHED: frozenset({_P.DELETE_PARTITION_FINISHED}),
}


def is_valid_transition(source: RemoteLogSegmentState | None, target: RemoteLogSegmentState) -> bool:
    """Return whether a segment may go from `source` to `target` (RemoteLogSegmentState.isValidTransition)."""
    return target in SEGMENT_TRANSITIONS[source]


def is_valid_partition_transition(
    source: RemotePartitionDeleteState | None, target: RemotePartitionDeleteState
) -> bool:
    """Return whether a deletion may go from `source` to `target` (RemotePartitionDeleteState)."""
    return target in PARTITION_TRANSITIONS[source]
