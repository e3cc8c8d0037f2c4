"""From `--remote` to a RemoteStorageManager.

`file:///dir`, `s3://bucket/folder`, `hdfs://host:port/folder`, and whatever else pyarrow.fs reaches
(`gs://bucket/folder`, `abfs://…`). What comes after the bucket is a folder, with or without a `/` at its
end; a key.prefix of Aiven's plugin that is no folder is given as such.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

from tierctl.errors import UsageError
from tierctl.files import PLAIN, FileSystem
from tierctl.storage.base import RemoteStorageManager
from tierctl.storage.layouts.aiven import AivenLayout
from tierctl.storage.layouts.aiven_settings import AivenSettings
from tierctl.storage.layouts.base import SegmentLayout
from tierctl.storage.layouts.detect import Found, detect
from tierctl.storage.layouts.kafka import ROOT_FOLDER, KafkaLayout
from tierctl.storage.retry import RetryingStorage, RetrySettings
from tierctl.storage.stores.base import ObjectStore
from tierctl.storage.stores.local import LocalStore
from tierctl.storage.tier import ObjectTier

if TYPE_CHECKING:
    from tierctl.storage.stores.s3 import S3Address, S3Store

LAYOUTS = ("kafka", "aiven")
FILE, S3, HDFS = "file", "s3", "hdfs"
ARROW_SCHEMES = ("gs", "gcs", "abfs", "abfss", "viewfs")
SCHEMES = (FILE, S3, HDFS, *ARROW_SCHEMES)


def local_tier(folder: Path, layout: SegmentLayout | None = None, *, fs: FileSystem = PLAIN) -> ObjectTier:
    """A tier in a folder; of layout `kafka`, `kafka-tiered-storage/` lies in the folder or is it."""
    layout = KafkaLayout() if layout is None else layout
    is_inner = folder.name == ROOT_FOLDER and not (folder / ROOT_FOLDER).is_dir()
    if is_inner and isinstance(layout, KafkaLayout):
        folder = folder.parent
    return ObjectTier(LocalStore(folder, base=layout.base, fs=fs), layout)


def open_remote(
    uri: str,
    *,
    layout: str | None = None,
    settings: Mapping[str, str] | None = None,
    private_keys: Mapping[str, Path] | None = None,
    retry: RetrySettings | None = None,
) -> RemoteStorageManager:
    """The remote tier at `uri`; with `retry` its failed calls are repeated.

    `layout` None: what is there, else `kafka` for files and `aiven` for other stores. `settings` are a
    broker's, of which layout `aiven` takes `rsm.config.*`; `private_keys` (by key id, "" for any) go
    before those named there. Nothing is made or touched before the first copy. UsageError for a scheme or
    layout that is not there, or a library that isn't.
    """
    if layout not in {None, *LAYOUTS}:
        raise UsageError(f"unknown layout {layout!r}", hint=f"expected one of {', '.join(LAYOUTS)}")
    aiven = AivenSettings.from_settings(settings or {})
    aiven = replace(aiven, private_keys={**aiven.private_keys, **(private_keys or {})})
    parts = urlsplit(uri)
    tier = _in_folder(parts, layout, aiven) if parts.scheme == FILE else _in_store(parts, layout, aiven)
    return tier if retry is None else RetryingStorage(tier, retry)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSpec:
    """A tier as it was opened, layout told, so that another process opens the same; picklable.

    Nothing secret is in it: private keys are names of files, and credentials come from where the other
    process runs.
    """

    uri: str
    layout: SegmentLayout
    retry: RetrySettings | None = None
    s3: "S3Address | None" = None

    @classmethod
    def of(cls, uri: str, remote: RemoteStorageManager) -> "RemoteSpec":
        """What `open_remote` made of `uri`; UsageError for a URI that has a password in it."""
        retry = remote.settings if isinstance(remote, RetryingStorage) else None
        tier = remote.inner if isinstance(remote, RetryingStorage) else remote
        parts = urlsplit(uri)
        if not isinstance(tier, ObjectTier) or parts.password is not None:
            raise UsageError(
                "this tier can't be opened by another process",
                hint="credentials belong into the environment of whoever opens it, not into the URI",
            )
        s3 = None
        if parts.scheme == S3:
            from tierctl.storage.stores.s3 import S3Store

            s3 = tier.store.address if isinstance(tier.store, S3Store) else None
        return cls(uri=uri, layout=tier.layout, retry=retry, s3=s3)

    def open(self) -> RemoteStorageManager:
        """The same tier; nothing is looked for."""
        parts = urlsplit(self.uri)
        tier = (
            local_tier(Path(unquote(parts.path)), self.layout)
            if parts.scheme == FILE
            else ObjectTier(_store(parts, _store_root(parts)[0], self.s3), self.layout)
        )
        return tier if self.retry is None else RetryingStorage(tier, self.retry)


def _in_folder(parts: SplitResult, layout: str | None, aiven: AivenSettings) -> ObjectTier:
    if parts.netloc not in {"", "localhost"} or not parts.path:
        raise _not_a_tier(parts)
    folder = Path(unquote(parts.path))
    if layout == "kafka" or (layout is None and folder.name == ROOT_FOLDER):
        return local_tier(folder)
    if layout is None and (folder / ROOT_FOLDER).is_dir():
        return local_tier(folder)
    there = folder.is_dir() and any(folder.iterdir()) and not _is_told(layout, aiven)
    found = detect(LocalStore(folder), layout) if there else None
    root = folder.absolute().as_posix().removeprefix("/") + "/"
    return local_tier(folder, _layout(found, layout or "kafka", aiven, root))


def _in_store(parts: SplitResult, layout: str | None, aiven: AivenSettings) -> ObjectTier:
    root, is_inner = _store_root(parts)
    layout = layout or ("kafka" if is_inner else None)
    store = _store(parts, root)
    found = None if _is_told(layout, aiven) else detect(store, layout)
    return ObjectTier(store, _layout(found, layout or "aiven", aiven, root))


def _store_root(parts: SplitResult) -> tuple[str, bool]:
    """Where in its bucket the store begins, and whether the URI named layout `kafka`'s own folder there."""
    folder, _, last = parts.path.strip("/").rpartition("/")
    is_inner = last == ROOT_FOLDER
    inner = "/".join(name for name in (folder, "" if is_inner else last) if name)
    return (f"{inner}/" if inner else ""), is_inner


