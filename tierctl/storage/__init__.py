"""RemoteStorageManager: its Protocol, the stores behind it, and wrappers of the same Protocol."""
