"""Conflicts between settings: what Kafka accepts one by one, and refuses or mishandles together.

Exports `topic_conflicts`, `broker_conflicts` and `metadata_topic_conflicts`, which yield `Conflict`s of the
kinds in the table `ConflictKind`.
"""

from tierctl.model.conflicts.brokers import broker_conflicts
from tierctl.model.conflicts.metadata_topic import metadata_topic_conflicts
from tierctl.model.conflicts.table import Conflict, ConflictKind
from tierctl.model.conflicts.topics import topic_conflicts

__all__ = ["Conflict", "ConflictKind", "broker_conflicts", "metadata_topic_conflicts", "topic_conflicts"]
