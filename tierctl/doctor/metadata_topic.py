"""Check the metadata topic: its settings, its replicas, its number of partitions."""

from collections.abc import Iterator, Mapping

from tierctl.doctor.brokers import of_conflicts
from tierctl.doctor.checks import Check
from tierctl.doctor.examination import Result, fault, ok
from tierctl.doctor.result import Outcome
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.model.cluster import PartitionFacts, TopicFacts
from tierctl.model.conflicts import metadata_topic_conflicts
from tierctl.model.settings import broker, topic
from tierctl.model.settings import metadata_manager as manager

_SHOWN = 5


def check_settings(settings: Mapping[str, str], replicas: int | None) -> Iterator[Result]:
    """Yield the results about the settings in force; `replicas` is None if their number is not known.

    The number of replicas is that of the partition with the fewest.
    """
    least = topic.MIN_INSYNC_REPLICAS.value(settings)
    conflicts = [
        each
        for each in metadata_topic_conflicts(settings, replicas or least)
        if replicas is not None or topic.MIN_INSYNC_REPLICAS.name not in each.names
    ]
    yield from of_conflicts(Check.METADATA_SETTINGS, METADATA_TOPIC, conflicts)
    if not conflicts:
        of_replicas = "" if replicas is None else f"{replicas} replicas, min.insync.replicas={least}, "
        found = f"{of_replicas}unlimited retention, not compacted"
        yield ok(Check.METADATA_SETTINGS, METADATA_TOPIC, found)


def check_replicas(facts: TopicFacts, min_in_sync: int) -> Iterator[Result]:
    """Yield the results about leaders and replicas of the metadata partitions."""
    leaderless = [each.partition for each in facts.partitions if each.leader is None]
    too_few = [each.partition for each in facts.partitions if len(each.in_sync) < min_in_sync]
    behind = [each.partition for each in facts.partitions if len(each.in_sync) < len(each.replicas)]
    if leaderless:
        yield fault(Check.METADATA_REPLICAS, METADATA_TOPIC, f"no leader: {_partitions(leaderless)}")
    if unwritable := sorted(set(too_few) - set(leaderless)):
        found = f"fewer than min.insync.replicas={min_in_sync} in sync: {_partitions(unwritable)}"
        yield fault(Check.METADATA_REPLICAS, METADATA_TOPIC, found)
    if lagging := sorted(set(behind) - {*leaderless, *too_few}):
        found = f"not all replicas in sync: {_partitions(lagging)}"
        yield fault(Check.METADATA_REPLICAS, METADATA_TOPIC, found, outcome=Outcome.WARNING)
    if not (leaderless or too_few or behind):
        found = f"all replicas of {len(facts.partitions)} partitions are in sync"
        yield ok(Check.METADATA_REPLICAS, METADATA_TOPIC, found)


def fewest_replicas(partitions: tuple[PartitionFacts, ...]) -> int:
    """Return the number of replicas of the partition that has the fewest."""
    return min(len(each.replicas) for each in partitions)


def expected_partitions(settings: Mapping[str, str], source: str) -> int | None:
    """Return the number of metadata partitions that a broker's settings state, None if they state none."""
    prefix = broker.METADATA_MANAGER_PREFIX.value(settings)
    name = manager.TOPIC_PARTITIONS.name
    own = {name: settings[f"{prefix}{name}"]} if f"{prefix}{name}" in settings else {}
    return manager.TOPIC_PARTITIONS.given(own, source)


def check_partitions(found: int, expected: int) -> Iterator[Result]:
    """Yield the result about the number of metadata partitions that brokers expect."""
    setting = f"remote.log.metadata.topic.num.partitions={expected}"
    if found == expected:
        yield ok(Check.METADATA_PARTITIONS, METADATA_TOPIC, f"{found} partitions, {setting}")
    else:
        yield fault(Check.METADATA_PARTITIONS, METADATA_TOPIC, f"{found} partitions, but {setting}")


def missing(is_tiering: bool | None) -> Iterator[Result]:
    """Yield the result about a cluster without the metadata topic; `is_tiering` is None if not known."""
    found = f"the cluster has no topic {METADATA_TOPIC}"
    if is_tiering:
        why = "The brokers tier, and have not made the topic: nothing is copied."
        fix = "look for errors of TopicBasedRemoteLogMetadataManager in the brokers' logs"
        yield fault(Check.METADATA_SETTINGS, METADATA_TOPIC, found, why=why, fix=fix)
    else:
        what = "; brokers make it when they tier, and copy --create-metadata-topic does"
        yield ok(Check.METADATA_SETTINGS, METADATA_TOPIC, found + what)


def _partitions(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:_SHOWN]))
    return f"partition {shown}{', …' if len(numbers) > _SHOWN else ''}"
