"""Tiers in folders, opened as tierctl opens them."""

from pathlib import Path

from tierctl.files import PLAIN, FileSystem
from tierctl.storage.layouts.kafka import KafkaLayout, SegmentLayout
from tierctl.storage.open_tier import TierSpec, open_tier
from tierctl.storage.remote_storage_manager import RemoteStorageManager


def local_tier(
    folder: Path, layout: SegmentLayout | None = None, *, fs: FileSystem = PLAIN
) -> RemoteStorageManager:
    """Open the tier in `folder`, of layout `kafka` unless another one is given."""
    return open_tier(TierSpec(folder.absolute().as_uri(), layout=layout or KafkaLayout()), files=fs)
