"""Find one entry of a cache file: by the offset that it serves, or by its position.

As in the KIP's lazy approach, only the few segments that can serve the offset are kept in memory, each with
its position in the file.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tierctl.errors import CorruptInputError, UsageError
from tierctl.files import FileBytes
from tierctl.metadata.cache_files.reading import (
    PROBLEMS_MAX,
    CacheFile,
    Entry,
    FileRows,
    FlatEntries,
    RemoteIndexEntry,
    read_cache,
)
from tierctl.model import RemoteLogSegmentMetadataSnapshot
from tierctl.state.table_arrays import FINISHED
from tierctl.wire.arrays import Int64s, ranges
from tierctl.wire.files import flatfile, remote_index
from tierctl.wire.metadata.decode import (
    ADD,
    END,
    EPOCH_COUNT,
    EPOCHS_AT,
    KIND,
    SEGMENT_ID,
    SEGMENT_ID_LOW,
    SNAPSHOT,
    STATE,
    DecodedEvents,
    rows_of,
)
from tierctl.wire.primitives import read_uvarint


class _Candidate(NamedTuple):
    """A segment that has the offset: where its leader epoch starts in it, its position, and its state."""

    epoch_start: int
    position: int
    state: int


_Candidates = dict[tuple[int, int], _Candidate]
"""The candidates by segment id, in the order of their last entries."""


def found_rows(path: Path, *, epoch: int | None, offset: int | None, position: int | None) -> FileRows:
    """Return the row of the entry at byte `position`, or of the one that serves `offset` of leader `epoch`.

    There are no rows if the file has no such entry. Damaged entries that were read on the way have rows, too:
    one of them may be the entry. A `.remoteindex` file has no leader epochs.
    """
    name = {"file": str(path)}
    damage: list[Entry] = []
    try:
        if path.suffix == remote_index.SUFFIX:
            found = _index_entry(path, offset, position)
        else:
            cache = read_cache(path)
            if position is None and offset is not None:
                position = _serving(cache, epoch, offset, damage)
            if position == 0:
                return FileRows([name | cache.header()], False)
            found = None if position is None else _entry_at(cache, position)
    except CorruptInputError as error:
        return FileRows([name | {"position": error.at, "type": None, "error": error.message}], True)
    entries = [*(() if found is None else (found,)), *damage]
    rows = [name | {"position": each.position} | each.fields() for each in entries]
    return FileRows(rows, any(each.error is not None for each in entries))


def _index_entry(path: Path, offset: int | None, position: int | None) -> Entry | None:
    """Return the entry of a `.remoteindex` file with an offset or at a position; None if there is none."""
    base = remote_index.base_offset_of(path.name)
    with FileBytes(path) as file:
        if offset is not None:
            at = remote_index.find_entry(file, base, offset)
        else:
            at = remote_index.entry_at(file, base, position or 0)
    return None if at is None else Entry(position=at[0], record=RemoteIndexEntry(at[1]), error=None)


def _serving(cache: CacheFile, epoch: int | None, offset: int, damage: list[Entry]) -> int | None:
    """Return the position of the entry that serves an offset; put damaged entries into `damage`.

    Of the finished segments that have the offset in this leader epoch, it is the one in which the epoch
    starts last, as in RemoteLogMetadataCache. The state of a segment is that of its last entry.
    """
    if epoch is None:
        raise UsageError("--epoch is missing", hint=f"{cache.path} has segments of several leader epochs")
    candidates: _Candidates = {}
    try:
        for rows, positions in _segment_rows(cache, damage):
            _take(candidates, rows, positions, epoch, offset)
    except CorruptInputError as error:
        damage.append(Entry(position=error.at or 0, record=None, error=error, is_torn=True))
    finished = [each for each in candidates.values() if each.state == FINISHED]
    return max(reversed(finished), key=lambda each: each.epoch_start).position if finished else None


def _segment_rows(cache: CacheFile, damage: list[Entry]) -> Iterator[tuple[DecodedEvents, Int64s]]:
    """Yield the segments of a file, as rows with the positions of their entries."""
    if not isinstance(cache.entries, FlatEntries):
        damage += (entry for entry in cache.entries if entry.error is not None)
        read = [
            (each.position, each.record)
            for each in cache.entries
            if isinstance(each.record, RemoteLogSegmentMetadataSnapshot)
        ]
        if read:
            yield rows_of([segment for _, segment in read]), np.array([at for at, _ in read])
        return
    for chunk in cache.entries.chunks():
        room = PROBLEMS_MAX - len(damage)
        for row, error in islice(sorted(chunk.rows.errors.items()), room):
            damage.append(Entry(position=int(chunk.positions[row]), record=None, error=error))
        yield chunk.rows, chunk.positions


def _take(candidates: _Candidates, events: DecodedEvents, positions: Int64s, epoch: int, offset: int) -> None:
    """Update the candidates by segments, in the order of their rows."""
    rows = events.rows
    holders = _holders(events, epoch, offset)
    known = [low for _, low in candidates] + rows[list(holders), SEGMENT_ID_LOW].tolist()
    for row in np.flatnonzero(np.isin(rows[:, SEGMENT_ID_LOW], known)).tolist():
        if int(rows[row, KIND]) in {ADD, SNAPSHOT}:
            key = int(rows[row, SEGMENT_ID]), int(rows[row, SEGMENT_ID_LOW])
            candidates.pop(key, None)
            if row in holders:
                candidates[key] = _Candidate(holders[row], int(positions[row]), int(rows[row, STATE]))


def _holders(events: DecodedEvents, epoch: int, offset: int) -> dict[int, int]:
    """Return the rows of segments that have an offset in a leader epoch, each with the start of the epoch."""
    rows, epochs = events.rows, events.epochs
    adds = np.flatnonzero(np.isin(rows[:, KIND], (ADD, SNAPSHOT)))
    counts = rows[adds, EPOCH_COUNT]
    pairs, owners = ranges(rows[adds, EPOCHS_AT], counts), np.repeat(adds, counts)
    is_last = np.append(owners[1:] != owners[:-1], True)[: len(owners)]
    starts = epochs[pairs, 1]
    ends = np.where(is_last, rows[owners, END], np.append(starts[1:], 0)[: len(starts)] - 1)
    hits = (epochs[pairs, 0] == epoch) & (starts <= offset) & (offset <= ends)
    return dict(zip(owners[hits].tolist(), starts[hits].tolist(), strict=True))


_LENGTH_BYTES_MAX = 5


def _entry_at(cache: CacheFile, position: int) -> Entry | None:
    """Return the entry whose `position` it is, read from there; None if no entry is there."""
    if not isinstance(cache.entries, FlatEntries):
        return next((each for each in cache.entries if each.position == position), None)
    with FileBytes(cache.path) as file:
        # The length before the type has one to five bytes.
        for start in range(position - 1, max(cache.entries.start, position - _LENGTH_BYTES_MAX) - 1, -1):
            entry = _entry_from(file, start, position)
            if entry is not None:
                return entry
    return None


def _entry_from(file: FileBytes, start: int, position: int) -> Entry | None:
    """Return the entry with its length at byte `start` and its type at `position`; None if there is none."""
    try:
        length, body = read_uvarint(file.read(start, position - start), 0)
        if start + body != position or not 0 < length <= file.size_bytes - position:
            return None
        found = flatfile.read_entry(file.read(start, body + length), 0)
    except CorruptInputError:
        return None
    return None if found.record is None else Entry(position=position, record=found.record, error=None)
