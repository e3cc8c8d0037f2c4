"""A Plan is what a mutating command means to do, as JSON that can be kept, reviewed and applied later."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from tierctl.errors import UsageError
from tierctl.model import RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from tierctl.state.tier import PartitionState


class Action(StrEnum):
    """What one step does."""

    COPY_SEGMENT = "copy_segment"
    DELETE_SEGMENT = "delete_segment"
    MARK_PARTITION = "mark_partition"
    DELETE_PARTITION = "delete_partition"


LINEAGE_EPOCH = "lineage_epoch"
"""Detail: the latest leader epoch of the lineage a step was decided in."""

FOLLOWS = "follows"
"""Detail: the segment that has to be deleted before this one, so that no hole comes about."""

SOURCE_SEGMENT_ID = "source_segment_id"
"""Detail: the id that a segment, to be copied from another tier, has there."""

_FIXED = ("action", "reason", "topic", "topic_id", "partition", "segment_id", "start_offset", "end_offset")
_SKIP_FIELDS = ("reason", "topic", "topic_id", "partition", "segment_id")


def _offset(value: Any) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise ValueError(f"{value!r} is no offset")


def _partition(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31:
        return value
    raise ValueError(f"{value!r} is no partition")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One decision about one segment or partition.

    `segment_id` is None for a copy, which gets a fresh id at each attempt, and, as the offsets, for a
    step about a whole partition. `details` are further JSON-ready facts, printed beside the fixed ones.
    """

    action: Action
    reason: str
    topic: str
    topic_id: Uuid
    partition: int
    segment_id: Uuid | None = None
    start_offset: int | None = None
    end_offset: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        """The user partition the step is about."""
        return TopicIdPartition(self.topic_id, self.topic, self.partition)

    def to_json(self) -> dict[str, Any]:
        """The step as one flat JSON object."""
        return {name: getattr(self, name) for name in _FIXED} | dict(self.details)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """From `to_json`; UsageError when a field is missing or wrong."""
        try:
            return cls(
                action=Action(raw["action"]),
                reason=raw["reason"],
                topic=raw["topic"],
                topic_id=Uuid.parse(raw["topic_id"]),
                partition=_partition(raw["partition"]),
                segment_id=None if raw["segment_id"] is None else Uuid.parse(raw["segment_id"]),
                start_offset=_offset(raw["start_offset"]),
                end_offset=_offset(raw["end_offset"]),
                details={key: value for key, value in raw.items() if key not in _FIXED},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise UsageError(f"not a step of a plan: {e}", hint="make the plan again with --plan-out") from e


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Why something about a partition, or one of its segments, is left as it is.

    A partition may have both: steps, and a reason why there are no more of them.
    """

    reason: str
    topic: str
    topic_id: Uuid
    partition: int
    segment_id: Uuid | None = None

    @classmethod
    def of(cls, partition: TopicIdPartition, reason: str, segment_id: Uuid | None = None) -> Self:
        """About `partition`, or one segment of it."""
        return cls(
            reason=reason,
            topic=partition.topic,
            topic_id=partition.topic_id,
            partition=partition.partition,
            segment_id=segment_id,
        )

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        """The user partition it is about."""
        return TopicIdPartition(self.topic_id, self.topic, self.partition)

    def to_json(self) -> dict[str, Any]:
        """The reason as one flat JSON object."""
        return {name: getattr(self, name) for name in _SKIP_FIELDS}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """From `to_json`; UsageError when a field is missing or wrong."""
        try:
            return cls(
                reason=raw["reason"],
                topic=raw["topic"],
                topic_id=Uuid.parse(raw["topic_id"]),
                partition=_partition(raw["partition"]),
                segment_id=None if raw["segment_id"] is None else Uuid.parse(raw["segment_id"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise UsageError(f"not a skipped part of a plan: {e}", hint="make the plan again") from e


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What `command` decided, and from which metadata offsets (next offset by metadata partition).

    `steps` are what is to be done and nothing else, in the order in which to do it; `skipped` says what is
    not done and why.
    """

    command: str
    steps: tuple[Step, ...]
    read: Mapping[int, int]
    skipped: tuple[Skip, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The plan as a JSON object; metadata partitions become strings, as JSON wants."""
        return {
            "command": self.command,
            "steps": [step.to_json() for step in self.steps],
            "skipped": [skip.to_json() for skip in self.skipped],
            "read": {str(partition): offset for partition, offset in sorted(self.read.items())},
        }

    def dumps(self) -> str:
        """The plan as text, for --plan-out."""
        return json.dumps(self.to_json(), indent=2) + "\n"

    @classmethod
    def loads(cls, text: str) -> Self:
        """From `dumps`; UsageError when the text is no plan."""
        try:
            raw = json.loads(text)
            return cls(
                command=raw["command"],
                steps=tuple(Step.from_json(step) for step in raw["steps"]),
                read={int(partition): int(offset) for partition, offset in raw["read"].items()},
                skipped=tuple(Skip.from_json(skip) for skip in raw.get("skipped", ())),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
            raise UsageError(f"not a plan: {e}", hint="expected what --plan-out wrote") from e


def delete_step(segment: RemoteLogSegmentMetadata, reason: str, **details: Any) -> Step:
    """Delete one segment. `state` in details is what it was when this was decided."""
    return Step(
        action=Action.DELETE_SEGMENT,
        reason=reason,
        topic=segment.topic,
        topic_id=segment.topic_id,
        partition=segment.partition,
        segment_id=segment.segment_id,
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        details={
            "state": segment.state,
            "segment_size_in_bytes": segment.segment_size_in_bytes,
            "max_timestamp_ms": segment.max_timestamp_ms,
            "segment_leader_epochs": [list(pair) for pair in segment.segment_leader_epochs],
            **details,
        },
    )


def partition_step(action: Action, part: PartitionState, reason: str, **details: Any) -> Step:
    """A step about a whole partition."""
    partition = part.topic_id_partition
    return Step(
        action=action,
        reason=reason,
        topic=partition.topic,
        topic_id=partition.topic_id,
        partition=partition.partition,
        details={"metadata_partition": part.metadata_partition, **details},
    )
