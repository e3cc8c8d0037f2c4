"""Locations as operators type them: URIs or plain paths."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from tierctl.errors import UsageError


def folder_of(option: str, uri: str) -> Path:
    """Return the folder that file:///dir, file:dir or a plain path names; UsageError for another URI."""
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
