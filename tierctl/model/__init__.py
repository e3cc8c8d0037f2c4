"""Shared types: the entities of KIP-405 and KIP-917 as frozen dataclasses, selection, settings, progress.

Exports the entities; the settings registry is `model.settings`, progress reports are `model.progress`.
"""

from tierctl.model.choices import IsolationLevel
from tierctl.model.events import (
    ClusterIdentity,
    Dialect,
    MetadataEvent,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataSnapshot,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TierIdentity,
    TopicIdPartition,
    TopicPartition,
    Uuid,
    is_legal_topic_name,
    is_valid_transition,
)
from tierctl.model.local import (
    EpochEntry,
    HashedFile,
    IndexType,
    ListedSet,
    LocalLog,
    LocalSegment,
    LogDirFacts,
    LogEnd,
    LogSegmentData,
    ObjectPart,
    ObjectSet,
    OpenTransaction,
    SegmentObjectName,
)
from tierctl.model.selection import Selection, SelectionRequest
from tierctl.model.settings.topic import TopicConfig
