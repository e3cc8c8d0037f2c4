"""KIP-917: segments whose custom metadata exceeded the limit are not uploaded again for the same result."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from tierctl.model import Uuid
from tierctl.model.settings import broker
from tierctl.plan.steps import Action, Plan, Skip, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomMetadataBreach:
    """A segment that was uploaded and deleted again, since its custom metadata exceeded the limit.

    `layout` names what makes the custom metadata: the tier's layout and the fields that it writes.
    """

    topic_id: Uuid
    partition: int
    start_offset: int
    size_bytes: int
    limit_bytes: int
    layout: str


def without_breaches(
    plan: Plan, breaches: Collection[CustomMetadataBreach], *, limit_bytes: int, layout: str
) -> Plan:
    """Return `plan` without the copies from the offset of each breach on, and with the reasons.

    Copying of the partition stops there, as a broker's does. A breach of another limit or of another layout
    does not count any more.
    """
    held = {
        (breach.topic_id, breach.partition): breach
        for breach in sorted(breaches, key=lambda each: -each.start_offset)
        if (breach.limit_bytes, breach.layout) == (limit_bytes, layout)
    }

    def breach_of(step: Step) -> CustomMetadataBreach | None:
        breach = held.get(step.topic_id_partition.key)
        is_held = step.action is Action.COPY_SEGMENT and breach is not None
        return breach if is_held and breach and (step.start_offset or 0) >= breach.start_offset else None

    refused = {step.topic_id_partition: breach for step in plan.steps if (breach := breach_of(step))}
    skips = [
        Skip.of(
            partition,
            f"the segment from offset {breach.start_offset} had {breach.size_bytes} bytes of custom metadata "
            f"in an earlier run, more than {broker.CUSTOM_METADATA_MAX_BYTES.name}={breach.limit_bytes}: it "
            "is not uploaded again until the limit or the layout changes",
        )
        for partition, breach in refused.items()
    ]
    steps = tuple(step for step in plan.steps if breach_of(step) is None)
    return replace(plan, steps=steps, skipped=(*plan.skipped, *skips))
