"""From `--remote` to a RemoteStorageManager."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from tierctl.errors import UsageError
from tierctl.storage.base import RemoteStorageManager
from tierctl.storage.layout import ROOT_FOLDER
from tierctl.storage.local import LocalTieredStorage
from tierctl.storage.retry import RetryingStorage, RetrySettings

LAYOUTS = ("kafka",)


def open_remote(
    uri: str, *, layout: str | None = None, retry: RetrySettings | None = None
) -> RemoteStorageManager:
    """The remote tier at `uri` (file:///dir); with `retry` its failed calls are repeated.

    Nothing is made or touched before the first copy. UsageError for a scheme or layout that is not there.
    """
    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in {"", "localhost"} or not parts.path:
        raise UsageError(f"not a remote tier: {uri!r}", hint="expected file:///dir")
    folder = Path(unquote(parts.path))
    _require_kafka_layout(folder, layout)
    store = LocalTieredStorage(folder)
    return store if retry is None else RetryingStorage(store, retry)


def _require_kafka_layout(folder: Path, layout: str | None) -> None:
    if layout not in {None, *LAYOUTS}:
        raise UsageError(f"layout {layout!r} is not available for folders", hint="expected --layout kafka")
    looks_like_aiven = (
        layout is None
        and folder.name != ROOT_FOLDER
        and not (folder / ROOT_FOLDER).exists()
        and next(folder.glob("*/*/*.rsm-manifest"), None) is not None
    )
    if looks_like_aiven:
        raise UsageError(
            f"{folder} holds objects of Aiven's plugin, whose layout is not available for folders",
            hint="say --layout kafka to write another tier beside them",
        )
