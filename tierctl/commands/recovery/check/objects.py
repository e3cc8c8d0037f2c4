"""Check that no object of the tier was deleted, by two listings of the tier and by the brokers' logs."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tierctl.commands.recovery.check.checks import RestoreCheck
from tierctl.commands.recovery.check.results import Results
from tierctl.errors import CorruptInputError, NotFoundError, UsageError
from tierctl.files import write_durably
from tierctl.model import ListedSet, TopicIdPartition, Uuid

_FORMAT = "tierctl listing 1"
_SHOWN = 3
_LOGGED = re.compile(
    "Deleted remote log segment|About to delete remote log segment|caused truncation of conflicting entries"
)
_SEGMENT_ID = re.compile(r"(?<![A-Za-z0-9_-])[A-Za-z0-9_-]{22}(?![A-Za-z0-9_-])")

SetKey = tuple[Uuid, int, Uuid]
"""Topic id, partition and segment id of a set of objects."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The object sets of a tier at one time: the partition of each set, and the size of each object in it."""

    sets: Mapping[SetKey, tuple[TopicIdPartition, Mapping[int, int]]]

    @classmethod
    def of(cls, listed: Iterable[ListedSet]) -> Self:
        """Return the listing of these sets."""
        return cls(
            {(*each.partition.key, each.segment_id): (each.partition, each.sizes_bytes) for each in listed}
        )

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file that `write` wrote; raise NotFoundError or CorruptInputError."""
        found: dict[SetKey, tuple[TopicIdPartition, Mapping[int, int]]] = {}
        try:
            with path.open(encoding="utf-8") as lines:
                if next(lines, "").rstrip("\n") != _FORMAT:
                    raise CorruptInputError(
                        "a listing of a tier", expected=_FORMAT, found="another first line", source=str(path)
                    )
                for number, line in enumerate(lines, 2):
                    key, value = _parsed(line, f"{path}, line {number}")
                    found[key] = value
        except FileNotFoundError:
            raise NotFoundError(f"{path} does not exist", hint="--listing-out writes a listing") from None
        return cls(found)

    def write(self, path: Path) -> None:
        """Write the listing, one set per line of JSON."""
        lines = (
            json.dumps([str(key[0]), partition.topic, key[1], str(key[2]), sorted(sizes.items())])
            for key, (partition, sizes) in self.sets.items()
        )
        write_durably(path, (f"{line}\n".encode() for line in (_FORMAT, *lines)), mode=0o666)

    @property
    def objects(self) -> int:
        """Return the number of objects."""
        return sum(len(sizes) for _, sizes in self.sets.values())

    @property
    def size_bytes(self) -> int:
        """Return the size of all objects together."""
        return sum(sum(sizes.values()) for _, sizes in self.sets.values())


def _parsed(line: str, where: str) -> tuple[SetKey, tuple[TopicIdPartition, Mapping[int, int]]]:
    try:
        topic_id, topic, number, segment_id, sizes = json.loads(line)
        partition = TopicIdPartition(Uuid.parse(topic_id), str(topic), int(number))
        key = (*partition.key, Uuid.parse(segment_id))
        return key, (partition, {int(part): int(size) for part, size in sizes})
    except (ValueError, TypeError, UsageError) as e:
        raise CorruptInputError(
            "a line of a listing",
            expected="topic id, topic, partition, segment id, sizes",
            found=str(e),
            source=where,
        ) from None


def check_objects(
    results: Results, before: Listing, after: Listing, *, since: str, expendable: frozenset[Uuid]
) -> None:
    """Compare two listings of the tier; `since` says when the first one was made.

    `expendable` are the segments that rebuild published as being deleted: brokers may delete their objects.
    """
    results.decided(
        RestoreCheck.OBJECTS,
        None,
        object_faults(before, after, expendable),
        f"nothing was deleted since {since}: {before.objects} objects, {before.size_bytes} bytes; now "
        f"{after.objects} objects, {after.size_bytes} bytes",
    )


def object_faults(before: Listing, after: Listing, expendable: frozenset[Uuid]) -> Iterator[str]:
    """Yield the objects that are missing or whose size changed."""
    gone: list[str] = []
    changed: list[str] = []
    for key, (partition, sizes) in before.sets.items():
        if key[2] in expendable:
            continue
        now = after.sets.get(key, (partition, {}))[1]
        name = f"{partition.topic_partition} segment {key[2]}"
        if sizes.keys() - now.keys():
            gone.append(f"{name}: {len(sizes.keys() - now.keys())} of {len(sizes)}")
        elif any(now[part] != size for part, size in sizes.items()):
            changed.append(name)
    if gone:
        yield f"objects of {len(gone)} segments were deleted: {_some(gone)}"
    if changed:
        yield f"objects of {len(changed)} segments have another size: {_some(changed)}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


def check_broker_logs(results: Results, files: Sequence[Path], *, expendable: frozenset[Uuid]) -> None:
    """Search brokers' logs for deletions of segments, and for leader epochs that brokers dropped."""
    for path in files:
        try:
            if path.stat().st_size == 0:
                error = NotFoundError(f"{path} is empty", hint="name the broker's log since it started")
                results.prevented(RestoreCheck.BROKER_LOGS, None, error)
                continue
            with path.open(encoding="utf-8", errors="replace") as lines:
                found = [line.strip() for line in lines if _is_fault(line, expendable)]
        except OSError as e:
            error = NotFoundError(f"{path}: {e.strerror or e}", hint="name the log of a broker: server.log")
            results.prevented(RestoreCheck.BROKER_LOGS, None, error)
            continue
        results.decided(
            RestoreCheck.BROKER_LOGS,
            None,
            [f"{path}: {len(found)} lines, the first: {found[0]}"] if found else [],
            f"{path} has no deletion of a segment, and no dropped leader epoch",
        )


def _is_fault(line: str, expendable: frozenset[Uuid]) -> bool:
    return bool(_LOGGED.search(line)) and not any(each in expendable for each in _SEGMENT_ID.findall(line))
