"""Find the settings of the metadata topic by which brokers lose events, or can't write them."""

from collections.abc import Iterator, Mapping

from tierctl.model.conflicts.table import Conflict, ConflictKind
from tierctl.model.conflicts.topics import conflict
from tierctl.model.settings import topic

REPLICAS = 3
"""The replicas that keep the metadata topic writable, and complete, while one of them is down."""
MIN_IN_SYNC = 2
"""The replicas that have an event before its writer goes on: one may be lost."""


def metadata_topic_conflicts(settings: Mapping[str, str], replicas: int) -> Iterator[Conflict]:
    """Yield the conflicts of a metadata topic with these settings, and with `replicas` of each partition.

    Names that `settings` does not have are at Kafka's default for topics. Raise UsageError for an invalid
    value.
    """
    min_isr = topic.MIN_INSYNC_REPLICAS.value(settings)
    found = f"{replicas} replica{'s' if replicas > 1 else ''}, min.insync.replicas={min_isr}"
    names = (topic.MIN_INSYNC_REPLICAS.name,)
    if min_isr > replicas:
        yield Conflict(kind=ConflictKind.METADATA_MIN_ISR_ABOVE_REPLICATION, names=names, found=found)
    elif replicas < REPLICAS:
        yield Conflict(kind=ConflictKind.METADATA_FEW_REPLICAS, names=names, found=found)
    elif min_isr == replicas:
        yield Conflict(kind=ConflictKind.METADATA_NO_SPARE_REPLICA, names=names, found=found)
    elif min_isr < MIN_IN_SYNC:
        yield Conflict(kind=ConflictKind.METADATA_LOW_MIN_ISR, names=names, found=found)
    for row in (topic.RETENTION_MS, topic.RETENTION_BYTES):
        if row.kafka_value(settings) >= 0:
            yield conflict(ConflictKind.METADATA_RETENTION, settings, row, is_swept=False)
    if "compact" in topic.CLEANUP_POLICY.value(settings):
        yield conflict(ConflictKind.METADATA_COMPACTED, settings, topic.CLEANUP_POLICY)
    if topic.UNCLEAN_LEADER_ELECTION.value(settings):
        yield conflict(ConflictKind.METADATA_UNCLEAN_ELECTION, settings, topic.UNCLEAN_LEADER_ELECTION)
