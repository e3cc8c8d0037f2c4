"""Check the types of the fields of a JSON object that tierctl itself wrote, and others may have changed."""

from collections.abc import Mapping
from typing import Any

Types = type | tuple[type, ...]
TEXT_OR_NULL = (str, type(None))


def require_types(raw: Mapping[str, Any], types: Mapping[str, Types], where: str = "") -> None:
    """Raise ValueError if a field of `raw` that `types` names has another type; a bool is no int.

    A missing field is no error here. `where` is put before the field's name.
    """
    for name, expected in types.items():
        value = raw.get(name, raw)
        if value is raw:
            continue
        accepted = expected if isinstance(expected, tuple) else (expected,)
        if not isinstance(value, accepted) or (isinstance(value, bool) and bool not in accepted):
            names = " or ".join("null" if each is type(None) else each.__name__ for each in accepted)
            raise ValueError(f"{where}{name}: expected {names}, found {value!r}")
