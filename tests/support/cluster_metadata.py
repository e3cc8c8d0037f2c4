"""`__cluster_metadata-0` and meta.properties in captured log directories, which have neither."""

import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.model import Uuid
from tierctl.wire.batches.batch_head import Record
from tierctl.wire.batches.record_batch import encode_batch
from tierctl.wire.files.checkpoints import read_partition_metadata
from tierctl.wire.kraft import topic_record


def topic_id_in(log_dir: Path, partition: int = 0) -> Uuid | None:
    """Return the id that a metadata partition in a log directory states."""
    path = log_dir / f"{METADATA_TOPIC}-{partition}" / "partition.metadata"
    return read_partition_metadata(path.read_bytes())


def partition_record(
    topic_id: Uuid, partition: int, replicas: Sequence[int], directories: Sequence[Uuid] | None = None
) -> bytes:
    """Return a PartitionRecord of version 0, or of version 1 with `directories`."""
    ids = bytes([len(replicas) + 1]) + struct.pack(f">{len(replicas)}i", *replicas)
    leader = struct.pack(">iii", replicas[0], 0, 0)
    numbers = struct.pack(">i", partition) + topic_id.bytes
    body = numbers + ids + ids + b"\x01\x01" + leader
    if directories is None:
        return b"\x01\x03\x00" + body + b"\x00"
    placed = b"".join(each.bytes for each in directories)
    return b"\x01\x03\x01" + body + bytes([len(directories) + 1]) + placed + b"\x00"


def write_cluster_metadata(
    brokers: Mapping[int, Path], partitions: int, *, directory_of: Callable[[int, int], Uuid] | None = None
) -> None:
    """Make each directory that of a broker with its id; all have replicas of all metadata partitions.

    `directory_of` returns the id of the log directory of a partition on a broker.
    """
    for node, log_dir in brokers.items():
        make_log_dir(log_dir, node)
    first = next(iter(brokers.values()))
    topic_id = topic_id_in(first)
    assert topic_id is not None
    nodes = sorted(brokers)
    values = [topic_record(METADATA_TOPIC, topic_id)]
    for number in range(partitions):
        directories = None if directory_of is None else [directory_of(number, node) for node in nodes]
        values.append(partition_record(topic_id, number, nodes, directories))
    write_records(first, values)


def make_log_dir(
    log_dir: Path, node: int, directory_id: Uuid | None = None, *, cluster_id: str = "c"
) -> None:
    """Write the meta.properties of a broker's log directory."""
    log_dir.mkdir(exist_ok=True)
    text = f"version=1\ncluster.id={cluster_id}\nnode.id={node}\n"
    text += "" if directory_id is None else f"directory.id={directory_id}\n"
    (log_dir / "meta.properties").write_text(text)


def write_records(log_dir: Path, values: Sequence[bytes]) -> None:
    """Write these records as a log directory's copy of the cluster's metadata."""
    records = [Record(offset, 0, None, value) for offset, value in enumerate(values)]
    folder = log_dir / "__cluster_metadata-0"
    folder.mkdir()
    (folder / f"{0:020d}.log").write_bytes(encode_batch(records))
