"""What Spark gives a data source: options as they were written, columns, and filters to push down."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tierctl.errors import TierctlError, UsageError
from tierctl.kafka.client_settings import option_of
from tierctl.metadata.server_properties import broker_file
from tierctl.metadata.topic import topic_location
from tierctl.model import IsolationLevel, Selection, Uuid
from tierctl.model.checked_values import NUMBER_MAX, natural_number
from tierctl.model.choices import private_keys_of
from tierctl.model.events import PARTITION_MAX
from tierctl.model.location import Layout, TopicLocation, TruncatedMetadata
from tierctl.model.times import parse_time_ms
from tierctl.spark.sources.metadata_splits import Predicate
from tierctl.storage import store_uri
from tierctl.storage.throttle import parse_rate
from tierctl.wire.files.properties import read_client_file
from tierctl.wire.primitives import LIMIT_FACTOR_MAX


@contextmanager
def shown_hints() -> Iterator[None]:
    """Add the hint of an error to its traceback: Spark shows nothing else of an exception in Python."""
    try:
        yield
    except TierctlError as e:
        if e.hint is not None:
            e.add_note(f"hint: {e.hint}")
        raise


@dataclass(frozen=True, slots=True)
class Given:
    """The options of one load or stream: their texts by name, in lower case.

    The methods return the value of an option, None or nothing without it; they raise UsageError for a text
    that is no such value.
    """

    texts: Mapping[str, str]

    @classmethod
    def of(cls, source: str, options: Mapping[str, str], names: Collection[str]) -> Self:
        """Return the options of the data source `source`; raise UsageError for one that is not in `names`."""
        texts = {name.lower(): text for name, text in options.items()}
        if unknown := sorted(texts.keys() - set(names)):
            raise UsageError(
                f"{source} has no option {', '.join(unknown)}", hint=f"it has {', '.join(sorted(names))}"
            )
        return cls(texts)

    def text(self, name: str) -> str | None:
        """Return the text as it was written."""
        return self.texts.get(name)

    def required(self, name: str, hint: str) -> str:
        """Return a text that is not empty; raise UsageError with `hint` without it."""
        text = self.texts.get(name)
        if not text:
            raise UsageError(f"option {name} is missing", hint=hint)
        return text

    def several(self, name: str) -> list[str]:
        """Return the texts between commas, at least one: an empty option may not mean everything."""
        if name not in self.texts:
            return []
        found = [part.strip() for part in self.texts[name].split(",") if part.strip()]
        if not found:
            raise UsageError(
                f"option {name} is empty", hint="leave it out, or give values with commas between"
            )
        return found

    def numbers(self, name: str) -> list[int]:
        """Return the numbers of partitions between commas."""
        found = [natural_number(text, PARTITION_MAX) for text in self.several(name)]
        numbers = [number for number in found if number is not None]
        if len(numbers) < len(found):
            raise UsageError(
                f"option {name}: {self.texts[name]!r}",
                hint=f"numbers, commas between, none above {PARTITION_MAX}",
            )
        return numbers

    def count(self, name: str, *, least: int = 1, most: int = NUMBER_MAX) -> int | None:
        """Return a number from `least` to `most`."""
        text = self.texts.get(name)
        if text is None:
            return None
        number = natural_number(text, most)
        if number is None or number < least:
            raise UsageError(f"option {name}: {text!r}", hint=f"a number of {least} or more, up to {most}")
        return number

    def limit_factor(self) -> int:
        """Return the factor of limits, as --limit-factor has it; 1 if it is not given."""
        return self.count("limit_factor", most=LIMIT_FACTOR_MAX) or 1

    def is_true(self, name: str) -> bool:
        """Return false for an option that is `false`, and true for `true` and without it."""
        return self.one_of(name, ("true", "false")) != "false"

    def path(self, name: str) -> Path | None:
        """Return an absolute path: executors have other working directories."""
        text = self.texts.get(name)
        return Path(text).absolute() if text else None

    def time_ms(self, name: str) -> int | None:
        """Return a time in milliseconds."""
        text = self.texts.get(name)
        return None if text is None else parse_time_ms(text)

    def one_of(self, name: str, known: type[StrEnum] | Iterable[str]) -> str | None:
        """Return the one of `known` that is given, in lower or upper case."""
        text = self.texts.get(name)
        if text is None:
            return None
        words = list(map(str, known))
        found = next((word for word in words if word.lower() == text.lower()), None)
        if found is None:
            raise UsageError(f"option {name}: {text!r}", hint=f"one of {', '.join(words)}")
        return found


_NAMES = frozenset(
    {
        *("metadata", "remote", "layout", "log_dir", "state_dir", "aiven_private_key"),
        *("command_config", "broker_config", "bootstrap_server"),
        *("topic", "partition", "topic_id", "from_time", "to_time", "late_ms"),
        *(
            "isolation_level",
            "mode",
            "bytes_per_task",
            "truncated_metadata",
            "throttle_fetch",
            "push_down",
            "limit_factor",
        ),
    }
)
_HINT = "as tierctl fetch has it"


def require_files(location: TopicLocation) -> None:
    """Raise UsageError for a properties file of `location` that can't be read, also if nothing needs it."""
    if location.broker_config is not None:
        broker_file(Path(location.broker_config))
    if location.command_config is not None:
        read_client_file(Path(location.command_config))


