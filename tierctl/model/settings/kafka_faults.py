"""Known faults of Kafka's releases that delete segments of the tier too early."""

from dataclasses import dataclass

from tierctl.model.settings.kafka_version import KafkaVersion
from tierctl.row_enum import RowEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRow:
    """The facts about one fault.

    `name` is that of its issue. `fixed_in` has the first bug-fix release with the fix, such as 1 of 3.8.1, by
    its version. Versions from `gone_since` on never had the fault; all others have it.
    """

    name: str
    meaning: str
    workaround: str
    fixed_in: tuple[tuple[KafkaVersion, int], ...]
    gone_since: KafkaVersion


class KafkaFault(RowEnum):
    """The table: one member per fault, which is equal to the name of its issue."""

    row: FaultRow

    # Fixed by apache/kafka#16959 and #17359: 3.8.1 counts only finished segments and those being deleted.
    WRONG_SIZES = FaultRow(
        name="KAFKA-17062",
        meaning="Copies that failed count as part of a partition's size, so retention.bytes deletes segments "
        "that it should keep.",
        workaround="unset retention.bytes on tiered topics while copies fail",
        fixed_in=((KafkaVersion(3, 8), 1),),
        gone_since=KafkaVersion(3, 9),
    )
    # Fixed by apache/kafka#22661 in 4.3.2; 4.3.1 has the fault and 4.4.0 has not.
    EXCESS_DELETES = FaultRow(
        name="KAFKA-20732",
        meaning="Before a new leader knows what was copied it counts its whole local log as not copied, so "
        "retention.bytes deletes segments that it should keep, on all replicas.",
        workaround="unset retention.bytes on tiered topics, or set it to twice the size that is meant",
        fixed_in=((KafkaVersion(4, 3), 2),),
        gone_since=KafkaVersion(4, 4),
    )

    def is_in(self, version: KafkaVersion) -> bool | None:
        """Return whether brokers of `version` have the fault; None if that depends on an unknown bug fix."""
        if version >= self.row.gone_since:
            return False
        fixed = dict(self.row.fixed_in).get(version)
        if fixed is None:
            return True
        return None if version.patch is None else version.patch < fixed

    def fix_of(self, version: KafkaVersion) -> str:
        """Return the nearest release without the fault, for brokers of `version`."""
        fixed = dict(self.row.fixed_in).get(version)
        return f"{self.row.gone_since}.0" if fixed is None else f"{version}.{fixed}"
