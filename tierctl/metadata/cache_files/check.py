"""Find what is wrong with a cache file: damaged bytes, entries of other partitions, wrong order or name."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from tierctl.errors import CorruptInputError
from tierctl.metadata.cache_files.files import (
    CacheFile,
    Form,
    RemoteIndexEntry,
    listed_in_manifest,
    manifest_of,
)
from tierctl.metadata.state_dir.cache_file import load_cache, partition_of
from tierctl.model import RemoteLogSegmentMetadataSnapshot
from tierctl.model.stored import StoredValue
from tierctl.wire.files import remoteindex
from tierctl.wire.metadata import decode


def findings(file: CacheFile) -> Iterator[CorruptInputError]:
    """Yield each problem of a cache file; a good file has none.

    Problems are bytes that can't be decoded, entries of another partition, metadata offsets that do not
    rise, a file name that contradicts the header, content that differs from a state directory's manifest,
    and a `.remoteindex` file that overlaps the next one. Of a state directory's file only the entries that
    its manifest lists are checked.
    """
    listed = listed_in_manifest(file)
    yield from listed.errors
    yield from _name(file)
    yield from _values(listed)
    yield from against_manifest(file)
    if file.form is Form.REMOTE_INDEX:
        yield from _overlap(file)


def missing(folder: Path) -> Iterator[CorruptInputError]:
    """Yield an error for each file that a state directory's manifest lists and the directory lacks."""
    for name in sorted(manifest_of(folder).caches):
        if not (folder / name).exists():
            yield CorruptInputError("state directory", expected=f"cache {name}", found="no such file")


def against_manifest(file: CacheFile) -> Iterator[CorruptInputError]:
    """Yield an error if the manifest of the file's state directory lists another content."""
    entry = manifest_of(file.path.parent).caches.get(file.path.name)
    partition = partition_of(file.path.name)
    if entry is None or partition is None:
        return
    try:
        load_cache(file.path, partition, entry)
    except CorruptInputError as error:
        yield error


def _overlap(file: CacheFile) -> Iterator[CorruptInputError]:
    """Yield an error if the file has offsets of the partition's next `.remoteindex` file."""
    names = (path.name for path in file.path.parent.glob(f"*{remoteindex.SUFFIX}"))
    bases = sorted(base for base in map(remoteindex.parse_name, names) if base is not None)
    starts = [
        (e.position, e.record.start_offset) for e in file.entries if isinstance(e.record, RemoteIndexEntry)
    ]
    following = next((base for base in bases if starts and base > starts[0][1]), None)
    if following is None:
        return
    for position, start_offset in starts:
        if start_offset >= following:
            yield CorruptInputError(
                "remote index",
                expected=f"offsets below {following}, where the next file begins",
                found=str(start_offset),
                at=position,
                source=str(file.path),
            )
            return


def _name(file: CacheFile) -> Iterator[CorruptInputError]:
    named = partition_of(file.path.name)
    if named is None:
        return
    if (named.topic_id, named.topic) != (file.topic_id, file.topic or named.topic):
        yield CorruptInputError(
            "header",
            expected=f"{named.topic_id}:{named.topic}, as the file's name says",
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
