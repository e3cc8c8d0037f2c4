"""Decide which files of the `segments` table a commit keeps, and which rows belong to each new file.

The files of a metadata partition have ranges of the segments' max timestamps. Segments that are copied later
have later timestamps, and retention deletes the oldest, so that new events change few files. A file is kept
if the number of rows in its range and the sum of their checksums are those of the file.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tierctl.pipeline.warehouse.layout import TableFile
from tierctl.state.live_segments import LiveSegments
from tierctl.state.segments.columns import KIP405, STATE_MASK, TXN_INDEX_EMPTY

Int64s = npt.NDArray[np.int64]
Uint64s = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]

FILE_ROWS: Final = 1 << 17
"""The number of rows of a new file; a file with twice as many is split."""

CLOSED_ROWS: Final = 1 << 14
"""Rows with later timestamps go to another file once the last file has so many."""

MERGED_FILES: Final = 8
"""This number of consecutive small files become one file."""

_LOWEST: Final = -(1 << 63)
_HIGHEST: Final = (1 << 63) - 1
_FACTORS: Final = tuple(
    np.uint64(each)
    for each in (
        0x9E3779B97F4A7C15,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x27D4EB2F165667C5,
        0xD6E8FEB86659FD93,
        0xA0761D6478BD642F,
        0xE7037ED1A0B428DB,
    )
)


@dataclass(frozen=True, slots=True)
class FileRange:
    """The segments from `first_ms` up to the next range: in `file`, or to be written if that is None."""

    first_ms: int
    rows: int
    checksum: int
    file: TableFile | None = None


@dataclass(frozen=True, slots=True)
class FilePlan:
    """The ranges of all files in order, and the number of the range of each segment."""

    ranges: Sequence[FileRange]
    range_of: Int64s

    def kept(self) -> Iterator[TableFile]:
        """Yield the files that are not changed."""
        return (each.file for each in self.ranges if each.file is not None)

    def to_write(self) -> Iterator[tuple[FileRange, Int64s]]:
        """Yield each range that needs a new file, with the indexes of its segments."""
        for number, each in enumerate(self.ranges):
            if each.file is None:
                yield each, np.flatnonzero(self.range_of == number)


def plan_files(
    times_ms: Int64s, checksums: Uint64s, is_changed: Bools, files: Sequence[TableFile]
) -> FilePlan:
    """Return the files for segments with these max timestamps, where `files` are those of the last commit.

    `is_changed` tells of each segment whether it must be written although its checksum is the same.
    """
    in_order = sorted(files, key=lambda file: file.first_ms)
    bounds = [file.first_ms for file in in_order] or [_LOWEST]
    if in_order and in_order[-1].rows >= CLOSED_ROWS and (last_ms := _last_ms(in_order[-1])) < _HIGHEST:
        bounds.append(last_ms + 1)
    former: list[TableFile | None] = [*in_order, None][: len(bounds)]
    found = _ranges(times_ms, checksums, bounds)
    changed = np.bincount(_range_of(times_ms[is_changed], bounds), minlength=len(bounds)) > 0
    ranges = [
        FileRange(each.first_ms, each.rows, each.checksum, file if is_same else None)
        for each, file, is_new in zip(found, former, changed.tolist(), strict=True)
        if each.rows
        for is_same in [
            not is_new and file is not None and (file.rows, file.checksum) == (each.rows, each.checksum)
        ]
    ]
    merged = _merged(ranges)
    final = [bound for each in _with_ends(merged) for bound in _split(times_ms, *each)]
    kept = {each.first_ms: each.file for each in merged}
    counted = _ranges(times_ms, checksums, final)
    whole = [FileRange(each.first_ms, each.rows, each.checksum, kept.get(each.first_ms)) for each in counted]
    return FilePlan(whole, _range_of(times_ms, final))


def checksums_of(live: LiveSegments) -> Uint64s:
    """Return a checksum of the facts of each segment that an event can change, and of its id."""
    flags = live.column("flags") & np.uint8(STATE_MASK | TXN_INDEX_EMPTY | KIP405)
    words = np.ascontiguousarray(live.columns.ids.as_words()[live.rows])
    numbers = [words[:, 0], words[:, 1], flags]
    numbers += [live.column(name) for name in ("event_timestamps", "writers", "starts", "sizes")]
    mixed = np.zeros(len(live), np.uint64)
    for number, factor in zip(numbers, _FACTORS, strict=True):
        mixed ^= mixed >> np.uint64(29)
        mixed += (
            number.astype(np.int64).view(np.uint64) * factor if number.dtype != np.uint64 else number * factor
        )
    return (mixed ^ (mixed >> np.uint64(32))) * _FACTORS[0]


def _ranges(times_ms: Int64s, checksums: Uint64s, bounds: Sequence[int]) -> list[FileRange]:
    """Return the range that begins at each of the bounds; the first has all earlier times, too."""
    range_of = _range_of(times_ms, bounds)
    counts = np.bincount(range_of, minlength=len(bounds))
    order = np.argsort(range_of, kind="stable")
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(checksums[order])])
    ends = np.cumsum(counts)
    totals = (sums[ends] - sums[ends - counts]).view(np.int64)
    return [FileRange(*each) for each in zip(bounds, counts.tolist(), totals.tolist(), strict=True)]


def _range_of(times_ms: Int64s, bounds: Sequence[int]) -> npt.NDArray[np.int64]:
    found: Int64s = np.searchsorted(np.array(bounds[1:], np.int64), times_ms, side="right")
    # A stable sort of small integers takes a tenth of the time.
    return found.astype(np.uint16 if len(bounds) < 1 << 16 else np.int64)


def _merged(ranges: Sequence[FileRange]) -> list[FileRange]:
    """Combine MERGED_FILES small ranges that follow each other; the last range still grows."""
    merged: list[FileRange] = []
    small: list[FileRange] = []
    for at, each in enumerate(ranges):
        is_small = each.rows < FILE_ROWS // 2 and at < len(ranges) - 1
        small = [*small, each] if is_small else []
        merged.append(each)
        if len(small) == MERGED_FILES:
            merged[-MERGED_FILES:] = [FileRange(small[0].first_ms, sum(s.rows for s in small), 0)]
            small = []
    return merged


def _with_ends(ranges: Sequence[FileRange]) -> Iterator[tuple[FileRange, int, int]]:
    """Yield each range with the lowest and the highest time that belong to it."""
    for at, each in enumerate(ranges):
        low = each.first_ms if at else _LOWEST
        high = ranges[at + 1].first_ms - 1 if at + 1 < len(ranges) else _HIGHEST
        yield each, low, high


def _split(times_ms: Int64s, each: FileRange, low: int, high: int) -> list[int]:
    """Return where files begin in a range: several if it is to be written and has too many rows."""
    if each.file is not None or each.rows <= 2 * FILE_ROWS:
        return [each.first_ms]
    own = np.sort(times_ms[(times_ms >= low) & (times_ms <= high)])
    starts = own[np.arange(FILE_ROWS, len(own) - FILE_ROWS // 2, FILE_ROWS)]
    return sorted({each.first_ms, *starts[starts > own[0]].tolist()})


def _last_ms(file: TableFile) -> int:
    """Return the latest time in a file; _HIGHEST if its statistics do not have it."""
    return int(json.loads(file.stats)["maxValues"].get("max_timestamp_ms", _HIGHEST))
