"""RemoteLogMetadataManager: its Protocol, and the metadata topic it is backed by."""
