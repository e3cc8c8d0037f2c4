"""The settings of Aiven's plugin (`rsm.config.*` of a broker) that a tier's objects depend on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tierctl.errors import UsageError
from tierctl.wire.aiven.custom_metadata import FIELDS
from tierctl.wire.aiven.manifest import iceberg

IMPL_PREFIX = "remote.log.storage.manager.impl.prefix"
IMPL_PREFIX_DEFAULT = "rsm.config."
CHUNK_SIZE_DEFAULT = 4 << 20
CHUNK_SIZE_MAX = (1 << 30) - 1

_KEY_PAIR = "encryption.key.pairs."
_PRIVATE_KEY = ".private.key.file"


@dataclass(frozen=True, slots=True, kw_only=True)
class AivenSettings:
    """The plugin's settings, under the plugin's names.

    `key_prefix` is None if it is not set. `private_keys` are PEM files by key id; the file of "" is for every
    id that has no file.
    """

    key_prefix: str | None = None
    chunk_size: int = CHUNK_SIZE_DEFAULT
    compression: bool = False
    compression_heuristic: bool = False
    encryption: bool = False
    custom_metadata_fields: frozenset[str] = frozenset()
    private_keys: Mapping[str, Path] = field(default_factory=dict)

    @classmethod
    def from_settings(cls, broker: Mapping[str, str]) -> "AivenSettings":
        """Return the plugin's settings in a broker's settings.

        Raise UsageError for invalid values, and UnsupportedFormatError for segment.format=iceberg.
        """
        prefix = broker.get(IMPL_PREFIX, IMPL_PREFIX_DEFAULT)
        own = {name.removeprefix(prefix): value for name, value in broker.items() if name.startswith(prefix)}
        if own.get("segment.format", "kafka").strip().lower() == "iceberg":
            raise iceberg(f"{prefix}segment.format")
        return cls(
            key_prefix=own.get("key.prefix"),
            chunk_size=_chunk_size(own.get("chunk.size")),
            compression=_flag(own, "compression.enabled"),
            compression_heuristic=_flag(own, "compression.heuristic.enabled"),
            encryption=_flag(own, "encryption.enabled"),
            custom_metadata_fields=_fields(own.get("custom.metadata.fields.include", "")),
            private_keys={
                name.removeprefix(_KEY_PAIR).removesuffix(_PRIVATE_KEY): Path(value)
                for name, value in own.items()
                if name.startswith(_KEY_PAIR) and name.endswith(_PRIVATE_KEY)
            },
        )


def _chunk_size(text: str | None) -> int:
    if text is None:
        return CHUNK_SIZE_DEFAULT
    try:
        size = int(text)
    except ValueError:
        size = 0
    if not 1 <= size <= CHUNK_SIZE_MAX:
        raise UsageError(f"chunk.size={text!r} is not a number from 1 to {CHUNK_SIZE_MAX}")
    return size


def _flag(settings: Mapping[str, str], name: str) -> bool:
    text = settings.get(name, "false").strip().lower()
    if text not in {"true", "false"}:
        raise UsageError(f"{name}={text!r} is neither true nor false")
    return text == "true"


def _fields(text: str) -> frozenset[str]:
    names = frozenset(name.strip().upper() for name in text.split(",") if name.strip())
    if not names <= set(FIELDS):
        raise UsageError(
            f"custom.metadata.fields.include={text!r} names {', '.join(sorted(names - set(FIELDS)))}",
            hint=f"expected some of {', '.join(FIELDS)}",
        )
    return names
