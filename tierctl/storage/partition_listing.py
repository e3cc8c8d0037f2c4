"""Finds the segments of which a tier has objects, for some user partitions."""

from collections.abc import Collection, Iterator

from tierctl.model import Uuid
from tierctl.storage.base import RemoteStorageManager
from tierctl.storage.layouts.key_parser import owner_of_folder, segment_object_name

_Key = tuple[Uuid, int]


def stored_segment_ids(
    remote: RemoteStorageManager, partitions: Collection[_Key]
) -> dict[_Key, frozenset[Uuid]]:
    """Return the ids of the segments that have an object in the folders of `partitions`, by partition.

    A partition without a folder has no ids. Raise RemoteStorageError if the store fails.
    """
    wanted = frozenset(partitions)
    found: dict[_Key, set[Uuid]] = {key: set() for key in wanted}
    for folder in folders_of(remote, wanted):
        for listed in remote.list_objects(folder):
            name = segment_object_name(listed.key)
            if name is not None and (name.topic_id, name.partition) in found:
                found[name.topic_id, name.partition].add(name.segment_id)
    return {key: frozenset(ids) for key, ids in found.items()}


def folders_of(remote: RemoteStorageManager, wanted: Collection[_Key], parent: str = "") -> Iterator[str]:
    """Yield the folders below `parent` that contain objects of the `wanted` partitions."""
    topic_ids = {topic_id for topic_id, _ in wanted}
    for folder in remote.list_folder(parent).folders:
        owner = owner_of_folder(folder)
        if owner is None or owner[0] not in topic_ids:
            continue
        if owner[1] is None:
            yield from folders_of(remote, wanted, folder)
        elif (owner[0], owner[1]) in wanted:
            yield folder
