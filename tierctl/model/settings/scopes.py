"""The registry of settings: one row per Kafka setting, the tables of each scope, and values with their
origins and units; versions of Kafka, and the faults of those that delete segments of the tier too early.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Generic, Self, TypedDict, TypeVar, Unpack

from tierctl.errors import UsageError
from tierctl.model.choices import RowEnum
from tierctl.model.times import parse_duration_ms

# Settings with the origin of each value: a default, a file and its line, an environment variable, an option.
#
# Every reader of settings returns `StatedSettings`, so that errors and `tierctl config show` name the origin.


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
        besides = "" if self.besides is None else f", or {self.besides}"
        if self.most is None:
            return f"{_NOUNS[self.type]} of at least {self.least}{besides}"
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


class _About(TypedDict, total=False):
    """What tierctl does with a setting, `acted_on` or `ignored`; the Kafka releases that have it."""

    acted_on: str
    ignored: str
    since: str
    until: str


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

    def flag(self, name: str, default: bool | None, **about: Unpack[_About]) -> Setting[bool]:
        """Add a setting that is true or false."""
        return self._add(name, Type.BOOLEAN, default, _flag, about)

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
        **about: Unpack[_About],
    ) -> Setting[int]:
        """Add a setting that is a whole number, in the unit that the end of its name states."""
        return self._add(
            name, type, default, _whole, about, assumed=assumed, least=least, most=most, besides=besides
        )

    def number(
        self, name: str, default: float, *, least: float, most: float, **about: Unpack[_About]
    ) -> Setting[float]:
        """Add a setting that is a fraction."""
        return self._add(name, Type.DOUBLE, default, _fraction, about, least=least, most=most)

    def text(
        self,
        name: str,
        default: str | None = None,
        *,
        type: Type = Type.STRING,  # noqa: A002
        choices: tuple[str, ...] = (),
        **about: Unpack[_About],
    ) -> Setting[str]:
        """Add a setting that is a text, a class name or a password."""
        return self._add(name, type, default, str, about, choices=choices)

    def names(
        self,
        name: str,
        default: tuple[str, ...] | None = None,
        *,
        choices: tuple[str, ...] = (),
        **about: Unpack[_About],
    ) -> Setting[tuple[str, ...]]:
        """Add a setting that is a list of names with commas between them."""
        return self._add(name, Type.LIST, default, _names, about, choices=choices)

    def _add(
        self,
        name: str,
        kind: Type,
        default: T | None,
        convert: Callable[[str], T],
        about: _About,
        *,
        assumed: T | None = None,
        least: float | None = None,
        most: float | None = None,
        besides: float | None = None,
        choices: tuple[str, ...] = (),
    ) -> Setting[T]:
        acted_on, ignored = about.get("acted_on"), about.get("ignored")
        use = ignored if acted_on is None else acted_on
        if name in self.rows or use is None or (acted_on is not None and ignored is not None):
            raise ValueError(name)
        row = Setting(
            name=name, type=kind, scope=self.scope, default=default, assumed=assumed, least=least, most=most,
            besides=besides, choices=choices, since=about.get("since", "0"), until=about.get("until"),
            acted_on=acted_on is not None, use=use, convert=convert,
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


_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}
_SIZE = re.compile(r"([0-9]{1,18})(\.[0-9]+)?\s*([kmgtp]?)(?:i?b)?", re.IGNORECASE | re.ASCII)


def parse_size(text: str) -> int:
    """Return the bytes in `text`, as 50M, 1.5 GiB (rounded down) or 1048576; UsageError for another form."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"{text!r} is no number of bytes", hint="expected as 50M: K, M, G, T and P are powers of 1024"
        )
    unit = _UNITS[match[3].lower()]
    return int(match[1]) * unit + int(float(match[2] or 0) * unit)


