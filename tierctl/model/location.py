"""Locations as operators type them: URIs, plain paths, and the places of a metadata topic."""

import os
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import SplitResult, unquote_to_bytes, urlsplit

from tierctl.errors import UsageError

# Where a metadata topic is: in a folder, in a segment file, in an object store or on a cluster.
#
# Also: what to do where it has lost its oldest events.

METADATA, BOOTSTRAP_SERVER = "--metadata", "--bootstrap-server"
"""The options that name a metadata topic."""
DERIVED = "none"
"""As --metadata: no metadata topic, the metadata are derived from the objects of the tier."""


class Layout(StrEnum):
    """The layout of a tier: names and encoding of a segment's objects."""

    KAFKA = "kafka"
    AIVEN = "aiven"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLocation:
    """Name a metadata topic so that another process can open the same topic; contains no credentials.

    `uri` is kafka://host:port[,host:port…], file:///dir, file:///dir/segment.log, or a folder in an object
    store, such as s3://bucket/folder. `command_config` and `broker_config` are paths of Kafka properties
    files: a client's settings and a broker's server.properties. `log_dirs` are other log directories, which
    are searched for partitions that a broker's folder lacks. Messages name `option`, from whose value `uri`
    was made.
    """

    uri: str
    command_config: str | None = None
    broker_config: str | None = None
    log_dirs: tuple[str, ...] = ()
    option: str = METADATA

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
        return path_in_uri(parts.path)

    def _parts(self) -> SplitResult:
        try:
            return _split(self.uri)
        except ValueError:
            raise self._refusal() from None

    def _refusal(self) -> UsageError:
        if self.option == BOOTSTRAP_SERVER:
            servers = self.uri.removeprefix("kafka://")
            return UsageError(f"{self.option}: {servers!r} is no host:port", hint="as in broker1:9092")
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


HIDDEN = "[hidden]"
"""The text that replaces a secret, as in Kafka's own tools."""
# A user before the host, but not abfs://container@account; a secret key may contain a slash, a port may not.
_USER = re.compile(
    r"(?<=://)(?:(?<!abfs://)(?<!abfss://)[^/?#\s'\"]*|(?:[^/:@\s'\"]+:(?![0-9]+(?:[/,?]|$))|:)[^\s'\"@]*)@"
)
_SIGNATURE = re.compile(
    r"(?<=[?&])(sig|signature|token|x-amz-(?:signature|credential|security-token)|awsaccesskeyid)=[^&\s'\"]*",
    re.IGNORECASE,
)


def masked(text: str) -> str:
    """Return `text` with HIDDEN for credentials in URIs: user information, and signatures in queries."""
    return _SIGNATURE.sub(rf"\1={HIDDEN}", _USER.sub(f"{HIDDEN}@", text)) if "://" in text else text


def require_no_credentials(option: str, uri: str) -> None:
    """Raise UsageError if `uri`, the value of `option`, contains credentials; its message masks them.

    URIs are printed, logged, saved in plans and passed to executors.
    """
    if masked(uri) != uri:
        raise UsageError(
            f"{option} {masked(uri)}: a URI must not contain a user, a password or a signature",
            hint="leave them out of the URI; a store's client reads credentials from the environment or from "
            "its own files, a Kafka client from the file of --command-config",
        )


def is_uri(text: str) -> bool:
    """Return whether `text` has a colon before its first slash, other than a plain path."""
    return ":" in text.split("/", 1)[0]


_SERVERS = re.compile(r"kafka://((?:(?<=:)//|[^/])*)(.*)", re.DOTALL)


def _split(uri: str) -> SplitResult:
    """Return the parts of `uri`; ValueError for brackets that are not those of an IPv6 address.

    urlsplit takes one address only: from Python 3.11.12 on it refuses an IPv6 address after another one, and
    the name of a listener before an address, as in kafka://SASL_SSL://host:port, would end it.
    """
    found = _SERVERS.fullmatch(uri)
    if found is None:
        return urlsplit(uri)
    for server in found[1].split(","):
        urlsplit(f"//{server}")
    return SplitResult("kafka", found[1], found[2], "", "")


def split_uri(option: str, uri: str) -> SplitResult:
    """Return the parts of `uri`, the value of `option`; raise UsageError if it is no URI."""
    try:
        return _split(uri)
    except ValueError as e:
        shown = uri.removeprefix("kafka://") if option == BOOTSTRAP_SERVER else uri
        raise UsageError(
            f"{option} {shown}: not a URI: {e}", hint="put an IPv6 address in brackets: [::1]:9092"
        ) from None


def folder_of(option: str, uri: str) -> Path:
    """Return the folder that file:///dir, file:dir or a plain path names; UsageError for another URI."""
    require_no_credentials(option, uri)
    scheme = split_uri(option, uri).scheme if is_uri(uri) else ""
    if scheme not in {"", "file"}:
        raise UsageError(
            f"{option} {uri}: expected a folder, found the scheme {scheme}:",
            hint="use file:///dir or a folder",
        )
    if not scheme:
        path = uri
    else:
        parts = split_uri(option, uri)
        if parts.netloc not in {"", "localhost"}:
            raise UsageError(
                f"{option} {uri}: the URI names a host, {parts.netloc!r}",
                hint=f"use three slashes: file:///{parts.netloc}{parts.path}",
            )
        path = uri.split(":", 1)[1].removeprefix("//").removeprefix(parts.netloc)
    if not path:
        raise UsageError(f"{option} needs a folder", hint="use file:///dir or a folder")
    return (path_in_uri(path) if scheme else Path(path)).absolute()


def path_in_uri(quoted: str) -> Path:
    """Return the path that a file: URI has in quoted form; its bytes may be no UTF-8, as in `Path.as_uri`."""
    return Path(os.fsdecode(unquote_to_bytes(os.fsencode(quoted))))


def canonical_uri(option: str, uri: str) -> str:
    """Return the value `uri` of `option` in one spelling: a folder's absolute path, or a URI without last /.

    Symbolic links are followed, so that two spellings of one folder are equal. UsageError for a file: URI
    that names no folder of this machine.
    """
    if is_uri(uri) and not uri.startswith("file:"):
        return uri.rstrip("/")
    return str(folder_of(option, uri).resolve())
