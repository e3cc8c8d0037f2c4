"""Opens stores by their URI: the table of schemes names the module that opens the stores of each scheme."""

from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tierctl.errors import UsageError
from tierctl.files import PLAIN, FileSystem
from tierctl.model.uris import require_no_credentials
from tierctl.storage.stores.base import Endpoint, ObjectStore, StoreAddress
from tierctl.storage.stores.schemes import FILE, STORES, unknown_scheme


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
    require_no_credentials("the store", uri)
    parts = urlsplit(uri)
    kind = STORES.get(parts.scheme)
    if kind is None:
        raise unknown_scheme(repr(uri), parts.scheme)
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
