"""Segment files of a Kafka partition from a column of values: one record per batch, with both indexes."""

from pathlib import Path
from typing import BinaryIO, Self

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from tierctl.wire.batches.record_batch import Record, encode_batch

SEGMENT_BYTES = 1 << 30
"""Kafka's default of `segment.bytes`, which the metadata topic has."""
INDEX_INTERVAL_BYTES = 4096
FIRST_PRODUCER_ID = 1000

_CRC, _CHECKED = 17, 21
_HEAD = np.dtype(
    {
        "names": [
            "base_offset",
            "crc",
            "base_ms",
            "max_ms",
            "producer_id",
            "producer_epoch",
            "base_sequence",
        ],
        "formats": [">i8", ">u4", ">i8", ">i8", ">i8", ">i2", ">i4"],
        "offsets": [0, _CRC, 27, 35, 43, 51, 53],
        "itemsize": 61,
    }
)
"""The fields of a batch header in which batches with values of equal length differ (DefaultRecordBatch)."""

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


class SegmentFiles:
    """The segments of one partition: `append` writes values at the next offsets, rolling as a broker does."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.size_bytes = 0
        self._folder = folder
        self._next_offset = 0
        self._sequences: dict[int, int] = {}
        self._segment: _Segment | None = None

    def __enter__(self) -> Self:
        self._segment = _Segment(self._folder, 0)
        return self

    def __exit__(self, *_error: object) -> None:
        if self._segment is not None:
            self._segment.close()

    def append(self, values: pa.Array, timestamps_ms: Int64s, brokers: npt.NDArray[np.int32]) -> None:
        """Append each value as a batch; `brokers[i]` is the broker whose producer wrote it."""
        data, places = self._batches(values, timestamps_ms, brokers)
        assert self._segment is not None
        if self._segment.position and self._segment.position + len(data) > SEGMENT_BYTES:
            self._segment.close()
            self._segment = _Segment(self._folder, self._next_offset)
        self._segment.append(data, places, self._next_offset, timestamps_ms)
        self._next_offset += len(values)
        self.size_bytes += len(data)

    def _batches(
        self, values: pa.Array, timestamps_ms: Int64s, brokers: npt.NDArray[np.int32]
    ) -> tuple[Bytes, Int64s]:
        """Return the concatenated batches, and the position at which each begins."""
        starts = np.frombuffer(values.buffers()[1], np.int32)[: len(values) + 1].astype(np.int64)
        items, lengths = np.frombuffer(values.buffers()[2], np.uint8), np.diff(starts)
        sequences = self._next_sequences(brokers)
        distinct, group = np.unique(lengths, return_inverse=True)
        frames = [_frame(int(length)) for length in distinct]
        sizes = np.array([len(frame) for frame, _ in frames], np.int64)[group]
        places = np.cumsum(sizes) - sizes
        out = np.empty(int(sizes.sum()), np.uint8)
        for i, (frame, at) in enumerate(frames):
            rows, length = np.flatnonzero(group == i), int(distinct[i])
            batches = np.empty((len(rows), len(frame)), np.uint8)
            batches[:] = np.frombuffer(frame, np.uint8)
            batches[:, at : at + length] = _windows(items, length)[starts[rows]]
            head = batches[:, : _HEAD.itemsize].view(_HEAD)[:, 0]
            head["base_offset"] = self._next_offset + rows
            head["base_ms"] = head["max_ms"] = timestamps_ms[rows]
            head["producer_id"], head["producer_epoch"] = FIRST_PRODUCER_ID + brokers[rows], 0
            head["base_sequence"] = sequences[rows]
            head["crc"] = _crcs(batches)
            _windows(out, len(frame))[places[rows]] = batches
        return out, places

    def _next_sequences(self, brokers: npt.NDArray[np.int32]) -> Int64s:
        """Return the sequence number of each batch; each broker's producer counts its own."""
        found = np.empty(len(brokers), np.int64)
        for broker in np.unique(brokers).tolist():
            rows = np.flatnonzero(brokers == broker)
            first = self._sequences.get(broker, 0)
            found[rows] = first + np.arange(len(rows))
            self._sequences[broker] = first + len(rows)
        return found


class _Segment:
    """One segment that is being written: `.log`, `.index` and `.timeindex`."""

    def __init__(self, folder: Path, base_offset: int) -> None:
        self.position = 0
        self._base_offset = base_offset
        self._log, self._index, self._time_index = (
            (folder / f"{base_offset:020d}{suffix}").open("wb") for suffix in (".log", ".index", ".timeindex")
        )

    def append(self, data: Bytes, places: Int64s, first_offset: int, timestamps_ms: Int64s) -> None:
        """Append batches of consecutive offsets that begin at `places` of `data`."""
        # A broker adds an entry before the first batch after `index.interval.bytes`.
        interval = (self.position + places) // INDEX_INTERVAL_BYTES
        rows = np.flatnonzero(np.diff(interval, prepend=self.position // INDEX_INTERVAL_BYTES))
        relative = first_offset + rows - self._base_offset
        self._index.write(np.stack([relative, self.position + places[rows]], axis=1).astype(">i4").tobytes())
        times = np.empty(len(rows), np.dtype([("ms", ">i8"), ("offset", ">i4")]))
        times["ms"], times["offset"] = timestamps_ms[rows], relative
        self._time_index.write(times.tobytes())
        self._log.write(memoryview(data))
        self.position += len(data)

    def close(self) -> None:
        """Close the three files."""
        files: tuple[BinaryIO, ...] = (self._log, self._index, self._time_index)
        for file in files:
            file.close()


def _windows(items: Bytes, width: int) -> Bytes:
    return np.lib.stride_tricks.sliding_window_view(items, width, writeable=items.flags.writeable)


def _crcs(batches: Bytes) -> Int64s:
    """Return the CRC-32C of each row from `_CHECKED` on."""
    data, width = batches.tobytes(), batches.shape[1]
    crc = google_crc32c.value
    return np.array([crc(data[i + _CHECKED : i + width]) for i in range(0, len(data), width)], np.int64)


def _frame(length: int) -> tuple[bytes, int]:
    """Return a batch with a value of that length, and the position of the value in it."""
    mark = b"\xa5" * length
    frame = encode_batch([Record(offset=0, timestamp_ms=0, key=None, value=mark, headers=())])
    return frame, frame.index(mark)
