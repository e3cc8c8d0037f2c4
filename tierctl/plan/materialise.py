"""Decide which segments of a tier are written as the local log of a new topic; pure functions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Self

from tierctl.errors import UsageError
from tierctl.model import TopicIdPartition, TopicPartition, Uuid
from tierctl.model.times import parse_time_ms
from tierctl.plan.steps import LOG_DIR, Action, Basis, Plan, Skip, Step
from tierctl.state.lineage import SegmentSpan

MATERIALISE = "restore log"
"""The command of these plans."""
AS_TOPIC, AS_TOPIC_ID = "as_topic", "as_topic_id"
"""Details: name and id of the new topic."""
SEGMENTS = "segment_parts"
"""Detail: objects with the id of each segment, and the first and the last of its offsets that are written."""
WITHOUT_KEYS = "without_keys_sha256"
"""Detail: SHA-256 of the digests of the keys whose records are erased."""
ROOM_BYTES = "room_bytes"
"""Detail: bytes of disk that the files of a log need."""
_INDEX_SHARE = 0.01
"""Bytes of the indexes for each byte of a log, at most (index.interval.bytes=4096)."""
_INDEX_MIN = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Until:
    """Where logs end: before an offset by partition, and before the first record later than `time_ms`."""

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    time_ms: int | None = None

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Self:
        """Return the values of --until; UsageError for a wrong or repeated one."""
        offsets: dict[TopicPartition, int] = {}
        times: list[int] = []
        for text in texts:
            name, equals, offset = text.rpartition("=")
            if not equals:
                times.append(parse_time_ms(text))
                continue
            partition = TopicPartition.parse(name)
            if not (offset.isascii() and offset.isdigit() and int(offset) < 1 << 63) or partition in offsets:
                raise UsageError(
                    f"--until {text}: expected TOPIC-PARTITION=OFFSET once for a partition, or a time"
                )
            offsets[partition] = int(offset)
        if len(times) > 1:
            raise UsageError("--until names several times", hint="an offset is TOPIC-PARTITION=OFFSET")
        return cls(offsets=offsets, time_ms=times[0] if times else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The location of a new log: a log directory, and the content of the partition's folder there.

    `topic_id` is that of the folder, None without one. `segments` has base offset and size of each segment in
    the folder.
    """

    log_dir: Path
    topic_id: Uuid | None = None
    segments: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The records of one partition in a tier.

    `spans` ascend; `until_offset` ends the log before its end. `undecided` states why the tier alone does not
    show which records the log had. `without_keys` identifies the keys whose records are erased; `listed` then
    has base offset and size of each segment of the log that a signed list of these records names.
    """

    partition: TopicIdPartition
    spans: Sequence[SegmentSpan]
    targets: Sequence[Target]
    as_topic: str
    as_topic_id: Uuid | None
    until_offset: int | None = None
    undecided: str | None = None
    without_keys: str | None = None
    listed: Sequence[tuple[int, int]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MaterialisePlan:
    """The plan, and by partition the reasons that forbid it.

    `largest_bytes` is the size of the largest segment: each task needs it, beside the log that it writes.
    """

    plan: Plan
    refused: Mapping[TopicIdPartition, str]
    largest_bytes: int


def plan_materialise(
    sources: Iterable[Source], *, read: Mapping[int, int], after_hole: bool = False
) -> MaterialisePlan:
    """Return a step for each log that is written, one per replica.

    `read` are the offsets up to which metadata were read. A partition is refused if offsets are missing,
    unless `after_hole` drops those below the last hole; if a folder has records, or belongs to another topic.
    """
    steps: list[Step] = []
    skipped: list[Skip] = []
    refused: dict[TopicIdPartition, str] = {}
    largest_bytes = 0
    for source in sources:
        spans, note = _chosen(source, after_hole=after_hole)
        reason = source.undecided or _why_refused(source, spans)
        if reason is not None:
            refused[source.partition] = reason
            skipped.append(Skip.of(source.partition, reason))
            continue
        largest_bytes = max(largest_bytes, *(span.segment.segment_size_in_bytes for span in spans))
        if note is not None:
            skipped.append(Skip.of(source.partition, note))
        for target in source.targets:
            why = _why_not_into(source, spans, target)
            if why is not None:
                refused[source.partition] = why
            if why is not None or is_restored(target, source, spans):
                reason = why or f"{target.log_dir} has the records already"
                skipped.append(Skip.of(source.partition, reason))
            else:
                steps.append(_step(source, spans, target))
    plan = Plan(command=MATERIALISE, steps=tuple(steps), read=read, skipped=tuple(skipped), basis=Basis())
    return MaterialisePlan(plan=plan, refused=refused, largest_bytes=largest_bytes)


def _chosen(source: Source, *, after_hole: bool) -> tuple[Sequence[SegmentSpan], str | None]:
    """Return the spans below `until_offset`, with `after_hole` those after the last hole, and a note."""
    spans = (
        [
            span._replace(to_offset=min(span.to_offset, source.until_offset - 1))
            for span in source.spans
            if span.from_offset < source.until_offset
        ]
        if source.until_offset is not None
        else list(source.spans)
    )
    holes = list(_holes(spans))
    if not holes or not after_hole:
        return spans, None
    at, first, last = holes[-1]
    return spans[at:], f"no segment has offsets {first} to {last}: the log begins after them"


def _holes(spans: Sequence[SegmentSpan]) -> Iterator[tuple[int, int, int]]:
    """Yield the number of the span after each hole, and the hole's first and last offset."""
    for number, (one, following) in enumerate(pairwise(spans), 1):
        if following.from_offset > one.to_offset + 1:
            yield number, one.to_offset + 1, following.from_offset - 1


