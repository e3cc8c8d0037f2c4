"""KIP-917: segments whose custom metadata exceeded the limit are not uploaded again for the same result."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from tierctl.model import Uuid
from tierctl.plan.decisions import Decision
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.plan.steps import Action, Plan, Skip, Step


def written_ms(step: Step) -> int:
    """Return when the segment of a copy was last written; from another tier, its largest timestamp."""
    return int(step.details.get("written_ms", step.details["max_timestamp_ms"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomMetadataBreach:
    """A segment that was uploaded and then deleted because its custom metadata exceeded the limit.

    `layout` names the source of the custom metadata: the tier's layout and the fields that it writes.
    """

    topic_id: Uuid
    partition: int
    start_offset: int
    size_bytes: int
    limit_bytes: int
    layout: str

    def reason_since(self, oldest_ms: int) -> Reason:
        """Return why the segment, last written at `oldest_ms`, and later ones are not copied."""
        return Reason(
            ReasonKind.CUSTOM_METADATA,
            from_offset=self.start_offset,
            oldest_ms=oldest_ms,
            size_bytes=self.size_bytes,
            limit_bytes=self.limit_bytes,
        )


def without_breaches(
    plan: Plan, breaches: Collection[CustomMetadataBreach], *, limit_bytes: int, layout: str | None
) -> Plan:
    """Return `plan` without the copies from the offset of each breach on, and with the reasons.

    Copying of the partition stops there, as a broker's does; these segments are in `kept`. A breach of
    another limit or of another layout does not count any more; with None for `layout`, every layout counts.
    """
    held = {
        (breach.topic_id, breach.partition): breach
        for breach in sorted(breaches, key=lambda each: -each.start_offset)
        if breach.limit_bytes == limit_bytes and layout in {None, breach.layout}
    }

    def breach_of(step: Step) -> CustomMetadataBreach | None:
        breach = held.get(step.topic_id_partition.key)
        is_held = step.action is Action.COPY_SEGMENT and breach is not None
        return breach if is_held and breach and (step.start_offset or 0) >= breach.start_offset else None

    refused = [(step, breach) for step in plan.steps if (breach := breach_of(step))]
    reasons = {
        step.topic_id_partition: breach.reason_since(written_ms(step)) for step, breach in reversed(refused)
    }
    skips = [Skip.of(partition, reason) for partition, reason in reasons.items()]
    kept = [
        Decision(
            partition=step.topic_id_partition,
            segment_id=None,
            start_offset=step.start_offset or 0,
            end_offset=step.end_offset,
            reason=reasons[step.topic_id_partition],
            size_bytes=step.details["segment_size_in_bytes"],
        )
        for step, _ in refused
    ]
    steps = tuple(step for step in plan.steps if breach_of(step) is None)
    return replace(plan, steps=steps, skipped=(*plan.skipped, *skips), kept=(*plan.kept, *kept))
