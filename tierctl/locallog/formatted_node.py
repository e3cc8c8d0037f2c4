"""A node's copy of KRaft's cluster metadata: of a running cluster, and of a node that was formatted and
never started.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tierctl.errors import CorruptInputError, SafetyRefusal
from tierctl.files import BROKER_LOCK, exists, is_dir, read_decoded
from tierctl.locallog.folders import distinct_dirs, list_log_files, names_in, opened
from tierctl.model.checked_values import natural_number
from tierctl.model.events import Uuid
from tierctl.wire.batches.batch_head import Record
from tierctl.wire.batches.record_batch import ControlType, RecordBatch, batches, control_record, encode_batch
from tierctl.wire.files.checkpoints import META_PROPERTIES, read_directory_id, read_node
from tierctl.wire.kraft import (
    DIRECTORY_ASSIGNMENT_LEVEL,
    METADATA_VERSION,
    TopicRegistration,
    metadata_version,
)

_BATCH_RECORDS = 500
"""Records in one batch; a controller reads batches of up to 8 MiB."""


@dataclass(frozen=True, slots=True)
class BootstrapFile:
    """The records of a file in their order; `footer_at` is the position of its footer, `data` its bytes."""

    data: bytes
    values: tuple[bytes, ...]
    footer_at: int
    footer_offset: int
    timestamp_ms: int

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return the file with these bytes; CorruptInputError without a header or a footer."""
        found = list(batches(data))
        if len(found) < 2 or _first_control(found[0]) is not ControlType.SNAPSHOT_HEADER:
            raise _corrupt("a control batch with the snapshot's header", found[:1])
        footer = found[-1]
        if _first_control(footer) is not ControlType.SNAPSHOT_FOOTER or footer.head.end != len(data):
            raise _corrupt("a control batch with the snapshot's footer at the end", found[-1:])
        records = [record for batch in found if not batch.head.is_control for record in batch.records()]
        return cls(
            data=data,
            values=tuple(record.value or b"" for record in records),
            footer_at=footer.head.position,
            footer_offset=footer.head.base_offset,
            timestamp_ms=footer.head.base_timestamp_ms,
        )

    def extended(self, values: Sequence[bytes]) -> bytes:
        """Return the bytes of the file with `values` as its last records."""
        offset = self.footer_offset
        added = []
        for start in range(0, len(values), _BATCH_RECORDS):
            group = values[start : start + _BATCH_RECORDS]
            records = [
                Record(offset + number, self.timestamp_ms, None, value) for number, value in enumerate(group)
            ]
            added.append(encode_batch(records))
            offset += len(group)
        # The CRC of a batch does not cover its base offset.
        footer = offset.to_bytes(8, "big") + self.data[self.footer_at + 8 :]
        return b"".join([self.data[: self.footer_at], *added, footer])


def _first_control(batch: RecordBatch) -> ControlType | None:
    if not batch.head.is_control:
        return None
    first = next(iter(batch.records()), None)
    return None if first is None else control_record(first).type


def _corrupt(expected: str, found: Sequence[RecordBatch]) -> CorruptInputError:
    at = found[0].head.position if found else 0
    what = "a batch of records" if found and not found[0].head.is_control else "none"
    return CorruptInputError("bootstrap file", expected=expected, found=what, at=at)


CLUSTER_METADATA = "__cluster_metadata-0"
_BOOTSTRAP = (
    Path("bootstrap.checkpoint"),
    Path(CLUSTER_METADATA, "00000000000000000000-0000000000.checkpoint"),
)
"""The paths of the file, of Kafka up to 4.3 and from 4.4 on."""
_FORMAT = "format the node (kafka-storage format), and do not start it before this command is through"


@dataclass(frozen=True, slots=True, kw_only=True)
class FormattedNode:
    """A node without topics.

    `directories` has the id of each log directory, `bootstrap` the records of the file at `bootstrap_path`,
    and `metadata_version` their level of that feature.
    """

    node_id: int
    cluster_id: str
    directories: Mapping[Path, Uuid]
    bootstrap_path: Path
    bootstrap: BootstrapFile
    metadata_version: int


