"""All rows of the registry, of every scope."""

from tierctl.model.settings import broker, client, metadata_manager, plugin, topic
from tierctl.model.settings.table import Setting, Table

TABLES: tuple[Table, ...] = (topic.TABLE, broker.TABLE, metadata_manager.TABLE, plugin.TABLE, client.TABLE)
SETTINGS: tuple[Setting[object], ...] = tuple(row for table in TABLES for row in table)
