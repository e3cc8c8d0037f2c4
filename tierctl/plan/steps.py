"""The parts of a plan: the steps of a mutating command, and their JSON form for --plan-out and `apply`."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Self

from tierctl.errors import SafetyRefusal
from tierctl.model import RemoteLogSegmentMetadata, TopicConfig, TopicIdPartition, Uuid
from tierctl.model.checked_values import TEXT_OR_NULL, Types, require_types
from tierctl.model.times import iso_utc
from tierctl.plan.decisions import Decision, NextAction
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.state.tier_state import PartitionState


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """The settings of topics by name, and the log start offsets of partitions, from which a plan was decided.

    A topic without known settings is not in `configs`; a partition without a known log is not in
    `log_starts`.
    """

    configs: Mapping[str, TopicConfig] = field(default_factory=dict)
    log_starts: Mapping[TopicIdPartition, int] = field(default_factory=dict)

    def settings_of(self, topics: Collection[str]) -> dict[str, dict[str, Any]]:
        """Return the known settings of `topics` as JSON values."""
        return {topic: _as_json(self.configs[topic]) for topic in sorted(topics) if topic in self.configs}

    def log_starts_of(self, partitions: Collection[TopicIdPartition]) -> dict[str, int]:
        """Return the known log starts of `partitions` by topicId:topic-partition."""
        known = self.log_starts
        return {str(partition): known[partition] for partition in sorted(partitions) if partition in known}


def _as_json(config: TopicConfig) -> dict[str, Any]:
    values = asdict(config) | {"kafka_version": str(config.kafka_version)}
    # The decision depends on the value, not on its source.
    del values["stated"]
    return {name: sorted(v) if isinstance(v, frozenset) else v for name, v in values.items()}


class Action(StrEnum):
    """The change that one step makes."""

    COPY_SEGMENT = "copy_segment"
    DELETE_SEGMENT = "delete_segment"
    MARK_PARTITION = "mark_partition"
    DELETE_PARTITION = "delete_partition"
    WRITE_CHECKPOINTS = "write_checkpoints"
    PUBLISH_SEGMENT = "publish_segment"
    DISCARD_SEGMENT = "discard_segment"
    MATERIALISE_PARTITION = "materialise_partition"
    STORE_INDEXES = "store_indexes"
    RESTORE_PARTITION = "restore_partition"
    CREATE_TOPIC = "create_topic"
    COPY_OBJECTS = "copy_objects"
    LOWER_OFFSET = "lower_offset"


_NEXT_ACTIONS = {Action.COPY_SEGMENT: NextAction.COPY, Action.DELETE_SEGMENT: NextAction.DELETE}
"""The actions of steps that `copy`, `sweep` and `delete` take in place of brokers."""

REBUILD = "rebuild"
"""The command whose plans publish the metadata of segments that are in the tier already."""
RESTORE = "restore into"
NEW_IDS = "restore new-ids"
MATERIALISE = "restore log"
"""The commands whose plans restore topics from a tier."""

VERIFY = "verify"
"""The command whose plans repair what it found."""
STATES = "states"
"""Detail: the states, joined by commas, that are published about a segment that is not in the metadata."""
LINEAGE_EPOCH = "lineage_epoch"
"""Detail: the latest leader epoch of the lineage from which a step was decided."""
FOLLOWS = "follows"
"""Detail: the id of the segment that must be deleted before this one, so that the tier gets no hole."""
SOURCE_SEGMENT_ID = "source_segment_id"
"""Detail: the id, in the source tier, of a segment that is copied from another tier."""
LOG_DIR = "log_dir"
"""Detail: the log directory in which a step changes files."""
FILE = "file"
"""Detail: the file of committed offsets that a step changes."""

AS_TOPIC, AS_TOPIC_ID = "as_topic", "as_topic_id"
"""Details: name and id of the topic whose log is written."""

SEGMENTS = "segment_parts"
"""Detail: objects with the id of each segment, and the first and the last of its offsets that are written."""

WITHOUT_KEYS = "without_keys_sha256"
"""Detail: SHA-256 of the digests of the keys whose records are erased."""
_DETAILS: dict[str, Types] = {
    **dict.fromkeys(("new_log_start_offset", "segment_size_in_bytes", "max_timestamp_ms", "written_ms"), int),
    **dict.fromkeys(("state", STATES, FOLLOWS, SOURCE_SEGMENT_ID, LOG_DIR, AS_TOPIC, AS_TOPIC_ID), str),
    **dict.fromkeys(("segment_leader_epochs", "begun_copies", SEGMENTS), list),
    LINEAGE_EPOCH: int,
    WITHOUT_KEYS: TEXT_OR_NULL,
}
"""Types of details in a saved plan."""
_SKIP_FIELDS = ("reason", "topic", "topic_id", "partition", "segment_id")
_FIXED = ("action", *_SKIP_FIELDS, "start_offset", "end_offset")


def _offset(value: Any) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise ValueError(f"{value!r} is no offset")


def _partition(value: Any) -> int:
    """Return a partition as a record of the metadata may state it: an illegal number is a reason to skip."""
    if isinstance(value, int) and not isinstance(value, bool) and -1 << 31 <= value < 1 << 31:
        return value
    raise ValueError(f"{value!r} is no partition")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """The partition, or the segment, that a part of a plan is about, and the reason for it."""

    reason: str
    topic: str
    topic_id: Uuid
    partition: int
    segment_id: Uuid | None = None

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        """The user partition."""
        return TopicIdPartition(self.topic_id, self.topic, self.partition)


def _subject(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a `_Subject` in a JSON object; raise as `Plan.from_json`."""
    return {
        "reason": raw["reason"],
        "topic": raw["topic"],
        "topic_id": Uuid.parse(raw["topic_id"]),
        "partition": _partition(raw["partition"]),
        "segment_id": None if raw["segment_id"] is None else Uuid.parse(raw["segment_id"]),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(_Subject):
    """One decision about one segment or partition.

    `segment_id` is None for a copy, which gets a new id at each attempt. For a step about a whole partition
    it is None, and so are the offsets. `details` are further facts as JSON values.
    """

    action: Action
    start_offset: int | None = None
    end_offset: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the step as one flat JSON object."""
        return {name: getattr(self, name) for name in _FIXED} | dict(self.details)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Return the object that `to_json` made `raw` from; raise as `Plan.from_json`."""
        require_types(raw, _DETAILS, f"step {raw['action']}: ")
        return cls(
            **_subject(raw),
            action=Action(raw["action"]),
            start_offset=_offset(raw["start_offset"]),
            end_offset=_offset(raw["end_offset"]),
            details={key: value for key, value in raw.items() if key not in _FIXED},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip(_Subject):
    """The reason why a plan has no step, or no further step, for a partition or for one of its segments."""

    @classmethod
    def of(cls, partition: TopicIdPartition, reason: str, segment_id: Uuid | None = None) -> Self:
        """Return the skip of `partition`, or of one of its segments."""
        return cls(
            reason=reason,
            topic=partition.topic,
            topic_id=partition.topic_id,
            partition=partition.partition,
            segment_id=segment_id,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the skip as one flat JSON object."""
        return {name: getattr(self, name) for name in _SKIP_FIELDS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The decision of `command`: its steps in order, and the skips with their reasons.

    `read` is the next offset of each metadata partition at the time of the decision. `basis` has the settings
    and log starts of every partition that was decided. `kept` has the segments without a step, only of the
    partitions to be explained, because there are millions, or those that wait for their copies. `refused` are
    partitions for which an option was refused; the others are not affected.
    """

    command: str
    steps: tuple[Step, ...]
    read: Mapping[int, int]
    skipped: tuple[Skip, ...] = ()
    basis: Basis = field(default_factory=Basis, compare=False)
    kept: tuple[Decision, ...] = field(default=(), compare=False)
    refused: tuple[Skip, ...] = field(default=(), compare=False)

    @property
    def is_recovery(self) -> bool:
        """Whether the steps write metadata or logs of what is in a tier already."""
        return self.command in {REBUILD, RESTORE, NEW_IDS, MATERIALISE}

    def decisions(self, now_ms: int) -> Iterator[Decision]:
        """Yield the decisions about segments: those that stay, and those that are copied or deleted now.

        A segment that only tierctl deletes, and no broker, stays.
        """
        yield from self.kept
        yield from step_decisions(self.steps, now_ms)

    def to_json(self) -> dict[str, Any]:
        """Return the plan without its basis as a JSON object, with metadata partitions as strings."""
        return {
            "command": self.command,
            "steps": [step.to_json() for step in self.steps],
            "skipped": [skip.to_json() for skip in self.skipped],
            "read": {str(partition): offset for partition, offset in sorted(self.read.items())},
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Return the object that `to_json` made `raw` from.

        Raise UsageError, or an error of the conversion as KeyError, if a field is missing or wrong.
        """
        require_types(raw, {"command": str})
        return cls(
            command=raw["command"],
            steps=tuple(Step.from_json(step) for step in raw["steps"]),
            read={int(partition): int(offset) for partition, offset in raw["read"].items()},
            skipped=tuple(Skip(**_subject(skip)) for skip in raw["skipped"]),
        )


def step_decisions(steps: Iterable[Step], now_ms: int) -> Iterator[Decision]:
    """Yield the decisions of the steps about segments, which are copied or deleted at `now_ms`."""
    for step in steps:
        if step.action in _NEXT_ACTIONS and step.start_offset is not None:
            reason = Reason.of(step.reason)
            is_by_brokers = reason.kind is not ReasonKind.DOUBLED_SEGMENT and "later" not in reason.facts
            yield Decision(
                partition=step.topic_id_partition,
                segment_id=step.segment_id,
                start_offset=step.start_offset,
                end_offset=step.end_offset,
                reason=reason,
                action=_NEXT_ACTIONS[step.action] if is_by_brokers else NextAction.NONE,
                due_ms=now_ms if is_by_brokers else None,
                size_bytes=step.details.get("segment_size_in_bytes"),
            )


def delete_step(segment: RemoteLogSegmentMetadata, reason: str, **details: Any) -> Step:
    """Return the step that deletes `segment`; its details hold the segment's state at the decision."""
    found = {
        "state": segment.state,
        "segment_size_in_bytes": segment.segment_size_in_bytes,
        "max_timestamp_ms": segment.max_timestamp_ms,
        "segment_leader_epochs": [list(pair) for pair in segment.segment_leader_epochs],
    }
    return segment_step(Action.DELETE_SEGMENT, segment, reason, found | details)


def segment_facts(segment: RemoteLogSegmentMetadata) -> dict[str, Any]:
    """Return the details of a step after which the tier or the metadata has `segment`."""
    return {
        "max_timestamp_ms": segment.max_timestamp_ms,
        "segment_size_in_bytes": segment.segment_size_in_bytes,
        "segment_leader_epochs": [list(pair) for pair in segment.segment_leader_epochs],
        "txn_index_empty": segment.txn_index_empty,
    }


def segment_step(
    action: Action, segment: RemoteLogSegmentMetadata, reason: str, details: Mapping[str, Any]
) -> Step:
    """Return a step about one segment."""
    return Step(
        action=action,
        reason=reason,
        topic=segment.topic,
        topic_id=segment.topic_id,
        partition=segment.partition,
        segment_id=segment.segment_id,
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        details=details,
    )


def partition_step(action: Action, part: PartitionState, reason: str, **details: Any) -> Step:
    """Return a step about the whole partition `part`."""
    partition = part.topic_id_partition
    return Step(
        action=action,
        reason=reason,
        topic=partition.topic,
        topic_id=partition.topic_id,
        partition=partition.partition,
        details={"metadata_partition": part.metadata_partition, **details},
    )


CLOCK_SKEW_MS_MAX = 5 * 60 * 1000


def check_not_ahead(now_ms: int, *, clock_ms: int) -> None:
    """Raise SafetyRefusal if the time of a decision, `now_ms`, is more than five minutes ahead of the clock.

    Such a decision would delete segments that have not expired, and copies that may still be running.
    """
    if now_ms > clock_ms + CLOCK_SKEW_MS_MAX:
        raise SafetyRefusal(
            f"the plan is decided as of {iso_utc(now_ms)} (--now), {(now_ms - clock_ms) // 1000} s ahead of "
            f"the clock, which is at {iso_utc(clock_ms)}: segments that have not expired yet would be "
            "deleted",
            hint="leave --now out, or leave --apply out: a plan may look ahead",
        )
