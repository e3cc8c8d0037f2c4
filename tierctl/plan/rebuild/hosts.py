"""A rebuild's plan for several hosts: what each writes into its own replicas of the metadata topic.

Brokers whose log directories are on different hosts get the same bytes only if every value in them comes from
the plan: the plan states the end of each metadata partition before it, the leader epoch and the time of its
batches, and the fields of its events.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from tierctl.model import EpochEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionBase:
    """A metadata partition before the plan: its offsets, its bytes in their order, and its epoch file.

    `sha256` is that of the first `size_bytes` bytes of its batches, whatever segments they are in. A
    partition that is lost or empty has 0 bytes.
    """

    begin_offset: int
    end_offset: int
    size_bytes: int
    sha256: str
    leader_epochs: tuple[EpochEntry, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the base as a JSON object."""
        return {
            "begin_offset": self.begin_offset,
            "end_offset": self.end_offset,
            "size_bytes": self.size_bytes,
            "sha256": self.sha256,
            "leader_epochs": [list(entry) for entry in self.leader_epochs],
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Return the object that `to_json` made `raw` from; KeyError, TypeError or ValueError for others."""
        return cls(
            begin_offset=int(raw["begin_offset"]),
            end_offset=int(raw["end_offset"]),
            size_bytes=int(raw["size_bytes"]),
            sha256=str(raw["sha256"]),
            leader_epochs=_entries(raw["leader_epochs"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedLog:
    """The log of a user partition for which segments were decided: its start, its lineage, the tier's end.

    `next_offset` is the offset after the last segment that the log has in the tier; None without one.
    """

    start_offset: int
    next_offset: int | None
    lineage: tuple[EpochEntry, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the log as a JSON object."""
        lineage = [list(entry) for entry in self.lineage]
        return {"start_offset": self.start_offset, "next_offset": self.next_offset, "lineage": lineage}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Return the object that `to_json` made `raw` from; KeyError, TypeError or ValueError for others."""
        following = raw["next_offset"]
        return cls(
            start_offset=int(raw["start_offset"]),
            next_offset=None if following is None else int(following),
            lineage=_entries(raw["lineage"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsPlan:
    """What each host of `brokers` writes; the plan was made on the host of broker `made_by`.

    `bases` has every metadata partition by its number, and `logs` the user partitions of the plan's steps by
    topicId:topic-partition. `sha256` identifies all bytes of the metadata partitions after the plan.
    """

    brokers: tuple[int, ...]
    made_by: int
    timestamp_ms: int
    event_broker_id: int
    has_txn_index_empty: bool
    bases: Mapping[int, PartitionBase]
    logs: Mapping[str, DecidedLog]
    sha256: str

    def to_json(self) -> dict[str, Any]:
        """Return the plan's field `hosts` as a JSON object."""
        return {
            "brokers": list(self.brokers),
            "made_by": self.made_by,
            "timestamp_ms": self.timestamp_ms,
            "event_broker_id": self.event_broker_id,
            "has_txn_index_empty": self.has_txn_index_empty,
            "bases": [base.to_json() for _, base in sorted(self.bases.items())],
            "logs": {name: log.to_json() for name, log in self.logs.items()},
            "sha256": self.sha256,
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Return the object that `to_json` made `raw` from; KeyError, TypeError or ValueError for others."""
        return cls(
            brokers=tuple(int(each) for each in raw["brokers"]),
            made_by=int(raw["made_by"]),
            timestamp_ms=int(raw["timestamp_ms"]),
            event_broker_id=int(raw["event_broker_id"]),
            has_txn_index_empty=bool(raw["has_txn_index_empty"]),
            bases={number: PartitionBase.from_json(each) for number, each in enumerate(raw["bases"])},
            logs={name: DecidedLog.from_json(each) for name, each in raw["logs"].items()},
            sha256=str(raw["sha256"]),
        )


def _entries(raw: Sequence[Sequence[int]]) -> tuple[EpochEntry, ...]:
    return tuple(EpochEntry(int(epoch), int(start)) for epoch, start in raw)
