"""The settings of Aiven's plugin (`rsm.config.*` of a broker) that a tier's objects depend on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tierctl.errors import UsageError
from tierctl.model.settings import plugin
from tierctl.model.settings.broker import STORAGE_MANAGER_PREFIX
from tierctl.model.settings.stated import StatedSettings
from tierctl.wire.aiven.custom_metadata import FIELDS
from tierctl.wire.aiven.manifest import iceberg


@dataclass(frozen=True, slots=True, kw_only=True)
class AivenSettings:
    """The plugin's settings, under the plugin's names.

    `key_prefix` is None if it is not set. `private_keys` are PEM files by key id; the file of "" is for every
    id that has no file.
    """

    key_prefix: str | None = None
    chunk_size: int = plugin.CHUNK_SIZE.value({})
    compression: bool = False
    compression_heuristic: bool = False
    encryption: bool = False
    custom_metadata_fields: frozenset[str] = frozenset()
    private_keys: Mapping[str, Path] = field(default_factory=dict)

    @classmethod
    def from_settings(cls, broker: Mapping[str, str]) -> Self:
        """Return the plugin's settings in a broker's settings.

        Raise UsageError for invalid values, and UnsupportedFormatError for segment.format=iceberg.
        """
        prefix = STORAGE_MANAGER_PREFIX.value(broker)
        own = StatedSettings.of(broker).below(prefix)
        if plugin.SEGMENT_FORMAT.value(own).strip().lower() == "iceberg":
            raise iceberg(f"{prefix}{plugin.SEGMENT_FORMAT.name}")
        return cls(
            key_prefix=plugin.KEY_PREFIX.given(own),
            chunk_size=plugin.CHUNK_SIZE.value(own),
            compression=plugin.COMPRESSION.value(own),
            compression_heuristic=plugin.COMPRESSION_HEURISTIC.value(own),
            encryption=plugin.ENCRYPTION.value(own),
            custom_metadata_fields=_fields(plugin.CUSTOM_METADATA_FIELDS.value(own)),
            private_keys={
                name.removeprefix(plugin.KEY_PAIR_PREFIX).removesuffix(plugin.PRIVATE_KEY_SUFFIX): Path(value)
                for name, value in own.items()
                if name.startswith(plugin.KEY_PAIR_PREFIX) and name.endswith(plugin.PRIVATE_KEY_SUFFIX)
            },
        )


def _fields(given: tuple[str, ...]) -> frozenset[str]:
    names = frozenset(name.upper() for name in given)
    if not names <= set(FIELDS):
        unknown = ", ".join(sorted(names - set(FIELDS)))
        raise UsageError(
            f"{plugin.CUSTOM_METADATA_FIELDS.name} names unknown fields: {unknown}",
            hint=f"expected some of {', '.join(FIELDS)}",
        )
    return names
