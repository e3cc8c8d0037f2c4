"""RemoteStorageManager: its Protocol, the stores behind it, and wrappers of the same Protocol."""

from tierctl.storage.open import RemoteSpec, open_remote

__all__ = ["RemoteSpec", "open_remote"]
