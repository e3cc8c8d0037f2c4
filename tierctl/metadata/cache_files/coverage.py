"""Tell which events of the metadata topic a cache file contains. Executors call these functions, too."""

from dataclasses import dataclass
from pathlib import Path

from tierctl.errors import CorruptInputError
from tierctl.metadata.cache_files.files import Form, read_cache
from tierctl.model import Uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheCoverage:
    """The events that a cache file contains: those of its partition up to `last_offset`.

    A snapshot of Kafka 3 names its `metadata_partition`, and was written at `metadata_topic_offset`. Other
    forms name the user partition.
    """

    source: str
    """The path of the file."""
    form: Form
    topic_id: Uuid | None
    partition: int | None
    metadata_partition: int | None
    metadata_topic_offset: int
    last_offset: int


def coverage_of(path: Path) -> CacheCoverage | CorruptInputError:
    """Return the coverage of the file, or why it can't be read. Raise OSError."""
    try:
        file = read_cache(path)
    except CorruptInputError as error:
        return error
    return CacheCoverage(
        source=str(path),
        form=file.form,
        topic_id=file.topic_id,
        partition=file.partition,
        metadata_partition=file.metadata_partition,
        metadata_topic_offset=file.metadata_topic_offset,
        last_offset=file.last_offset,
    )