class Mode(StrEnum):
    """How to handle unreadable records, with the names of Spark's CSV and JSON sources."""

    FAILFAST = "FAILFAST"
    PERMISSIVE = "PERMISSIVE"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """The options with their types; they contain no secret."""

    metadata: TopicLocation
    remote_uri: str
    layout: str | None
    log_dirs: tuple[Path, ...]
    state_dir: Path | None
    private_keys: Mapping[str, Path]
    broker_config: Path | None
    cluster: TopicLocation | None
    """The cluster that knows topic ids and leaders, as a location; None without one."""
    selection: Selection
    from_time_ms: int | None
    to_time_ms: int | None
    late_ms: int | None
    isolation: IsolationLevel
    mode: Mode
    truncated_metadata: TruncatedMetadata
    bytes_per_task: int | None
    throttle_fetch: int | None
    """Bytes per second that all tasks together read of the tier; None: as `broker_config` says."""
    push_down: bool
    """Whether conditions reduce what is read."""
    limit_factor: int
    """As --limit-factor."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Parse the texts of `.option(...)`; raise UsageError for missing, unknown and invalid ones."""
        given = Given.of("remote_log", options, _NAMES)
        servers = given.text("bootstrap_server")
        stated = given.text("metadata") or (servers and f"kafka://{servers}")
        location = topic_location(
            "option metadata" if given.text("metadata") else "option bootstrap_server",
            stated or given.required("metadata", _HINT),
            command_config=given.path("command_config"),
            broker_config=given.path("broker_config"),
        )
        cluster = servers or (location.uri if location.is_on_cluster else None)
        rate = given.text("throttle_fetch")
        return cls(
            metadata=location,
            remote_uri=store_uri("option remote", given.required("remote", _HINT)),
            layout=given.one_of("layout", Layout),
            log_dirs=tuple(Path(each).absolute() for each in given.several("log_dir")),
            state_dir=given.path("state_dir"),
            private_keys=private_keys_of(given.several("aiven_private_key")),
            broker_config=given.path("broker_config"),
            cluster=None if cluster is None else replace(location, uri=cluster, option=option_of(cluster)),
            selection=Selection(
                topics=frozenset(given.several("topic")),
                partitions=frozenset(given.numbers("partition")),
                topic_ids=frozenset(map(Uuid.parse, given.several("topic_id"))),
            ),
            from_time_ms=given.time_ms("from_time"),
            to_time_ms=given.time_ms("to_time"),
            late_ms=given.count("late_ms", least=0),
            isolation=IsolationLevel(
                given.one_of("isolation_level", IsolationLevel) or IsolationLevel.READ_UNCOMMITTED
            ),
            mode=Mode(given.one_of("mode", Mode) or Mode.FAILFAST),
            truncated_metadata=TruncatedMetadata(
                given.one_of("truncated_metadata", TruncatedMetadata) or TruncatedMetadata.REFUSE
            ),
            bytes_per_task=given.count("bytes_per_task"),
            throttle_fetch=None if rate is None else parse_rate(rate),
            push_down=given.is_true("push_down"),
            limit_factor=given.limit_factor(),
        )


# The columns of `.schema(...)`, and filters as predicates.

_Comparison = EqualTo | LessThan | LessThanOrEqual | GreaterThan | GreaterThanOrEqual

_OPERATORS: dict[type[_Comparison], str] = {
    EqualTo: "=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
}


def selected_columns(selected: StructType, available: pa.Schema) -> tuple[str, ...]:
    """Return the names in `selected`; raise UsageError for a column not in `available`, and for no column.

    Columns that must not be null are refused: Spark compares them with Arrow's, which may be null.
    """
    types = {field.name: field.dataType for field in from_arrow_schema(available)}
    hint = f"there are {', '.join(f'{name} {kind.simpleString()}' for name, kind in types.items())}"
    for field in selected:
        if types.get(field.name) != field.dataType or not field.nullable:
            kind = field.dataType.simpleString() + ("" if field.nullable else " NOT NULL")
            raise UsageError(f"no column {field.name} {kind}", hint=hint)
    if not selected.fields:
        raise UsageError("the schema of the load has no columns", hint=f"leave it out, or name some: {hint}")
    return tuple(selected.names)


class FilteredReader(DataSourceReader):
    """A reader that accepts pushed filters: `_predicates` contains them when Spark calls `partitions`.

    It accepts none if `_pushes_down` is false: Spark keeps the filters that it pushed down for one query of a
    DataFrame for all of its other queries.
    """

    _predicates: tuple[Predicate, ...] = ()
    _pushes_down = True

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Accept every filter that a predicate expresses exactly; yield the others, which Spark applies."""
        for each in filters:
            predicate = predicate_of(each) if self._pushes_down else None
            if predicate is None:
                yield each
            else:
                self._predicates = (*self._predicates, predicate)


def predicate_of(pushed: Filter) -> Predicate | None:
    """Return the predicate that is true for exactly the rows that `pushed` selects, or None."""
    match pushed:
        case Not(child):
            inner = predicate_of(child)
            return None if inner is None else inner.negated()
        case IsNull((name,)):
            return Predicate(name, "is null")
        case IsNotNull((name,)):
            return Predicate(name, "is null").negated()
        case In((name,), values) if values and all(map(_is_plain, values)):
            return Predicate(name, "in", tuple(values))
        case (
            EqualTo((name,), value)
            | LessThan((name,), value)
            | LessThanOrEqual((name,), value)
            | GreaterThan((name,), value)
            | GreaterThanOrEqual((name,), value)
        ) if _is_plain(value):
            return Predicate(name, _OPERATORS[type(pushed)], value)
    return None


def _is_plain(value: Any) -> bool:
    """Return True if Arrow and Spark compare values of this type in the same way."""
    return isinstance(value, int | str | bool | datetime)
