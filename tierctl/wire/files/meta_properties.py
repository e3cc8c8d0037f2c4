"""`meta.properties` of a log directory, in which brokers keep the ids of cluster, node and directory.

Source: org.apache.kafka.metadata.properties.MetaProperties (versions 0 and 1).
"""

from tierctl.wire.files.properties import parse_properties

META_PROPERTIES = "meta.properties"
_CLUSTER_ID = "cluster.id"


def read_cluster_id(data: bytes) -> str | None:
    """Return `cluster.id`, None if the file has none; CorruptInputError if it is no properties file."""
    settings = {entry.key: entry.value.strip() for entry in parse_properties(data)}
    return settings.get(_CLUSTER_ID) or None
