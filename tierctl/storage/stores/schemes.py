"""The stores that tierctl opens, one row per URI scheme.

The row of a scheme names the module that opens its stores. The module is imported with the first store of
that scheme, because it may need a package that belongs to an optional extra of tierctl.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from urllib.parse import urlsplit

from tierctl.errors import UsageError
from tierctl.model.uris import folder_of, require_no_credentials

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


def store_uri(option: str, given: str) -> str:
    """Return `given`, the value of `option`, as a store's URI; a plain path becomes a file:/// URI.

    Raise UsageError if no store has the scheme of `given`.
    """
    require_no_credentials(option, given)
    scheme = urlsplit(given).scheme if ":" in given.split("/", 1)[0] else FILE
    if scheme == FILE:
        return folder_of(option, given).as_uri()
    if scheme not in STORES:
        raise unknown_scheme(f"{option} {given}", scheme)
    return given


def unknown_scheme(where: str, scheme: str) -> UsageError:
    """Return the error for a scheme that no store has; `where` is the beginning of its message."""
    nearest = difflib.get_close_matches(scheme, STORES, n=1, cutoff=0.5)
    known = f"known schemes: {', '.join(STORES)}"
    return UsageError(
        f"{where}: unknown scheme {scheme!r}",
        hint=f"did you mean {nearest[0]}://? {known}" if nearest else known,
    )
