"""Versions of Kafka: features in which releases differ, and faults of releases that delete segments of the
tier too early.
"""

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Self

from tierctl.errors import UsageError
from tierctl.model.choices import RowEnum

_FIRST_LEVELS = {
    (3, 6): 12,
    (3, 7): 15,
    (3, 8): 20,
    (3, 9): 21,
    (4, 0): 22,
    (4, 1): 26,
    (4, 2): 28,
    (4, 3): 30,
    (4, 4): 31,
}
"""The releases with tiered storage, each with its first level of metadata.version (MetadataVersion)."""
_TEXT = re.compile(r"(\d{1,3})\.(\d{1,3})(?:\.(\d{1,3}))?")


@dataclass(frozen=True, slots=True, order=True)
class KafkaVersion:
    """A release of Kafka, such as 4.4.

    Bug-fix releases are equal to each other: `patch` is the 1 of 4.4.1, None if it is unknown.
    """

    major: int
    minor: int
    patch: int | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the version that `4.4` or `4.4.0` names; UsageError for one that is not known."""
        match = _TEXT.fullmatch(text.strip())
        number = (int(match[1]), int(match[2])) if match else (0, 0)
        if number not in _FIRST_LEVELS:
            known = ", ".join(map(str, KNOWN))
            raise UsageError(f'Kafka version "{text}" is not known', hint=f"known versions: {known}")
        return cls(*number, patch=int(match[3]) if match and match[3] else None)

    @classmethod
    def of_feature_level(cls, level: int) -> Self:
        """Return the version whose brokers support metadata.version up to `level`.

        A level above the known ones belongs to a later release and counts as the latest known version.
        """
        levels = list(_FIRST_LEVELS.values())
        return cls(*list(_FIRST_LEVELS)[max(bisect_right(levels, level) - 1, 0)])

    @property
    def expires_at_cutoff(self) -> bool:
        """Whether retention.ms also deletes a segment whose newest record is exactly that old.

        Source: RemoteLogManager.RLMExpirationTask; 4.3 changed `<=` to `<`.
        """
        return self < KafkaVersion(4, 3)

    @property
    def ages_future_segments(self) -> bool:
        """Whether local.retention.ms counts from the last write of a file with a timestamp in the future.

        Source: KAFKA-20609; 4.4.0 does not have it.
        """
        return self >= KafkaVersion(4, 5)

    @property
    def has_txn_index_empty(self) -> bool:
        """Whether metadata records, and Kafka's text of them, state that the transaction index is empty."""
        return self >= KafkaVersion(4, 0)

    @property
    def has_earliest_pending_upload(self) -> bool:
        """Whether brokers answer the offset spec -6 (KIP-1023, version 11 of ListOffsets)."""
        return self >= KafkaVersion(4, 2)

    @property
    def can_terminate_transactions(self) -> bool:
        """Whether kafka-transactions.sh ends a transaction by its id; it does in 4.3 and not in 3.9."""
        return self >= KafkaVersion(4, 3)

    def includes(self, since: str, until: str | None = None) -> bool:
        """Return whether this release has what was added in `since` and last existed in `until`.

        `since` is "0" for a release before tiered storage, or the KIP of a thing that no release has.
        """
        own = (self.major, self.minor)
        return _is_release(since) and _number(since) <= own and (until is None or own <= _number(until))


def _is_release(version: str) -> bool:
    return version[:1].isdigit()


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


KNOWN = tuple(KafkaVersion(*number) for number in _FIRST_LEVELS)
LAST_WITH_ZOOKEEPER = KafkaVersion(3, 9)
LATEST = KafkaVersion(4, 4)
"""The version that is assumed if no source states one."""


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
