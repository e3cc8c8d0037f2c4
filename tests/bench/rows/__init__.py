"""The rows of the table, a module for each area; `load` imports them all, and they register themselves."""

import importlib
import pkgutil


def load() -> None:
    """Import every module of this package."""
    for each in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{each.name}")
