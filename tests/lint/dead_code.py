"""Reports code that nothing in tierctl uses, with vulture: code that only tests use counts as dead.

`make lint` runs this module. Vulture compares names: a function counts as used if its name occurs anywhere
else in tierctl. Variables and attributes are left out, because fields of dataclasses are often read all at
once (`asdict`, `fields`); ruff reports unused imports.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from vulture import Vulture

_KINDS = frozenset({"function", "method", "property", "class", "unreachable_code"})
_SPARK = "PySpark calls it: a method of its data source interface"
_CACHE = "Numba calls it: a method of its interface for places of compiled code"
_LAZY = "Python calls it: a lazy attribute of the package"

ALLOWED = {
    "__getattr__": _LAZY,
    **dict.fromkeys(("from_function", "get_cache_path", "ensure_cache_path"), _CACHE),
    **dict.fromkeys(("get_source_stamp", "get_disambiguator"), _CACHE),
    "_numba_type_": "Numba reads it: the type of a kernel that another one calls",
    "getDefaultReadLimit": _SPARK,
    "initialOffset": _SPARK,
    "latestOffset": _SPARK,
    "observe": "the hook at which tests interrupt or fail side effects",
    "on_broken_pipe": "Rich calls it if nobody reads a help text",
    "prepareForTriggerAvailableNow": _SPARK,
    "pushFilters": _SPARK,
    "reportLatestOffset": _SPARK,
    "streamReader": _SPARK,
    "to_arrow": "public API: callers of the commands in Python ask for tables",
    "use_interpreted": "tests compare the two forms of kernels in one process",
}
"""The names of unused code that stays, each with the reason."""


def dead_code(paths: Sequence[Path], allowed: frozenset[str] = frozenset(ALLOWED)) -> list[str]:
    """Return one line per piece of dead code below `paths`, and per name in `allowed` that is not dead."""
    vulture = Vulture(ignore_decorators=["@command"])  # Typer calls these functions.
    vulture.scavenge([str(path) for path in paths])
    unused = [item for item in vulture.get_unused_code(min_confidence=60) if item.typ in _KINDS]
    found = [
        f"{item.filename}:{item.first_lineno}: unused {item.typ} {item.name}"
        for item in unused
        if item.name not in allowed
    ]
    stale = sorted(allowed - {item.name for item in unused})
    return found + [f"tests/lint/dead_code.py: {name} is used now: remove it from ALLOWED" for name in stale]


def main() -> int:
    """Print the dead code of tierctl; return 1 if there is any."""
    lines = dead_code([Path("tierctl")])
    for line in lines:
        print(line)
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
