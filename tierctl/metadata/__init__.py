"""RemoteLogMetadataManager and the metadata topic that it reads and writes.

Other packages open a manager with `open_metadata`, the topic alone with `tierctl.metadata.topic.open_topic`.
"""

from tierctl.metadata.manager import RemoteLogMetadataManager, open_metadata
