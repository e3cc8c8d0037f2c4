"""Find the sets of objects in a tier, one per segment id, and derive the metadata of each."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from tierctl.in_order import in_order
from tierctl.model import ListedSet, ObjectPart, ObjectSet, TopicIdPartition, Uuid, is_legal_topic_name
from tierctl.model.progress import Advance, no_op
from tierctl.storage.base import RemoteObject, RemoteStorageManager, plain_objects
from tierctl.storage.layouts.key_parser import SegmentStem, segment_stem, split_key
from tierctl.storage.partition_listing import folders_of
from tierctl.storage.retry import object_tier

_KAFKA_TOPIC = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-\d{1,10}-[A-Za-z0-9_-]{22}/")
_AIVEN_TOPIC = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-[A-Za-z0-9_-]{22}/")
_WAITING_PER_THREAD = 4


@dataclass(slots=True)
class _Growing:
    stem: SegmentStem
    topic: str
    sizes_bytes: dict[int, int] = field(default_factory=dict)
    modified_ms: int | None = None

    def add(self, suffix: str, found: RemoteObject) -> None:
        self.sizes_bytes[self.stem.parts[suffix]] = found.size_bytes
        if found.modified_ms is not None:
            self.modified_ms = max(found.modified_ms, self.modified_ms or 0)

    def listed(self) -> ListedSet:
        return ListedSet(
            partition=TopicIdPartition(self.stem.topic_id, self.topic, self.stem.partition),
            segment_id=self.stem.segment_id,
            start_offset=self.stem.start_offset,
            sizes_bytes=self.sizes_bytes,
            modified_ms=self.modified_ms,
        )


def list_object_sets(
    remote: RemoteStorageManager,
    advance: Advance = no_op,
    partitions: Collection[tuple[Uuid, int]] | None = None,
    *,
    others: Callable[[RemoteObject], object] = id,
) -> list[ListedSet]:
    """Return every set of objects in the tier, by topic, topic id, partition, start offset and segment id.

    With `partitions`, only the sets of these are listed, in their own folders. `others` receives what
    belongs to no set: objects that no layout names, and links. `advance` receives the number of objects
    listed since the last call. Raise RemoteStorageError for a folder that can't be listed.
    """
    tier = object_tier(remote)
    base = "" if tier is None else tier.layout.base
    found: dict[str, _Growing] = {}
    folders = [""] if partitions is None else folders_of(remote, partitions)
    for each in plain_objects(chain.from_iterable(map(remote.list_objects, folders)), others):
        advance(1)
        stem, suffix = split_key(each.key)
        if stem not in found:
            parsed = segment_stem(stem)
            topic = None if parsed is None else _topic_of(parsed, stem.removeprefix(base))
            if parsed is None or topic is None or suffix not in parsed.parts:
                others(each)
                continue
            found[stem] = _Growing(parsed, topic)
        if suffix in found[stem].stem.parts:
            found[stem].add(suffix, each)
        else:
            others(each)
    return sorted((growing.listed() for growing in found.values()), key=_order)


def _topic_of(parsed: SegmentStem, path: str) -> str | None:
    """Return the topic that the first folder of `path`, a key without the tier's prefix, names."""
    pattern = _AIVEN_TOPIC if ObjectPart.MANIFEST in parsed.parts.values() else _KAFKA_TOPIC
    match = pattern.match(path)
    return match["topic"] if match and is_legal_topic_name(match["topic"]) else None


def _order(listed: ListedSet) -> tuple[str, Uuid, int, int, Uuid]:
    partition = listed.partition
    return (
        partition.topic,
        partition.topic_id,
        partition.partition,
        listed.start_offset,
        listed.segment_id,
    )


def derive_object_sets(
    remote: RemoteStorageManager, sets: Sequence[ListedSet], *, threads: int, advance: Advance = no_op
) -> Iterator[ObjectSet]:
    """Yield each set with its derived metadata, in the order of `sets`; `threads` read several at a time.

    `advance` receives the number of sets read since the last call. Raise what the tier raises.
    """
    for derived in in_order(remote.derived, sets, threads=threads, ahead=threads * _WAITING_PER_THREAD):
        advance(1)
        yield derived


def by_partition(sets: Iterable[ObjectSet]) -> dict[TopicIdPartition, list[ObjectSet]]:
    """Return the sets of each partition, in their order."""
    found: dict[TopicIdPartition, list[ObjectSet]] = {}
    for each in sets:
        found.setdefault(each.listed.partition, []).append(each)
    return found
