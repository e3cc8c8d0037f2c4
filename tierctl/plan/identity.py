"""Compares the identity of a saved plan with the cluster, the tier and the clock that `apply` finds."""

from collections.abc import Collection, Mapping

from tierctl.model.times import duration_text, iso_utc
from tierctl.plan.clock import CLOCK_SKEW_MS_MAX
from tierctl.plan.saved import PlanIdentity, PlanPlace, refusal

MAX_AGE_MS = 24 * 60 * 60 * 1000
"""Default of --max-age: a plan that is older is refused."""

_FOREIGN = "the plan was made for another cluster or tier: name the one it was made for, or plan again"


def check_times(identity: PlanIdentity, *, clock_ms: int, max_age_ms: int = MAX_AGE_MS) -> None:
    """Raise SafetyRefusal for a plan that is too old, of the future, or decided ahead of its clock."""
    age_ms = clock_ms - identity.created_ms
    if age_ms < -CLOCK_SKEW_MS_MAX:
        raise refusal(
            "created_ms",
            expected=f"at most {iso_utc(clock_ms)}, which is the clock",
            found=iso_utc(identity.created_ms),
            hint="set the clock of this machine, or of the one that made the plan",
        )
    if age_ms > max_age_ms:
        raise refusal(
            "created_ms",
            expected=f"at most {duration_text(max_age_ms)} ago (--max-age)",
            found=f"{iso_utc(identity.created_ms)}, {duration_text(age_ms)} ago",
        )
    if identity.now_ms > identity.created_ms + CLOCK_SKEW_MS_MAX:
        raise refusal(
            "now_ms",
            expected=f"at most {iso_utc(identity.created_ms)}, when the plan was made",
            found=f"{iso_utc(identity.now_ms)}, ahead of the clock",
            hint="a plan made with a later --now is only a preview: plan again without --now",
        )


def check_place(planned: PlanPlace, found: PlanPlace, *, name: str = "") -> None:
    """Raise SafetyRefusal if `found` is not the tier and the metadata topic that the plan was made for.

    Where neither the cluster nor the topic has an id that both know, the address of the topic decides.
    `name` is put before the names of fields.
    """
    fields, others = planned.to_json(), found.to_json()
    compared = ["cluster_id", "metadata_topic_id", "tier", "layout"]
    if planned.cluster.is_same_as(found.cluster) is None:
        compared.append("metadata")
    for field in compared:
        if None not in {fields[field], others[field]} and fields[field] != others[field]:
            raise refusal(f"{name}{field}", expected=fields[field], found=others[field], hint=_FOREIGN)


def check_topic_ids(identity: PlanIdentity, known: Collection[str]) -> None:
    """Raise SafetyRefusal if a topic of the plan's steps is not among the `known` topic ids."""
    for topic_id, topic in sorted(identity.topic_ids.items()):
        if topic_id not in known:
            raise refusal(
                "topic_ids", expected=f"{topic_id} ({topic})", found="no topic with this id", hint=_FOREIGN
            )


def check_read(planned: Mapping[int, int], read: Mapping[int, int]) -> None:
    """Raise SafetyRefusal if the metadata end before the offsets `planned` that the plan was decided from.

    `read` are the offsets up to which the metadata partitions were read now.
    """
    if planned and len(read) != len(planned):
        raise refusal("read", expected=f"{len(planned)} metadata partitions", found=len(read), hint=_FOREIGN)
    for partition, offset in sorted(planned.items()):
        if read.get(partition, 0) < offset:
            raise refusal(
                "read",
                expected=f"metadata partition {partition} up to offset {offset}",
                found=f"its end at {read.get(partition, 0)}",
                hint=_FOREIGN,
            )
