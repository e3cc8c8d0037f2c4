"""Files of a log directory: checkpoint files, `meta.properties`, producer snapshots, committed offsets."""

import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from tierctl.errors import CorruptInputError, UnsupportedFormatError, UsageError
from tierctl.model.events import ZERO_UUID, TopicPartition, Uuid
from tierctl.model.local import EpochEntry
from tierctl.wire.files.properties import parse_properties
from tierctl.wire.primitives import crc32c

# Kafka's checkpoint files: leader epochs, offsets by partition, and the topic id of a partition.
#
# Layout of a checkpoint (org.apache.kafka.server.common.CheckpointFile): a line `0` (the version), a line
# with the number of entries, then one line per entry. A file of 0 bytes is an empty checkpoint, as Kafka
# creates it. Errors name the line and the byte at which it begins. An unfinished last line is an error
# although Kafka accepts it, because a number that is cut is another number.

LEADER_EPOCHS_FILE = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"
LOG_STARTS_FILE = "log-start-offset-checkpoint"
RECOVERY_POINTS_FILE = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS_FILE = "replication-offset-checkpoint"
CLEANED_FILE = "cleaner-offset-checkpoint"
CHECKPOINT_FILES = (
    LEADER_EPOCHS_FILE,
    LOG_STARTS_FILE,
    RECOVERY_POINTS_FILE,
    HIGH_WATERMARKS_FILE,
    CLEANED_FILE,
)

CHECKPOINT_VERSION = 0
INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1

_ASCII_BLANKS = " \t\n\v\f\r"
_BLANKS = re.compile(f"[{_ASCII_BLANKS}]+")
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}\Z")
_PARTITION_METADATA = re.compile(
    r"version: (?P<version>[0-9]{1,9})\r?\ntopic_id: (?P<id>[^\r\n]*)(?:\r?\n)?\Z"
)


@dataclass(frozen=True, slots=True)
class _Lines:
    """The lines of the file named `what`, without line ends; errors name a line by its index in `texts`."""

    what: str
    texts: list[str]

    def corrupt(self, index: int, expected: str) -> CorruptInputError:
        at = sum(len(text.encode("utf-8")) + 1 for text in self.texts[:index])
        found = repr(self.texts[index].removesuffix("\r")[:200])
        return CorruptInputError(f"{self.what}, line {index + 1}", expected=expected, found=found, at=at)

    def fields(self, index: int, count: int, shape: str) -> list[str]:
        """Return the `count` words of a line, as Java's split; `shape` describes them in the error.

        As there, a line that begins with a blank has an empty first word, and only ASCII blanks are blanks.
        """
        fields = _BLANKS.split(self.texts[index].rstrip(_ASCII_BLANKS))
        if len(fields) != count:
            raise self.corrupt(index, shape)
        return fields

    def number(self, index: int, text: str, maximum: int) -> int:
        """Return the number `text` in a line; raise CorruptInputError unless it is from 0 to `maximum`."""
        value = int(text) if _NUMBER.match(text) else -1
        if not 0 <= value <= maximum:
            raise self.corrupt(index, f"a whole number from 0 to {maximum}")
        return value


def read_leader_epoch_checkpoint(data: bytes) -> tuple[EpochEntry, ...]:
    """Decode a `leader-epoch-checkpoint` (LeaderEpochCheckpointFile); keep the order of the file.

    Raise CorruptInputError for a malformed line, a wrong count, or epochs that do not ascend with offsets.
    """
    lines = _lines(data, "leader-epoch checkpoint")
    entries: list[EpochEntry] = []
    last = EpochEntry(-1, 0)
    for at in _entry_indexes(lines):
        epoch, start = lines.fields(at, 2, "EPOCH START_OFFSET")
        entry = EpochEntry(lines.number(at, epoch, INT32_MAX), lines.number(at, start, INT64_MAX))
        if entry.epoch <= last.epoch or entry.start_offset < last.start_offset:
            raise lines.corrupt(at, f"an epoch above {last.epoch} from offset {last.start_offset} on")
        entries.append(entry)
        last = entry
    return tuple(entries)


