"""Kafka's checkpoint files: leader epochs, offsets by partition, and the topic id of a partition.

Layout of a checkpoint (org.apache.kafka.server.common.CheckpointFile): a line `0` (the version), a line with
the number of entries, then one line per entry. A file of 0 bytes is an empty checkpoint, as Kafka creates it.
Errors name the line and the byte at which it begins. An unfinished last line is an error although Kafka
accepts it, because a number that is cut is another number.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tierctl.errors import CorruptInputError, UnsupportedFormatError, UsageError
from tierctl.model.ids import ZERO_UUID, TopicPartition, Uuid
from tierctl.model.local import EpochEntry

LEADER_EPOCHS_FILE = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"
LOG_STARTS_FILE = "log-start-offset-checkpoint"
RECOVERY_POINTS_FILE = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS_FILE = "replication-offset-checkpoint"

VERSION = 0
INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1

_NUMBER = re.compile(r"[+-]?[0-9]{1,19}\Z")
_PARTITION_METADATA = re.compile(
    r"version: (?P<version>[0-9]{1,9})\r?\ntopic_id: (?P<id>[^\r\n]*)(?:\r?\n)?\Z"
)


class _Line(NamedTuple):
    text: str
    number: int
    at: int

    def corrupt(self, what: str, expected: str) -> CorruptInputError:
        return CorruptInputError(
            f"{what}, line {self.number}", expected=expected, found=repr(self.text[:200]), at=self.at
        )


def read_leader_epoch_checkpoint(data: bytes) -> tuple[EpochEntry, ...]:
    """Decode a `leader-epoch-checkpoint` (LeaderEpochCheckpointFile); keep the order of the file.

    Raise CorruptInputError for a malformed line, a wrong count, or epochs that do not ascend with offsets.
    """
    what = "leader-epoch checkpoint"
    entries: list[EpochEntry] = []
    for line in _entry_lines(data, what):
        epoch, start = _fields(line, what, 2, "EPOCH START_OFFSET")
        entry = EpochEntry(_number(line, what, epoch, INT32_MAX), _number(line, what, start, INT64_MAX))
        if entries and not (
            entry.epoch > entries[-1].epoch and entry.start_offset >= entries[-1].start_offset
        ):
            last = entries[-1]
            raise line.corrupt(what, f"an epoch above {last.epoch} from offset {last.start_offset} on")
        entries.append(entry)
    return tuple(entries)


def write_leader_epoch_checkpoint(entries: Iterable[EpochEntry]) -> bytes:
    """Return the bytes of the file, which is also the leader-epoch index of a copied segment."""
    return _write(f"{epoch} {start}" for epoch, start in entries)


def read_offset_checkpoint(data: bytes) -> dict[TopicPartition, int]:
    """Decode an offset checkpoint (OffsetCheckpointFile); of repeated partitions, the last line counts.

    Offset checkpoints are replication-offset-, recovery-point-offset-, log-start-offset- and
    cleaner-offset-checkpoint. Raise CorruptInputError for a malformed line or a wrong count.
    """
    what = "offset checkpoint"
    offsets: dict[TopicPartition, int] = {}
    for line in _entry_lines(data, what):
        topic, partition, offset = _fields(line, what, 3, "TOPIC PARTITION OFFSET")
        key = TopicPartition(topic, _number(line, what, partition, INT32_MAX))
        offsets[key] = _number(line, what, offset, INT64_MAX)
    return offsets


def write_offset_checkpoint(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Return the bytes of the file, with the partitions in the order of the mapping."""
    return _write(f"{key.topic} {key.partition} {offset}" for key, offset in offsets.items())


def read_partition_metadata(data: bytes) -> Uuid:
    """Return the topic id in a `partition.metadata` file (PartitionMetadataFile) of any version.

    Raise CorruptInputError for a malformed file and, as Kafka does, for the zero id.
    """
    what = PARTITION_METADATA_FILE
    match = _PARTITION_METADATA.match(_text(data, what))
    if match is None:
        raise CorruptInputError(
            what, expected="lines 'version: 0' and 'topic_id: ID'", found=repr(data[:200]), at=0
        )
    try:
        topic_id = Uuid.parse(match["id"])
    except UsageError:
        topic_id = ZERO_UUID
    if topic_id == ZERO_UUID:
        raise CorruptInputError(
            f"{what}, line 2", expected="a topic id", found=repr(match["id"][:200]), at=match.start("id")
        )
    return topic_id


def write_partition_metadata(topic_id: Uuid) -> bytes:
    """Return the bytes of the file; as in Kafka, without a newline at the end."""
    return f"version: {VERSION}\ntopic_id: {topic_id}".encode("ascii")


def _write(lines: Iterable[str]) -> bytes:
    body = list(lines)
    return "".join(f"{line}\n" for line in [str(VERSION), str(len(body)), *body]).encode("utf-8")


def _text(data: bytes, what: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptInputError(
            what, expected="UTF-8 text", found=repr(data[error.start : error.start + 4]), at=error.start
        ) from None


def _lines(data: bytes, what: str) -> list[_Line]:
    _text(data, what)
    lines = []
    at = 0
    for number, raw in enumerate(data.split(b"\n"), 1):
        lines.append(_Line(raw.removesuffix(b"\r").decode("utf-8"), number, at))
        at += len(raw) + 1
    last = lines.pop()
    if last.at != len(data):
        raise last.corrupt(what, "a newline at the end of the line")
    return lines


def _entry_lines(data: bytes, what: str) -> list[_Line]:
    """Return the lines after version and count; raise CorruptInputError if these two lines are wrong."""
    if not data:
        return []
    lines = _lines(data, what)
    version = _number(lines[0], what, lines[0].text, INT32_MAX)
    if version != VERSION:
        raise UnsupportedFormatError(what, expected="version 0", found=f"version {version}", at=0)
    if len(lines) < 2:
        raise CorruptInputError(what, expected="a line with the entry count", found="the end", at=len(data))
    count = _number(lines[1], what, lines[1].text, INT32_MAX)
    entries = lines[2:]
    if len(entries) != count:
        raise lines[1].corrupt(what, f"a count of {len(entries)}, which is how many entries follow")
    return entries


def _fields(line: _Line, what: str, count: int, shape: str) -> list[str]:
    fields = line.text.split()
    if len(fields) != count:
        raise line.corrupt(what, shape)
    return fields


def _number(line: _Line, what: str, text: str, maximum: int) -> int:
    value = int(text) if _NUMBER.match(text) else -1
    if not 0 <= value <= maximum:
        raise line.corrupt(what, f"a whole number from 0 to {maximum}")
    return value
