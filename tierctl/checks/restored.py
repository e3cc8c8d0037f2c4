"""Check what is left after a rebuild or a restore: objects, events, and the offsets that leaders report.

`ExpectedLog` is what brokers must serve of one partition, derived from the objects of the tier alone.
"""

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Self

from tierctl.checks.check import Result, decided, fault, incomplete, made, not_checked, ok, prevented
from tierctl.checks.registry import RestoreCheck
from tierctl.errors import (
    CorruptInputError,
    ExitCode,
    NotFoundError,
    TierctlError,
    UsageError,
)
from tierctl.files import is_file, open_regular, read_regular
from tierctl.kafka.cluster import Cluster
from tierctl.metadata.daily_changes import record_chunks
from tierctl.metadata.topic import METADATA_TOPIC, MetadataTopic
from tierctl.model import (
    EpochEntry,
    IsolationLevel,
    ListedSet,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
    TopicPartition,
    Uuid,
)
from tierctl.model.checked_values import require_output, write_output
from tierctl.model.local import PartitionOffsets
from tierctl.model.selection import counted
from tierctl.model.settings.scopes import KafkaVersion
from tierctl.plan.partition_choice import PartitionDecision
from tierctl.plan.reasons import ReasonKind
from tierctl.read.partition_reader import PartitionReader
from tierctl.read.readable_log import ReadableLog
from tierctl.read.segment import IndexFetcher
from tierctl.state.lineage import Lineage, epochs_text
from tierctl.wire.files.checkpoints import LEADER_EPOCHS_FILE, read_leader_epoch_checkpoint
from tierctl.wire.metadata.values import decode


