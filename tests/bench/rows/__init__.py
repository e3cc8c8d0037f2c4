"""The rows of the table, a module for each area; `load` imports them all, and they register themselves."""

import importlib
import pkgutil

ORDER = ("segments", "sweep", "state", "pipeline", "format", "decode", "spark")
"""The modules whose rows come first in the table; the others follow by name."""


def load() -> None:
    """Import every module of this package."""
    names = [each.name for each in pkgutil.iter_modules(__path__)]
    for name in [*ORDER, *(name for name in names if name not in ORDER)]:
        importlib.import_module(f"{__name__}.{name}")