def _is_told(layout: str | None, aiven: AivenSettings) -> bool:
    """Whether nothing has to be looked for in the store."""
    return layout == "kafka" or (layout == "aiven" and aiven.key_prefix is not None)


def _layout(found: Found | None, otherwise: str, aiven: AivenSettings, root: str) -> SegmentLayout:
    name = found.layout if found else otherwise
    if name == "kafka":
        return KafkaLayout()
    prefix = aiven.key_prefix
    if prefix is None:
        prefix = found.prefix if found else ""
    elif root == prefix or root.endswith(f"/{prefix}"):
        # --remote names the folder that the plugin reaches from its bucket by the prefix.
        prefix = ""
    return AivenLayout(aiven, key_prefix=prefix, root=root)


def _store(parts: SplitResult, root: str, s3: "S3Address | None" = None) -> ObjectStore:
    if parts.scheme not in SCHEMES or not parts.netloc or parts.query or parts.fragment:
        raise _not_a_tier(parts)
    if parts.scheme == S3:
        _require("boto3", "s3", parts.scheme)
        from tierctl.storage.stores.s3 import S3Store, client

        return S3Store(client(s3), parts.netloc, root)
    if parts.scheme == HDFS:
        _require("hdfs_native", "hdfs", parts.scheme)
        from tierctl.storage.stores.hdfs import HdfsStore, hdfs_client

        return HdfsStore(hdfs_client(f"hdfs://{parts.netloc}"), f"/{root}")
    from tierctl.storage.stores.arrow import open_arrow

    return open_arrow(f"{parts.scheme}://{parts.netloc}/{root}")


def open_store(uri: str) -> ObjectStore:
    """Whatever lies below a folder of a store, whether or not it is a tier; UsageError as open_remote."""
    parts = urlsplit(uri)
    folder = parts.path.strip("/")
    return _store(parts, f"{folder}/" if folder else "")


def open_bucket(uri: str, s3: "S3Address | None" = None) -> "S3Store":
    """What lies below s3://bucket/folder, for who keeps other things there than a tier. UsageError."""
    parts = urlsplit(uri)
    if parts.scheme != S3 or not parts.netloc or parts.query or parts.fragment or parts.password is not None:
        raise UsageError(f"not a place in a bucket: {uri!r}", hint="expected s3://bucket/folder")
    _require("boto3", "s3", parts.scheme)
    from tierctl.storage.stores.s3 import S3Store, client

    folder = parts.path.strip("/")
    return S3Store(client(s3), parts.netloc, f"{folder}/" if folder else "")


def _require(module: str, extra: str, scheme: str) -> None:
    if find_spec(module) is None:
        raise UsageError(
            f"{scheme}:// needs {module}, which is not installed", hint=f"pip install tierctl[{extra}]"
        )


def _not_a_tier(parts: SplitResult) -> UsageError:
    return UsageError(
        f"not a remote tier: {parts.geturl()!r}",
        hint="expected file:///dir, s3://bucket/folder, hdfs://host:port/folder, gs://... or abfs://...",
    )
