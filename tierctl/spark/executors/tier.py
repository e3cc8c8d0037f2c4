"""Read a tier on executors: list its folders, and call a function for each of many segments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

from tierctl.model import ListedSet, Uuid
from tierctl.model.progress import Advance
from tierctl.spark.executors.task import shared_tier
from tierctl.spark.executors.transport import Executors, grouped
from tierctl.storage import object_sets as sets
from tierctl.storage.base import RemoteObject, RemoteStorageManager
from tierctl.storage.layouts.kafka import owner_of_folder
from tierctl.storage.object_sets import folders_of
from tierctl.storage.open import TierSpec

FOLDERS_PER_SLOT: Final = 4
"""With fewer folders per slot executors would be idle, so that the folders inside them are listed instead."""
ITEMS_PER_JOB = 100_000
"""The results of one job are in memory as bytes, about 1 KiB for the metadata of a segment."""
REQUEST_US: Final = 20_000
"""The time that a request to a store takes, in microseconds: tasks are combined by estimated duration."""
_LEAST_US, _GROUP_US_MAX, _JOB_US_PER_SLOT = 100_000, 5_000_000, 300_000_000
_GROUPS_PER_SLOT, _BYTES_PER_US = 8, 100

Item = TypeVar("Item")
Result = TypeVar("Result")

_Other = tuple[str, int, int | None, str | None, str | None]
"""Key, size, modification time and problem of an object."""


def read_each(
    executors: Executors,
    spec: TierSpec,
    read: Callable[[RemoteStorageManager, Item], Result],
    items: Sequence[Item],
    *,
    size_bytes: Callable[[Item], int],
    threads: int,
) -> Iterator[Result]:
    """Yield the result of `read` for each item, in the order of `items`, as `storage.object_sets.read_each`.

    `read` must be importable by name; `size_bytes` returns how many bytes it reads. Each task uses `threads`,
    because a core waits for the store most of the time. Raise what `read` raises when its item is reached,
    and EngineError if Spark fails.
    """
    if not items:
        return
    spec = spec.shared(lambda: executors.slots)
    function = partial(_read_group, spec, read, threads)

    def cost_us(item: Item) -> int:
        return REQUEST_US + size_bytes(item) // _BYTES_PER_US

    job_us = _JOB_US_PER_SLOT * executors.slots
    group_us = sum(map(cost_us, items)) // (executors.slots * _GROUPS_PER_SLOT)
    group_us = min(max(group_us, _LEAST_US), _GROUP_US_MAX)

    def cost_of_group(group: Sequence[Item]) -> int:
        return sum(map(cost_us, group))

    for job in grouped(items, lambda each: max(cost_us(each), -(-job_us // ITEMS_PER_JOB)), job_us):
        groups = list(grouped(job, cost_us, group_us))
        for results in executors.run(function, groups, cost=cost_of_group, min_task_cost=_LEAST_US):
            yield from results


def _read_group(
    spec: TierSpec, read: Callable[[RemoteStorageManager, Item], Result], threads: int, group: Sequence[Item]
) -> list[Result]:
    return list(sets.read_each(shared_tier(spec), read, group, threads=min(threads, len(group))))


def list_object_sets(
    executors: Executors,
    spec: TierSpec,
    remote: RemoteStorageManager,
    advance: Advance,
    partitions: Collection[tuple[Uuid, int]] | None = None,
    *,
    others: Callable[[RemoteObject], object] = id,
) -> list[ListedSet]:
    """Return what `storage.object_sets.list_object_sets` returns; one input lists one folder of `remote`."""
    listing: Sequence[str | RemoteObject] = (
        folders_to_list(executors, remote) if partitions is None else list(folders_of(remote, partitions))
    )
    here = [each for each in listing if isinstance(each, RemoteObject)]
    found = sets.sets_among(remote, here, advance, others=others)
    folders = [each for each in listing if isinstance(each, str)]
    function = partial(_list_folder, spec.shared(lambda: executors.slots))
    for own, unknown, count in executors.run(function, folders):
        found += own
        for each in unknown:
            others(RemoteObject(*each))
        advance(count)
    return sets.ordered(found)


def _list_folder(spec: TierSpec, folder: str) -> tuple[list[ListedSet], list[_Other], int]:
    """Return the sets of a folder, its objects that belong to no set, and the number of objects of sets."""
    remote = shared_tier(spec)
    others: list[RemoteObject] = []
    counts: list[int] = []
    found = sets.sets_among(remote, remote.list_objects(folder), counts.append, others=others.append)
    facts = [
        (each.key, each.size_bytes, each.modified_ms, each.problem, each.archive_class) for each in others
    ]
    return found, facts, sum(counts)


def folders_to_list(executors: Executors, remote: RemoteStorageManager) -> list[str | RemoteObject]:
    """Return folders of `remote` for executors to list, and the objects outside of them, ordered by key."""
    listing = remote.list_folder().by_key()
    if len(listing) >= FOLDERS_PER_SLOT * executors.slots:
        return listing
    inner: list[str | RemoteObject] = []
    for each in listing:
        owner = owner_of_folder(each) if isinstance(each, str) else None
        is_topic = owner is not None and owner[1] is None
        inner += remote.list_folder(each).by_key() if isinstance(each, str) and is_topic else [each]
    return inner
