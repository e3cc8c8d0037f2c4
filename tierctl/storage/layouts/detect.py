"""Detect the layout of the tier in a store by the keys of its first objects."""

import re
from dataclasses import dataclass
from itertools import islice

from tierctl.storage.layouts.kafka import ROOT_FOLDER
from tierctl.storage.stores.base import ObjectStore
from tierctl.wire.aiven.manifest import iceberg

OBJECTS_MAX = 1000
"""Number of keys examined: as many as one request to S3 lists."""

_AIVEN = re.compile(
    r"(?P<prefix>(?:[^/]+/)*)[a-zA-Z0-9._-]{1,249}-[A-Za-z0-9_-]{22}/\d{1,10}/\d{20}-[A-Za-z0-9_-]{22}"
    r"\.(?:log|indexes|rsm-manifest)\Z"
)
_ICEBERG = re.compile(r".*/metadata/[A-Za-z0-9_-]{22}\.puffin\Z")


@dataclass(frozen=True, slots=True)
class DetectedLayout:
    """The name of a layout and, for `aiven`, the folders that all keys begin with."""

    layout: str
    prefix: str = ""


def detect_layouts(store: ObjectStore) -> dict[DetectedLayout, str]:
    """Return the layouts of the first segments in `store`, each with the key of one object.

    Raise UnsupportedFormatError for Aiven's Iceberg tables.
    """
    found: dict[DetectedLayout, str] = {}
    for obj in islice(store.list_objects(""), OBJECTS_MAX):
        known = _layout_of(obj.key)
        if known is not None:
            found.setdefault(known, obj.key)
    return found


def _layout_of(key: str) -> DetectedLayout | None:
    if key.startswith(f"{ROOT_FOLDER}/"):
        return DetectedLayout("kafka")
    if _ICEBERG.match(key):
        raise iceberg(f"the object {key!r}")
    match = _AIVEN.match(key)
    return None if match is None else DetectedLayout("aiven", match["prefix"])
