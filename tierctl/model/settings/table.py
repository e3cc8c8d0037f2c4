"""One row of the registry of settings, and the table that holds the rows of one scope."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

from tierctl.errors import UsageError
from tierctl.model.settings.stated import place_of

T = TypeVar("T")
_WHOLE = re.compile(r"[+-]?[0-9]+")
_INT_MAX, _LONG_MAX = (1 << 31) - 1, (1 << 63) - 1


class Scope(StrEnum):
    """Where operators state a setting."""

    TOPIC = "topic"
    BROKER = "broker"
    METADATA_MANAGER = "metadata manager"
    """Of TopicBasedRemoteLogMetadataManager, in server.properties with the prefix rlmm.config."""
    PLUGIN = "plugin"
    """Of Aiven's RemoteStorageManager, in server.properties with the prefix rsm.config."""
    CLIENT = "client"


class Type(StrEnum):
    """org.apache.kafka.common.config.ConfigDef.Type."""

    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    STRING = "string"
    LIST = "list"
    PASSWORD = "password"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(Generic[T]):
    """A setting: its type, bounds and default in Kafka, and what tierctl does with it.

    `default` is Kafka's; None means that Kafka has none. `assumed` is the value that tierctl uses if the
    setting is not stated, if that differs from `default`. `least` and `most` are inclusive. `since` is the
    first Kafka release with the setting ("0": a release before 2.0), `until` the last.
    """

    name: str
    type: Type
    scope: Scope
    default: T | None
    assumed: T | None
    least: float | None
    most: float | None
    besides: float | None
    """The only valid value outside of the bounds, or None."""
    choices: tuple[str, ...]
    since: str
    until: str | None
    acted_on: bool
    use: str
    """A text about what tierctl does with the setting, or why tierctl ignores it."""
    convert: Callable[[str], T] = field(repr=False, compare=False)

    @property
    def treatment(self) -> str:
        """One line about what tierctl does with the setting."""
        return f"{'acted on' if self.acted_on else 'read and ignored'}: {self.use}"

    @property
    def values(self) -> str:
        """The valid values, in words."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.least is None and self.most is None:
            return _NOUNS[self.type]
        if self.most is None:
            return f"{_NOUNS[self.type]} of at least {self.least}"
        besides = "" if self.besides is None else f", or {self.besides}"
        return f"{_NOUNS[self.type]} from {self.least} to {self.most}{besides}"

    def parse(self, text: str, source: str = "") -> T:
        """Return the value that `text` states; UsageError for one that Kafka refuses, too.

        `source` names the file in the error.
        """
        try:
            value = self.convert(text)
        except ValueError:
            raise self._refused(text, source) from None
        if self.choices and not set(value if isinstance(value, tuple) else (value,)) <= set(self.choices):
            raise self._refused(text, source)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        is_within = not is_number or self._least <= value <= self._most  # type: ignore[operator]
        if not is_within and value != self.besides:
            raise self._refused(text, source, is_too_large=value > self._most)  # type: ignore[operator]
        return value

    def given(self, settings: Mapping[str, str], source: str = "") -> T | None:
        """Return the value in `settings`, None if they do not state it.

        UsageError for an invalid value, with the line that states it, or with `source` if that is not known.
        """
        text = settings.get(self.name)
        return None if text is None else self.parse(text, place_of(settings, self.name, source))

    def text(self, settings: Mapping[str, str]) -> str:
        """Return the text in `settings`, otherwise `default_text`, without a check of the value."""
        return settings.get(self.name, self.default_text)

    @property
    def default_text(self) -> str:
        """Kafka's default as a file would state it."""
        match self.default:
            case bool():
                return str(self.default).lower()
            case tuple():
                return ",".join(map(str, self.default))
        return str(self.default)

    def value(self, settings: Mapping[str, str], source: str = "") -> T:
        """Return the value in `settings`, otherwise the one assumed; UsageError for an invalid one.

        KeyError for a setting that has neither a default nor an assumed value.
        """
        found = self.given(settings, source)
        if found is None:
            found = self.default if self.assumed is None else self.assumed
        if found is None:
            raise KeyError(self.name)
        return found

    @property
    def kafka_default(self) -> T:
        """Kafka's default; KeyError for a setting without one."""
        if self.default is None:
            raise KeyError(self.name)
        return self.default

    def kafka_value(self, settings: Mapping[str, str]) -> T:
        """Return the value in `settings` as Kafka takes it: its default where none is stated."""
        given = self.given(settings)
        return self.kafka_default if given is None else given

    @property
    def _least(self) -> float:
        if self.least is not None:
            return self.least
        return {Type.INT: -_INT_MAX - 1, Type.LONG: -_LONG_MAX - 1}.get(self.type, float("-inf"))

    @property
    def _most(self) -> float:
        if self.most is not None:
            return self.most
        return {Type.INT: _INT_MAX, Type.LONG: _LONG_MAX}.get(self.type, float("inf"))

    def _refused(self, text: str, source: str, *, is_too_large: bool = False) -> UsageError:
        shown = "" if self.type is Type.PASSWORD else f"={text!r}"
        where = f"{source}: " if source else ""
        wanted = self.values
        if is_too_large and self.most is None:
            wanted += f"{' and' if self.least is not None else ' of'} at most {self._most}"
        return UsageError(f"{where}{self.name}{shown} is not {wanted}")