def _why_refused(source: Source, spans: Sequence[SegmentSpan]) -> str | None:
    if not spans:
        below = "" if source.until_offset is None else f" below offset {source.until_offset}"
        return f"the tier has no record of it{below}"
    hole = next(_holes(spans), None)
    if hole is not None:
        return (
            f"no segment has offsets {hole[1]} to {hole[2]}: --until ends the log before them, --after-hole "
            "begins it after the last such hole"
        )
    if not source.targets:
        return (
            "no log directory has a folder of it: create the new topic and stop its brokers, or name one log "
            "directory only"
        )
    return None


def _why_not_into(source: Source, spans: Sequence[SegmentSpan], target: Target) -> str | None:
    """Return why the log may not be written into `target`; None if it may, or is there already."""
    folder = target.log_dir / f"{source.as_topic}-{source.partition.partition}"
    reason = _why_not_id(source, target, folder)
    if reason is not None or is_restored(target, source, spans):
        return reason
    if any(size for _, size in target.segments):
        unlisted = ", and no signed list says that it has none of these keys"
        return f"{folder} has records{unlisted if source.without_keys is not None else ''}"
    start = spans[0].from_offset
    if any(base not in {0, start} for base, _ in target.segments):
        return f"{folder} had records: its log begins at offset {target.segments[0][0]}"
    return None


def _why_not_id(source: Source, target: Target, folder: Path) -> str | None:
    """Return why the new topic's id is unknown or wrong; None if it is known."""
    if target.topic_id is None and source.as_topic_id is None:
        return f"{folder} has no topic id: name that of the new topic with --as-id"
    if target.topic_id is not None and source.as_topic_id not in {None, target.topic_id}:
        return f"{folder} is of topic id {target.topic_id}, not {source.as_topic_id}"
    if source.partition.topic_id == (source.as_topic_id or target.topic_id):
        return (
            f"{folder} is of the topic that is restored: brokers would find its segments in their metadata; "
            "restore it as a new topic"
        )
    return None


def is_restored(target: Target, source: Source, spans: Sequence[SegmentSpan]) -> bool:
    """Return whether the target has the log of `spans`, from a run that was killed after its rename."""
    found = list(target.segments)
    if not found or found[-1][0] <= spans[-1].to_offset:
        return False
    if source.until_offset is not None and len(found) == len(spans) > 1:
        # Where compaction removed all records of the last span, it has no segment.
        spans = spans[:-1]
    if len(found) != len(spans) + 1:
        return False
    if source.without_keys is not None:
        return source.listed is not None and found[:-1] == list(source.listed)
    if [base for base, _ in found[1:-1]] != [span.from_offset for span in spans[1:]]:
        return False
    # The first and the last segment are not compared by size: only a part of their records may have been
    # written.
    whole = zip(found[1:-2], spans[1:-1], strict=True)
    return found[0][1] > 0 and all(size == span.segment.segment_size_in_bytes for (_, size), span in whole)


def _step(source: Source, spans: Sequence[SegmentSpan], target: Target) -> Step:
    partition = source.partition
    topic_id = source.as_topic_id or target.topic_id
    return Step(
        action=Action.MATERIALISE_PARTITION,
        reason=f"{len(spans)} segments as the local log of {source.as_topic}-{partition.partition}",
        topic=partition.topic,
        topic_id=partition.topic_id,
        partition=partition.partition,
        start_offset=spans[0].from_offset,
        end_offset=spans[-1].to_offset,
        details={
            LOG_DIR: str(target.log_dir),
            AS_TOPIC: source.as_topic,
            AS_TOPIC_ID: str(topic_id),
            "segment_size_in_bytes": sum(span.segment.segment_size_in_bytes for span in spans),
            ROOM_BYTES: _room_bytes(spans),
            **({} if source.without_keys is None else {WITHOUT_KEYS: source.without_keys}),
            SEGMENTS: [
                {
                    "segment_id": str(span.segment.segment_id),
                    "start_offset": span.from_offset,
                    "end_offset": span.to_offset,
                }
                for span in spans
            ],
        },
    )


def _room_bytes(spans: Sequence[SegmentSpan]) -> int:
    """Return the bytes of disk that the files of the log need."""
    sizes = [span.segment.segment_size_in_bytes for span in spans]
    return sum(int(size * (1 + _INDEX_SHARE)) + _INDEX_MIN for size in sizes)
