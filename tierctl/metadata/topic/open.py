"""Opens the metadata topic that `--metadata` names."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

from tierctl.errors import UsageError

if TYPE_CHECKING:
    from tierctl.metadata.base import MetadataTopic

_EXPECTED = "expected file:///dir or kafka://host:port"


def open_metadata_topic(
    uri: str,
    *,
    writable: bool = False,
    command_config: Path | None = None,
    server_config: Path | None = None,
    make_topic: bool = False,
    on_torn: Callable[[str], None] | None = None,
) -> "MetadataTopic":
    """The metadata topic at `uri`: file:///dir, or kafka://host:port[,host:port…].

    A folder without metadata partitions reads as an empty topic of 50; opened `writable` they are made. On a
    cluster `command_config` is Kafka's client .properties, `server_config` a broker's own server.properties,
    and `make_topic` makes a topic that is missing, with the settings in there or KIP-405's.
    `on_torn` is told of logs in the folder that end in an unfinished write.
    kafka:// without servers means those in the files. Raises UsageError, LockedError, SafetyRefusal,
    CorruptInputError, NotFoundError, AuthenticationError, MetadataError.
    """
    parts = _parts(uri)
    if parts.scheme == "kafka" and parts.path in {"", "/"}:
        return _on_cluster(parts.netloc, writable, command_config, server_config, make_topic)
    from tierctl.metadata.topic.local_log import MetadataLogOnDisk

    return MetadataLogOnDisk(local_folder(uri), writable=writable, on_torn=on_torn)


def local_folder(uri: str) -> Path:
    """The folder that file:///dir names; UsageError for any other URI."""
    parts = _parts(uri)
    if parts.scheme != "file" or parts.netloc not in {"", "localhost"} or not parts.path:
        raise UsageError(f"not a metadata topic: {uri!r}", hint=_EXPECTED)
    return Path(unquote(parts.path))


def _parts(uri: str) -> SplitResult:
    try:
        return urlsplit(uri)
    except ValueError as e:
        raise UsageError(f"not a metadata topic: {e}", hint=_EXPECTED) from None


def _on_cluster(
    servers: str, writable: bool, command_config: Path | None, server_config: Path | None, make_topic: bool
) -> "MetadataTopic":
    from tierctl.kafka.client_settings import ClientSettings, read_properties
    from tierctl.kafka.server_properties import ServerSettings, at_servers
    from tierctl.kafka.topic_settings import MetadataClients
    from tierctl.metadata.topic.cluster import MetadataTopicOnCluster

    server = (
        ServerSettings.from_properties({}) if server_config is None else ServerSettings.read(server_config)
    )
    clients = server.clients
    if command_config is not None:
        own = ClientSettings.from_properties(read_properties(command_config), str(command_config))
        found = ",".join(own.bootstrap_servers or clients.admin.bootstrap_servers)
        clients = at_servers(MetadataClients.same(own), found, str(command_config))
    if servers:
        clients = at_servers(clients, servers, "--metadata")
    return MetadataTopicOnCluster(
        clients,
        writable=writable,
        make=server.topic if make_topic else None,
        expected_partitions=server.expected_partitions,
    )
