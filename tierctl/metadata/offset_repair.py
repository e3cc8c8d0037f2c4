"""Checks committed offsets against the metadata topic and cache files, and finds the highest safe offsets."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tierctl.errors import CorruptInputError, SafetyRefusal
from tierctl.files import broker_kept_out, exclusive_replacement, read_regular, replace_durably
from tierctl.kernel import expect
from tierctl.metadata.cache_files import CacheCoverage, Form
from tierctl.metadata.topic.base import METADATA_TOPIC, MetadataTopic
from tierctl.model import TopicIdPartition, Uuid
from tierctl.wire.files import checkpoints
from tierctl.wire.files.checkpoints import CommittedOffsets, OffsetsForm
from tierctl.wire.metadata.decode import KIND, PARTITION_DELETE, decode_values
from tierctl.wire.metadata.values import metadata_partition

Key = tuple[Uuid, int]


class Unread(NamedTuple):
    """The events of a metadata partition that a consumer of committed offsets would not read: [0, end)."""

    metadata_partition: int
    end_offset: int


Missing = tuple[int, str, bool]
"""The offset of an event that no cache contains, its user partition, and True.

False instead of True: a record that is not understood, what is wrong with it.
"""


class Held(NamedTuple):
    """The last offset in a cache of each user partition in `offsets`, and that of all others."""

    offsets: Mapping[Key, int]
    of_others: int = -1


FindMissing = Callable[[Sequence[Unread], Held], Iterable[Missing | None]]
"""Calls `first_missing` for each of the metadata partitions, here or on executors, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A committed offset that is too high, or may be.

    `limit` is the highest safe offset, None if the entry must be removed. It is the committed offset itself
    if a record that is not understood leaves unknown whether that is safe.
    """

    metadata_partition: int
    committed_offset: int
    problem: str
    limit: int | None
    detail: str


def against_log(topic: MetadataTopic, committed: Mapping[int, int]) -> Iterator[Finding]:
    """Yield a finding for each unknown metadata partition and each offset at or after the log's end."""
    ends = topic.end_offsets()
    for partition, offset in committed.items():
        if partition not in ends:
            yield Finding(
                metadata_partition=partition,
                committed_offset=offset,
                problem="unknown partition",
                limit=None,
                detail=f"there is no {METADATA_TOPIC}-{partition}",
            )
            continue
        last = ends[partition] - 1
        if offset > last:
            yield Finding(
                metadata_partition=partition,
                committed_offset=offset,
                problem="beyond the log's end",
                limit=None if last < 0 else last,
                detail=f"the log's last offset is {last}" if last >= 0 else "the log is empty",
            )


def against_snapshots(files: Iterable[CacheCoverage], committed: Mapping[int, int]) -> Iterator[Finding]:
    """Yield a finding for each offset that is higher than the offset in a snapshot of Kafka 3.

    Each snapshot covers its metadata partition up to the committed offset.
    """
    for file in files:
        if file.form is not Form.SNAPSHOT or file.metadata_partition is None:
            continue
        partition, held = file.metadata_partition, file.metadata_topic_offset
        if committed.get(partition, held) > held:
            yield Finding(
                metadata_partition=partition,
                committed_offset=committed[partition],
                problem="ahead of a cache",
                limit=None if held < 0 else held,
                detail=f"{file.source} {_held_text(file)}",
            )


def with_own_partitions(
    files: Iterable[CacheCoverage], partitions: Iterable[TopicIdPartition], metadata_partitions: int
) -> Iterator[CacheCoverage]:
    """Yield the files; a snapshot of Kafka 3 that states another metadata partition than its own is damaged.

    Its own one is that of the user partition that names its folder, of which the topic with
    `metadata_partitions` has the events. `partitions` are those in the log directories of `files`.
    """
    own: dict[str, set[int]] = {}
    for each in partitions:
        home = metadata_partition(each.topic_id, each.partition, metadata_partitions)
        own.setdefault(str(each.topic_partition), set()).add(home)
    for file in files:
        name, stated = Path(file.source).parent.name, file.metadata_partition
        homes = own.get(name, set())
        if file.form is not Form.SNAPSHOT or stated is None or stated in homes or not homes:
            yield file
            continue
        for home in sorted(homes):
            damage = f"it states metadata partition {stated}, but the events of {name} are in {home}"
            yield replace(file, metadata_partition=home, metadata_topic_offset=-1, damage=damage)


def _held_text(file: CacheCoverage) -> str:
    held = file.metadata_topic_offset
    return f"was written at offset {held}" if file.damage is None else f"is damaged: {file.damage}"


def held_by_flat_files(files: Iterable[CacheCoverage]) -> Held:
    """Return what flat files have: a partition without one has no event in a cache."""
    held: dict[Key, int] = {}
    for file in files:
        if file.topic_id is not None and file.partition is not None:
            key = (file.topic_id, file.partition)
            held[key] = max(held.get(key, -1), file.metadata_topic_offset)
    return Held(held)


