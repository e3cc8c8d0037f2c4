"""Find the sets of objects in a tier, one per segment id, and derive the metadata and the end offset of
each.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import BinaryIO, TypeVar

from tierctl.errors import (
    AuthenticationError,
    CorruptInputError,
    LimitExceeded,
    RemoteStorageError,
    RemoteTierMissing,
    SafetyRefusal,
    TierctlError,
    TransferStopped,
    UnsupportedFormatError,
    UsageError,
)
from tierctl.files import TEMP_SUFFIX
from tierctl.in_order import in_order
from tierctl.model import (
    IndexType,
    ListedSet,
    LogEnd,
    ObjectPart,
    ObjectSet,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Uuid,
    is_legal_topic_name,
)
from tierctl.model.events import ZERO_UUID
from tierctl.model.progress import Advance, no_op
from tierctl.storage.layouts.kafka import (
    UUID_PATTERN,
    LogFacts,
    SegmentStem,
    named_segment,
    not_understood,
    owner_of_folder,
    read_log_facts,
    split_key,
)
from tierctl.storage.remote_storage_manager import RemoteStorageManager, index_bytes, require_store
from tierctl.storage.stores.base import RemoteObject
from tierctl.wire.batches.scan import scan_heads
from tierctl.wire.files.checkpoints import read_leader_epoch_checkpoint
from tierctl.wire.files.indexes import OffsetIndex, trimmed

_Key = tuple[Uuid, int]


def stored_segment_ids(
    remote: RemoteStorageManager, partitions: Collection[_Key]
) -> dict[_Key, frozenset[Uuid]]:
    """Return the ids of the segments that have an object in the folders of `partitions`, by partition.

    A partition without a folder has no ids; one whose folder can't be listed is left out. Raise
    RemoteStorageError if the store fails.
    """
    wanted = frozenset(partitions)
    found: dict[_Key, set[Uuid]] = {key: set() for key in wanted}
    unlisted: set[tuple[Uuid, int | None] | None] = set()
    for folder in folders_of(remote, wanted):
        for listed in remote.list_objects(folder):
            name = named_segment(*split_key(listed.key))
            if name is not None and (name.topic_id, name.partition) in found:
                found[name.topic_id, name.partition].add(name.segment_id)
            elif listed.key.endswith("/"):
                unlisted.add(owner_of_folder(listed.key))
    return {key: frozenset(ids) for key, ids in found.items() if unlisted.isdisjoint({key, (key[0], None)})}


def folders_of(remote: RemoteStorageManager, wanted: Collection[_Key], parent: str = "") -> Iterator[str]:
    """Yield the folders below `parent` that contain objects of the `wanted` partitions.

    An entry that is no folder and has the name of one is included: to list it is an error.
    """
    topic_ids = {topic_id for topic_id, _ in wanted}
    listing = remote.list_folder(parent)
    unreadable = {f"{each.key}/" for each in listing.objects if each.problem is not None}
    for folder in (*listing.folders, *sorted(unreadable)):
        owner = owner_of_folder(folder)
        if owner is None or owner[0] not in topic_ids:
            continue
        if owner[1] is None and folder not in unreadable:
            yield from folders_of(remote, wanted, folder)
        elif owner[1] is None or (owner[0], owner[1]) in wanted:
            yield folder


Item = TypeVar("Item")
Result = TypeVar("Result")

_KAFKA_TOPIC = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-[0-9]{1,10}-" + UUID_PATTERN + "/")
_AIVEN_TOPIC = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-" + UUID_PATTERN + "/")
_WAITING_PER_THREAD = 4


@dataclass(slots=True)
class _Growing:
    stem: SegmentStem
    topic: str
    sizes_bytes: dict[int, int] = field(default_factory=dict)
    modified_ms: int | None = None
    problem: str | None = None
    unknown: str | None = None

    def add(self, suffix: str, found: RemoteObject) -> None:
        if found.problem is not None:
            self.problem = f"{found.key}: {found.problem}"
            return
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
            problem=self.problem,
            unknown=self.unknown,
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
    return sorted(
        sets,
        key=lambda each: (
            *(each.partition.topic, each.partition.topic_id, each.partition.partition),
            *(each.start_offset, each.segment_id),
        ),
    )


def sets_among(
    remote: RemoteStorageManager,
    objects: Iterable[RemoteObject],
    advance: Advance = no_op,
    *,
    others: Callable[[RemoteObject], object] = id,
) -> list[ListedSet]:
    """Return the sets that `objects`, the listing of whole folders of `remote`, belong to.

    An entry that can't be read, such as a link, belongs to the set that its name states. Where the folder of
    a partition can't be read, the partition has one set, with that problem. `others` receives the entries
    that belong to no set, and those of a set with a suffix that no layout has. `advance` receives the number
    of objects listed since the last call. Raise RemoteStorageError for another folder that can't be listed.
    """
    base = remote.layout.base
    found: dict[str, _Growing] = {}
    unlisted: list[ListedSet] = []
    for each in objects:
        if each.problem is None:
            advance(1)
        elif (unread := _unread_folder(each, base)) is not None:
            unlisted.append(unread)
            continue
        elif each.key.endswith("/"):
            raise RemoteStorageError(f"{each.key}: {each.problem}")
        stem, suffix = split_key(each.key)
        if stem not in found:
            parsed = named_segment(stem, suffix)
            topic = None if parsed is None else _topic_of(parsed, stem.removeprefix(base))
            if parsed is None or topic is None:
                others(each)
                continue
            found[stem] = _Growing(parsed, topic)
        if suffix in found[stem].stem.parts:
            found[stem].add(suffix, each)
        else:
            others(each)
            if not suffix.endswith(TEMP_SUFFIX):
                found[stem].unknown = found[stem].unknown or each.key
    return [*(growing.listed() for growing in found.values()), *unlisted]


def _unread_folder(found: RemoteObject, base: str) -> ListedSet | None:
    """Return the folder `found`, which can't be read, as one set, because any set may be in it.

    Return None if it does not have the name of a folder of a partition or topic; which partitions of a topic
    are in its folder is unknown, so that its first one has the set.
    """
    path = f"{found.key.removesuffix('/')}/"
    owner, name = owner_of_folder(path), path.removeprefix(base)
    if owner is None:
        return None
    match = None if owner[1] is None else _KAFKA_TOPIC.fullmatch(name)
    match = match or _AIVEN_TOPIC.match(name)
    if match is None or not is_legal_topic_name(match["topic"]):
        return None
    return ListedSet(
        partition=TopicIdPartition(owner[0], match["topic"], owner[1] or 0),
        segment_id=ZERO_UUID,
        start_offset=0,
        sizes_bytes={},
        problem=f"{found.key}: {found.problem}",
    )


def _topic_of(parsed: SegmentStem, path: str) -> str | None:
    """Return the topic that the first folder of `path`, a key without the tier's prefix, names."""
    pattern = _AIVEN_TOPIC if ObjectPart.MANIFEST in parsed.parts.values() else _KAFKA_TOPIC
    match = pattern.match(path)
    return match["topic"] if match and is_legal_topic_name(match["topic"]) else None


