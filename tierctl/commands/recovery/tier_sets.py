"""List the sets of objects in a tier, and derive the metadata of the selected sets."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial

from tierctl.errors import CorruptInputError, NotFoundError, RemoteResourceNotFound, UsageError
from tierctl.in_order import in_order
from tierctl.model import (
    IndexType,
    ListedSet,
    ObjectSet,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Uuid,
)
from tierctl.model.progress import Progress
from tierctl.plan.tier_identity import WRONG_TIER
from tierctl.storage import RemoteStorageManager
from tierctl.storage.base import RemoteObject
from tierctl.storage.identity import tier_name
from tierctl.storage.object_sets import derive_object_sets, list_object_sets
from tierctl.wire.files.checkpoints import read_leader_epoch_checkpoint


def listed_sets(
    remote: RemoteStorageManager, progress: Progress, *, others: Callable[[RemoteObject], object] = id
) -> list[ListedSet]:
    """Return every set of objects in the tier; raise NotFoundError if the tier has no set.

    `others` is called with each object that belongs to no set.
    """
    with progress.bar("listing the tier", unit="objects") as advance:
        found = list_object_sets(remote, advance, others=others)
    if not found:
        raise NotFoundError(f"{tier_name(remote)} has no object of a segment", hint=WRONG_TIER)
    return found


def derived_sets(
    remote: RemoteStorageManager,
    listed: Sequence[ListedSet],
    progress: Progress,
    *,
    threads: int,
    finished: Collection[RemoteLogSegmentMetadata] = (),
    with_lineages: bool = False,
) -> list[ObjectSet]:
    """Return the sets with their metadata, in the order of `listed`.

    The objects of `finished` segments are not read, since their metadata are known; only with `with_lineages`
    are their leader-epoch indexes read, in partitions that also have other sets: one of them may be the only
    object that has the log start. The number of sets whose leader-epoch index can't be read without a private
    key is reported to `progress`.
    """
    # The objects of a topic may have been copied under another topic id: segment ids alone are not unique.
    known = {(s.topic_id_partition.key, s.segment_id, s.start_offset): s for s in finished}
    unknown = [each for each in listed if _key(each) not in known]
    found = {_key(each.listed): each for each in _read(remote, unknown, progress, threads)}
    incomplete = {each.partition for each in unknown} if with_lineages else set()
    own = {
        _key(each): ObjectSet(listed=each, segment=known[_key(each)])
        for each in listed
        if _key(each) in known
    }
    beside = [each for each in own.values() if each.listed.partition in incomplete]
    read = in_order(partial(_with_lineage, remote), beside, threads=threads, ahead=threads)
    own |= {_key(each.listed): each for each in read}
    sealed = sum(each.segment is not None and each.lineage is None for each in found.values())
    if sealed:
        progress.note(
            f"{sealed} sets are encrypted and no --aiven-private-key is given: their lineage is taken from "
            "the leader epochs of the segments alone, and the log start from the first segment"
        )
    found |= own
    return [found[_key(each)] for each in listed]


def _with_lineage(remote: RemoteStorageManager, known: ObjectSet) -> ObjectSet:
    """Return the set with the lineage in its leader-epoch index; without it if the index can't be read."""
    segment = known.segment
    if segment is None:
        return known
    try:
        with remote.fetch_index(segment, IndexType.LEADER_EPOCH) as stream:
            return replace(known, lineage=read_leader_epoch_checkpoint(stream.read()))
    except (UsageError, RemoteResourceNotFound, CorruptInputError):
        return known


def _key(listed: ListedSet) -> tuple[tuple[Uuid, int], Uuid, int]:
    """Return the key of a set; misplaced objects may have the id of a segment at another offset."""
    return (listed.partition.key, listed.segment_id, listed.start_offset)


def _read(
    remote: RemoteStorageManager, listed: Sequence[ListedSet], progress: Progress, threads: int
) -> list[ObjectSet]:
    with progress.bar("reading segments", unit="segments", total=len(listed)) as advance:
        return list(derive_object_sets(remote, listed, threads=threads, advance=advance))


def producer_snapshots(
    remote: RemoteStorageManager,
    segments: Sequence[RemoteLogSegmentMetadata],
    progress: Progress,
    *,
    threads: int,
) -> dict[TopicIdPartition, bytes | None]:
    """Return the producer snapshot of each partition's last segment; None if its private key is missing.

    The number of unreadable snapshots is reported to `progress`.
    """
    fetched = in_order(partial(_snapshot, remote), segments, threads=threads, ahead=threads)
    found = dict(zip((each.topic_id_partition for each in segments), fetched, strict=True))
    missing = sum(each is None for each in found.values())
    if missing:
        progress.warn(
            f"the producer snapshots of {missing} partitions can't be read without --aiven-private-key: "
            "read_committed serves the records of transactions that have no end in the tier; with it "
            "they are aborted"
        )
    return found


def _snapshot(remote: RemoteStorageManager, segment: RemoteLogSegmentMetadata) -> bytes | None:
    try:
        with remote.fetch_index(segment, IndexType.PRODUCER_SNAPSHOT) as stream:
            return stream.read()
    except UsageError:
        return None