def held_except(partitions: Iterable[TopicIdPartition]) -> Held:
    """Return that all events are in caches, except those of `partitions`, of which none is.

    Brokers of Kafka 3 write the snapshots of all their partitions before the offsets (ConsumerTask), and a
    partition on another broker has no snapshot here: only those that should have one may lack events.
    """
    return Held(dict.fromkeys((each.key for each in partitions), -1), checkpoints.INT64_MAX)


def against_caches(
    topic: MetadataTopic,
    held: Held,
    committed: Mapping[int, int],
    find_missing: FindMissing | None = None,
) -> Iterator[Finding]:
    """Yield a finding for each offset that is at or after an event which no cache contains.

    `find_missing` reads the topic; by default this process does.

    A consumer that continues after such an offset would never read that event.
    """
    ends = topic.end_offsets()
    unread = [Unread(each, min(offset + 1, ends.get(each, 0))) for each, offset in committed.items()]
    if find_missing is None:
        found: Iterable[Missing | None] = (first_missing(topic, held, each) for each in unread)
    else:
        found = find_missing(unread, held)
    for (partition, offset), missing in zip(committed.items(), found, strict=True):
        if missing is None:
            continue
        lost, what, is_understood = missing
        if is_understood:
            problem, limit = "ahead of the caches", None if lost == 0 else lost - 1
            detail = f"no cache holds the event of {what} at offset {lost}"
        else:
            problem, limit = "not understood", offset
            detail = (
                f"the record at offset {lost} is not understood, so no cache shows that it was read: {what}"
            )
        yield Finding(
            metadata_partition=partition,
            committed_offset=offset,
            problem=problem,
            limit=limit,
            detail=detail,
        )


def first_missing(topic: MetadataTopic, held: Held, unread: Unread) -> Missing | None:
    """Return the first event in `unread` that no cache has, else the first record that is not understood."""
    partition, end_offset = unread
    if end_offset <= 0:
        return None
    not_understood: Missing | None = None
    begin = topic.beginning_offsets()[partition]
    expect(end_offset - begin)
    for chunk in topic.read(partition, begin, end_offset):
        events = decode_values(chunk.slices)
        for row in np.flatnonzero(events.rows[:, KIND] <= PARTITION_DELETE).tolist():
            whose, offset = events.topic_id_partition(row), int(chunk.offsets[row])
            if held.offsets.get((whose.topic_id, whose.partition), held.of_others) < offset:
                return offset, str(whose), True
        strange = [(int(chunk.offsets[row]), str(error)) for row, error in events.errors.items()]
        strange += [(bad.offset, str(bad.error)) for bad in chunk.damage if not bad.is_gap]
        if strange and not_understood is None:
            not_understood = (*min(strange), False)
    return not_understood


def lowest(findings: Iterable[Finding]) -> dict[int, int | None]:
    """Return the highest safe offset of each metadata partition with a finding, None to remove the entry."""
    limits: dict[int, int | None] = {}
    for finding in findings:
        known = limits.get(finding.metadata_partition, finding.limit)
        none_left = known is None or finding.limit is None
        limits[finding.metadata_partition] = None if none_left else min(known or 0, finding.limit or 0)
    return limits


def read_committed(path: Path) -> CommittedOffsets:
    """Decode a file of committed offsets; raise CorruptInputError if it is damaged, or OSError."""
    found = read_good_lines(path)
    for error in found.damage:
        raise error
    return found


def read_good_lines(path: Path) -> CommittedOffsets:
    """Decode the good lines of a file of committed offsets; `damage` names the file and its repair.

    Raise UnsupportedFormatError for a version that is not known, or OSError.
    """
    try:
        found = checkpoints.read_committed_offsets(read_regular(path))
    except CorruptInputError as error:
        raise _of_file(error, path, _NO_GOOD_LINE) from None
    hint = _GOOD_LINES if found.offsets else _NO_GOOD_LINE
    return replace(found, damage=[_of_file(error, path, hint) for error in found.damage])


_GOOD_LINES = "tierctl offsets repair keeps the good lines; stop the broker before --apply"
_NO_GOOD_LINE = (
    "check that this is a file of committed offsets; tierctl offsets repair --force replaces it by one "
    "without offsets"
)


def _of_file(error: CorruptInputError, path: Path, hint: str) -> CorruptInputError:
    """Return the error with its position in the file, and with `hint`, which names the repair."""
    named = error.within(str(path))
    named.hint = hint
    return named


def write_committed(path: Path, offsets: Mapping[int, int], *, before: Mapping[int, int]) -> None:
    """Replace the file in its own form, an unknown one by Kafka's form; the former stays as .bak.

    Raise SafetyRefusal if a broker runs on its folder, or if the file no longer has the offsets `before`:
    those that another run lowered meanwhile would rise. Raise LockedError if another tierctl works there.
    """
    with broker_kept_out(path.parent), exclusive_replacement(path, timeout_s=0):
        found: Mapping[int, int] = {}
        form = OffsetsForm.CHECKPOINT
        with suppress(CorruptInputError):
            good = read_good_lines(path)
            found, form = good.offsets, good.form
        if dict(found) != dict(before):
            raise SafetyRefusal(
                f"{path} was changed by another program since it was read", hint="run the command again"
            )
        replace_durably(path, checkpoints.write_committed_offsets(offsets, form), backup=True)