_RESTORE = "if objects of the segment were renamed or compressed, restore their names and contents"


def derived_set(remote: RemoteStorageManager, listed: ListedSet) -> ObjectSet:
    """Return the set with its derived metadata.

    A set whose objects can't be read, although the store responds, is not understood, nor an incomplete one
    with an object of unknown suffix. Raise what the tier raises about itself.
    """
    if listed.problem is not None:
        return ObjectSet(listed=listed, why_not_understood=listed.problem)
    try:
        found = remote.derived(listed)
    except (RemoteTierMissing, TransferStopped):
        raise
    except AuthenticationError as e:
        return not_understood(listed, e)
    except RemoteStorageError as e:
        require_store(remote, e)
        return not_understood(listed, e)
    return found if found.why_incomplete is None else _incomplete(found, found.why_incomplete)


def _incomplete(found: ObjectSet, reason: str) -> ObjectSet:
    """Return the set as incomplete, or as not understood if it has an object of unknown suffix."""
    listed, end = found.listed, found.stated_end_offset
    if listed.unknown is None:
        return ObjectSet(listed=listed, why_incomplete=reason, stated_end_offset=end)
    reason = f"{reason}, and it is unknown what {listed.unknown} has; {_RESTORE}"
    return ObjectSet(listed=listed, why_not_understood=reason, stated_end_offset=end)


def with_judged_indexes(sets: Sequence[ObjectSet]) -> list[ObjectSet]:
    """Return the sets of one partition; those whose indexes go on after their log (`LogEnd.beyond`) decided.

    If another set begins right after the log, the log is whole, and the index is damaged. Otherwise the log
    was cut if an index has an offset below the next set: the set is incomplete. If it has none there, nothing
    is known: index and log contradict each other.
    """
    starts = sorted({each.listed.start_offset for each in sets})
    return [each if each.log_end is None else _judged(each, each.log_end, starts) for each in sets]


def _judged(each: ObjectSet, end: LogEnd, starts: Sequence[int]) -> ObjectSet:
    if not end.beyond:
        return each
    at = bisect_right(starts, end.offset)
    border = starts[at] if at < len(starts) else None
    if border == end.offset + 1:
        names = (name for name, _ in end.beyond)
        return replace(each, damaged_indexes=(*each.damaged_indexes, *names))
    size_bytes = each.listed.sizes_bytes[ObjectPart.LOG]
    name, offset = min(end.beyond, key=itemgetter(1))
    reason = f"its {name} has offset {offset}, the log ends at offset {end.offset}, byte {size_bytes}"
    stated = replace(each, stated_end_offset=max(last for _, last in end.beyond))
    if border is None or offset < border:
        return _incomplete(stated, reason)
    reason += f", the next set begins at {border}: the log was cut, or the index is not of this log"
    return replace(stated, segment=None, lineage=None, log_end=None, why_not_understood=reason)


