"""The state that a broker derives from metadata events, as columns: no input or output.

Other packages use RemoteLogMetadataCache, and from the modules TierState, Lineage and the fold.
"""

from typing import TYPE_CHECKING

from tierctl.lazy import exports

if TYPE_CHECKING:
    from tierctl.state.cache import RemoteLogMetadataCache
else:
    __getattr__ = exports(__name__, cache=("RemoteLogMetadataCache",))

__all__ = ["RemoteLogMetadataCache"]
