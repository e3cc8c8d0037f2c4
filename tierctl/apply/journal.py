"""Files of a run in the state directory: log starts, KIP-917 breaches, and sightings of orphans."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tierctl.errors import CorruptInputError, UsageError
from tierctl.files import PLAIN, FileSystem, read_regular, replace_durably
from tierctl.metadata.state_dir import read_json, require_private, write_json
from tierctl.model import TopicIdPartition, TopicPartition, Uuid
from tierctl.model.json_types import require_types
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.wire.files.checkpoints import LOG_STARTS_FILE, read_offset_checkpoint, write_offset_checkpoint

CUSTOM_METADATA_BREACHES = "custom-metadata-breaches.json"
"""Segments whose custom metadata exceeded KIP-917's limit, one for each partition."""

ORPHAN_SIGHTINGS = "orphan-sightings.json"
"""The time at which each orphan was seen first, by partition and segment id."""

_Key = tuple[Uuid, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomMetadataBreach:
    """A segment that was uploaded and then deleted because its custom metadata exceeded the limit.

    `layout` names the source of the custom metadata: the tier's layout and the fields that it writes.
    """

    topic_id: Uuid
    partition: int
    start_offset: int
    size_bytes: int
    limit_bytes: int
    layout: str

    def reason_since(self, oldest_ms: int) -> Reason:
        """Return why the segment, last written at `oldest_ms`, and later ones are not copied."""
        return Reason(
            ReasonKind.CUSTOM_METADATA,
            from_offset=self.start_offset,
            oldest_ms=oldest_ms,
            size_bytes=self.size_bytes,
            limit_bytes=self.limit_bytes,
        )


class Journal:
    """Reads and writes these files; the caller holds the lock of the state directory. Raises OSError."""

    def __init__(self, folder: Path, *, fs: FileSystem = PLAIN) -> None:
        self._folder = folder
        self._fs = fs

    def log_starts(self) -> dict[_Key, int]:
        """Return the log start offsets raised so far; raise CorruptInputError if the file does not parse.

        Raise SafetyRefusal if others may write the folder. The file is an offset checkpoint with topic ids as
        names: a topic's name may be used again.
        """
        path = self._folder / LOG_STARTS_FILE
        require_private(self._folder)
        try:
            found = read_offset_checkpoint(read_regular(path))
        except FileNotFoundError:
            return {}
        except CorruptInputError as e:
            raise e.within(str(path)) from None
        try:
            return {(Uuid.parse(key.topic), key.partition): offset for key, offset in found.items()}
        except UsageError as e:
            raise CorruptInputError(
                "log start offsets", expected="topic ids", found=e.message, source=str(path)
            ) from None

    def raise_log_starts(self, starts: Mapping[TopicIdPartition, int]) -> None:
        """Store each log start offset in `starts` that is above the stored one; durable on return."""
        kept = self.log_starts()
        raised = {
            partition.key: offset
            for partition, offset in starts.items()
            if offset > kept.get(partition.key, -1)
        }
        if raised:
            merged = sorted((kept | raised).items())
            by_id = {TopicPartition(topic_id, partition): offset for (topic_id, partition), offset in merged}
            data = write_offset_checkpoint(by_id)
            replace_durably(self._folder / LOG_STARTS_FILE, data, backup=True, fs=self._fs)

    def custom_metadata_breaches(self) -> tuple[CustomMetadataBreach, ...]:
        """Return the recorded breaches of KIP-917's limit; CorruptInputError if the file does not parse."""
        return read_json(
            self._folder / CUSTOM_METADATA_BREACHES,
            lambda found: tuple(_breach(each) for each in found["breaches"]),
            if_missing=(),
            what="custom metadata breaches",
            expected="a list of them",
            hint="delete the file: segments over the limit are then uploaded once more",
        )

    def record_breaches(self, breaches: Sequence[CustomMetadataBreach]) -> None:
        """Record the first breach of each partition, in the place of an earlier one; durable on return."""
        # If several segments of a partition were uploaded at the same time, the breach with the lowest offset
        # is kept.
        first_last = sorted(breaches, key=lambda each: -each.start_offset)
        every = (*self.custom_metadata_breaches(), *first_last)
        kept = {(each.topic_id, each.partition): each for each in every}
        content = {"breaches": [asdict(each) for each in kept.values()]}
        write_json(self._folder / CUSTOM_METADATA_BREACHES, content, fs=self._fs)

    def orphan_sightings(self) -> dict[_Key, dict[Uuid, int]]:
        """Return when each orphan was first seen, by partition; CorruptInputError for a damaged file."""
        return read_json(
            self._folder / ORPHAN_SIGHTINGS,
            _sightings,
            if_missing={},
            what="sightings of orphans",
            expected="the times by partition and segment id",
            hint="delete the file: orphans must then be seen twice again before they are deleted",
        )

    def record_sightings(self, seen: Mapping[_Key, Collection[Uuid]], now_ms: int) -> dict[Uuid, int]:
        """Record the orphans of each partition in `seen` at `now_ms`; return when each was first seen.

        The sightings of other orphans of these partitions are forgotten; durable on return.
        """
        before = self.orphan_sightings()
        after = dict(before)
        for key, ids in seen.items():
            known = before.get(key, {})
            after[key] = {
                segment_id: min(known.get(segment_id, now_ms), now_ms) for segment_id in sorted(ids)
            }
        after = {key: times for key, times in after.items() if times}
        if after != before:
            partitions = [
                {"topic_id": topic_id, "partition": partition, "first_seen_ms": times}
                for (topic_id, partition), times in sorted(after.items())
            ]
            write_json(self._folder / ORPHAN_SIGHTINGS, {"partitions": partitions}, fs=self._fs)
        return {segment_id: at for key in seen for segment_id, at in after.get(key, {}).items()}


def _sightings(found: Any) -> dict[_Key, dict[Uuid, int]]:
    return {
        (Uuid.parse(each["topic_id"]), int(each["partition"])): {
            Uuid.parse(segment_id): int(at_ms) for segment_id, at_ms in each["first_seen_ms"].items()
        }
        for each in found["partitions"]
    }


def _breach(fields: dict[str, Any]) -> CustomMetadataBreach:
    numbers = ("partition", "start_offset", "size_bytes", "limit_bytes")
    require_types(fields, {**dict.fromkeys(numbers, int), "layout": str})
    breach = CustomMetadataBreach(**fields)
    Uuid.parse(breach.topic_id)
    return replace(breach, topic_id=Uuid(breach.topic_id))
