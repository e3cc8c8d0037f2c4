"""`segments`: list remote segments, find one of them, sum up their sizes, or check their offsets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from itertools import chain, groupby
from typing import Annotated, TypedDict, overload

import numpy as np
import typer

from tierctl.checks.findings import FINDINGS, Finding
from tierctl.commands.histories import read_selected
from tierctl.commands.request import Request
from tierctl.commands.resources import Resources
from tierctl.errors import (
    CorruptInputError,
    ExitCode,
    NotFoundError,
    RemoteResourceNotFound,
    SafetyRefusal,
    UsageError,
)
from tierctl.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition, Uuid
from tierctl.model.choices import Severity
from tierctl.model.progress import Progress, SilentProgress
from tierctl.model.times import TIME_FORMS, iso_utc, parse_time_ms
from tierctl.report import columns as f
from tierctl.report.columns import Columns, Field, Kind, Shown
from tierctl.report.render import SHOW
from tierctl.report.results import TableResult, TableRows
from tierctl.state.lineage import RemoteLogMetadataCache
from tierctl.state.table import live_topics
from tierctl.state.tier_state import SegmentSizes, sizes_by_partition

_FIND = "Which segments"


class SizesBy(StrEnum):
    """The groups whose sizes are summed up."""

    TOPIC = "topic"
    EPOCH = "epoch"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentsRequest(Request):
    """A request about remote segments: at most one of the five questions below; default: list them."""

    include_deleted: Annotated[
        bool,
        typer.Option("--all", help="Also list segments whose deletion has finished.", rich_help_panel=_FIND),
    ] = False
    epoch: Annotated[
        int | None,
        typer.Option(
            metavar="E",
            min=0,
            help="With --offset: the leader epoch of the offset. Default: its epoch in the current lineage.",
            rich_help_panel=_FIND,
        ),
    ] = None
    offset: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="Find the segment from which a broker reads this offset.",
            rich_help_panel=_FIND,
        ),
    ] = None
    time_ms: Annotated[
        int | None,
        typer.Option(
            "--time",
            metavar="TIME",
            parser=parse_time_ms,
            help="Find the first segment of the current leader epochs with a record of this time or later; "
            f"{TIME_FORMS}.",
            rich_help_panel=_FIND,
        ),
    ] = None
    sizes: Annotated[
        bool,
        typer.Option(
            help="Print sizes by topic: of the segments' logs, and with --remote of all objects.",
            rich_help_panel=SHOW,
        ),
    ] = False
    by: Annotated[
        SizesBy,
        typer.Option(
            help="With --sizes: by topic, or by leader epoch of partitions, where a segment counts in each "
            "of its epochs as in a broker's remoteLogSize.",
            rich_help_panel=SHOW,
        ),
    ] = SizesBy.TOPIC
    offsets: Annotated[
        bool,
        typer.Option(
            help="Print the earliest, earliest-local, latest-tiered, earliest-pending-upload (-6, from Kafka "
            "4.2 on) and latest offset of each partition, named as in GetOffsetShell.",
            rich_help_panel=SHOW,
        ),
    ] = False
    check: Annotated[
        bool,
        typer.Option(
            help="Print problems: wrong offsets, gaps, and duplicate and divergent segments. Exit with code "
            "3 if a problem is more than information.",
            rich_help_panel=SHOW,
        ),
    ] = False

    @property
    def columns(self) -> Columns:
        """The columns of the rows that answer the request."""
        if self.check:
            return FINDINGS
        if self.offsets:
            return PARTITION_OFFSETS
        if self.sizes:
            return TOPIC_SIZES if self.by is SizesBy.TOPIC else EPOCH_SIZES
        return SEGMENTS


class SegmentRow(TypedDict):
    """A segment, by the fields of its metadata; a field that its dialect does not have is None."""

    topic: Annotated[str, f.TOPIC, Shown(0)]
    topic_id: Annotated[str, f.TOPIC_ID]
    partition: Annotated[int, f.PARTITION, Shown(0)]
    segment_id: Annotated[str, f.SEGMENT_ID, Shown(5)]
    start_offset: Annotated[int, f.START_OFFSET, Shown(0)]
    end_offset: Annotated[int, f.END_OFFSET, Shown(1)]
    broker_id: Annotated[int | None, f.BROKER_ID, Shown(8, in_table=False)]
    max_timestamp_ms: Annotated[int | None, f.MAX_TIMESTAMP_MS, Shown(3, in_table=False)]
    event_timestamp_ms: Annotated[int | None, f.EVENT_TIMESTAMP_MS, Shown(7, in_table=False)]
    segment_leader_epochs: Annotated[list[tuple[int, int]] | None, f.SEGMENT_LEADER_EPOCHS, Shown(6)]
    segment_size_in_bytes: Annotated[int | None, f.SEGMENT_SIZE_IN_BYTES, Shown(2)]
    custom_metadata: Annotated[str | None, f.CUSTOM_METADATA]
    state: Annotated[str, f.STATE, Shown(4)]
    txn_index_empty: Annotated[bool | None, f.TXN_INDEX_EMPTY]


SEGMENTS = Columns(
    SegmentRow,
    name="segments",
    title="Remote segments",
    commands="segments",
    noun="segment",
    size="segment_size_in_bytes",
    terminal=(
        "topic",
        "partition",
        "segment_id",
        "start_offset",
        "end_offset",
        "segment_leader_epochs",
        "segment_size_in_bytes",
        "max_timestamp_ms",
        "event_timestamp_ms",
        "broker_id",
        "state",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSize:
    """The remote segments of one topic id, summed up by state."""

    topic: Annotated[str, f.TOPIC, Shown(0)]
    topic_id: Annotated[Uuid, f.TOPIC_ID, Shown(8, in_table=False)]
    partitions: Annotated[int, f.PARTITIONS, Shown(3)]
    segments: Annotated[int, f.SEGMENTS, Shown(1)]
    """Segments in state COPY_SEGMENT_FINISHED: brokers count no others as size (KAFKA-17062)."""
    log_bytes: Annotated[int, f.LOG_BYTES, Shown(0)]
    copying_segments: Annotated[
        int, Field(Kind.NUMBER, "segments with COPY_SEGMENT_STARTED", "copying"), Shown(4)
    ]
    """Segments in state COPY_SEGMENT_STARTED."""
    copying_bytes: Annotated[
        int, Field(Kind.BYTES, "size of their logs", "copying_size"), Shown(6, in_table=False)
    ]
    deleting_segments: Annotated[
        int, Field(Kind.NUMBER, "segments with DELETE_SEGMENT_STARTED", "deleting"), Shown(5)
    ]
    """Segments in state DELETE_SEGMENT_STARTED."""
    deleting_bytes: Annotated[
        int, Field(Kind.BYTES, "size of their logs", "deleting_size"), Shown(7, in_table=False)
    ]
    objects: Annotated[int | None, Field(Kind.NUMBER, "objects in the store of all these segments")]
    """Objects of the segments in all of these states; None if the store was not asked."""
    object_bytes: Annotated[int | None, Field(Kind.BYTES, "size of these objects", "stored"), Shown(2)]


TOPIC_SIZES = Columns(
    TopicSize,
    name="sizes",
    title="Sizes by topic",
    commands="segments --sizes",
    noun="topic",
    size="log_bytes",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochSize:
    """The segments that a leader epoch of a partition lists, as remoteLogSize counts them (KIP-852).

    A segment with several leader epochs counts in each of them, in whole; one that is being copied or deleted
    counts, too.
    """

    topic: Annotated[str, f.TOPIC, Shown(0)]
    topic_id: Annotated[Uuid, f.TOPIC_ID, Shown(4)]
    partition: Annotated[int, f.PARTITION, Shown(0)]
    leader_epoch: Annotated[int, f.LEADER_EPOCH, Shown(0)]
    segments: Annotated[int, Field(Kind.NUMBER, "segments that have the leader epoch"), Shown(1)]
    log_bytes: Annotated[int, f.LOG_BYTES, Shown(0)]


EPOCH_SIZES = Columns(
    EpochSize,
    name="epoch-sizes",
    title="Sizes by leader epoch",
    commands="segments --sizes --by epoch",
    noun="leader epoch",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsets:
    """The offsets of one partition, named as GetOffsetShell names them; None for an unknown offset.

    `latest_tiered` is the highest offset of the current lineage that the metadata record as copied.
    `earliest_pending_upload` is the first offset that is still to be copied (KIP-1023): the leader's answer,
    None from brokers before Kafka 4.2. Without a cluster it follows from the other offsets.
    """

    topic: Annotated[str, f.TOPIC, Shown(0)]
    topic_id: Annotated[Uuid, f.TOPIC_ID, Shown(5)]
    partition: Annotated[int, f.PARTITION, Shown(0)]
    earliest: Annotated[int | None, Field(Kind.NUMBER, "first offset that can be read"), Shown(1)]
    earliest_local: Annotated[int | None, Field(Kind.NUMBER, "first offset of the local log"), Shown(3)]
    latest_tiered: Annotated[int | None, Field(Kind.NUMBER, "last offset that was copied"), Shown(2)]
    earliest_pending_upload: Annotated[
        int | None, Field(Kind.NUMBER, "first offset that is still to be copied", "pending"), Shown(4)
    ]
    latest: Annotated[
        int | None, Field(Kind.NUMBER, "offset after the last record that consumers can read"), Shown(1)
    ]


PARTITION_OFFSETS = Columns(
    PartitionOffsets,
    name="offsets",
    title="Offsets by partition",
    commands="segments --offsets",
    noun="partition",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentsResult(TableResult):
    """The answer to a `SegmentsRequest`; all rows are of the class that the request asks for."""

    rows: Sequence[RemoteLogSegmentMetadata | TopicSize | EpochSize | PartitionOffsets | Finding]
    exit_code: ExitCode
    columns: Columns
    """The columns of the rows."""

    def table_rows(self) -> TableRows:
        """Implement `TableResult.table_rows`."""
        return self.columns, self.rows


def segments(request: SegmentsRequest, progress: Progress | None = None) -> SegmentsResult:
    """Answer the request from the metadata, and from the tier, the logs and the cluster if they are named.

    Segments are sorted by topic, partition, start offset and time of the last event. Unreadable metadata
    records are reported as problems and make the exit code 7. Raise UsageError for contradicting flags,
    NotFoundError if the selection or the segment does not exist, and the errors of metadata and tier.
    """
    _require_one_question(request)
    with Resources(request=request, progress=progress or SilentProgress()) as resources:
        if request.check:
            from tierctl.commands.lineage_questions import find_problems

            findings = find_problems(resources)
            exit_code = _exit_code_of_check(resources, findings)
            return SegmentsResult(rows=findings, exit_code=exit_code, columns=FINDINGS)
        rows = _rows(resources, request)
        columns = request.columns
        return SegmentsResult(rows=rows, exit_code=resources.problems.exit_code, columns=columns)


SEGMENT_ROWS = (SEGMENTS, TOPIC_SIZES, EPOCH_SIZES, PARTITION_OFFSETS, FINDINGS)


def _rows(
    resources: Resources, request: SegmentsRequest
) -> Sequence[RemoteLogSegmentMetadata | TopicSize | EpochSize | PartitionOffsets]:
    if request.offsets:
        from tierctl.commands.lineage_questions import partition_offsets

        return [
            PartitionOffsets(
                topic=partition.topic,
                topic_id=partition.topic_id,
                partition=partition.partition,
                **found._asdict(),
            )
            for partition, found in partition_offsets(resources)
        ]
    if request.sizes and request.by is SizesBy.EPOCH:
        return list(_sizes_by_epoch(resources))
    if request.sizes:
        return _sizes(resources, include_deleted=request.include_deleted)
    return _chosen_segments(resources, request)


def _require_one_question(request: SegmentsRequest) -> None:
    """Raise UsageError for flags that contradict each other."""
    if request.epoch is not None and request.offset is None:
        raise UsageError("--epoch needs --offset", hint="name the offset to find")
    if request.offset is not None and request.time_ms is not None:
        raise UsageError("--offset and --time exclude each other", hint="give one of them")
    finds_one = request.offset is not None or request.time_ms is not None
    if sum((finds_one, request.include_deleted, request.check, request.offsets)) > 1:
        raise UsageError("--all, --check, --offsets, --offset and --time exclude each other")
    if request.by is SizesBy.EPOCH and not (request.sizes and not request.include_deleted):
        raise UsageError(
            "--by epoch goes with --sizes, and not with --all",
            hint="leader epochs list no deleted segments: 'tierctl segments --sizes --by epoch'",
        )
    if request.sizes and (finds_one or request.check or request.offsets):
        raise UsageError(
            "--sizes can't be used with --check, --offsets, --offset or --time",
            hint="narrow it with --topic or --partition",
        )


def _order(segment: RemoteLogSegmentMetadata) -> tuple[str, int, int, int, str, str]:
    return (
        segment.topic,
        segment.partition,
        segment.start_offset,
        segment.event_timestamp_ms,
        segment.topic_id,
        segment.segment_id,
    )


class _Listed(Sequence[RemoteLogSegmentMetadata]):
    """All segments of user partitions in `_order`, each made when it is read: a tier has millions."""

    def __init__(self, caches: Iterable[RemoteLogMetadataCache]) -> None:
        self._caches = sorted(caches, key=_partition_of)

    def __len__(self) -> int:
        return sum(map(len, self._caches))

    def __iter__(self) -> Iterator[RemoteLogSegmentMetadata]:
        # A topic that was created again has several user partitions of the same name and number.
        for _, caches in groupby(self._caches, key=_partition_of):
            found = chain.from_iterable(cache.list_remote_log_segments() for cache in caches)
            yield from sorted(found, key=_order)

    @overload
    def __getitem__(self, index: int) -> RemoteLogSegmentMetadata: ...
    @overload
    def __getitem__(self, index: slice) -> list[RemoteLogSegmentMetadata]: ...
    def __getitem__(self, index: int | slice) -> RemoteLogSegmentMetadata | list[RemoteLogSegmentMetadata]:
        return list(self)[index]


def _partition_of(cache: RemoteLogMetadataCache) -> tuple[str, int]:
    partition = cache.table.topic_id_partition(cache.number)
    return partition.topic, partition.partition


def _chosen_segments(resources: Resources, request: SegmentsRequest) -> Sequence[RemoteLogSegmentMetadata]:
    """Return the segments that are listed or found, in `_order`."""
    if request.time_ms is not None or (request.offset is not None and request.epoch is None):
        from tierctl.commands.lineage_questions import segments_by_offset, segments_by_time

        if request.offset is not None:
            message = f"no segment of the current lineage holds offset {request.offset}"
            return _require_found(segments_by_offset(resources, request.offset), message)
        assert request.time_ms is not None
        message = f"no segment has a timestamp of {iso_utc(request.time_ms)} or later"
        return _require_found(segments_by_time(resources, request.time_ms), message)
    state, selection = read_selected(resources), resources.selection
    caches = [part.cache for part in state if part.topic_id_partition in selection]
    if request.epoch is not None and request.offset is not None:
        epoch, offset = request.epoch, request.offset
        answers = (cache.remote_log_segment_metadata(epoch, offset) for cache in caches)
        return _require_found(answers, f"no segment holds offset {offset} of leader epoch {epoch}")
    listed = _Listed(caches)
    return sorted(chain(listed, _deleted(resources)), key=_order) if request.include_deleted else listed


def _require_found(
    answers: Iterable[RemoteLogSegmentMetadata | None], message: str
) -> list[RemoteLogSegmentMetadata]:
    """Return the answers that are not None, in `_order`; raise NotFoundError with `message` without any."""
    found = sorted((answer for answer in answers if answer is not None), key=_order)
    if not found:
        raise NotFoundError(message, hint="'tierctl segments' lists the segments of the tier")
    return found


def _deleted(resources: Resources) -> Iterator[RemoteLogSegmentMetadata]:
    """Yield the deleted segments of the selected partitions."""
    from tierctl.metadata.daily_changes import deleted_segments

    found, selection = deleted_segments(resources.metadata_topic()), resources.selection
    return (segment for segment in found if segment.topic_id_partition in selection)


def _sizes(resources: Resources, *, include_deleted: bool) -> list[TopicSize]:
    """Return the sums by topic id; objects are counted if a tier is named and the topic's name is legal.

    With `include_deleted`, the objects and partitions of deleted segments are counted, too.
    """
    has_tier = resources.request.remote is not None
    state, selection = read_selected(resources, sizes_only=not has_tier), resources.selection
    by_topic: defaultdict[tuple[str, Uuid], _TopicSum] = defaultdict(_TopicSum)
    tables = [*state.tables.values()]
    sizes = sizes_by_partition(tables)
    users = [(t, number) for t in tables for number in range(len(t.partitions))] if has_tier else []
    for name, topic_id, places, partitions in live_topics(tables):
        chosen = np.ones(len(places), np.bool_)
        if selection.narrows:
            chosen[:] = [selection.matches(name, topic_id, number) for number in partitions.tolist()]
        if chosen.any():
            topic = by_topic[name, topic_id]
            topic.partitions.update(partitions[chosen].tolist())
            topic.sizes = sizes.total(places[chosen])
            for table, number in (users[place] for place in places[chosen].tolist()) if has_tier else ():
                found = RemoteLogMetadataCache(table, number).list_remote_log_segments()
                topic.count_objects(resources, table.topic_id_partition(number), found)
    for segment in _deleted(resources) if include_deleted else ():
        topic = by_topic[segment.topic, segment.topic_id]
        topic.partitions.add(segment.partition)
        if has_tier:
            topic.count_objects(resources, segment.topic_id_partition, [segment])
    return [topic.row(*key, has_tier=has_tier) for key, topic in sorted(by_topic.items())]


def _sizes_by_epoch(resources: Resources) -> Iterator[EpochSize]:
    """Yield the sizes of the leader epochs that list segments, by topic, partition and epoch.

    A leader epoch that still lists a deleted segment has no size, as in a broker; it is a problem.
    """
    state, selection = read_selected(resources), resources.selection
    caches = {part.topic_id_partition: part.cache for part in state if part.topic_id_partition in selection}
    for partition in sorted(caches, key=lambda each: (each.topic, each.partition, each.topic_id)):
        for epoch in caches[partition].leader_epochs():
            try:
                segments, log_bytes = caches[partition].remote_log_size(epoch)
            except RemoteResourceNotFound as e:
                resources.problems.report(e)
                continue
            if segments:
                yield EpochSize(
                    topic=partition.topic,
                    topic_id=partition.topic_id,
                    partition=partition.partition,
                    leader_epoch=epoch,
                    segments=segments,
                    log_bytes=log_bytes,
                )


@dataclass(slots=True)
class _TopicSum:
    """The partitions, sizes and objects of one topic id."""

    partitions: set[int] = field(default_factory=set)
    sizes: SegmentSizes = field(default_factory=partial(SegmentSizes.empty, 1))
    is_legal: bool = True
    objects: int = 0
    object_bytes: int = 0

    def count_objects(
        self,
        resources: Resources,
        partition: TopicIdPartition,
        segments: Iterable[RemoteLogSegmentMetadata],
    ) -> None:
        """Add the objects of `segments` of `partition`, unless the topic has an illegal name.

        A segment whose record names illegal objects is reported, and the topic's objects are not counted.
        """
        from tierctl.read.partition_reader import illegal_name_error

        self.is_legal &= illegal_name_error(partition) is None
        for segment in segments if self.is_legal else ():
            try:
                found = resources.remote.objects_of(segment)
            except (CorruptInputError, SafetyRefusal) as e:
                resources.problems.report(e)
                self.is_legal = False
                continue
            self.objects += len(found)
            self.object_bytes += sum(each.size_bytes for each in found)

    def row(self, topic: str, topic_id: Uuid, *, has_tier: bool) -> TopicSize:
        """Return the sums as a row; without a tier, or with an illegal name, objects are not counted."""
        segments, log_bytes = self.sizes.of(0, RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
        copying_segments, copying_bytes = self.sizes.of(0, RemoteLogSegmentState.COPY_SEGMENT_STARTED)
        deleting_segments, deleting_bytes = self.sizes.of(0, RemoteLogSegmentState.DELETE_SEGMENT_STARTED)
        is_counted = has_tier and self.is_legal
        return TopicSize(
            topic=topic,
            topic_id=topic_id,
            partitions=len(self.partitions),
            segments=segments,
            log_bytes=log_bytes,
            copying_segments=copying_segments,
            copying_bytes=copying_bytes,
            deleting_segments=deleting_segments,
            deleting_bytes=deleting_bytes,
            objects=self.objects if is_counted else None,
            object_bytes=self.object_bytes if is_counted else None,
        )


def _exit_code_of_check(resources: Resources, findings: Iterable[Finding]) -> ExitCode:
    if resources.problems.exit_code is not ExitCode.OK:
        return resources.problems.exit_code
    is_serious = any(finding.severity is not Severity.INFO for finding in findings)
    return ExitCode.PARTIAL if is_serious else ExitCode.OK
