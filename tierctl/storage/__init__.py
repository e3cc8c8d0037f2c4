"""RemoteStorageManager: its Protocol, the stores behind it, and wrappers of the same Protocol."""

from tierctl.storage.open import open_remote

__all__ = ["open_remote"]
