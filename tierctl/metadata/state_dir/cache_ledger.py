"""Which events go to which cache of a state directory, and up to where its offsets may be committed."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import pyarrow as pa

from tierctl.metadata.state_dir.cache_file import cache_name
from tierctl.metadata.state_dir.manifest import CacheEntry
from tierctl.metadata.user_partitions import rows_by_user_partition
from tierctl.model import TopicIdPartition, Uuid
from tierctl.wire.batches.chunks import RecordChunk
from tierctl.wire.batches.head_columns import Int64s
from tierctl.wire.crc import crc32c_extend
from tierctl.wire.files.flatfile_values import encode_values

_Key = tuple[Uuid, int]


@dataclass(slots=True)
class CacheInHand:
    """One cache: what the file holds, and entries yet to be written."""

    partition: TopicIdPartition
    name: str
    metadata_partition: int
    last_offset: int = -1
    end: int = 0
    events: int = 0
    crc: int = 0
    pending: bytearray = field(default_factory=bytearray)

    def add(self, chunk: RecordChunk, rows: Int64s) -> int:
        """Take in the events of these rows, which are all new; returns their bytes."""
        offsets, timestamps_ms = chunk.offsets[rows].tolist(), chunk.timestamps_ms[rows].tolist()
        entries = encode_values(offsets, timestamps_ms, chunk.values.take(pa.array(rows)).to_pylist())
        self.pending += entries
        self.last_offset = offsets[-1]
        self.events += len(offsets)
        self.crc = crc32c_extend(self.crc, entries)
        return len(entries)

    @property
    def vouched(self) -> CacheEntry:
        """What the manifest says of it."""
        return CacheEntry(
            metadata_partition=self.metadata_partition,
            last_offset=self.last_offset,
            events=self.events,
            crc=self.crc,
        )


@dataclass(slots=True)
class CacheLedger:
    """Caches by user partition; `holds` are offsets, by metadata partition, that are never committed past.

    `began_at` is where reading a metadata partition began, when the topic had lost what came before.
    """

    caches: dict[_Key, CacheInHand] = field(default_factory=dict)
    holds: dict[int, int] = field(default_factory=dict)
    began_at: dict[int, int] = field(default_factory=dict)
    pending_bytes: int = 0

    def of(self, metadata_partitions: Collection[int]) -> Self:
        """What concerns some metadata partitions, to go on elsewhere; nothing may be pending."""
        return type(self)(
            {key: c for key, c in self.caches.items() if c.metadata_partition in metadata_partitions},
            {p: offset for p, offset in self.holds.items() if p in metadata_partitions},
            {p: offset for p, offset in self.began_at.items() if p in metadata_partitions},
        )

    def merge(self, part: Self) -> None:
        """Replace the entries of some metadata partitions by `part`, a result of `of` with events added."""
        self.caches |= part.caches
        self.holds |= part.holds
        self.began_at |= part.began_at
        self.pending_bytes += part.pending_bytes

    def take(self, chunk: RecordChunk, table: pa.Table) -> tuple[RecordChunk, pa.Table]:
        """Keep a chunk's events for the caches; returns those that no cache had yet."""
        for bad in chunk.damage:
            self._hold(chunk.partition, bad.offset)
        groups, nobodys = rows_by_user_partition(table)
        for row in nobodys.tolist():
            # A tombstone says nothing; what can't be decoded is to be met again.
            if chunk.values[row].is_valid:
                self._hold(chunk.partition, int(chunk.offsets[row]))
                break
        fresh = [nobodys, *(self._keep(whose, chunk, rows) for whose, rows in groups)]
        rows = np.sort(np.concatenate(fresh))
        if len(rows) == len(chunk.offsets):
            return chunk, table
        left = replace(
            chunk,
            offsets=chunk.offsets[rows],
            timestamps_ms=chunk.timestamps_ms[rows],
            values=chunk.values.take(pa.array(rows)),
        )
        return left, table.take(pa.array(rows))

    def _keep(self, whose: TopicIdPartition, chunk: RecordChunk, rows: Int64s) -> Int64s:
        """Those of the rows that are new to the cache, which takes them in; held when it can't exist."""
        cache = self.caches.get(whose.key)
        if cache is None:
            name = cache_name(whose)
            if name is None:
                self._hold(chunk.partition, int(chunk.offsets[rows[0]]))
                return rows
            cache = self.caches[whose.key] = CacheInHand(whose, name, chunk.partition)
        new: Int64s = rows[chunk.offsets[rows] > cache.last_offset]
        if len(new):
            self.pending_bytes += cache.add(chunk, new)
        return new

    def _hold(self, partition: int, offset: int) -> None:
        """Never commit past `offset`: it is to be met again by the next run."""
        self.holds[partition] = min(offset, self.holds.get(partition, offset))
