"""Settings with the origin of each value: a default, a file and its line, an environment variable, an option.

Every reader of settings returns `StatedSettings`, so that errors and `tierctl config show` name the origin.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self


class SettingSource(StrEnum):
    """The kind of source that states the value of a setting."""

    DEFAULT = "default"
    PROFILE = "profile"
    ENVIRONMENT = "environment"
    OPTION = "option"
    BROKER_DEFAULT = "broker default"
    FILE = "topic settings file"
    BROKER_FILE = "broker settings file"
    CLIENT_FILE = "client settings file"
    TOPIC = "topic"
    """The topic itself, on the cluster (DYNAMIC_TOPIC_CONFIG)."""
    NOT_STATED = "not stated"
    """No source states the setting, and tierctl assumes a value other than Kafka's default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where the value of a setting was stated: a line of a file, or a variable or option called `name`."""

    source: SettingSource
    file: Path | None = None
    line: int | None = None
    name: str | None = None

    @property
    def place(self) -> str | None:
        """The source as text, such as `server.properties, line 7`; None for a default."""
        if self.file is None:
            return self.name
        return str(self.file) if self.line is None else f"{self.file}, line {self.line}"


class StatedSettings(Mapping[str, str]):
    """The values of settings by name, and the origin of each; a mapping of names to texts."""

    def __init__(self, values: Mapping[str, str], origins: Mapping[str, Origin]) -> None:
        self._values = dict(values)
        self._origins = {name: origins[name] for name in self._values if name in origins}

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> Self:
        """Return `settings` if they have origins, otherwise the same values without origins."""
        return settings if isinstance(settings, cls) else cls(settings, {})

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __or__(self, other: Mapping[str, str]) -> Self:
        """Return the settings of both; `other` has precedence."""
        added = StatedSettings.of(other)
        return type(self)(self._values | added._values, self._origins | added._origins)

    def origin(self, name: str) -> Origin | None:
        """Return the origin of a setting; None for a setting that is not stated, or of unknown origin."""
        return self._origins.get(name)

    def stripped(self) -> Self:
        """Return the settings without blanks around the values, as Kafka's ConfigDef reads most types."""
        return type(self)({name: value.strip() for name, value in self._values.items()}, self._origins)

    def with_value(self, name: str, value: str) -> Self:
        """Return the settings with another value of `name`, and the same origin."""
        return type(self)(self._values | {name: value}, self._origins)

    def below(self, prefix: str) -> Self:
        """Return the settings whose names begin with `prefix`, without the prefix."""
        names = [name for name in self._values if name.startswith(prefix)]
        return type(self)(
            {name.removeprefix(prefix): self._values[name] for name in names},
            {name.removeprefix(prefix): self._origins[name] for name in names if name in self._origins},
        )

    def only(self, names: Mapping[str, str]) -> Self:
        """Return the settings in `names` (name here: name in the result) that are stated."""
        stated = {name: new for name, new in names.items() if name in self._values}
        return type(self)(
            {new: self._values[name] for name, new in stated.items()},
            {new: self._origins[name] for name, new in stated.items() if name in self._origins},
        )


def place_of(settings: Mapping[str, str], name: str, source: str = "") -> str:
    """Return the source of a setting as text; `source` if it is unknown."""
    origin = settings.origin(name) if isinstance(settings, StatedSettings) else None
    return (origin.place if origin else None) or source
