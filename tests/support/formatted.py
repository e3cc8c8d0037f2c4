"""Nodes in the state after `kafka-storage format`, with the files of each version's tool."""

from pathlib import Path

from tierctl.model import RemoteLogSegmentMetadata

from tests.metadata.topics import segments_at

DATA = Path(__file__).parents[1] / "data" / "bootstrap"
NODE_ID, DIRECTORY_ID = 7, "pJDu_PV_mDE7nGFxt1-tOw"
LOGS = "__remote_log_metadata-"
VERSIONS = {"3.9.1": 21, "4.3.0": 30, "4.4.0": 33}
"""The metadata.version level with which each version formats a node."""
_PROPERTIES = """#
#Mon Nov 23 14:08:34 UTC 2026
node.id={node_id}
directory.id={directory_id}
version=1
cluster.id=dGllcmN0bC10ZXN0cy0wMQ
"""


def saved_topics(remote: Path) -> str:
    """The topics of a tier of LocalTieredStorage, as `backup-config` writes them, each with 3 partitions."""
    names = {path.name for path in (remote / "kafka-tiered-storage").iterdir()}
    found = {name[:-23].rpartition("-")[0]: name[-22:] for name in sorted(names)}
    lines = (f"  {topic}:\n    topic_id: '{each}'\n    partitions: 3\n" for topic, each in found.items())
    return "version: 1\ntopics:\n" + "".join(lines)


def bootstrap_name(version: str) -> str:
    """Return the path of the file with the first metadata records."""
    if version == "4.4.0":
        return "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
    return "bootstrap.checkpoint"


def formatted_dir(folder: Path, directory_id: str = DIRECTORY_ID, node_id: int = NODE_ID) -> Path:
    """Make a further log directory of the node."""
    folder.mkdir(parents=True)
    text = _PROPERTIES.format(directory_id=directory_id, node_id=node_id)
    (folder / "meta.properties").write_text(text)
    return folder


def formatted_node(folder: Path, version: str = "4.4.0") -> Path:
    """Make the log directory of a combined node, which is its metadata log directory, too."""
    path = formatted_dir(folder) / bootstrap_name(version)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes((DATA / f"{version}.checkpoint").read_bytes())
    return folder


def files(node: Path) -> dict[str, bytes]:
    """Return every file that a broker reads, except events, which contain the time of their run."""
    found = (path for path in node.rglob("*") if path.is_file() and path.suffix not in {".bak", ".lock"})
    return {
        str(path.relative_to(node)): path.read_bytes()
        for path in found
        if not path.relative_to(node).parts[0].endswith("-delete")
        and not (path.parent.name.startswith(LOGS) and path.suffix in {".log", ".index", ".timeindex"})
    }


def segments(node: Path) -> set[tuple[object, ...]]:
    """Return the segments in the node's metadata topic; it must exist."""
    return {_facts(segment) for segment in segments_at(node)}


def _facts(s: RemoteLogSegmentMetadata) -> tuple[object, ...]:
    return (s.topic_id_partition, s.segment_id, s.start_offset, s.end_offset, s.state)
