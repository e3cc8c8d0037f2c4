"""Build the refusal of a plan some of whose partitions can't be restored or rebuilt."""

from collections.abc import Iterable

from tierctl.errors import SafetyRefusal
from tierctl.model import TopicIdPartition

_SHOWN_MAX = 5


def refusal_of(reasons: Iterable[tuple[TopicIdPartition, str]], hint: str) -> SafetyRefusal:
    """Return a SafetyRefusal that names the first partitions with their reasons, and counts the others."""
    shown = [f"{partition.topic_partition}: {reason}" for partition, reason in reasons]
    more = len(shown) - _SHOWN_MAX
    text = "; ".join(shown[:_SHOWN_MAX])
    return SafetyRefusal(f"{text}{f'; and {more} more partitions' if more > 0 else ''}", hint=hint)
