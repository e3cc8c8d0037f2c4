"""The registry of settings: one row per Kafka setting that tierctl reads, whether it acts on it or not.

Exports `SETTINGS` (all rows) and one module per scope with its rows: `topic.RETENTION_MS.given(settings)`.
"""

from tierctl.model.settings.known import SETTINGS, TABLES
from tierctl.model.settings.scopes import Scope, Setting, Table