def without_unit(setting: str, text: str, option: str) -> str:
    """Return the value `text` of the setting that `option` states as Kafka reads it, without a unit.

    The name tells whether the value is a number of milliseconds, as 7d, or of bytes, as 50G. Other values,
    and numbers without a unit, are returned unchanged. Raise UsageError for a unit that is unknown.
    """
    if not text.isascii() or not text[-1:].isalpha():
        return text
    is_size = setting.endswith((".bytes", ".bytes.per.second"))
    try:
        if setting.endswith(".ms"):
            return str(parse_duration_ms(text))
        return str(parse_size(text)) if is_size else text
    except UsageError as e:
        raise UsageError(f"{option}: {setting}: {e.message}", hint=e.hint) from None


_FIRST_LEVELS = {
    (3, 6): 12,
    (3, 7): 15,
    (3, 8): 20,
    (3, 9): 21,
    (4, 0): 22,
    (4, 1): 26,
    (4, 2): 28,
    (4, 3): 30,
    (4, 4): 31,
}
"""The releases with tiered storage, each with its first level of metadata.version (MetadataVersion)."""
_TEXT = re.compile(r"(0|[1-9][0-9]{0,2})\.(0|[1-9][0-9]{0,2})(?:\.([0-9]{1,3}))?")


@dataclass(frozen=True, slots=True, order=True)
class KafkaVersion:
    """A release of Kafka, such as 4.4.

    Bug-fix releases are equal to each other: `patch` is the 1 of 4.4.1, None if it is unknown.
    """

    major: int
    minor: int
    patch: int | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the version that `4.4` or `4.4.0` names; UsageError for one that is not known."""
        match = _TEXT.fullmatch(text.strip())
        number = (int(match[1]), int(match[2])) if match else (0, 0)
        if number not in _FIRST_LEVELS:
            known = ", ".join(map(str, KNOWN))
            raise UsageError(f'Kafka version "{text}" is not known', hint=f"known versions: {known}")
        return cls(*number, patch=int(match[3]) if match and match[3] else None)

    @classmethod
    def of_feature_level(cls, level: int) -> Self:
        """Return the version whose brokers support metadata.version up to `level`.

        A level above the known ones belongs to a later release and counts as the latest known version.
        """
        levels = list(_FIRST_LEVELS.values())
        return cls(*list(_FIRST_LEVELS)[max(bisect_right(levels, level) - 1, 0)])

    @property
    def expires_at_cutoff(self) -> bool:
        """Whether retention.ms also deletes a segment whose newest record is exactly that old.

        Source: RemoteLogManager.RLMExpirationTask; 4.3 changed `<=` to `<`.
        """
        return self < KafkaVersion(4, 3)

    def min_in_sync(self, stated: int, replicas: int) -> int:
        """Return how many of `replicas` must be in sync for a write, if min.insync.replicas is `stated`.

        Above `replicas`, nothing can be written with acks=all. Source: Partition.effectiveMinIsr (KIP-966),
        which 3.6 does not have.
        """
        return stated if self < KafkaVersion(3, 7) else min(stated, replicas)

    @property
    def counts_begun_deletions(self) -> bool:
        """Whether retention.bytes counts segments in DELETE_SEGMENT_STARTED.

        Source: RemoteLogManager.buildRetentionSizeData; KAFKA-17428, of which 3.9.1 has nothing.
        """
        return self < KafkaVersion(4, 0)

    @property
    def counts_last_offset_twice(self) -> bool:
        """Whether a local segment that begins at the last copied offset counts as not copied.

        Source: UnifiedLog.onlyLocalLogSegmentsSize; KAFKA-20977, which 4.4.0 has and 4.3.0 has not.
        """
        return self < KafkaVersion(4, 4)

    @property
    def cleans_without_policy(self) -> bool:
        """Whether local retention counts for a topic that copies and has an empty cleanup.policy.

        Source: UnifiedLog.deleteOldSegments; KAFKA-19112.
        """
        return self >= KafkaVersion(4, 2)

    @property
    def ages_future_segments(self) -> bool:
        """Whether local.retention.ms counts from the last write of a file with a timestamp in the future.

        Source: KAFKA-20609; 4.4.0 does not have it.
        """
        return self >= KafkaVersion(4, 5)

    @property
    def has_txn_index_empty(self) -> bool:
        """Whether metadata records, and Kafka's text of them, state that the transaction index is empty."""
        return self >= KafkaVersion(4, 0)

    @property
    def has_earliest_pending_upload(self) -> bool:
        """Whether brokers answer the offset spec -6 (KIP-1023, version 11 of ListOffsets)."""
        return self >= KafkaVersion(4, 2)

    @property
    def can_terminate_transactions(self) -> bool:
        """Whether kafka-transactions.sh ends a transaction by its id; it does in 4.3 and not in 3.9."""
        return self >= KafkaVersion(4, 3)

    def includes(self, since: str, until: str | None = None) -> bool:
        """Return whether this release has what was added in `since` and last existed in `until`.

        `since` is "0" for a release before tiered storage, or the KIP of a thing that no release has.
        """
        own = (self.major, self.minor)
        return _is_release(since) and _number(since) <= own and (until is None or own <= _number(until))


