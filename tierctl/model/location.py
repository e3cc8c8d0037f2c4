"""Where a metadata topic is: in a folder, in a segment file, in an object store or on a cluster.

Also: what to do where it has lost its oldest events.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from tierctl.errors import UsageError

DERIVED = "none"
"""As --metadata: no metadata topic, the metadata are derived from the objects of the tier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLocation:
    """Name a metadata topic so that another process can open the same topic; contains no credentials.

    `uri` is kafka://host:port[,host:port…], file:///dir, file:///dir/segment.log, or a folder in an object
    store, such as s3://bucket/folder. `command_config` and `config` are paths of Kafka properties files: a
    client's settings and a broker's server.properties.
    """

    uri: str
    command_config: str | None = None
    broker_config: str | None = None

    @property
    def is_on_cluster(self) -> bool:
        """Return whether the topic is on a cluster."""
        return self.uri.startswith("kafka:")

    @property
    def is_local(self) -> bool:
        """Return whether the topic is on this machine's disks."""
        return self.uri.startswith("file:")

    @property
    def is_in_store(self) -> bool:
        """Return whether the topic is in an object store."""
        return self._parts().scheme not in {"", "file", "kafka"}

    @property
    def servers(self) -> str:
        """Return `host:port[,host:port…]` of a kafka:// URI, "" if the URI names no servers.

        Raises UsageError for any other URI.
        """
        parts = self._parts()
        if parts.scheme != "kafka" or parts.path not in {"", "/"}:
            raise self._refusal()
        return parts.netloc

    @property
    def path(self) -> Path:
        """Return the path of a file:// URI; raise UsageError for any other URI."""
        parts = self._parts()
        if parts.scheme != "file" or parts.netloc not in {"", "localhost"} or not parts.path:
            raise self._refusal()
        return Path(unquote(parts.path))

    def _parts(self) -> SplitResult:
        try:
            return urlsplit(self.uri)
        except ValueError:
            raise self._refusal() from None

    def _refusal(self) -> UsageError:
        return UsageError(
            f"not a metadata topic: {self.uri!r}",
            hint="expected kafka://host:port, file:///dir, or a folder in a store, such as s3://bucket/folder",
        )


class TruncatedMetadata(StrEnum):
    """Whether commands decide for user partitions whose history may be incomplete.

    REFUSE decides nothing for them and reports the missing events. ACCEPT decides from the remaining events,
    as a broker does.
    """

    REFUSE = "refuse"
    ACCEPT = "accept"
