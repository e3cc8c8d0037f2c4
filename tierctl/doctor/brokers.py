"""Check the settings and the versions of brokers."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tierctl.doctor.checks import Check
from tierctl.doctor.examination import Result, fault, not_checked, ok, prevented
from tierctl.doctor.result import Outcome
from tierctl.errors import TierctlError
from tierctl.model.conflicts import Conflict, ConflictKind, broker_conflicts
from tierctl.model.engine import Severity
from tierctl.model.settings import broker, client
from tierctl.model.settings.kafka_version import KafkaFault, KafkaVersion
from tierctl.storage.layouts.aiven.layout import AivenSettings, custom_metadata_bytes

OUTCOMES = {Severity.ERROR: Outcome.PROBLEM, Severity.WARNING: Outcome.WARNING, Severity.INFO: Outcome.OK}
_OF_METADATA_MANAGER = frozenset(
    kind for kind in ConflictKind if kind.startswith("metadata_") or kind is ConflictKind.NO_METADATA_LISTENER
)
_AGREE = (
    broker.REMOTE_LOG_STORAGE_SYSTEM_ENABLE,
    broker.STORAGE_MANAGER_CLASS,
    broker.METADATA_MANAGER_CLASS,
    broker.TASK_INTERVAL_MS,
    broker.CUSTOM_METADATA_MAX_BYTES,
    broker.LOG_LOCAL_RETENTION_MS,
    broker.LOG_LOCAL_RETENTION_BYTES,
    broker.LOG_REMOTE_COPY_LAG_MS,
    broker.LOG_REMOTE_COPY_LAG_BYTES,
)
"""Settings of tiering that each broker states for itself; only a different first one is a problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """The settings in force of one broker, or the error that kept them from being read."""

    name: str
    settings: Mapping[str, str] | TierctlError


def check_conflicts(brokers: Sequence[Broker], version: KafkaVersion) -> Iterator[Result]:
    """Yield the results about settings of each running broker that contradict each other.

    Running brokers hide the settings of their metadata manager. That they run shows that it has an address,
    and the metadata topic itself shows how it was made.
    """
    for each in brokers:
        if isinstance(each.settings, TierctlError):
            yield prevented(Check.BROKER_CONFLICTS, each.name, each.settings)
            continue
        all_of_them = broker_conflicts(each.settings, version)
        conflicts = [found for found in all_of_them if found.kind not in _OF_METADATA_MANAGER]
        yield from of_conflicts(Check.BROKER_CONFLICTS, each.name, conflicts)
        if not conflicts:
            tiers = "on" if is_tiering(each.settings) else "off"
            yield ok(Check.BROKER_CONFLICTS, each.name, f"tiering is {tiers}, no conflicts")


def is_tiering(settings: Mapping[str, str]) -> bool:
    """Return whether brokers with these settings tier."""
    return broker.REMOTE_LOG_STORAGE_SYSTEM_ENABLE.value(settings)


def of_conflicts(check: Check, subject: str, conflicts: Sequence[Conflict]) -> Iterator[Result]:
    """Yield a result per conflict, with the meaning and the fix of its kind."""
    for each in conflicts:
        row = each.kind.row
        yield fault(
            check,
            subject,
            f"{each.kind}: {each.found}",
            outcome=OUTCOMES[row.severity],
            why=row.meaning,
            fix=row.fix,
        )


def check_agreement(brokers: Sequence[Broker]) -> Iterator[Result]:
    """Yield the results about settings that differ between the brokers of a cluster."""
    known = {each.name: each.settings for each in brokers if not isinstance(each.settings, TierctlError)}
    for each in brokers:
        if isinstance(each.settings, TierctlError):
            yield prevented(Check.BROKERS_AGREE, each.name, each.settings)
    is_good = bool(known)
    for row in _AGREE:
        values: dict[str, list[str]] = {}
        for name, settings in known.items():
            values.setdefault(settings.get(row.name, "(none)"), []).append(name)
        if len(values) > 1:
            is_good = False
            found = "; ".join(f"{value} on {', '.join(names)}" for value, names in values.items())
            outcome = Outcome.PROBLEM if row is broker.REMOTE_LOG_STORAGE_SYSTEM_ENABLE else Outcome.WARNING
            yield fault(Check.BROKERS_AGREE, row.name, f"{row.name}={found}", outcome=outcome)
    if is_good:
        what = "only one broker" if len(known) == 1 else f"{len(known)} brokers have the same settings"
        yield ok(Check.BROKERS_AGREE, "", what)


def check_version(version: KafkaVersion, *, is_tiering: bool | None) -> Iterator[Result]:
    """Yield the results about known faults of the brokers' `version`; `is_tiering` is None if unknown.

    A broker tells a client its version, but not its bug-fix release.
    """
    subject = f"Kafka {version}{'' if version.patch is None else f'.{version.patch}'}"
    if is_tiering is False:
        yield ok(Check.BROKER_VERSION, subject, "the brokers do not tier, so none of its faults matters")
        return
    is_good = True
    for each in KafkaFault:
        is_in = each.is_in(version)
        if is_in is None:
            is_good = False
            fixed = each.fix_of(version)
            reason = f"{each}: fixed in {fixed}, and brokers don't tell which release of {version} they are"
            yield not_checked(Check.BROKER_VERSION, subject, f"{reason}: give it with --kafka-version")
        elif is_in:
            is_good = False
            fix = f"upgrade to {each.fix_of(version)} or later; until then {each.row.workaround}"
            yield fault(Check.BROKER_VERSION, subject, str(each), why=each.row.meaning, fix=fix)
    if is_good:
        yield ok(Check.BROKER_VERSION, subject, f"has none of {', '.join(KafkaFault)}")


def check_custom_metadata(
    source: str, settings: Mapping[str, str], topics: Collection[str]
) -> Iterator[Result]:
    """Yield the results about the size of the custom metadata that Aiven's plugin writes for `topics`."""
    prefix = broker.STORAGE_MANAGER_PREFIX.value(settings)
    if f"{prefix}{client.CUSTOM_METADATA_FIELDS.name}" not in settings:
        reason = f"no {prefix}{client.CUSTOM_METADATA_FIELDS.name}: no custom metadata are written"
        yield ok(Check.CUSTOM_METADATA, source, reason)
        return
    if not topics:
        return
    limit = broker.CUSTOM_METADATA_MAX_BYTES.value(settings)
    aiven = AivenSettings.from_settings(settings)
    sizes = {topic: custom_metadata_bytes(aiven, topic) for topic in topics}
    longest = max(sizes, key=lambda topic: sizes[topic])
    found = (
        f"up to {sizes[longest]} bytes for topic {longest}, {broker.CUSTOM_METADATA_MAX_BYTES.name}={limit}"
    )
    if sizes[longest] > limit:
        yield fault(Check.CUSTOM_METADATA, source, found)
    else:
        yield ok(Check.CUSTOM_METADATA, source, found)