def _is_release(version: str) -> bool:
    return version[:1].isdigit()


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


KNOWN = tuple(KafkaVersion(*number) for number in _FIRST_LEVELS)
LAST_WITH_ZOOKEEPER = KafkaVersion(3, 9)
LATEST = KNOWN[-1]
"""The version that is assumed if no source states one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRow:
    """The facts about one fault.

    `name` is that of its issue. `fixed_in` has the first bug-fix release with the fix, such as 1 of 3.8.1, by
    its version. Versions from `gone_since` on never had the fault; all others have it.
    """

    name: str
    meaning: str
    workaround: str
    fixed_in: tuple[tuple[KafkaVersion, int], ...]
    gone_since: KafkaVersion


class KafkaFault(RowEnum):
    """The table: one member per fault, which is equal to the name of its issue."""

    row: FaultRow

    # Fixed by apache/kafka#16959 and #17359: 3.8.1 counts only finished segments and those being deleted.
    WRONG_SIZES = FaultRow(
        name="KAFKA-17062",
        meaning="Copies that failed count as part of a partition's size, so retention.bytes deletes segments "
        "that it should keep.",
        workaround="unset retention.bytes on tiered topics while copies fail",
        fixed_in=((KafkaVersion(3, 8), 1),),
        gone_since=KafkaVersion(3, 9),
    )
    # Fixed by apache/kafka#17794: 3.9.0 has the fault and 3.9.1 has not.
    LARGE_RETENTION = FaultRow(
        name="KAFKA-17995",
        meaning="A retention.ms of more than the milliseconds since 1970, as 9223372036854775807, ends each "
        "expiration task with an error: nothing of the topic is deleted from the tier, not even by size.",
        workaround="set retention.ms=-1 where no age is meant",
        fixed_in=((KafkaVersion(3, 9), 1),),
        gone_since=KafkaVersion(4, 0),
    )
    # Fixed by apache/kafka#22661 in 4.3.2; 4.3.1 has the fault and 4.4.0 has not.
    EXCESS_DELETES = FaultRow(
        name="KAFKA-20732",
        meaning="Before a new leader knows what was copied it counts its whole local log as not copied, so "
        "retention.bytes deletes segments that it should keep, on all replicas.",
        workaround="unset retention.bytes on tiered topics, or set it to twice the size that is meant",
        fixed_in=((KafkaVersion(4, 3), 2),),
        gone_since=KafkaVersion(4, 4),
    )

    def is_in(self, version: KafkaVersion) -> bool | None:
        """Return whether brokers of `version` have the fault; None if that depends on an unknown bug fix."""
        if version >= self.row.gone_since:
            return False
        fixed = dict(self.row.fixed_in).get(version)
        if fixed is None:
            return True
        return None if version.patch is None else version.patch < fixed

    def fix_of(self, version: KafkaVersion) -> str:
        """Return the nearest release without the fault, for brokers of `version`."""
        fixed = dict(self.row.fixed_in).get(version)
        return f"{self.row.gone_since}.0" if fixed is None else f"{version}.{fixed}"