def with_lineage(remote: RemoteStorageManager, known: ObjectSet) -> ObjectSet:
    """Return the set with the lineage in its leader-epoch index; without it if the index can't be read.

    Raise what the tier raises about itself.
    """
    segment = known.segment
    if segment is None:
        return known
    try:
        data = index_bytes(remote, segment, IndexType.LEADER_EPOCH)
        return replace(known, lineage=read_leader_epoch_checkpoint(data))
    except (RemoteTierMissing, TransferStopped):
        raise
    except (CorruptInputError, AuthenticationError, SafetyRefusal):
        return known
    except RemoteStorageError as e:
        require_store(remote, e)
        return known


def producer_snapshot(remote: RemoteStorageManager, segment: RemoteLogSegmentMetadata) -> bytes | None:
    """Return the producer snapshot of a segment; None if its private key is missing."""
    try:
        return index_bytes(remote, segment, IndexType.PRODUCER_SNAPSHOT)
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


_TAIL_BYTES_MAX = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class EndClaim:
    """A set with a manifest whose end offset other sets do not confirm.

    It `overlaps` if another set begins within it, and `is_contested` if it overlaps, or if a hole follows.
    """

    known: ObjectSet
    overlaps: bool
    is_contested: bool


def end_claims(sets: Sequence[ObjectSet]) -> Iterator[EndClaim]:
    """Yield the sets of one partition whose end is not right before the start of the next set."""
    starts = sorted({each.listed.start_offset for each in sets})
    for each in sets:
        segment = each.segment
        if segment is None or not each.listed.parts & ObjectPart.MANIFEST:
            continue
        later = [start for start in starts if start > segment.start_offset]
        twins = sum(other.listed.start_offset == segment.start_offset for other in sets) > 1
        if later and later[0] == segment.end_offset + 1 and not twins:
            continue
        overlaps = twins or bool(later and later[0] <= segment.end_offset)
        yield EndClaim(known=each, overlaps=overlaps, is_contested=bool(later) or overlaps)


def checked_end(remote: RemoteStorageManager, claim: EndClaim) -> ObjectSet:
    """Return the set; not understood if its last batch contradicts its manifest.

    The log of a set that overlaps is read whole: one of these sets is given up for the others. The last batch
    of a compacted log, which has gaps, may end below the manifest's end offset; this only counts where
    another set has these offsets. A set whose log is damaged is not understood, and a contested set whose log
    can't be read.
    """
    segment = claim.known.segment
    assert segment is not None
    try:
        last = _facts(remote, segment).end_offset if claim.overlaps else _last_offset(remote, segment)
        is_other = last > segment.end_offset or (
            last < segment.end_offset and (claim.overlaps or not _facts(remote, segment).has_gaps)
        )
    except (RemoteTierMissing, TransferStopped):
        raise
    except (UsageError, AuthenticationError, RemoteStorageError, CorruptInputError, LimitExceeded) as e:
        is_damaged = isinstance(e, CorruptInputError) and not isinstance(e, UnsupportedFormatError)
        return _unclear(claim.known, _with_hint(e)) if claim.is_contested or is_damaged else claim.known
    if is_other:
        return _unclear(
            claim.known,
            f"its manifest says that it ends at offset {segment.end_offset}, its last batch ends at {last}",
        )
    return claim.known


def _unclear(known: ObjectSet, reason: str) -> ObjectSet:
    return replace(known, segment=None, lineage=None, why_not_understood=reason)


def _with_hint(error: TierctlError) -> str:
    reason = f"its end offset can't be compared with its log: {error.message}"
    return reason if error.hint is None else f"{reason}; {error.hint}"


def _last_offset(remote: RemoteStorageManager, segment: RemoteLogSegmentMetadata) -> int:
    """Return the offset of the last record of the log, found from the last entry of its offset index."""
    data = trimmed(index_bytes(remote, segment, IndexType.OFFSET), IndexType.OFFSET)
    index = OffsetIndex(segment.start_offset, data)
    position = max(0, index[-1].position) if len(index) else 0
    with remote.fetch_log_segment(segment, position) as stream:
        tail = stream.read(_TAIL_BYTES_MAX)
    heads = scan_heads(tail)
    if heads.bad or heads.torn is not None or not len(heads):
        raise CorruptInputError(
            "log", expected="whole batches at its end", found="other bytes", at=position, source=None
        )
    return int(heads.next_offsets[-1]) - 1


def _facts(remote: RemoteStorageManager, segment: RemoteLogSegmentMetadata) -> LogFacts:
    """Read the whole log; its batches are checked."""

    def open_range(start: int, end: int) -> BinaryIO:
        return remote.fetch_log_segment(segment, start, end - 1)

    size_bytes, key = segment.segment_size_in_bytes, f"segment {segment.segment_id}"
    return read_log_facts(open_range, key, size_bytes, segment.start_offset)
