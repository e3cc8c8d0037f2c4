"""All rows of the registry, of every scope; settings that contain secrets, and how their values are
printed.
"""

import re

from tierctl.model.location import HIDDEN, masked
from tierctl.model.settings import broker, clients, topic
from tierctl.model.settings.scopes import Setting, Table, Type

TABLES: tuple[Table, ...] = (
    topic.TABLE,
    broker.TABLE,
    clients.METADATA_MANAGERS,
    clients.PLUGINS,
    clients.CLIENTS,
)
SETTINGS: tuple[Setting[object], ...] = tuple(row for table in TABLES for row in table)


_SECRET_NAME = re.compile(
    r"passw(or)?d|secret|credential|token(?!\.endpoint)|jaas\.config|access[._-]?key|api[._-]?key|account[._-]?key"
    r"|connection[._-]?string|\bsas\b|private\.key(?!\.file)|keystore\.(key|certificate)|truststore\.cert",
    re.IGNORECASE,
)
_PASSWORDS = tuple(row.name for row in SETTINGS if row.type is Type.PASSWORD)
_ASSIGNED = re.compile(r"([^\s=]+)=(.*)", re.DOTALL)


def is_secret(name: str) -> bool:
    """Return whether a setting holds a secret, also with the prefix of a listener, a client or a plugin."""
    return name.endswith(_PASSWORDS) or _SECRET_NAME.search(name) is not None


def shown(name: str, value: str) -> str:
    """Return the value of a setting as it may be printed, without secrets.

    Credentials in URIs, and values of secret settings in NAME=VALUE, are hidden as well.
    """
    if value and is_secret(name):
        return HIDDEN
    assigned = _ASSIGNED.fullmatch(value)
    if assigned is not None and is_secret(assigned[1]):
        return f"{assigned[1]}={HIDDEN}"
    return masked(value)


def holds_secret(name: str, value: str) -> bool:
    """Return whether a line of a file states a secret itself, not a reference to a config provider."""
    return "${" not in value and shown(name, value) != value
