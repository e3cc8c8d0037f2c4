"""`tierctl segments --offsets`: where each partition's log, its local part and its tier begin and end."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tierctl.cli.context import Context

if TYPE_CHECKING:
    from tierctl.model import TopicIdPartition
    from tierctl.model.cluster import ClusterLog
    from tierctl.read.partitions import Readable
    from tierctl.state.lineage import Lineage

COLUMNS = ("topic", "topic_id", "partition", "earliest", "earliest_local", "latest_tiered", "latest")
"""By GetOffsetShell's names. latest_tiered is what the metadata say of the current lineage."""


def offset_rows(context: Context, readable: "Iterable[Readable]") -> Iterator[dict[str, Any]]:
    """A row of COLUMNS a partition; None where a cluster, or --log-dir, would have to say more.

    On a cluster also of partitions that have nothing in the tier, of the same topics and those named.
    """
    known = {one.topic_id_partition: one for one in readable}
    led = _led(context, known)
    for partition in sorted(known.keys() | led.keys(), key=lambda p: (p.topic, p.topic_id, p.partition)):
        one, log = known.get(partition), led.get(partition)
        if log is not None:
            yield _row(partition, **_of_leader(one, log))
        elif one is not None:
            yield _row(partition, **_of_logs(one))


def _row(partition: "TopicIdPartition", **offsets: int | None) -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "topic_id": partition.topic_id,
        "partition": partition.partition,
        **offsets,
    }


def _led(context: Context, known: "Iterable[TopicIdPartition]") -> "dict[TopicIdPartition, ClusterLog]":
    cluster = context.cluster()
    if cluster is None:
        return {}
    topics = cluster.topics({p.topic for p in known} | set(context.topic))
    partitions = [p for topic in topics.values() for p in topic.topic_id_partitions if p in context.selection]
    return {log.topic_id_partition: log for log in cluster.logs(partitions)}


def _of_leader(one: "Readable | None", log: "ClusterLog") -> dict[str, int | None]:
    from tierctl.state.lineage import Lineage

    return {
        "earliest": log.log_start_offset,
        "earliest_local": log.local_log_start_offset,
        "latest_tiered": None
        if one is None
        else _tiered(one, Lineage(log.leader_epochs), log.log_end_offset),
        "latest": log.high_watermark,
    }


def _of_logs(one: "Readable") -> dict[str, int | None]:
    from tierctl.read.replicas import choose_replica, lineage_of_segments, newest_segment
    from tierctl.state.lineage import segments_in_lineage

    replica = choose_replica(one.logs)
    if replica is None:
        segments = list(one.cache.list_remote_log_segments())
        lineage, newest = lineage_of_segments(segments), newest_segment(segments)
        first = next(segments_in_lineage(one.cache, lineage), None)
        tiered = None if newest is None else _tiered(one, lineage, newest.end_offset + 1)
        earliest = None if first is None else first.from_offset
        return {"earliest": earliest, "earliest_local": None, "latest_tiered": tiered, "latest": None}
    log = replica.log
    return {
        "earliest": log.log_start_offset,
        "earliest_local": max(log.local_log_start_offset, log.log_start_offset),
        "latest_tiered": _tiered(one, replica.lineage, log.log_end_offset),
        "latest": replica.high_watermark,
    }


def _tiered(one: "Readable", lineage: "Lineage", log_end_offset: int) -> int | None:
    from tierctl.state.lineage import find_highest_remote_offset

    highest = find_highest_remote_offset(one.cache, lineage, log_end_offset).offset
    return highest if highest >= 0 else None
