"""The manifest of a state directory: for each cache the number of events, the last offset and a checksum.

It shows a cache that is missing or incomplete. It is written after the caches and before
`_rlmm_committed_offsets`, atomically.
"""

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from tierctl.errors import CorruptInputError
from tierctl.state.tier import MissingEvents

MANIFEST = "_tierctl_caches"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheEntry:
    """The content of one cache: `events` events of its user partition up to `last_offset`, and their CRC-32C.

    The CRC covers the entries in the file, without the header.
    """

    metadata_partition: int
    last_offset: int
    events: int
    crc: int
    size_bytes: int
    modified_ns: int = -1
    """The file's time of last modification when the manifest was written."""


class SnapshotEntry(NamedTuple):
    """A snapshot of one metadata partition: its size, and its CRC-32C."""

    size_bytes: int
    crc: int


@dataclass(slots=True, kw_only=True)
class Manifest:
    """All caches by file name, and the metadata topic to which they belong.

    `read` is, by metadata partition, the offset before which the caches contain every event, except those in
    `missing`, which the metadata topic had lost before they could be read.
    """

    topic_id: str | None
    metadata_partitions: int
    read: dict[int, int] = field(default_factory=dict)
    missing: list[MissingEvents] = field(default_factory=list)
    caches: dict[str, CacheEntry] = field(default_factory=dict)
    snapshots: dict[int, SnapshotEntry] = field(default_factory=dict)
    """By metadata partition, the snapshot of the state at offset `read`, which its caches have, too."""

    def dumps(self) -> bytes:
        """Return the content of the file."""
        raw = {
            "version": VERSION,
            "topic_id": self.topic_id,
            "metadata_partitions": self.metadata_partitions,
            "read": self.read,
            "missing": [[m.metadata_partition, m.first_offset, m.end_offset] for m in self.missing],
            "caches": {
                name: [
                    entry.metadata_partition,
                    entry.last_offset,
                    entry.events,
                    entry.crc,
                    entry.size_bytes,
                    entry.modified_ns,
                ]
                for name, entry in sorted(self.caches.items())
            },
            "snapshots": self.snapshots,
        }
        return (json.dumps(raw) + "\n").encode()

    @classmethod
    def loads(cls, data: bytes) -> Self:
        """Return the manifest with the content `data`; raise CorruptInputError if it is malformed."""
        try:
            raw = json.loads(data)
            _require(raw["version"] == VERSION, f"version {raw['version']}")
            return cls(
                topic_id=raw["topic_id"],
                metadata_partitions=int(raw["metadata_partitions"]),
                read=_numbers(raw["read"]),
                missing=[MissingEvents(*map(int, each)) for each in raw["missing"]],
                snapshots={int(n): SnapshotEntry(*map(int, e)) for n, e in raw["snapshots"].items()},
                caches={str(name): _entry(entry) for name, entry in raw["caches"].items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise CorruptInputError(
                "list of caches", expected=f"version {VERSION} as JSON", found=f"{type(e).__name__}: {e}"
            ) from e


def _require(holds: bool, found: str) -> None:
    if not holds:
        raise ValueError(found)


def _numbers(raw: dict[str, Any]) -> dict[int, int]:
    return {int(key): int(value) for key, value in raw.items()}


def _entry(raw: list[Any]) -> CacheEntry:
    partition, last_offset, events, crc, size_bytes, modified_ns = (int(value) for value in raw)
    return CacheEntry(
        metadata_partition=partition,
        last_offset=last_offset,
        events=events,
        crc=crc,
        size_bytes=size_bytes,
        modified_ns=modified_ns,
    )
