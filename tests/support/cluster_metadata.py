"""`__cluster_metadata-0` and meta.properties in captured log directories, which have neither."""

import struct
from collections.abc import Mapping, Sequence
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


def partition_record(topic_id: Uuid, partition: int, replicas: Sequence[int]) -> bytes:
    """Return a PartitionRecord of version 0."""
    ids = bytes([len(replicas) + 1]) + struct.pack(f">{len(replicas)}i", *replicas)
    leader = struct.pack(">iii", replicas[0], 0, 0)
    numbers = struct.pack(">i", partition) + topic_id.bytes
    return b"\x01\x03\x00" + numbers + ids + ids + b"\x01\x01" + leader + b"\x00"


def write_cluster_metadata(brokers: Mapping[int, Path], partitions: int) -> None:
    """Make each directory that of a broker with its id; all have replicas of all metadata partitions."""
    for node, log_dir in brokers.items():
        (log_dir / "meta.properties").write_text(f"version=1\ncluster.id=c\nnode.id={node}\n")
    first = next(iter(brokers.values()))
    topic_id = topic_id_in(first)
    assert topic_id is not None
    values = [topic_record(METADATA_TOPIC, topic_id)]
    values += [partition_record(topic_id, number, sorted(brokers)) for number in range(partitions)]
    records = [Record(offset, 0, None, value) for offset, value in enumerate(values)]
    folder = first / "__cluster_metadata-0"
    folder.mkdir()
    (folder / f"{0:020d}.log").write_bytes(encode_batch(records))