def read_formatted_node(metadata_log_dir: Path, log_dirs: Sequence[Path]) -> FormattedNode:
    """Return the broker with `log_dirs`, whose controller has its metadata in `metadata_log_dir`.

    Raise SafetyRefusal if a directory is not formatted, the directories are of several clusters or brokers,
    a node was started on one of them, or its metadata.version is too old; CorruptInputError for a damaged
    file.
    """
    controller = _facts(metadata_log_dir)
    found = {folder: _facts(folder) for folder in distinct_dirs(log_dirs)}
    first = next(iter(found.values()))
    for folder, facts in found.items():
        if facts.cluster_id != controller.cluster_id or facts.node_id != first.node_id:
            raise SafetyRefusal(
                f"{folder} is of node {facts.node_id} of cluster {facts.cluster_id}, expected is node "
                f"{first.node_id} of cluster {controller.cluster_id}",
                hint="--log-dir takes the log directories of one broker, DIR the metadata log directory of a "
                "controller of its cluster",
            )
    for folder in distinct_dirs([metadata_log_dir, *log_dirs]):
        _require_never_started(folder)
    path, bootstrap = _bootstrap(metadata_log_dir)
    level = max(each for each in map(metadata_version, bootstrap.values) if each is not None)
    if level < DIRECTORY_ASSIGNMENT_LEVEL:
        raise SafetyRefusal(
            f"{path} has {METADATA_VERSION} {level}, expected is {DIRECTORY_ASSIGNMENT_LEVEL} or above",
            hint="format the node with a --release-version 3.7-IV2 or newer",
        )
    return FormattedNode(
        node_id=first.node_id,
        cluster_id=first.cluster_id,
        directories={folder: facts.directory_id for folder, facts in found.items()},
        bootstrap_path=path,
        bootstrap=bootstrap,
        metadata_version=level,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    node_id: int
    cluster_id: str
    directory_id: Uuid


def _facts(folder: Path) -> _Facts:
    """Return the ids in meta.properties of a directory; raise SafetyRefusal if one of them is missing."""
    path = folder / META_PROPERTIES
    found = read_decoded(path, lambda data: (read_node(data), read_directory_id(data)))
    if found is None:
        raise SafetyRefusal(f"{folder} has no {META_PROPERTIES}: it is not formatted", hint=_FORMAT)
    node, directory_id = found
    node_id = None if node is None else natural_number(node.node_id)
    if node is None or node.cluster_id is None or directory_id is None or node_id is None:
        raise SafetyRefusal(
            f"{path} lacks the id of the node, of the cluster or of the directory",
            hint="format the node with Kafka 3.7 or newer (kafka-storage format)",
        )
    return _Facts(node_id=node_id, cluster_id=node.cluster_id, directory_id=directory_id)


def _require_never_started(folder: Path) -> None:
    sign = next(_signs_of_a_start(folder), None)
    if sign is not None:
        raise SafetyRefusal(
            f"{sign} shows that a node was started on {folder}",
            hint="a controller reads the records that are written here only before its first start: use "
            "newly formatted directories, or restore log",
        )


def _signs_of_a_start(folder: Path) -> Iterator[Path]:
    for name in (BROKER_LOCK, ".kafka_cleanshutdown", f"{CLUSTER_METADATA}/quorum-state"):
        if exists(folder / name):
            yield folder / name
    kept = folder / CLUSTER_METADATA
    logs = (kept / name for name in sorted(names_in(kept)) if name.endswith(".log"))
    yield from (log for log in logs if log.stat().st_size)


def _bootstrap(folder: Path) -> tuple[Path, BootstrapFile]:
    """Return path and content of the file that states metadata.version.

    The other one, if it is there, has only the voters of a dynamic quorum.
    """
    found: dict[Path, BootstrapFile] = {}
    for path in (folder / name for name in _BOOTSTRAP):
        file = read_decoded(path, _bootstrap_with_level)
        if file is not None:
            found[path] = file
    if len(found) != 1:
        both = " and ".join(map(str, found)) or "neither of its bootstrap files"
        raise SafetyRefusal(
            f"{both} states {METADATA_VERSION} in {folder}, expected is one file",
            hint=f"DIR takes metadata.log.dir of a controller, or its first log.dirs entry; {_FORMAT}",
        )
    return next(iter(found.items()))


def _bootstrap_with_level(data: bytes) -> BootstrapFile | None:
    """Return the decoded file; None if it does not state metadata.version."""
    file = BootstrapFile.decode(data)
    levels = [metadata_version(value) for value in file.values]
    return file if any(level is not None for level in levels) else None


# What a node's copy of KRaft's cluster metadata (`__cluster_metadata-0`) says about one topic.
#
# Brokers have a copy, too, in the metadata log directory, which is by default the first one. It may lack the
# latest changes, but no older ones.

_SNAPSHOT = re.compile(r"([0-9]{20})-[0-9]{10}\.checkpoint\Z")
_LOG_SUFFIX = ".log"
_PARTIAL = "if it was copied, copy the whole folder again while the node is stopped"


def read_registration(log_dir: Path, topic: str) -> TopicRegistration | None:
    """Return the state of `topic`; None if the directory has no cluster metadata.

    Raises CorruptInputError for damaged or missing records, and OSError.
    """
    folder = log_dir / CLUSTER_METADATA
    if not is_dir(folder):
        return None
    found = TopicRegistration(topic)
    snapshots = sorted(path for path in folder.iterdir() if _SNAPSHOT.match(path.name))
    logs = [segment.log for segment in list_log_files(folder).segments]
    begin = 0 if not snapshots else int(snapshots[-1].name[:20])
    if logs and int(logs[0].stem) > begin:
        raise CorruptInputError(
            f"cluster metadata in {folder}",
            expected=f"a snapshot that reaches to offset {int(logs[0].stem)}",
            found=f"one to offset {begin}" if snapshots else "no snapshot",
        )
    found.next_offset = begin
    count, end = 0, None
    for path in [*snapshots[-1:], *logs]:
        is_log = path.suffix == _LOG_SUFFIX
        if is_log and end is not None and int(path.stem) != end:
            raise CorruptInputError(
                f"cluster metadata in {folder}",
                expected=f"a segment from offset {end} on",
                found=path.name,
                hint=_PARTIAL,
            )
        try:
            replayed, last = _replay(found, path, begin if is_log else 0)
        except CorruptInputError as e:
            raise e.within(str(path)) from None
        count += replayed
        if is_log:
            end = int(path.stem) if last is None else last.head.next_offset
    # A controller-to-be has an empty folder: it says nothing about topics.
    return found if count else None


def _replay(found: TopicRegistration, path: Path, first_offset: int) -> tuple[int, RecordBatch | None]:
    """Replay the records of a file from `first_offset` on; return their number and the last batch."""
    count, last = 0, None
    with opened(path) as data:
        for last in batches(data):
            for record in () if last.head.is_control else last.records():
                if record.offset >= first_offset and record.value is not None:
                    found.replay(record.value)
                    found.next_offset = max(found.next_offset, record.offset + 1)
                    count += 1
    is_whole = last is not None and _first_control(last) is ControlType.SNAPSHOT_FOOTER
    if path.suffix != _LOG_SUFFIX and not is_whole:
        raise CorruptInputError("snapshot", expected="a footer at its end", found="none", hint=_PARTIAL)
    return count, last
