"""Import the module of a package's public name when the name is first used.

Importing one module of a package, as `tierctl.storage.base`, also runs the package's `__init__`, which must
not import the other modules then: small commands have to start fast.

    if TYPE_CHECKING:
        from tierctl.storage.open import TierSpec, open_tier
    else:
        __getattr__ = exports(__name__, open=("TierSpec", "open_tier"))
"""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def exports(package: str, /, **modules: tuple[str, ...]) -> Callable[[str], Any]:
    """Return the function `__getattr__` of `package`: `modules` has the public names by their module."""
    module_of = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(f"{package}.{module_of[name]}"), name)
        setattr(sys.modules[package], name, found)
        return found

    return get
