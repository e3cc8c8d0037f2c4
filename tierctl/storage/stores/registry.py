"""The stores that tierctl opens, one row per URI scheme.

The row of a scheme names the module that opens its stores. The module is imported with the first store of
that scheme, because it may need a package that belongs to an optional extra of tierctl.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from urllib.parse import unquote, urlsplit

from tierctl.errors import UsageError
from tierctl.files import PLAIN, FileSystem
from tierctl.model.uris import folder_of
from tierctl.storage.stores.base import Endpoint, ObjectStore, StoreAddress

FILE = "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreKind:
    """One row of the table: how the stores of one URI scheme are opened.

    `module`, relative to this package, has the function `open_store(address: StoreAddress)`. If it needs the
    optional package `package`, `extra` is the extra of tierctl that installs that package.
    """

    module: str
    example: str
    package: str | None = None
    extra: str | None = None


STORES: Mapping[str, StoreKind] = MappingProxyType(
    {
        FILE: StoreKind(module="local", example="file:///dir"),
        "s3": StoreKind(module="s3.store", example="s3://bucket/folder", package="boto3", extra="s3"),
        "hdfs": StoreKind(
            module="hdfs", example="hdfs://host:port/folder", package="hdfs_native", extra="hdfs"
        ),
        "gs": StoreKind(module="arrow", example="gs://bucket/folder"),
        "gcs": StoreKind(module="arrow", example="gcs://bucket/folder"),
        "abfs": StoreKind(module="arrow", example="abfs://container@account/folder"),
        "abfss": StoreKind(module="arrow", example="abfss://container@account/folder"),
        "viewfs": StoreKind(module="arrow", example="viewfs://cluster/folder"),
    }
)

SCHEMES = tuple(STORES)


def open_store(
    uri: str, *, endpoint: Endpoint | None = None, files: FileSystem = PLAIN, named_by: str = "--remote"
) -> ObjectStore:
    """Open the store below the folder that `uri` names, without creating or reading anything.

    `endpoint` is `ObjectStore.endpoint` of the same store in another process. `files` makes the changes of a
    store on local disk; `named_by` is the option with the URI. Raise UsageError for an unknown scheme, a
    malformed URI or a missing package, and RemoteStorageError for a server that refuses connections.
    """
    return open_store_at(replace(parse_store_uri(uri, endpoint=endpoint, files=files), named_by=named_by))


def open_store_at(address: StoreAddress) -> ObjectStore:
    """Open the store at `address`. Raise UsageError if the package that its scheme needs is missing."""
    kind = STORES[address.scheme]
    if kind.package is not None and find_spec(kind.package) is None:
        raise UsageError(
            f"{address.scheme}:// needs {kind.package}, which is not installed",
            hint=f"pip install tierctl[{kind.extra}]",
        )
    module = import_module(f"tierctl.storage.stores.{kind.module}")
    store: ObjectStore = module.open_store(address)
    return store


def parse_store_uri(uri: str, *, endpoint: Endpoint | None = None, files: FileSystem = PLAIN) -> StoreAddress:
    """Return the address that `uri` names; `endpoint` and `files` as for `open_store`."""
    parts = urlsplit(uri)
    kind = STORES.get(parts.scheme)
    if kind is None:
        raise _unknown_scheme(repr(uri), parts.scheme)
    is_file = parts.scheme == FILE
    is_complete = parts.path and parts.netloc in {"", "localhost"} if is_file else parts.netloc
    if not is_complete or parts.query or parts.fragment:
        raise UsageError(f"not the URI of a store: {uri!r}", hint=f"expected {kind.example}")
    path = Path(unquote(parts.path)).absolute().as_posix() if is_file else parts.path
    folder = path.strip("/")
    return StoreAddress(
        scheme=parts.scheme,
        authority="" if is_file else parts.netloc,
        folder=f"{folder}/" if folder else "",
        endpoint=endpoint,
        files=files,
    )


def store_uri(option: str, given: str) -> str:
    """Return `given`, the value of `option`, as a store's URI; a plain path becomes a file:/// URI.

    Raise UsageError if no store has the scheme of `given`.
    """
    scheme = urlsplit(given).scheme if ":" in given.split("/", 1)[0] else FILE
    if scheme == FILE:
        return folder_of(option, given).as_uri()
    if scheme not in STORES:
        raise _unknown_scheme(f"{option} {given}", scheme)
    return given


def _unknown_scheme(where: str, scheme: str) -> UsageError:
    nearest = difflib.get_close_matches(scheme, STORES, n=1, cutoff=0.5)
    known = f"known schemes: {', '.join(STORES)}"
    return UsageError(
        f"{where}: unknown scheme {scheme!r}",
        hint=f"did you mean {nearest[0]}://? {known}" if nearest else known,
    )
