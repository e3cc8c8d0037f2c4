"""List the sets of objects in a tier, and derive the metadata of the selected sets, on either engine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar

from tierctl.apply.defaults import THREADS
from tierctl.errors import AuthenticationError, NotFoundError
from tierctl.model import ListedSet, ObjectPart, ObjectSet, RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from tierctl.plan.safety import WRONG_TIER
from tierctl.spark.executors import checked_segments as spark_tier
from tierctl.storage.identity import tier_name
from tierctl.storage.object_sets import (
    by_partition,
    checked_end,
    derived_set,
    end_claims,
    list_object_sets,
    producer_snapshot,
    read_each,
    with_lineage,
)

if TYPE_CHECKING:
    from tierctl.commands.mutation import Mutation
    from tierctl.commands.resources import Resources
    from tierctl.model.progress import Advance
    from tierctl.storage import RemoteStorageManager
    from tierctl.storage.base import RemoteObject
    from tierctl.storage.open_tier import TierSpec

from tierctl.commands.copy.source import check_and_hash
from tierctl.errors import (
    CorruptInputError,
    RemoteResourceNotFound,
    RemoteStorageError,
    RemoteTierMissing,
    UsageError,
)
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.storage import RemoteStorageManager
from tierctl.storage.index_cache import spool_folder, spooled


def why_unsound(
    remote: RemoteStorageManager, segment: RemoteLogSegmentMetadata, *, may_lack_indexes: bool = False
) -> Reason | None:
    """Return why the segment's bytes are not sound, or can't be read; None if they are sound.

    With `may_lack_indexes`, indexes that are missing count as sound: they follow from the log. Raise
    RemoteTierMissing.
    """
    try:
        with spool_folder() as spool, spooled(remote, segment, spool) as files:
            indexes = files.index_bytes()
            if may_lack_indexes:
                indexes = {kind: data for kind, data in indexes.items() if data is not None}
            _, problem = check_and_hash(segment, files.log, indexes)
    except (CorruptInputError, RemoteResourceNotFound) as e:
        return _damaged(e.message)
    except RemoteTierMissing:
        raise
    except (UsageError, AuthenticationError, RemoteStorageError) as e:
        return Reason(ReasonKind.NOT_UNDERSTOOD, detail=f"{e.message}; {e.hint or 'see tierctl verify'}")
    return None if problem is None else _damaged(problem.message)


def _damaged(problem: str) -> Reason:
    return Reason(ReasonKind.NOT_UNDERSTOOD, detail=f"its objects are damaged: {problem}")


Item = TypeVar("Item")
Result = TypeVar("Result")


def _small(_item: object) -> int:
    """Return 0: the time of a request does not depend on the size of a small object."""
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSets:
    """The sets of objects of `remote`, which executors open by `spec`.

    With `--engine spark`, executors list the tier and read its objects; otherwise `threads` of this process
    read them. Results and errors are the same.
    """

    resources: Resources
    remote: RemoteStorageManager
    spec: TierSpec
    threads: int = THREADS

    @classmethod
    def of(cls, resources: Resources) -> Self:
        """Return the sets of the tier of a reading command."""
        return cls(resources=resources, remote=resources.remote, spec=resources.tier_spec())

    @classmethod
    def to_change(cls, run: Mutation) -> Self:
        """Return the sets of the tier of a command that may change it."""
        threads = run.request.threads
        return cls(resources=run.resources, remote=run.remote, spec=run.tier_spec, threads=threads)

    def listed(self, *, others: Callable[[RemoteObject], object] = id) -> list[ListedSet]:
        """Return every set of objects in the tier; raise NotFoundError if the tier has no set.

        `others` is called with each object that belongs to no set.
        """
        with self.resources.progress.bar("listing the tier", unit="objects") as advance:
            found = self._list(advance, others=others)
        if not found:
            raise NotFoundError(f"{tier_name(self.remote)} has no object of a segment", hint=WRONG_TIER)
        return found

    def listed_of(self, partitions: Collection[tuple[Uuid, int]]) -> list[ListedSet]:
        """Return the sets of these partitions, by topic id and partition."""
        with self.resources.progress.bar("listing partitions", unit="objects") as advance:
            return self._list(advance, partitions)

    def derived(
        self,
        listed: Sequence[ListedSet],
        *,
        finished: Collection[RemoteLogSegmentMetadata] = (),
        with_lineages: bool = False,
    ) -> list[ObjectSet]:
        """Return the sets with their metadata, in the order of `listed`.

        The objects of `finished` segments are not read, since their metadata are known; only with
        `with_lineages` are their leader-epoch indexes read, in partitions that also have other sets: one of
        them may be the only object that has the log start. The number of sets whose leader-epoch index can't
        be read without a private key is reported. Raise AuthenticationError if the store lets no set be read.
        """
        # The objects of a topic may have been copied under another topic id: segment ids alone are not
        # unique.
        known = {(s.topic_id_partition.key, s.segment_id, s.start_offset): s for s in finished}
        unknown = [each for each in listed if _key(each) not in known]
        found = {_key(each.listed): each for each in self._derive(unknown)}
        refused = [each for each in found.values() if each.lacks_rights]
        if refused and len(refused) == len(listed):
            raise _no_rights(refused[0])
        incomplete = {each.partition for each in unknown} if with_lineages else set()
        own = {
            _key(each): ObjectSet(listed=each, segment=known[_key(each)])
            for each in listed
            if _key(each) in known
        }
        beside = [each for each in own.values() if each.listed.partition in incomplete]
        own |= {_key(each.listed): each for each in self.read(with_lineage, beside)}
        sealed = sum(each.segment is not None and each.lineage is None for each in found.values())
        if sealed:
            self.resources.progress.note(
                f"{sealed} sets are encrypted and no --aiven-private-key is given: their lineage is taken "
                "from the leader epochs of the segments alone, and the log start from the first segment"
            )
        found |= own
        claims = [
            claim
            for sets in by_partition(found.values()).values()
            for claim in end_claims(sets)
            if _key(claim.known.listed) not in known
        ]
        found |= {_key(each.listed): each for each in self.read(checked_end, claims)}
        return [found[_key(each)] for each in listed]

    def unsound(
        self, segments: Sequence[RemoteLogSegmentMetadata], *, may_lack_indexes: bool = False
    ) -> dict[Uuid, str]:
        """Return, by segment id, why the bytes of segments are not sound; their objects are read whole."""
        why = partial(why_unsound, may_lack_indexes=may_lack_indexes)
        reasons = self.read(why, segments, size_bytes=lambda s: s.segment_size_in_bytes, threads=1)
        found = zip((segment.segment_id for segment in segments), reasons, strict=True)
        return {segment_id: reason for segment_id, reason in found if reason is not None}

    def producer_snapshots(
        self, segments: Sequence[RemoteLogSegmentMetadata]
    ) -> dict[TopicIdPartition, bytes | None]:
        """Return the producer snapshot of each partition's last segment; None if its private key is missing.

        The number of unreadable snapshots is reported.
        """
        fetched = self.read(producer_snapshot, segments)
        found = dict(zip((each.topic_id_partition for each in segments), fetched, strict=True))
        missing = sum(each is None for each in found.values())
        if missing:
            self.resources.progress.warn(
                f"the producer snapshots of {missing} partitions can't be read without --aiven-private-key: "
                "read_committed serves the records of transactions that have no end in the tier; with it "
                "they are aborted"
            )
        return found

    def read(
        self,
        read: Callable[[RemoteStorageManager, Item], Result],
        items: Sequence[Item],
        *,
        size_bytes: Callable[[Item], int] = _small,
        threads: int | None = None,
    ) -> Iterator[Result]:
        """Yield the result of `read` for each item, in the order of `items`; `threads` read some at a time.

        `size_bytes` returns how many bytes `read` reads of an item: executors get about equal shares. Raise
        what `read` raises when its item is reached.
        """
        threads = self.threads if threads is None else threads
        if not self.resources.is_on_spark:
            return read_each(self.remote, read, items, threads=threads)
        return spark_tier.read_each(
            self.resources.executors,
            self.spec.resolved(self.remote),
            read,
            items,
            size_bytes=size_bytes,
            threads=threads,
        )

    def _list(
        self,
        advance: Advance,
        partitions: Collection[tuple[Uuid, int]] | None = None,
        *,
        others: Callable[[RemoteObject], object] = id,
    ) -> list[ListedSet]:
        if not self.resources.is_on_spark:
            return list_object_sets(self.remote, advance, partitions, others=others)
        executors, spec = self.resources.executors, self.spec.resolved(self.remote)
        return spark_tier.list_object_sets(executors, spec, self.remote, advance, partitions, others=others)

    def _derive(self, listed: Sequence[ListedSet]) -> Iterator[ObjectSet]:
        total = len(listed)
        with self.resources.progress.bar("reading segments", unit="segments", total=total) as advance:
            for each in self.read(derived_set, listed, size_bytes=_derived_from_bytes):
                advance(1)
                yield each


def _no_rights(refused: ObjectSet) -> AuthenticationError:
    return AuthenticationError(
        f"no set of objects can be read; the first, segment {refused.listed.segment_id} of "
        f"{refused.listed.partition}: {refused.why_not_understood}",
        hint="nothing is decided from a tier whose objects can't be read: give this user the right to read",
    )


def _derived_from_bytes(listed: ListedSet) -> int:
    """Return the number of bytes from which the metadata of a set are derived; a manifest states them all."""
    return 0 if listed.parts & ObjectPart.MANIFEST else listed.sizes_bytes.get(ObjectPart.LOG, 0)


def _key(listed: ListedSet) -> tuple[tuple[Uuid, int], Uuid, int]:
    """Return the key of a set; misplaced objects may have the id of a segment at another offset."""
    return (listed.partition.key, listed.segment_id, listed.start_offset)
