"""Find the sets of objects in a tier, one per segment id, and derive the metadata of each.

`derived_set`, `with_lineage` and `producer_snapshot` each read the objects of one segment; `read_each` calls
one of them for many segments on threads of this process.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TypeVar

from tierctl.errors import (
    AuthenticationError,
    CorruptInputError,
    RemoteStorageError,
    RemoteTierMissing,
    TransferStopped,
    UnsupportedFormatError,
)
from tierctl.in_order import in_order
from tierctl.model import (
    IndexType,
    ListedSet,
    ObjectPart,
    ObjectSet,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Uuid,
    is_legal_topic_name,
)
from tierctl.model.progress import Advance, no_op
from tierctl.storage.base import RemoteObject, RemoteStorageManager, plain_objects, require_store
from tierctl.storage.layouts.base import not_understood
from tierctl.storage.layouts.key_parser import SegmentStem, segment_stem, split_key
from tierctl.storage.partition_listing import folders_of
from tierctl.storage.retry import object_tier
from tierctl.wire.files.checkpoints import read_leader_epoch_checkpoint

Item = TypeVar("Item")
Result = TypeVar("Result")

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
    """Return every set of objects in the tier, in the order of `ordered`.

    With `partitions`, only the sets of these are listed, in their own folders. `others` and `advance` are as
    for `sets_among`. Raise RemoteStorageError for a folder that can't be listed.
    """
    folders = [""] if partitions is None else folders_of(remote, partitions)
    objects = chain.from_iterable(map(remote.list_objects, folders))
    return ordered(sets_among(remote, objects, advance, others=others))


def ordered(sets: Iterable[ListedSet]) -> list[ListedSet]:
    """Return the sets by topic, topic id, partition, start offset and segment id."""
    return sorted(sets, key=_order)


def sets_among(
    remote: RemoteStorageManager,
    objects: Iterable[RemoteObject],
    advance: Advance = no_op,
    *,
    others: Callable[[RemoteObject], object] = id,
) -> list[ListedSet]:
    """Return the sets that `objects`, the listing of whole folders of `remote`, belong to.

    `others` receives what belongs to no set: objects that no layout names, and links. `advance` receives the
    number of objects listed since the last call. Raise RemoteStorageError for a folder that can't be listed.
    """
    tier = object_tier(remote)
    base = "" if tier is None else tier.layout.base
    found: dict[str, _Growing] = {}
    for each in plain_objects(objects, others):
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
    return [growing.listed() for growing in found.values()]


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


def derived_set(remote: RemoteStorageManager, listed: ListedSet) -> ObjectSet:
    """Return the set with its derived metadata.

    A set whose objects can't be read, although the store responds, is not understood. Raise what the tier
    raises about itself.
    """
    try:
        return remote.derived(listed)
    except (RemoteTierMissing, TransferStopped):
        raise
    except AuthenticationError as e:
        return not_understood(listed, e)
    except RemoteStorageError as e:
        require_store(remote, e)
        return not_understood(listed, e)


def with_lineage(remote: RemoteStorageManager, known: ObjectSet) -> ObjectSet:
    """Return the set with the lineage in its leader-epoch index; without it if the index can't be read.

    Raise what the tier raises about itself.
    """
    segment = known.segment
    if segment is None:
        return known
    try:
        with remote.fetch_index(segment, IndexType.LEADER_EPOCH) as stream:
            return replace(known, lineage=read_leader_epoch_checkpoint(stream.read()))
    except (RemoteTierMissing, TransferStopped):
        raise
    except (CorruptInputError, AuthenticationError):
        return known
    except RemoteStorageError as e:
        require_store(remote, e)
        return known


def producer_snapshot(remote: RemoteStorageManager, segment: RemoteLogSegmentMetadata) -> bytes | None:
    """Return the producer snapshot of a segment; None if its private key is missing."""
    try:
        with remote.fetch_index(segment, IndexType.PRODUCER_SNAPSHOT) as stream:
            return stream.read()
    except UnsupportedFormatError:
        return None


def read_each(
    remote: RemoteStorageManager,
    read: Callable[[RemoteStorageManager, Item], Result],
    items: Iterable[Item],
    *,
    threads: int,
) -> Iterator[Result]:
    """Yield the result of `read` for each item, in the order of `items`; `threads` read several at a time.

    Raise what `read` raises when its item is reached.
    """
    return in_order(partial(read, remote), items, threads=threads, ahead=threads * _WAITING_PER_THREAD)


def by_partition(sets: Iterable[ObjectSet]) -> dict[TopicIdPartition, list[ObjectSet]]:
    """Return the sets of each partition, in their order."""
    found: dict[TopicIdPartition, list[ObjectSet]] = {}
    for each in sets:
        found.setdefault(each.listed.partition, []).append(each)
    return found
