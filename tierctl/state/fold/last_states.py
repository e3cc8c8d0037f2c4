"""The last state of every segment that was ever spoken of, deleted ones too, which no cache keeps."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    is_valid_transition,
)
from tierctl.state.fold.columns import record_events
from tierctl.state.fold.event_columns import UPDATE, EventColumns, event_columns
from tierctl.state.segments.arrays import Rows
from tierctl.state.segments.columns import SegmentColumns

_S = RemoteLogSegmentState


class SegmentHistory:
    """Segments of many user partitions as their events left them; about 65 bytes each.

    An event that Kafka's cache would drop changes nothing. A segment added again after its deletion is
    the new one from then on.
    """

    def __init__(self) -> None:
        self._partitions: dict[tuple[str, int], SegmentColumns] = {}

    def add(self, table: pa.Table) -> None:
        """Take in decoded records in the order of their metadata partition; those that failed are skipped."""
        events = event_columns(table)
        rows = np.flatnonzero(events.kinds <= UPDATE)
        rows = rows[np.argsort(events.owners[rows], kind="stable")]
        for own in np.split(rows, np.flatnonzero(np.diff(events.owners[rows])) + 1):
            if len(own):
                self._add_partition(events, own)

    def _add_partition(self, events: EventColumns, rows: Rows) -> None:
        columns = self._partitions.setdefault(events.partition(int(rows[0])).key, SegmentColumns())
        if not record_events(columns, events, rows):
            for event in events.events(rows):
                _record(columns, event)

    def segments(self, state: RemoteLogSegmentState | None = None) -> Iterator[RemoteLogSegmentMetadata]:
        """Segments in that state (None: in any), by partition and order of arrival."""
        for columns in self._partitions.values():
            rows = columns.live_rows() if state is None else columns.rows_in(state)
            for row in rows.tolist():
                yield columns.metadata(row)


def last_states(
    tables: Iterable[pa.Table], state: RemoteLogSegmentState | None = None
) -> Iterator[RemoteLogSegmentMetadata]:
    """Every segment that the decoded tables speak of, in its last state; of one state only when given."""
    history = SegmentHistory()
    for table in tables:
        history.add(table)
    return history.segments(state)


def _record(columns: SegmentColumns, event: object) -> None:
    if isinstance(event, RemoteLogSegmentMetadata) and event.state is _S.COPY_SEGMENT_STARTED:
        row = columns.ids.find(event.segment_id.bytes)
        if row < 0:
            columns.append(event)
        elif columns.state(row) in {_S.COPY_SEGMENT_STARTED, _S.DELETE_SEGMENT_FINISHED}:
            columns.replace(row, event)
    elif isinstance(event, RemoteLogSegmentMetadataUpdate) and event.state is not _S.COPY_SEGMENT_STARTED:
        row = columns.ids.find(event.segment_id.bytes)
        state = None if row < 0 else columns.state(row)
        if state not in {None, _S.DELETE_SEGMENT_FINISHED} and is_valid_transition(state, event.state):
            columns.update(row, event)
