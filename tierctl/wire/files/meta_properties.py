"""`meta.properties` of a log directory, in which brokers keep the ids of cluster, node and directory.

Source: org.apache.kafka.metadata.properties.MetaProperties (versions 0 and 1).
"""

from typing import NamedTuple

from tierctl.model.ids import Uuid
from tierctl.wire.files.properties import parse_properties

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
    """Return `directory.id` (KIP-858), None if the file has none; UsageError for one that is no id."""
    settings = {entry.key: entry.value.strip() for entry in parse_properties(data)}
    text = settings.get(_DIRECTORY_ID)
    return Uuid.parse(text) if text else None