def write_leader_epoch_checkpoint(entries: Iterable[EpochEntry]) -> bytes:
    """Return the bytes of the file, which is also the leader-epoch index of a copied segment."""
    return _write(f"{epoch} {start}" for epoch, start in entries)


def read_offset_checkpoint(data: bytes) -> dict[TopicPartition, int]:
    """Decode an offset checkpoint (OffsetCheckpointFile); of repeated partitions, the last line counts.

    Offset checkpoints are replication-offset-, recovery-point-offset-, log-start-offset- and
    cleaner-offset-checkpoint. Raise CorruptInputError for a malformed line or a wrong count.
    """
    lines = _lines(data, "offset checkpoint")
    offsets: dict[TopicPartition, int] = {}
    for at in _entry_indexes(lines):
        topic, partition, offset = lines.fields(at, 3, "TOPIC PARTITION OFFSET")
        key = TopicPartition(topic, lines.number(at, partition, INT32_MAX))
        offsets[key] = lines.number(at, offset, INT64_MAX)
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
    return f"version: {CHECKPOINT_VERSION}\ntopic_id: {topic_id}".encode("ascii")


def _write(lines: Iterable[str]) -> bytes:
    body = list(lines)
    return "".join(f"{line}\n" for line in [str(CHECKPOINT_VERSION), str(len(body)), *body]).encode("utf-8")


