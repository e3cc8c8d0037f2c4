"""The registry of settings: one row per Kafka setting that tierctl reads, whether it acts on it or not.

Exports `SETTINGS` (all rows) and one module per scope with its rows: `topic.RETENTION_MS.given(settings)`.
"""

from tierctl.model.settings import broker, client, metadata_manager, plugin, topic
from tierctl.model.settings.table import Scope, Setting, Table

TABLES: tuple[Table, ...] = (topic.TABLE, broker.TABLE, metadata_manager.TABLE, plugin.TABLE, client.TABLE)
SETTINGS: tuple[Setting[object], ...] = tuple(row for table in TABLES for row in table)

__all__ = [
    "SETTINGS",
    "TABLES",
    "Scope",
    "Setting",
    "Table",
    "broker",
    "client",
    "metadata_manager",
    "plugin",
    "topic",
]
