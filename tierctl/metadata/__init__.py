"""RemoteLogMetadataManager: its Protocol, and the metadata topic it is backed by."""

from tierctl.metadata.open import open_metadata
from tierctl.metadata.topic.open import open_metadata_topic

__all__ = ["open_metadata", "open_metadata_topic"]