def _text(data: bytes, what: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptInputError(
            what, expected="UTF-8 text", found=repr(data[error.start : error.start + 4]), at=error.start
        ) from None


def _lines(data: bytes, what: str) -> _Lines:
    """Split the file into lines; raise CorruptInputError if the last line has no end."""
    lines = _Lines(what, _text(data, what).split("\n"))
    if lines.texts[-1]:
        raise lines.corrupt(len(lines.texts) - 1, "a newline at the end of the line")
    lines.texts.pop()
    return lines


def _entry_indexes(lines: _Lines) -> range:
    """Return the lines after version and count; raise CorruptInputError if these two lines are wrong."""
    texts = lines.texts
    if not texts:
        return range(0)
    version = lines.number(0, texts[0].removesuffix("\r"), INT32_MAX)
    if version != CHECKPOINT_VERSION:
        raise UnsupportedFormatError(lines.what, expected="version 0", found=f"version {version}", at=0)
    if len(texts) < 2:
        end = len(texts[0]) + 1
        raise CorruptInputError(lines.what, expected="a line with the entry count", found="the end", at=end)
    count = lines.number(1, texts[1].removesuffix("\r"), INT32_MAX)
    if len(texts) - 2 != count:
        raise lines.corrupt(1, f"a count of {len(texts) - 2}, which is how many entries follow")
    return range(2, len(texts))


# `meta.properties` of a log directory, in which brokers keep the ids of cluster, node and directory.
#
# Source: org.apache.kafka.metadata.properties.MetaProperties (versions 0 and 1).

META_PROPERTIES = "meta.properties"
_CLUSTER_ID = "cluster.id"
_DIRECTORY_ID = "directory.id"
_NODE_IDS = ("node.id", "broker.id")
"""The names of the node's id in versions 1 and 0."""


class Node(NamedTuple):
    """The broker that a log directory belongs to; `cluster_id` is None if it is unknown."""

    node_id: str
    cluster_id: str | None


def read_cluster_id(data: bytes) -> str | None:
    """Return `cluster.id`, None if the file has none; CorruptInputError if it is no properties file."""
    settings = {entry.key: entry.value.strip() for entry in parse_properties(data)}
    return settings.get(_CLUSTER_ID) or None


def read_node(data: bytes) -> Node | None:
    """Return the broker, None if the file has no node id; CorruptInputError if it is no properties file."""
    settings = {entry.key: entry.value.strip() for entry in parse_properties(data)}
    node_id = next((settings[name] for name in _NODE_IDS if settings.get(name)), None)
    return None if node_id is None else Node(node_id, settings.get(_CLUSTER_ID) or None)


def read_directory_id(data: bytes) -> Uuid | None:
    """Return `directory.id` (KIP-858), None if the file has none; CorruptInputError for one that is no id."""
    settings = {entry.key: entry.value.strip() for entry in parse_properties(data)}
    text = settings.get(_DIRECTORY_ID)
    try:
        return Uuid.parse(text) if text else None
    except UsageError:
        raise CorruptInputError(_DIRECTORY_ID, expected="a directory id", found=repr(text)) from None


PRODUCER_SNAPSHOT_VERSION = 1

# The codec of producer snapshots: `<offset>.snapshot` holds the producers' state before that offset.
#
# Layout: version int16 = 1, CRC-32C of all bytes after it, count int32, entries of 46 bytes. Source:
# ProducerStateManager.readSnapshot/writeSnapshot; ProducerSnapshot.json.

_WHAT = "producer snapshot"
_HEAD = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_FROM = 6


class ProducerEntry(NamedTuple):
    """The last batch and the open transaction of one producer; -1 is "none" in all fields but the id.

    `offset_delta` is the last minus the first offset of the last batch, `coordinator_epoch` the epoch of the
    last transaction marker, `current_txn_first_offset` the first offset of the open transaction.
    """

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    current_txn_first_offset: int


def decode_producer_snapshot(data: bytes) -> tuple[ProducerEntry, ...]:
    """Return the entries in file order; raise CorruptInputError for a wrong size, version or CRC."""
    if len(data) < _HEAD.size:
        raise CorruptInputError(
            _WHAT, expected=f"{_HEAD.size} bytes", found=f"{len(data)} bytes", at=len(data)
        )
    version, crc, count = _HEAD.unpack_from(data)
    if version != PRODUCER_SNAPSHOT_VERSION:
        raise UnsupportedFormatError(
            _WHAT, expected=f"version {PRODUCER_SNAPSHOT_VERSION}", found=f"version {version}", at=0
        )
    size = _HEAD.size + count * _ENTRY.size
    if count < 0 or size != len(data):
        raise CorruptInputError(
            _WHAT, expected=f"{size} bytes for {count} producers", found=f"{len(data)} bytes", at=_CRC_FROM
        )
    computed = crc32c(data[_CRC_FROM:])
    if computed != crc:
        raise CorruptInputError(_WHAT, expected=f"CRC-32C {computed:#010x}", found=f"{crc:#010x}", at=2)
    return tuple(ProducerEntry(*fields) for fields in _ENTRY.iter_unpack(data[_HEAD.size :]))


def encode_producer_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Return the bytes of the file, as ProducerStateManager.writeSnapshot writes it."""
    packed = [_ENTRY.pack(*entry) for entry in entries]
    body = struct.pack(">i", len(packed)) + b"".join(packed)
    return struct.pack(">hI", PRODUCER_SNAPSHOT_VERSION, crc32c(body)) + body


# `_rlmm_committed_offsets`, the consumed offset of each metadata partition, in both forms.
#
# KIP-405: a line `<partition> <offset>` for each partition. Kafka 3.1 to 3.5 (CommittedOffsetsFile): a
# checkpoint file, which is a line `0` (the version), a line with the number of entries, then the same lines.
# The value is the last offset that was consumed, not the next one.

_OFFSETS_VERSION = 0

_OFFSET_NUMBER = re.compile(rb"[0-9]{1,19}")
_OFFSET_ENTRY = re.compile(rb"([0-9]{1,19})[ \t]+([0-9]{1,19})")


class OffsetsForm(StrEnum):
    """The two forms of the file."""

    KIP = "kip"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffsets:
    """The last consumed offset of each metadata partition, in the order of the file.

    `damage` has the errors of the head and of the end of a checkpoint, which concern no entry, and then that
    of each bad line, whose entry, if any, is not in `offsets`.
    """

    offsets: Mapping[int, int]
    form: OffsetsForm
    damage: Sequence[CorruptInputError] = ()
    frame_damage: int = 0
    """The number of errors in `damage` that concern no entry."""


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    at: int
    text: bytes
    ended: bool
    """True if a line feed follows the line."""

    def wrong(self, expected: str, found: str | None = None) -> CorruptInputError:
        """Return the error for this line, with the text of the line."""
        shown = found or (repr(self.text[:40].decode("ascii", "backslashreplace")))
        return CorruptInputError(
            f"committed offsets, line {self.number}", expected=expected, found=shown, at=self.at
        )


def read_committed_offsets(data: bytes) -> CommittedOffsets:
    """Decode the good lines of a file in either form; `damage` has the errors of the others.

    An empty file has no entries, as in Kafka. A checkpoint file must end with a line feed and have the stated
    number of lines, otherwise its last number may be cut. In the KIP's form the last line feed may be
    missing: a cut number is a lower one, and reading again from a lower offset loses nothing. Of two lines
    for one partition the lower offset is kept. Raise UnsupportedFormatError for a version that is not known,
    whose lines may mean something else.
    """
    lines = list(_offset_lines(bytes(data)))
    form, damage = OffsetsForm.KIP, list[CorruptInputError]()
    if _is_checkpoint(lines):
        form, damage = OffsetsForm.CHECKPOINT, list(_wrong_head(lines, len(data)))
        # If a line of the head is missing, an entry is in its place.
        lines = [line for line in lines[:2] if _OFFSET_ENTRY.fullmatch(line.text)] + lines[2:]
    frame_damage = len(damage)
    offsets: dict[int, int] = {}
    for line in lines:
        try:
            partition, offset = _entry(line)
        except CorruptInputError as error:
            damage.append(error)
            continue
        if partition in offsets:
            damage.append(line.wrong(f"one entry for partition {partition}"))
        offsets[partition] = min(offset, offsets.get(partition, offset))
    return CommittedOffsets(offsets=offsets, form=form, damage=damage, frame_damage=frame_damage)


def write_committed_offsets(offsets: Mapping[int, int], form: OffsetsForm = OffsetsForm.CHECKPOINT) -> bytes:
    """Return the bytes of a file with the entries in the given order."""
    head = f"{_OFFSETS_VERSION}\n{len(offsets)}\n" if form is OffsetsForm.CHECKPOINT else ""
    return (head + "".join(f"{partition} {offset}\n" for partition, offset in offsets.items())).encode()


def _offset_lines(data: bytes) -> Iterator[_Line]:
    at = 0
    for number, raw in enumerate(data.split(b"\n"), start=1):
        ended = at + len(raw) < len(data)
        if raw or ended:
            yield _Line(number, at, raw.removesuffix(b"\r"), ended)
        at += len(raw) + 1


def _is_checkpoint(lines: list[_Line]) -> bool:
    """Return whether the file has a line of a checkpoint's head, although the first one may be damaged."""
    if not lines or _OFFSET_ENTRY.fullmatch(lines[0].text):
        return False
    return any(_OFFSET_NUMBER.fullmatch(line.text) for line in lines[:2])


def _wrong_head(lines: list[_Line], size: int) -> Iterator[CorruptInputError]:
    """Yield what is wrong with the first two lines of a checkpoint file, and with its end."""
    if not _OFFSET_NUMBER.fullmatch(lines[0].text) or (
        len(lines) > 1 and _OFFSET_ENTRY.fullmatch(lines[1].text)
    ):
        if lines[0].text != b"%d" % _OFFSETS_VERSION:
            yield lines[0].wrong("the version")
    elif int(lines[0].text) != _OFFSETS_VERSION:
        raise UnsupportedFormatError(
            "committed offsets, line 1",
            expected=f"version {_OFFSETS_VERSION}",
            found=f"version {int(lines[0].text)}",
            at=0,
        )
    if len(lines) < 2:
        yield CorruptInputError(
            "committed offsets, line 2", expected="the number of entries", found="the end", at=size
        )
    elif not _OFFSET_NUMBER.fullmatch(lines[1].text):
        yield lines[1].wrong("the number of entries")
    elif len(lines) - 2 != int(lines[1].text):
        expected = f"{len(lines) - 2} entries, as many as follow"
        yield lines[1].wrong(expected, str(int(lines[1].text)))
    elif not lines[-1].ended:
        yield lines[-1].wrong("a line feed behind the last entry")


def _entry(line: _Line) -> tuple[int, int]:
    """Return the partition and the offset of a line; raise CorruptInputError if it is damaged."""
    match = _OFFSET_ENTRY.fullmatch(line.text)
    if match is None:
        raise line.wrong("<partition> <offset>")
    partition, offset = int(match[1]), int(match[2])
    if partition > INT32_MAX or offset > INT64_MAX:
        raise line.wrong("numbers of 32 and 64 bits")
    return partition, offset
