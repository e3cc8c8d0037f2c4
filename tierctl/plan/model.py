"""A Plan is what a mutating command means to do, as JSON that can be kept, reviewed and applied later."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from tierctl.errors import UsageError
from tierctl.model import TopicIdPartition, Uuid


class Action(StrEnum):
    """What one step does."""

    COPY_SEGMENT = "copy_segment"
    DELETE_SEGMENT = "delete_segment"
    MARK_PARTITION = "mark_partition"
    DELETE_PARTITION = "delete_partition"


_FIXED = ("action", "reason", "topic", "topic_id", "partition", "segment_id", "start_offset", "end_offset")


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
                partition=int(raw["partition"]),
                segment_id=None if raw["segment_id"] is None else Uuid.parse(raw["segment_id"]),
                start_offset=raw["start_offset"],
                end_offset=raw["end_offset"],
                details={key: value for key, value in raw.items() if key not in _FIXED},
            )
        except (KeyError, TypeError, ValueError) as e:
            raise UsageError(f"not a step of a plan: {e}", hint="make the plan again with --plan-out") from e


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What `command` decided, and from which metadata offsets (next offset by metadata partition)."""

    command: str
    steps: tuple[Step, ...]
    read: Mapping[int, int]

    def to_json(self) -> dict[str, Any]:
        """The plan as a JSON object; metadata partitions become strings, as JSON wants."""
        return {
            "command": self.command,
            "steps": [step.to_json() for step in self.steps],
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
            )
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise UsageError(f"not a plan: {e}", hint="expected what --plan-out wrote") from e
