"""Check the settings of topics."""

from collections.abc import Collection, Iterator, Mapping

from tierctl.doctor.brokers import of_conflicts
from tierctl.doctor.checks import Check
from tierctl.doctor.examination import Result, fault, ok, prevented
from tierctl.errors import TierctlError
from tierctl.model.conflicts import topic_conflicts
from tierctl.model.settings import broker, topic
from tierctl.model.settings.kafka_version import KafkaVersion
from tierctl.report.texts import counted

TopicSettings = Mapping[str, Mapping[str, str] | TierctlError]
"""The settings in force of each topic by name, or the error that kept them from being read."""
_SHOWN_NAMES = 5


def check_conflicts(settings: TopicSettings, version: KafkaVersion) -> Iterator[Result]:
    """Yield the results about settings of each topic that contradict each other."""
    tiered, is_good = 0, bool(settings)
    for name, own in sorted(settings.items()):
        if isinstance(own, TierctlError):
            is_good = False
            yield prevented(Check.TOPIC_CONFLICTS, name, own)
            continue
        tiered += is_tiered(own)
        conflicts = list(topic_conflicts(own, version))
        is_good = is_good and not conflicts
        yield from of_conflicts(Check.TOPIC_CONFLICTS, name, conflicts)
    if is_good:
        found = f"{counted(len(settings), 'topic')}, {tiered} of them tiered: no conflicts"
        yield ok(Check.TOPIC_CONFLICTS, "", found)


def is_tiered(settings: Mapping[str, str]) -> bool:
    """Return whether a topic with these settings is tiered."""
    return topic.REMOTE_STORAGE_ENABLE.value(settings)


def check_tiered(settings: TopicSettings, *, is_tiering: bool) -> Iterator[Result]:
    """Yield the result about tiered topics on brokers that do not tier."""
    tiered = sorted(
        name for name, own in settings.items() if not isinstance(own, TierctlError) and is_tiered(own)
    )
    if tiered and not is_tiering:
        off = f"{broker.REMOTE_LOG_STORAGE_SYSTEM_ENABLE.name}=false"
        found = f"{off}, but {some_of(tiered)} with remote.storage.enable=true"
        yield fault(Check.TIERED_TOPICS, "", found)
    else:
        where = "the brokers tier" if is_tiering else "the brokers do not tier"
        yield ok(Check.TIERED_TOPICS, "", f"{counted(len(tiered), 'tiered topic')}, and {where}")


def some_of(names: Collection[str]) -> str:
    """Return the number of topics and the first names: `7 topics (a, b, c, d, e, …)`."""
    shown = ", ".join(sorted(names)[:_SHOWN_NAMES])
    return f"{counted(len(names), 'topic')} ({shown}{', …' if len(names) > _SHOWN_NAMES else ''})"
