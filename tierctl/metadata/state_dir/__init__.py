"""The state directory: flat-file caches, `_rlmm_committed_offsets`, and the manifest of both.

Other packages use `StateDirectory`, and `require_own_state` or `require_private` where they only read it.
"""

from tierctl.metadata.state_dir.directory import StateDirectory
from tierctl.metadata.state_dir.manifest import require_own_state, require_private

__all__ = ["StateDirectory", "require_own_state", "require_private"]
