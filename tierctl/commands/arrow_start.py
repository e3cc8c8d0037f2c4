"""Keep pyarrow from importing pandas, which takes longer than most runs."""

import sys
from importlib.machinery import ModuleSpec
from typing import Any

import pyarrow as pa


class _NoPandas:
    """A finder by which an import of pandas fails."""

    @staticmethod
    def find_spec(name: str, _path: Any = None, _target: Any = None) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError(name)
        return None


def start_without_pandas() -> None:
    """Hide pandas from pyarrow, unless pandas is imported already.

    At its first conversion in each direction pyarrow imports pandas to recognise pandas' objects, and does
    not try again. Such objects exist only once pandas is imported. Conversions to and from pandas still work:
    they import it.
    """
    if "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _NoPandas)
    try:
        # The type is given, because pyarrow imports dateutil to infer one.
        pa.array([0], pa.int64()).to_numpy(zero_copy_only=False)
    finally:
        sys.meta_path.remove(_NoPandas)