@dataclass(slots=True, kw_only=True)
class ExpectedLog:
    """The log of one partition that brokers must serve; RESTORE.md calls its bounds and epochs S, X and E.

    `start_offset` is S, `end_offset` (exclusive) is X, and `lineage` is E, which begins at S. `name` is the
    partition's name on the cluster, and `topic_id` is the topic's id there. A materialised log has new leader
    epochs, and may end before the tier does (`is_cut`). `problems` are errors that occurred while the tier
    was read.
    """

    source: TopicIdPartition
    name: TopicPartition
    topic_id: Uuid
    log: ReadableLog
    decision: PartitionDecision
    indexes: IndexFetcher
    start_offset: int
    end_offset: int
    lineage: Lineage
    is_materialised: bool = False
    is_cut: bool = False
    problems: list[TierctlError] = field(default_factory=list)

    @property
    def key(self) -> tuple[Uuid, int]:
        """Return the topic's id on the cluster, and the number of the partition."""
        return (self.topic_id, self.name.partition)

    @property
    def subject(self) -> str:
        """Return the name of the partition as text."""
        return str(self.name)

    @property
    def epoch_starts(self) -> list[int]:
        """Return the start offset of each leader epoch of the tier's records, from `start_offset` on."""
        own = self.decision.lineage.entries_in_range(self.start_offset, self.end_offset)
        return [entry.start_offset for entry in own]

    @property
    def is_damaged(self) -> bool:
        """Return whether something of the tier that was read is not understood."""
        return any(each.exit_code is ExitCode.CORRUPT for each in self.problems)

    def reader(self, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> PartitionReader:
        """Return a reader of the tier's records; it adds its errors to `problems`."""
        return PartitionReader(self.log, self.indexes, self.problems.append, isolation=isolation)


_S = RemoteLogSegmentState
_DELETED = {_S.DELETE_SEGMENT_STARTED, _S.DELETE_SEGMENT_FINISHED}
SegmentEvent = RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate
Key = tuple[Uuid, int]
"""Topic id and number of a partition."""


@dataclass(slots=True)
class PublishedLog:
    """The events about one partition, in the order of the metadata topic.

    `own_first` and `own_last` are the positions of the first and the last event that `rebuild` or `restore`
    published; None if they published none. `positions` has the position of each segment's first event.
    `deletions` has, for each segment that was finished before, the position of its first DELETE event.
    """

    segments: dict[Uuid, RemoteLogSegmentMetadata] = field(default_factory=dict)
    positions: dict[Uuid, int] = field(default_factory=dict)
    finished: set[Uuid] = field(default_factory=set)
    deletions: dict[Uuid, int] = field(default_factory=dict)
    discarded: set[Uuid] = field(default_factory=set)
    """The segments that are deleted without ever having been finished."""
    own_first: int | None = None
    own_last: int | None = None
    _events: int = 0

    def add(self, event: SegmentEvent, *, own_broker_id: int) -> None:
        """Add the next event; `own_broker_id` is the broker id in the events that tierctl published."""
        at, self._events = self._events, self._events + 1
        if event.broker_id == own_broker_id:
            self.own_first = at if self.own_first is None else self.own_first
            self.own_last = at
        segment_id = event.segment_id
        if isinstance(event, RemoteLogSegmentMetadata):
            self.segments[segment_id] = event
            self.positions.setdefault(segment_id, at)
        if event.state is _S.COPY_SEGMENT_FINISHED:
            self.finished.add(segment_id)
        elif event.state in _DELETED and segment_id in self.finished:
            self.deletions.setdefault(segment_id, at)
        elif event.state in _DELETED:
            self.discarded.add(segment_id)

    @property
    def served(self) -> set[Uuid]:
        """Return the finished segments, which brokers serve now."""
        return self.finished - self.deletions.keys()

    @property
    def deleted_since(self) -> list[RemoteLogSegmentMetadata]:
        """Return the finished segments deleted after tierctl published; all deleted ones if it did not."""
        since = self.own_first or 0
        return [
            self.segments[key] for key, at in self.deletions.items() if at >= since and key in self.segments
        ]

    @property
    def copied_since(self) -> list[RemoteLogSegmentMetadata]:
        """Return the segments whose copy began after tierctl's last event, in the order of events."""
        last = -1 if self.own_last is None else self.own_last
        return [self.segments[key] for key, at in self.positions.items() if at > last]

    @property
    def restored_end(self) -> int | None:
        """Return the offset after the segments finished up to tierctl's last event; None without any."""
        if self.own_last is None:
            return None
        ends = [
            self.segments[key].end_offset + 1
            for key in self.finished & self.segments.keys()
            if self.positions[key] <= self.own_last
        ]
        return max(ends, default=None)


def read_published(topic: MetadataTopic, *, own_broker_id: int) -> tuple[dict[Key, PublishedLog], int]:
    """Return the events of the metadata topic by partition, and the number of unreadable records."""
    found: dict[Key, PublishedLog] = {}
    unreadable = 0
    for chunk in record_chunks(topic, topic.end_offsets()):
        unreadable += len(chunk.damage)
        for value in chunk.values.to_pylist():
            if value is None:
                continue
            try:
                event = decode(value)
            except CorruptInputError:
                unreadable += 1
                continue
            if not isinstance(event, SegmentEvent):
                continue
            published = found.setdefault(event.topic_id_partition.key, PublishedLog())
            published.add(event, own_broker_id=own_broker_id)
    return found, unreadable


_NOT_FINISHED = "segment of the tier is not finished/segments of the tier are not finished"


def check_published(log: ExpectedLog, published: PublishedLog) -> Iterator[Result]:
    """Yield the results about one partition's deletions, finished segments, and next copy."""
    yield _deletions(log, published)
    if not log.is_materialised:
        count = len(log.decision.choice.chain)
        has = "segment that the tier's log has is" if count == 1 else "segments that the tier's log has are"
        yield decided(
            RestoreCheck.METADATA,
            log.subject,
            metadata_faults(log, published),
            f"the {count} {has} finished",
        )
    yield _next_copy(log, published)


def _deletions(log: ExpectedLog, published: PublishedLog) -> Result:
    gone = published.deleted_since
    is_old = published.own_first is None and not log.is_materialised
    if is_old and gone and all(each.end_offset < log.start_offset for each in gone):
        reason = (
            f"the metadata have no event of tierctl: {counted(len(gone), 'segment')} below the log start "
            f"{log.start_offset} may have been deleted long before"
        )
        return not_checked(RestoreCheck.DELETIONS, log.subject, reason)
    if not gone:
        count = len(published.finished)
        found = f"none of {count} finished {'segment' if count == 1 else 'segments'} is being deleted"
        return ok(RestoreCheck.DELETIONS, log.subject, found)
    first, last = min(each.start_offset for each in gone), max(each.end_offset for each in gone)
    found = (
        f"{counted(len(gone), 'finished segment')}, offsets {first} to {last}, "
        f"{'is' if len(gone) == 1 else 'are'} deleted or being deleted: "
        f"{_some(each.segment_id for each in gone)}"
    )
    return fault(RestoreCheck.DELETIONS, log.subject, found)


def metadata_faults(log: ExpectedLog, published: PublishedLog) -> Iterator[str]:
    """Yield the differences between the finished segments and the segments that `rebuild` would publish."""
    missing = []
    # Nobody publishes a segment wholly below the log start: its leader would delete it.
    for mine in (each for each in log.decision.choice.chain if each.end_offset >= log.start_offset):
        its = published.segments.get(mine.segment_id)
        is_being_copied = its is not None and its.broker_id is not None and its.broker_id >= 0
        if its is None or (mine.segment_id not in published.finished and not is_being_copied):
            missing.append(mine.segment_id)
        elif mine.segment_id in published.finished:
            yield from _differences(mine, its)
    if missing:
        yield f"{counted(len(missing), _NOT_FINISHED)}: {_some(missing)}"
    wrong = [
        segment.segment_id
        for segment, reason in log.decision.choice.discarded
        if reason.kind in {ReasonKind.OFF_LINEAGE, ReasonKind.INCOMPLETE_SET}
        and segment.segment_id in published.served
    ]
    if wrong:
        are = counted(len(wrong), "segment is finished that is/segments are finished that are")
        yield f"{are} not of this log, or not complete: {_some(wrong)}"


def _differences(mine: RemoteLogSegmentMetadata, its: RemoteLogSegmentMetadata) -> Iterator[str]:
    name = f"segment {mine.segment_id}"
    if (mine.start_offset, mine.end_offset) != (its.start_offset, its.end_offset):
        yield (
            f"{name} has offsets {its.start_offset} to {its.end_offset} in the metadata, {mine.start_offset} "
            f"to {mine.end_offset} in the tier"
        )
    if dict(mine.segment_leader_epochs) != dict(its.segment_leader_epochs):
        yield (f"{name} has {_epochs(its)} in the metadata, {_epochs(mine)} in the tier")


def _epochs(segment: RemoteLogSegmentMetadata) -> str:
    return epochs_text(segment.segment_leader_epochs)


def _next_copy(log: ExpectedLog, published: PublishedLog) -> Result:
    end = log.start_offset if log.is_materialised else published.restored_end
    if end is None:
        reason = "the metadata have no event of tierctl, so it is not known which copies are new"
        return not_checked(RestoreCheck.NEXT_COPY, log.subject, reason)
    new = published.copied_since
    if not new:
        reason = "not yet: no segment was copied since; check again after the first roll"
        return not_checked(RestoreCheck.NEXT_COPY, log.subject, reason)
    first = min(each.start_offset for each in new)
    if first < end:
        found = f"a segment was copied from offset {first} on, below {end}, where the tier ended"
    elif first > end:
        found = f"the first copy begins at offset {first}: offsets {end} to {first - 1} are not in the tier"
    else:
        found = f"{counted(len(new), 'segment was/segments were')} copied since, from offset {first} on"
        return ok(RestoreCheck.NEXT_COPY, log.subject, found)
    return fault(RestoreCheck.NEXT_COPY, log.subject, found)


_SETTLED_S = 30
_SETTLING_PAUSE_S = 1.0
_FIRST_WITH_LATEST_TIERED = KafkaVersion(3, 9)
"""The first version whose brokers report the latest tiered offset (KIP-1005)."""


def check_offsets(logs: Sequence[ExpectedLog], leaders: Cluster) -> Iterator[Result]:
    """Compare the offsets that leaders report with the tier's; wait while brokers still read the metadata."""
    deadline = time.monotonic() + _SETTLED_S
    waiting = list(logs)
    while waiting:
        is_last = time.monotonic() >= deadline
        wrong = []
        try:
            found = leaders.partition_offsets([each.name for each in waiting])
            configs = leaders.topic_configs(sorted({each.name.topic for each in waiting}))
            reports_tier = leaders.kafka_version() >= _FIRST_WITH_LATEST_TIERED
        except TierctlError as e:
            for each in waiting:
                yield prevented(RestoreCheck.OFFSETS, each.subject, e)
            return
        for each in waiting:
            offsets = found[each.name]
            is_copying = not configs[each.name.topic].is_copy_disabled
            faults = list(offset_faults(each, offsets, is_copying=is_copying and reports_tier))
            if faults and not is_last:
                wrong.append(each)
            else:
                yield decided(RestoreCheck.OFFSETS, each.subject, faults, _offsets_text(offsets))
        waiting = wrong
        if waiting:
            time.sleep(_SETTLING_PAUSE_S)


def offset_faults(expected: ExpectedLog, found: PartitionOffsets, *, is_copying: bool) -> Iterator[str]:
    """Yield the faults in the offsets that a leader reports.

    Unless `is_copying`, the leader need not report its latest tiered offset.
    """
    start, end, tiered = expected.start_offset, expected.end_offset, found.latest_tiered_offset
    if found.log_start_offset != start:
        yield f"earliest is {found.log_start_offset}, expected {start}"
    if found.high_watermark < end:
        yield f"latest is {found.high_watermark}, expected {end} or more"
    if not expected.is_materialised:
        if tiered is None and is_copying:
            yield f"latest-tiered is not reported, expected {end - 1}"
        if tiered is not None and tiered < end - 1:
            yield f"latest-tiered is {tiered}, expected {end - 1}"
    local = found.local_log_start_offset
    reached = max(end, -1 if tiered is None else tiered + 1)
    if local is not None and not start <= local <= reached:
        yield f"earliest-local is {local}, expected {start} to {reached}"


def _offsets_text(found: PartitionOffsets) -> str:
    def known(offset: int | None) -> str:
        return "not reported" if offset is None else str(offset)

    return (
        f"earliest {found.log_start_offset}, latest-tiered {known(found.latest_tiered_offset)}, "
        f"earliest-local {known(found.local_log_start_offset)}, latest {found.high_watermark}"
    )


def check_epochs(logs: Sequence[ExpectedLog], leaders: Cluster) -> Iterator[Result]:
    """Compare the leader epochs in the leaders' OffsetForLeaderEpoch responses with the tier's epochs."""
    for each in logs:
        yield from _epochs_in(each, "its leader", partial(leaders.leader_epochs, each.name))


def check_epoch_files(logs: Sequence[ExpectedLog], log_dirs: Sequence[Path]) -> Iterator[Result]:
    """Compare leader-epoch-checkpoint in each log directory that has the partition with the tier's epochs."""
    is_any = False
    for each in logs:
        for log_dir in log_dirs:
            path = log_dir / str(each.name) / LEADER_EPOCHS_FILE
            if is_file(path):
                is_any = True
                yield from _epochs_in(each, str(path), partial(_epochs_of_file, path))
    if logs and log_dirs and not is_any:
        named = ", ".join(map(str, log_dirs))
        reason = f"{named}: no partition of the tier has a {LEADER_EPOCHS_FILE} there"
        fix = "name the log directories of the brokers that have the topics"
        yield incomplete(RestoreCheck.LEADER_EPOCHS, "", reason, fix=fix)


def _epochs_of_file(path: Path) -> Sequence[EpochEntry]:
    return read_leader_epoch_checkpoint(read_regular(path))


def _epochs_in(
    expected: ExpectedLog, where: str, read: Callable[[], Sequence[EpochEntry]]
) -> Iterator[Result]:
    """Yield the result about the leader epochs that `read` returns; an error of it becomes the result.

    Below the tier's end they must equal the tier's.
    """
    check, subject, end = RestoreCheck.LEADER_EPOCHS, expected.subject, expected.end_offset

    def run() -> Iterator[Result]:
        found = read()
        own = Lineage(found).truncate_from_start(expected.start_offset).truncate_from_end(end)
        if own == expected.lineage:
            yield ok(check, subject, f"{where} has {epochs_text(found)}")
        else:
            wanted = epochs_text(expected.lineage.entries)
            text = f"{where} has {epochs_text(own.entries)} below offset {end}, the tier's log has {wanted}"
            yield fault(check, subject, text)

    return made([check], subject, run)


_RESTARTS = RestoreCheck.RESTARTS


@dataclass(slots=True)
class _Filled:
    """The metadata partitions that begin with an event of tierctl, by what their leader epochs show."""

    restarted: int
    same_leader: list[int]
    unknown: list[int]


def check_restarts(topic: MetadataTopic, leaders: Cluster, *, own_broker_id: int) -> Iterator[Result]:
    """Compare the leader epoch of tierctl's first event in each metadata partition with the present one.

    A broker's consumer remembers, for each metadata partition, the last offset that it read, and skips the
    others up to it: after the topic was deleted under it, these are new events. No offset or record shows
    this before new segments are copied, as the broker still knows the old ones. But each restart of a leader
    adds a leader epoch. Brokers that lead no metadata partition, and leaders that moved without a restart,
    are not found.

    Brokers that were down while the topic was emptied read it from its start when they boot, and need no
    restart. They are asked for it nevertheless: the topic id says nothing about what a consumer remembers,
    and a leader epoch above 0 before tierctl's first event is no proof, because a lost session or another
    broker's restart raises it, too.
    """
    facts = leaders.topics([METADATA_TOPIC]).get(METADATA_TOPIC)
    if facts is None or topic.topic_id not in {None, facts.topic_id}:
        reason = "the cluster has not the metadata topic that --metadata names"
        yield incomplete(_RESTARTS, "", reason, fix="give the metadata topic of this cluster as --metadata")
        return
    firsts = dict(_first_offsets(topic, own_broker_id))
    if not firsts:
        reason = (
            "no metadata partition begins with an event of tierctl, so that nothing shows whether the topic "
            "was created again under the brokers"
        )
        yield not_checked(_RESTARTS, "", reason)
        return
    found = _compare(firsts, leaders)
    if found.unknown:
        reason = (
            f"metadata partitions {found.unknown} have no leader, or it does not know their leader epochs"
        )
        yield incomplete(_RESTARTS, "", reason, fix="start all brokers, then check again")
    if found.same_leader:
        known = {each.leader for each in facts.partitions if each.partition in found.same_leader}
        brokers = sorted(each for each in known if each is not None)
        text = (
            f"brokers {brokers} were not restarted since tierctl filled the metadata topic: metadata "
            f"partitions {found.same_leader} still have the leader epoch of tierctl's first event"
        )
        yield fault(_RESTARTS, "", text)
    elif not found.unknown:
        states = f"{found.restarted} metadata partitions have a new leader epoch since tierctl filled them"
        yield ok(_RESTARTS, "", states)


def _first_offsets(topic: MetadataTopic, own_broker_id: int) -> Iterator[tuple[int, int]]:
    """Yield each partition whose first record is an event that tierctl published, with its offset."""
    ends = topic.end_offsets()
    for partition, start in sorted(topic.beginning_offsets().items()):
        if start >= ends.get(partition, 0):
            continue
        for chunk in topic.read(partition, start, start + 1):
            if any(_is_own(value, own_broker_id) for value in chunk.values.to_pylist()):
                yield partition, start


def _is_own(value: bytes | None, own_broker_id: int) -> bool:
    # The check `metadata` reports what can't be read.
    try:
        event = None if value is None else decode(value)
    except CorruptInputError:
        return False
    return isinstance(event, SegmentEvent) and event.broker_id == own_broker_id


def _compare(firsts: Mapping[int, int], cluster: Cluster) -> _Filled:
    current = cluster.leaders.current_epochs([METADATA_TOPIC])
    found = _Filled(0, [], [])
    for number, offset in firsts.items():
        name = TopicPartition(METADATA_TOPIC, number)
        now = current.get(name)
        known = () if now is None else cluster.leader_epochs(name)
        filled = max((each.epoch for each in known if each.start_offset <= offset), default=None)
        if now is None or filled is None:
            found.unknown.append(number)
        elif now > filled:
            found.restarted += 1
        else:
            found.same_leader.append(number)
    return found


_FORMAT = "tierctl listing 1"
_END = "end of the listing"
_SHOWN = 3
_LOGGED = re.compile(
    "Deleted remote log segment|About to delete remote log segment|caused truncation of conflicting entries"
)
_SEGMENT_ID = re.compile(r"(?<![A-Za-z0-9_-])[A-Za-z0-9_-]{22}(?![A-Za-z0-9_-])")

SetKey = tuple[Uuid, int, Uuid]
"""Topic id, partition and segment id of a set of objects."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The object sets of a tier at one time: the partition of each set, and the size of each object in it."""

    sets: Mapping[SetKey, tuple[TopicIdPartition, Mapping[int, int]]]

    @classmethod
    def of(cls, listed: Iterable[ListedSet]) -> Self:
        """Return the listing of these sets."""
        return cls(
            {(*each.partition.key, each.segment_id): (each.partition, each.sizes_bytes) for each in listed}
        )

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file that `write` wrote; raise NotFoundError or CorruptInputError."""
        found: dict[SetKey, tuple[TopicIdPartition, Mapping[int, int]]] = {}
        try:
            # Bytes that are no text are found in the first line that has them.
            opened = path.open("rb") if path.is_fifo() else os.fdopen(open_regular(path), "rb")
            with TextIOWrapper(opened, encoding="utf-8", errors="replace") as lines:
                if next(lines, "").rstrip("\n") != _FORMAT:
                    raise CorruptInputError(
                        "a listing of a tier", expected=_FORMAT, found="another first line", source=str(path)
                    )
                for number, line in enumerate(lines, 2):
                    if line.rstrip("\n") == _END:
                        return cls(found)
                    key, value = _parsed(line, f"{path}, line {number}")
                    found[key] = value
        except FileNotFoundError:
            raise NotFoundError(f"{path} does not exist", hint="--listing-out writes a listing") from None
        except OSError as e:
            raise UsageError(f"{path}: {e.strerror or e}", hint="--listing-out writes a listing") from None
        raise CorruptInputError(
            "a listing of a tier",
            expected=f"the last line {_END!r}",
            found=f"the end of the file after {counted(len(found), 'line')} with objects",
            source=str(path),
            hint="the file was cut off: name a whole copy of it",
        )

    def write(self, path: Path) -> None:
        """Write the listing, a line of JSON per set, and an end; raise as `require_listing_file`."""
        require_listing_file(path)
        lines = (
            json.dumps([str(key[0]), partition.topic, key[1], str(key[2]), sorted(sizes.items())])
            for key, (partition, sizes) in self.sets.items()
        )
        data = (f"{line}\n".encode() for line in (_FORMAT, *lines, _END))
        write_output("--listing-out", path, data, mode=0o666)

    @property
    def objects(self) -> int:
        """Return the number of objects."""
        return sum(len(sizes) for _, sizes in self.sets.values())

    @property
    def size_bytes(self) -> int:
        """Return the size of all objects together."""
        return sum(sum(sizes.values()) for _, sizes in self.sets.values())


def require_listing_file(path: Path) -> None:
    """Raise SafetyRefusal if `path` has content that is no listing; also raise those of `require_output`."""
    first = f"{_FORMAT}\n".encode()
    require_output("--listing-out", path, "listing", lambda head: head.startswith(first))


def _parsed(line: str, where: str) -> tuple[SetKey, tuple[TopicIdPartition, Mapping[int, int]]]:
    try:
        topic_id, topic, number, segment_id, sizes = json.loads(line)
        partition = TopicIdPartition(Uuid.parse(topic_id), str(topic), int(number))
        key = (*partition.key, Uuid.parse(segment_id))
        return key, (partition, {int(part): int(size) for part, size in sizes})
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError, UsageError) as e:
        raise CorruptInputError(
            "a line of a listing",
            expected="topic id, topic, partition, segment id, sizes",
            found=str(e),
            source=where,
        ) from None


def check_objects(before: Listing, after: Listing, *, since: str, expendable: frozenset[Uuid]) -> Result:
    """Compare two listings of the tier; `since` says when the first one was made.

    `expendable` are the segments that rebuild published as being deleted: brokers may delete their objects.
    """
    gone: list[str] = []
    changed: list[str] = []
    for key, (partition, sizes) in before.sets.items():
        if key[2] in expendable:
            continue
        now = after.sets.get(key, (partition, {}))[1]
        name = f"{partition.topic_partition} segment {key[2]}"
        if sizes.keys() - now.keys():
            gone.append(f"{name}: {len(sizes.keys() - now.keys())} of {len(sizes)}")
        elif any(now[part] != size for part, size in sizes.items()):
            changed.append(name)
    faults = [f"objects of {counted(len(gone), 'segment')} were deleted: {_some(gone)}"] if gone else []
    if changed:
        faults.append(f"objects of {counted(len(changed), 'segment')} have another size: {_some(changed)}")
    return decided(
        RestoreCheck.OBJECTS,
        "",
        faults,
        f"nothing was deleted since {since}: {before.objects} objects, {before.size_bytes} bytes; now "
        f"{after.objects} objects, {after.size_bytes} bytes",
    )


def _some(names: Iterable[object]) -> str:
    found = [*map(str, names)]
    return ", ".join(found[:_SHOWN]) + (", ..." if len(found) > _SHOWN else "")


def check_broker_logs(files: Sequence[Path], *, expendable: frozenset[Uuid]) -> Iterator[Result]:
    """Search brokers' logs for deletions of segments, and for leader epochs that brokers dropped."""
    for path in files:
        try:
            if path.stat().st_size == 0:
                error = NotFoundError(f"{path} is empty", hint="name the broker's log since it started")
                yield prevented(RestoreCheck.BROKER_LOGS, "", error)
                continue
            with path.open(encoding="utf-8", errors="replace") as lines:
                found = [line.strip() for line in lines if _is_fault(line, expendable)]
        except OSError as e:
            error = NotFoundError(f"{path}: {e.strerror or e}", hint="name the log of a broker: server.log")
            yield prevented(RestoreCheck.BROKER_LOGS, "", error)
            continue
        yield decided(
            RestoreCheck.BROKER_LOGS,
            "",
            [f"{path}: {counted(len(found), 'line')}, the first: {found[0]}"] if found else [],
            f"{path} has no deletion of a segment, and no dropped leader epoch",
        )


def _is_fault(line: str, expendable: frozenset[Uuid]) -> bool:
    return bool(_LOGGED.search(line)) and not any(each in expendable for each in _SEGMENT_ID.findall(line))
