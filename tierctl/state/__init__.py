"""The state that a broker derives from metadata events, as columns: no input or output.

Other packages use RemoteLogMetadataCache, and from the modules TierState, Lineage and the fold.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tierctl.state.cache import RemoteLogMetadataCache

__all__ = ["RemoteLogMetadataCache"]


def __getattr__(name: str) -> Any:
    # The cache needs NumPy, which would slow down the start of `tierctl --help`.
    if name == "RemoteLogMetadataCache":
        from tierctl.state.cache import RemoteLogMetadataCache

        return RemoteLogMetadataCache
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
