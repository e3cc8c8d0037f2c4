"""Locations as operators type them: URIs or plain paths."""

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tierctl.errors import UsageError

HIDDEN = "[hidden]"
"""The text that replaces a secret, as in Kafka's own tools."""
# A user before the host, but not abfs://container@account; a secret key may contain a slash, a port may not.
_USER = re.compile(
    r"(?<=://)(?:(?<!abfs://)(?<!abfss://)[^/?#\s'\"]*|[^/:@\s'\"]+:(?!\d+(?:[/,?]|$))[^\s'\"@]*)@"
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


def folder_of(option: str, uri: str) -> Path:
    """Return the folder that file:///dir, file:dir or a plain path names; UsageError for another URI."""
    require_no_credentials(option, uri)
    scheme = urlsplit(uri).scheme if ":" in uri.split("/", 1)[0] else ""
    if scheme not in {"", "file"}:
        raise UsageError(
            f"{option} {uri}: expected a folder, found the scheme {scheme}:",
            hint="use file:///dir or a folder",
        )
    if not scheme:
        path = uri
    else:
        parts = urlsplit(uri)
        if parts.netloc not in {"", "localhost"}:
            raise UsageError(
                f"{option} {uri}: the URI names a host, {parts.netloc!r}",
                hint=f"use three slashes: file:///{parts.netloc}{parts.path}",
            )
        path = unquote(uri.split(":", 1)[1].removeprefix("//").removeprefix(parts.netloc))
    if not path:
        raise UsageError(f"{option} needs a folder", hint="use file:///dir or a folder")
    return Path(path).absolute()


def canonical_uri(option: str, uri: str) -> str:
    """Return the value `uri` of `option` in one spelling: a folder's absolute path, or a URI without last /.

    Symbolic links are followed, so that two spellings of one folder are equal. UsageError for a file: URI
    that names no folder of this machine.
    """
    if ":" in uri.split("/", 1)[0] and not uri.startswith("file:"):
        return uri.rstrip("/")
    return str(folder_of(option, uri).resolve())