_NOUNS = {
    Type.BOOLEAN: "true or false",
    Type.INT: "a whole number",
    Type.LONG: "a whole number",
    Type.DOUBLE: "a number",
    Type.STRING: "a text",
    Type.LIST: "a list",
    Type.PASSWORD: "a password",
}


@dataclass(slots=True)
class Table:
    """The settings of one scope, in the order of their definition; each method adds a row and returns it.

    Exactly one of `acted_on` and `ignored` describes what tierctl does with the setting.
    """

    scope: Scope
    rows: dict[str, Setting[object]] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Setting[object]]:
        return iter(self.rows.values())

    def __contains__(self, name: str) -> bool:
        return name in self.rows

    def flag(
        self,
        name: str,
        default: bool | None,
        *,
        acted_on: str | None = None,
        ignored: str | None = None,
        since: str = "0",
        until: str | None = None,
    ) -> Setting[bool]:
        """Add a setting that is true or false."""
        return self._add(
            name, Type.BOOLEAN, default, _flag, acted_on=acted_on, ignored=ignored, since=since, until=until
        )

    def whole(
        self,
        name: str,
        default: int | None,
        *,
        type: Type = Type.LONG,  # noqa: A002
        least: int | None = None,
        most: int | None = None,
        besides: int | None = None,
        assumed: int | None = None,
        acted_on: str | None = None,
        ignored: str | None = None,
        since: str = "0",
        until: str | None = None,
    ) -> Setting[int]:
        """Add a setting that is a whole number, in the unit that the end of its name states."""
        return self._add(
            name, type, default, _whole, assumed=assumed, least=least, most=most, besides=besides,
            acted_on=acted_on, ignored=ignored, since=since, until=until,
        )  # fmt: skip

    def number(
        self,
        name: str,
        default: float,
        *,
        least: float,
        most: float,
        acted_on: str | None = None,
        ignored: str | None = None,
        since: str = "0",
    ) -> Setting[float]:
        """Add a setting that is a fraction."""
        return self._add(
            name, Type.DOUBLE, default, _fraction, least=least, most=most, acted_on=acted_on, ignored=ignored,
            since=since,
        )  # fmt: skip

    def text(
        self,
        name: str,
        default: str | None = None,
        *,
        type: Type = Type.STRING,  # noqa: A002
        choices: tuple[str, ...] = (),
        acted_on: str | None = None,
        ignored: str | None = None,
        since: str = "0",
        until: str | None = None,
    ) -> Setting[str]:
        """Add a setting that is a text, a class name or a password."""
        return self._add(
            name, type, default, str, choices=choices, acted_on=acted_on, ignored=ignored, since=since,
            until=until,
        )  # fmt: skip

    def names(
        self,
        name: str,
        default: tuple[str, ...] | None = None,
        *,
        choices: tuple[str, ...] = (),
        acted_on: str | None = None,
        ignored: str | None = None,
        since: str = "0",
    ) -> Setting[tuple[str, ...]]:
        """Add a setting that is a list of names with commas between them."""
        return self._add(
            name, Type.LIST, default, _names, choices=choices, acted_on=acted_on, ignored=ignored, since=since
        )

    def _add(
        self,
        name: str,
        kind: Type,
        default: T | None,
        convert: Callable[[str], T],
        *,
        acted_on: str | None,
        ignored: str | None,
        since: str,
        assumed: T | None = None,
        least: float | None = None,
        most: float | None = None,
        besides: float | None = None,
        choices: tuple[str, ...] = (),
        until: str | None = None,
    ) -> Setting[T]:
        use = ignored if acted_on is None else acted_on
        if name in self.rows or use is None or (acted_on is not None and ignored is not None):
            raise ValueError(name)
        row = Setting(
            name=name, type=kind, scope=self.scope, default=default, assumed=assumed, least=least, most=most,
            besides=besides, choices=choices, since=since, until=until, acted_on=acted_on is not None,
            use=use, convert=convert,
        )  # fmt: skip
        self.rows[name] = row  # type: ignore[assignment]
        return row


def _flag(text: str) -> bool:
    if text.strip().lower() not in {"true", "false"}:
        raise ValueError(text)
    return text.strip().lower() == "true"


def _whole(text: str) -> int:
    # Python's int accepts digits of other scripts and underscores, Java's parser does not.
    if not _WHOLE.fullmatch(text.strip()):
        raise ValueError(text)
    return int(text)


def _fraction(text: str) -> float:
    if not text.isascii() or "_" in text:
        raise ValueError(text)
    return float(text)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
