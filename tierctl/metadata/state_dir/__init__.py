"""The state directory: flat-file caches, `_rlmm_committed_offsets`, and the manifest of both.

Other packages use `StateDirectory`, and `require_own_state` where they only read it.
"""

from typing import TYPE_CHECKING

from tierctl.lazy import exports

if TYPE_CHECKING:
    from tierctl.metadata.state_dir.checks import require_own_state
    from tierctl.metadata.state_dir.directory import StateDirectory
else:
    __getattr__ = exports(__name__, checks=("require_own_state",), directory=("StateDirectory",))

__all__ = ["StateDirectory", "require_own_state"]
