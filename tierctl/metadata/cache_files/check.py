"""What can be wrong with a cache beyond its bytes."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from tierctl.errors import CorruptInputError
from tierctl.metadata.cache_files.files import CacheFile, manifest_of, vouched
from tierctl.metadata.state_dir.cache_file import load_cache, partition_of
from tierctl.model import RemoteLogSegmentMetadataSnapshot
from tierctl.model.stored import StoredValue
from tierctl.wire.metadata import decode


def findings(file: CacheFile) -> Iterator[CorruptInputError]:
    """Damage of its bytes, entries that are somebody else's, offsets that fall, a name that lies.

    A state directory's cache is held against what its manifest vouches for, and no further.
    """
    trusted = vouched(file)
    yield from trusted.errors
    yield from _name(file)
    yield from _values(trusted)
    yield from _manifest(file)


def missing(folder: Path) -> Iterator[CorruptInputError]:
    """Caches that a state directory vouches for and doesn't have."""
    for name in sorted(manifest_of(folder).caches):
        if not (folder / name).exists():
            yield CorruptInputError("state directory", expected=f"cache {name}", found="no such file")


def _manifest(file: CacheFile) -> Iterator[CorruptInputError]:
    entry = manifest_of(file.path.parent).caches.get(file.path.name)
    partition = partition_of(file.path.name)
    if entry is None or partition is None:
        return
    try:
        load_cache(file.path, partition, entry)
    except CorruptInputError as error:
        yield error


def _name(file: CacheFile) -> Iterator[CorruptInputError]:
    named = partition_of(file.path.name)
    if named is None:
        return
    if (named.topic_id, named.topic) != (file.topic_id, file.topic or named.topic):
        yield CorruptInputError(
            "header",
            expected=f"{named.topic_id}:{named.topic}, as the file is called",
            found=f"{file.topic_id}:{file.topic}",
            at=0,
            source=str(file.path),
        )


def _values(file: CacheFile) -> Iterator[CorruptInputError]:
    values = [(e.position, e.record) for e in file.entries if isinstance(e.record, StoredValue)]
    for (_, before), (position, after) in pairwise(values):
        if after.metadata_offset <= before.metadata_offset:
            yield CorruptInputError(
                "metadata offset",
                expected=f"more than {before.metadata_offset}",
                found=str(after.metadata_offset),
                at=position,
                source=str(file.path),
            )
    for position, value in values:
        yield from _value(file, position, value)


def _value(file: CacheFile, position: int, stored: StoredValue) -> Iterator[CorruptInputError]:
    try:
        event = decode(stored.value)
    except CorruptInputError as error:
        yield error.within(f"{file.path}, the entry at byte {position}")
        return
    if isinstance(event, RemoteLogSegmentMetadataSnapshot):
        return
    found = (event.topic_id, event.partition)
    if found != (file.topic_id, event.partition if file.partition is None else file.partition):
        yield CorruptInputError(
            "entry",
            expected=f"an event of topic id {file.topic_id}, partition {file.partition}",
            found=str(event.topic_id_partition),
            at=position,
            source=str(file.path),
        )
