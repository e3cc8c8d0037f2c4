"""The files of a run in the state directory: raised log start offsets, and segments over KIP-917's limit."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tierctl.errors import CorruptInputError, UsageError
from tierctl.files import PLAIN, FileSystem, replace_durably
from tierctl.model import TopicIdPartition, TopicPartition, Uuid
from tierctl.plan.copy.custom_metadata import CustomMetadataBreach
from tierctl.wire.files.checkpoints import read_offset_checkpoint, write_offset_checkpoint

LOG_STARTS = "log-start-offset-checkpoint"
"""Kafka's offset checkpoint format, but with topic ids as names: a topic's name may be used again."""

CUSTOM_METADATA_BREACHES = "custom-metadata-breaches.json"
"""Segments whose custom metadata exceeded KIP-917's limit, one for each partition."""

_Key = tuple[Uuid, int]


class Journal:
    """Reads and writes these files; the caller holds the lock of the state directory. Raises OSError."""

    def __init__(self, folder: Path, *, fs: FileSystem = PLAIN) -> None:
        self._folder = folder
        self._fs = fs

    def log_starts(self) -> dict[_Key, int]:
        """Return the log start offsets raised so far; raise CorruptInputError if the file does not parse."""
        path = self._folder / LOG_STARTS
        try:
            found = read_offset_checkpoint(path.read_bytes())
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
            replace_durably(self._folder / LOG_STARTS, data, backup=True, fs=self._fs)

    def custom_metadata_breaches(self) -> tuple[CustomMetadataBreach, ...]:
        """Return the recorded breaches of KIP-917's limit; CorruptInputError if the file does not parse."""
        path = self._folder / CUSTOM_METADATA_BREACHES
        try:
            return tuple(_breach(each) for each in json.loads(path.read_bytes())["breaches"])
        except FileNotFoundError:
            return ()
        except (ValueError, KeyError, TypeError, UsageError) as e:
            raise CorruptInputError(
                "custom metadata breaches",
                expected="a list of them",
                found=str(e),
                source=str(path),
                hint="delete the file: segments over the limit are then uploaded once more",
            ) from None

    def record_breaches(self, breaches: Sequence[CustomMetadataBreach]) -> None:
        """Record the first breach of each partition, in the place of an earlier one; durable on return."""
        # Of several segments that were uploaded at the same time, the first one stops the partition.
        first_last = sorted(breaches, key=lambda each: -each.start_offset)
        every = (*self.custom_metadata_breaches(), *first_last)
        kept = {(each.topic_id, each.partition): each for each in every}
        data = json.dumps({"breaches": [asdict(each) for each in kept.values()]}, indent=1).encode() + b"\n"
        replace_durably(self._folder / CUSTOM_METADATA_BREACHES, data, fs=self._fs)


def _breach(fields: dict[str, Any]) -> CustomMetadataBreach:
    breach = CustomMetadataBreach(**fields)
    Uuid.parse(breach.topic_id)
    return replace(breach, topic_id=Uuid(breach.topic_id))
