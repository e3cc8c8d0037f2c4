"""A folded state as plain data; equal data means that no query distinguishes the states."""

import re
from array import array
from dataclasses import fields, is_dataclass
from typing import Any

from tierctl.errors import TierctlError
from tierctl.state.segments.columns import SegmentIds
from tierctl.state.segments.epochs import EpochIndex
from tierctl.state.tier_state import TierState

_DERIVED = {"__weakref__", "_sorted", "_rebuilt", "_generation"}
"""Attributes that only make a query faster."""


def picture(state: TierState) -> dict[str, Any]:
    """Return everything in the state, anomalies and quarantined records in their order."""
    return {field.name: _plain(getattr(state, field.name)) for field in fields(state)}


def _plain(value: Any) -> Any:
    match value:
        case SegmentIds():
            found: Any = value.words.tolist(), value.live_rows().tolist()
        case array():
            found = value.tolist()
        case TierctlError():
            found = type(value).__name__, value.__dict__
        case dict():
            found = {key: _plain(each) for key, each in value.items()}
        case list() | tuple():
            found = [_plain(each) for each in value]
        case _:
            names = [name for name in _attributes(value) if name not in _DERIVED]
            if isinstance(value, EpochIndex):
                # The cache that owns the index shows the same columns.
                names.remove("columns")
            found = {name: _plain(getattr(value, name)) for name in names} if names else value
    return found


def _attributes(value: Any) -> list[str]:
    if is_dataclass(value):
        return [field.name for field in fields(value)]
    return [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]


_MODIFIED = re.compile(rb", \d{18,}(?=\])")
"""The times of last modification in the manifest of a state directory."""


def without_times(data: bytes) -> bytes:
    """Return a state directory file without the modification times of other files."""
    return _MODIFIED.sub(b"", data)
