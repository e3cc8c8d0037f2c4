"""A node that was formatted and never started: its ids, and the file with its first metadata records."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tierctl.errors import CorruptInputError, SafetyRefusal
from tierctl.files import BROKER_LOCK
from tierctl.locallog.files import read_if_exists
from tierctl.locallog.folders import distinct_dirs
from tierctl.model.ids import Uuid
from tierctl.wire.files.meta_properties import META_PROPERTIES, read_directory_id, read_node
from tierctl.wire.kraft.bootstrap import BootstrapFile
from tierctl.wire.kraft.records import DIRECTORY_ASSIGNMENT_LEVEL, METADATA_VERSION, metadata_version

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
                hint="--log-dir takes the log directories of one broker, --into the metadata log directory "
                "of a controller of its cluster",
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
    data = read_if_exists(path)
    if data is None:
        raise SafetyRefusal(f"{folder} has no {META_PROPERTIES}: it is not formatted", hint=_FORMAT)
    try:
        node, directory_id = read_node(data), read_directory_id(data)
    except CorruptInputError as e:
        raise e.within(str(path)) from None
    if node is None or node.cluster_id is None or directory_id is None or not node.node_id.isdecimal():
        raise SafetyRefusal(
            f"{path} lacks the id of the node, of the cluster or of the directory",
            hint="format the node with Kafka 3.7 or newer (kafka-storage format)",
        )
    return _Facts(node_id=int(node.node_id), cluster_id=node.cluster_id, directory_id=directory_id)


def _require_never_started(folder: Path) -> None:
    sign = next(_signs_of_a_start(folder), None)
    if sign is not None:
        raise SafetyRefusal(
            f"{sign} shows that a node was started on {folder}",
            hint="a controller reads the records that are written here only before its first start: use "
            "newly formatted directories, or restore --materialise",
        )


def _signs_of_a_start(folder: Path) -> Iterator[Path]:
    for name in (BROKER_LOCK, ".kafka_cleanshutdown", f"{CLUSTER_METADATA}/quorum-state"):
        if (folder / name).exists():
            yield folder / name
    yield from (log for log in sorted((folder / CLUSTER_METADATA).glob("*.log")) if log.stat().st_size)


def _bootstrap(folder: Path) -> tuple[Path, BootstrapFile]:
    """Return path and content of the file that states metadata.version.

    The other one, if it is there, has only the voters of a dynamic quorum.
    """
    found: dict[Path, BootstrapFile] = {}
    for path in (folder / name for name in _BOOTSTRAP):
        data = read_if_exists(path)
        if data is None:
            continue
        try:
            file = BootstrapFile.decode(data)
            levels = [metadata_version(value) for value in file.values]
        except CorruptInputError as e:
            raise e.within(str(path)) from None
        if any(level is not None for level in levels):
            found[path] = file
    if len(found) != 1:
        both = " and ".join(map(str, found)) or "neither of its bootstrap files"
        raise SafetyRefusal(
            f"{both} states {METADATA_VERSION} in {folder}, expected is one file",
            hint=f"--into takes metadata.log.dir of a controller, or its first log.dirs entry; {_FORMAT}",
        )
    return next(iter(found.items()))
