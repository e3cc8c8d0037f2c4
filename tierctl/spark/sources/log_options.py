"""The options of the data source `remote_log`, as `tierctl.spark.sources.remote_log` describes them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Self

from tierctl.errors import UsageError
from tierctl.kafka.client_settings import option_of
from tierctl.metadata.topic import topic_location
from tierctl.model import IsolationLevel, Selection, Uuid
from tierctl.model.choices import private_keys_of
from tierctl.model.location import TopicLocation, TruncatedMetadata
from tierctl.model.times import parse_time_ms
from tierctl.storage import store_uri
from tierctl.storage.open_tier import LAYOUTS
from tierctl.storage.throttle import parse_rate

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
            "limit_factor",
        ),
    }
)


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
    command_config: Path | None
    broker_config: Path | None
    bootstrap_server: str | None
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
    limit_factor: int
    """As --limit-factor."""

    @property
    def cluster(self) -> TopicLocation | None:
        """Return the cluster that knows topic ids and leaders, as a location; None without one."""
        if self.bootstrap_server is None:
            return None
        return replace(self.metadata, uri=self.bootstrap_server, option=option_of(self.bootstrap_server))

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Parse the texts of `.option(...)`; raise UsageError for missing, unknown and invalid ones."""
        given = {name.lower(): text for name, text in options.items()}
        if unknown := sorted(given.keys() - _NAMES):
            raise UsageError(
                f"remote_log has no option {', '.join(unknown)}", hint=f"it has {', '.join(sorted(_NAMES))}"
            )
        servers = given.get("bootstrap_server")
        stated = given.get("metadata") or (servers and f"kafka://{servers}")
        metadata = stated or _required(given, "metadata")
        is_on_cluster = metadata.startswith("kafka:")
        return cls(
            metadata=topic_location(
                "option metadata" if given.get("metadata") else "option bootstrap_server",
                metadata,
                command_config=_path(given, "command_config"),
                broker_config=_path(given, "broker_config"),
            ),
            remote_uri=store_uri("option remote", _required(given, "remote")),
            layout=_one_of(given, "layout", LAYOUTS),
            log_dirs=tuple(Path(each).absolute() for each in _several(given, "log_dir")),
            state_dir=_path(given, "state_dir"),
            private_keys=private_keys_of(_several(given, "aiven_private_key")),
            command_config=_path(given, "command_config"),
            broker_config=_path(given, "broker_config"),
            bootstrap_server=servers or (metadata if is_on_cluster else None),
            selection=_selection(given),
            from_time_ms=_time(given, "from_time"),
            to_time_ms=_time(given, "to_time"),
            late_ms=_count(given, "late_ms", least=0),
            isolation=IsolationLevel(
                _one_of(given, "isolation_level", IsolationLevel) or IsolationLevel.READ_UNCOMMITTED
            ),
            mode=Mode(_one_of(given, "mode", Mode) or Mode.FAILFAST),
            truncated_metadata=TruncatedMetadata(
                _one_of(given, "truncated_metadata", TruncatedMetadata) or TruncatedMetadata.REFUSE
            ),
            bytes_per_task=_count(given, "bytes_per_task", least=1),
            throttle_fetch=parse_rate(given["throttle_fetch"]) if "throttle_fetch" in given else None,
            limit_factor=_count(given, "limit_factor", least=1) or 1,
        )


def _required(given: Mapping[str, str], name: str) -> str:
    if not given.get(name):
        raise UsageError(f"option {name} is missing", hint="as tierctl fetch has it")
    return given[name]


def _several(given: Mapping[str, str], name: str) -> list[str]:
    """Return the values of a comma-separated option."""
    return [part.strip() for part in given.get(name, "").split(",") if part.strip()]


def _path(given: Mapping[str, str], name: str) -> Path | None:
    # Executors have other working directories.
    return Path(given[name]).absolute() if given.get(name) else None


def _one_of(given: Mapping[str, str], name: str, known: type[StrEnum] | tuple[str, ...]) -> str | None:
    text = given.get(name)
    if text is None:
        return None
    found = next((str(each) for each in known if str(each).lower() == text.lower()), None)
    if found is None:
        raise UsageError(f"option {name}: {text!r}", hint=f"one of {', '.join(map(str, known))}")
    return found


def _time(given: Mapping[str, str], name: str) -> int | None:
    return parse_time_ms(given[name]) if name in given else None


def _count(given: Mapping[str, str], name: str, *, least: int) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal()) or int(text) < least:
        raise UsageError(f"option {name}: {text!r}", hint=f"a number of {least} or more")
    return int(text)


def _selection(given: Mapping[str, str]) -> Selection:
    numbers = _several(given, "partition")
    if not all(each.isascii() and each.isdecimal() for each in numbers):
        raise UsageError(f"option partition: {given['partition']!r}", hint="numbers, commas between")
    return Selection(
        topics=frozenset(_several(given, "topic")),
        partitions=frozenset(map(int, numbers)),
        topic_ids=frozenset(Uuid.parse(each) for each in _several(given, "topic_id")),
    )
