"""Check the user's permissions on the cluster: the operations that tierctl's commands need."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tierctl.doctor.checks import Check
from tierctl.doctor.examination import Result, fault, not_checked, ok, prevented
from tierctl.doctor.result import Outcome
from tierctl.doctor.topics import some_of
from tierctl.errors import TierctlError
from tierctl.kafka.client_settings import Right
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.report.texts import counted

_UNREPORTED = "the brokers report no rights"


@dataclass(frozen=True, slots=True)
class Needed:
    """An operation that some commands need; `outcome` is that of a login without the right."""

    operation: str
    commands: str
    outcome: Outcome


ON_METADATA_TOPIC = (
    Needed("Describe", "all commands", Outcome.PROBLEM),
    Needed("Read", "all commands", Outcome.PROBLEM),
    Needed("Write", "copy, sweep, delete and apply", Outcome.WARNING),
)
ON_TOPICS = (
    Needed("Describe", "copy, sweep, verify and status", Outcome.WARNING),
    Needed("DescribeConfigs", "copy and sweep", Outcome.WARNING),
    Needed("Read", "sweep of topics with retention.bytes", Outcome.WARNING),
    Needed("Delete", "sweep (DeleteRecords)", Outcome.WARNING),
)
ON_CLUSTER = (
    Needed("DescribeConfigs", "copy, sweep and delete", Outcome.WARNING),
    Needed("Describe", "sweep of topics with retention.bytes, and this check of the clock", Outcome.WARNING),
)


def check_cluster(operations: frozenset[str]) -> Iterator[Result]:
    """Yield the results about the cluster itself; `allowed` are the operations that it permits."""
    yield from _of_one(Check.CLUSTER_RIGHTS, "", None, operations, ON_CLUSTER)


def check_metadata_topic(operations: frozenset[str] | TierctlError) -> Iterator[Result]:
    """Yield the results about the metadata topic, given the operations that it allows."""
    if isinstance(operations, TierctlError):
        yield prevented(Check.METADATA_RIGHTS, METADATA_TOPIC, operations)
        return
    yield from _of_one(Check.METADATA_RIGHTS, METADATA_TOPIC, METADATA_TOPIC, operations, ON_METADATA_TOPIC)


def _of_one(
    check: Check, subject: str, topic: str | None, operations: frozenset[str], needed: Sequence[Needed]
) -> Iterator[Result]:
    if not operations:
        yield not_checked(check, subject, _UNREPORTED)
        return
    missing = [each for each in needed if each.operation not in operations]
    for each in missing:
        found = f"{each.operation} is not allowed; it is needed by {each.commands}"
        yield fault(check, subject, found, outcome=each.outcome, fix=Right(each.operation, topic).hint)
    if not missing:
        allowed = ", ".join(each.operation for each in needed)
        yield ok(check, subject, f"allowed: {allowed}")


def check_topics(operations: Mapping[str, frozenset[str] | TierctlError]) -> Iterator[Result]:
    """Yield the results about user topics: one for each operation that some of them do not allow."""
    known: dict[str, frozenset[str]] = {}
    for topic, found in operations.items():
        if isinstance(found, TierctlError):
            yield prevented(Check.TOPIC_RIGHTS, topic, found)
        elif found:
            known[topic] = found
    if not known:
        if not operations:
            yield ok(
                Check.TOPIC_RIGHTS, "", "no topics to ask for; a login may not see topics without Describe"
            )
        elif not any(isinstance(each, TierctlError) for each in operations.values()):
            yield not_checked(Check.TOPIC_RIGHTS, "", _UNREPORTED)
        return
    is_good = True
    for each in ON_TOPICS:
        lacking = [topic for topic, allowed in known.items() if each.operation not in allowed]
        if lacking:
            is_good = False
            found_text = (
                f"{each.operation} is not allowed on {some_of(lacking)}; it is needed by {each.commands}"
            )
            fix = Right(each.operation, lacking[0]).hint
            yield fault(Check.TOPIC_RIGHTS, each.operation, found_text, outcome=each.outcome, fix=fix)
    if is_good:
        allowed_text = ", ".join(each.operation for each in ON_TOPICS)
        yield ok(Check.TOPIC_RIGHTS, "", f"{counted(len(known), 'topic')} allow {allowed_text}")
