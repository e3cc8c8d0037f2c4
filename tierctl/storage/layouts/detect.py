"""Which layout a store has, told from the first objects in it."""

import re
from dataclasses import dataclass
from itertools import islice

from tierctl.errors import UsageError
from tierctl.storage.layouts.kafka import ROOT_FOLDER
from tierctl.storage.stores.base import ObjectStore
from tierctl.wire.aiven.manifest import iceberg

LOOKED_AT_MAX = 1000
"""Objects: as many as one request lists."""

_AIVEN = re.compile(
    r"(?P<prefix>(?:[^/]+/)*)[a-zA-Z0-9._-]{1,249}-[A-Za-z0-9_-]{22}/\d{1,10}/\d{20}-[A-Za-z0-9_-]{22}"
    r"\.(?:log|indexes|rsm-manifest)\Z"
)
_ICEBERG = re.compile(r".*/metadata/[A-Za-z0-9_-]{22}\.puffin\Z")


@dataclass(frozen=True, slots=True)
class Found:
    """A layout, and of `aiven` the folders that its keys begin with."""

    layout: str
    prefix: str = ""


def detect(store: ObjectStore, layout: str | None = None) -> Found | None:
    """What is there, of `layout` only when it is given; None when nothing of the kind is.

    UsageError when several tiers are there, UnsupportedFormatError when Aiven's iceberg tables are.
    """
    found: dict[Found, str] = {}
    for obj in islice(store.list_objects(""), LOOKED_AT_MAX):
        known = _found(obj.key)
        if known is not None and layout in {None, known.layout}:
            found.setdefault(known, obj.key)
    if len(found) > 1:
        raise UsageError(
            f"several tiers are there, as the keys {' and '.join(repr(k) for k in sorted(found.values()))}",
            hint="say which: --layout, a longer --remote, or rsm.config.key.prefix in --config",
        )
    return next(iter(found), None)


def _found(key: str) -> Found | None:
    if key.startswith(f"{ROOT_FOLDER}/"):
        return Found("kafka")
    if _ICEBERG.match(key):
        raise iceberg(f"the object {key!r}")
    match = _AIVEN.match(key)
    return None if match is None else Found("aiven", match["prefix"])
