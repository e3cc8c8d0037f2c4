"""Check that new producers, one idempotent and one transactional, can write to a restored topic."""

import time
from collections.abc import Sequence
from uuid import uuid4

from tierctl.commands.recovery.check.checks import RestoreCheck
from tierctl.commands.recovery.check.results import Results
from tierctl.errors import AuthenticationError, TierctlError
from tierctl.kafka.cluster import Cluster
from tierctl.model import IsolationLevel, TopicPartition

VALUE = b"written by tierctl restore --check"
_READABLE_S = 30
_PAUSE_S = 0.5


def check_producers(results: Results, partitions: Sequence[TopicPartition], cluster: Cluster) -> None:
    """Write two records to each partition, by two producers, and read them with read_committed."""
    for transactional_id in (None, f"tierctl-restore-check-{uuid4()}"):
        kind = "an idempotent producer" if transactional_id is None else "a transaction"
        try:
            offsets = cluster.produce(partitions, VALUE, transactional_id=transactional_id)
        except AuthenticationError as e:
            for each in partitions:
                results.prevented(RestoreCheck.PRODUCERS, each, e)
            return
        except TierctlError as e:
            for each in partitions:
                results.failed(RestoreCheck.PRODUCERS, each, f"{kind}: {e.message}")
            continue
        for each in partitions:
            offset = offsets[each]
            with results.making(RestoreCheck.PRODUCERS, each):
                faults = _faults(cluster, each, offset, kind)
                text = f"{kind} wrote offset {offset}, which read_committed serves"
                results.decided(RestoreCheck.PRODUCERS, each, faults, text)


def _faults(cluster: Cluster, partition: TopicPartition, offset: int, kind: str) -> list[str]:
    """Return why the record is not served; wait first, because brokers write markers after the commit."""
    consumer = cluster.consumer(IsolationLevel.READ_COMMITTED)
    deadline = time.monotonic() + _READABLE_S
    try:
        while True:
            found = consumer.first(partition, offset)
            if found is not None:
                is_it = (found.offset, found.value) == (offset, VALUE)
                return (
                    [] if is_it else [f"{kind} wrote offset {offset}, read_committed serves {found.offset}"]
                )
            if time.monotonic() > deadline:
                return [f"{kind} wrote offset {offset}, which read_committed does not serve"]
            time.sleep(_PAUSE_S)
    finally:
        consumer.close()
