"""Tiers in folders, opened as tierctl opens them."""

from pathlib import Path

from tierctl.files import PLAIN, FileSystem
from tierctl.storage.layouts.base import SegmentLayout
from tierctl.storage.layouts.kafka import KafkaLayout
from tierctl.storage.object_tier import ObjectTier
from tierctl.storage.open_tier import TierSpec, open_tier


def local_tier(folder: Path, layout: SegmentLayout | None = None, *, fs: FileSystem = PLAIN) -> ObjectTier:
    """Open the tier in `folder`, of layout `kafka` unless another one is given."""
    tier = open_tier(TierSpec(folder.absolute().as_uri(), layout=layout or KafkaLayout()), files=fs)
    assert isinstance(tier, ObjectTier)
    return tier
