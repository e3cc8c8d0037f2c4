"""Parse and check the options of the data source `remote_log_metadata`."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tierctl.errors import UsageError
from tierctl.metadata.topic import topic_location
from tierctl.model.location import TopicLocation
from tierctl.spark.sources.metadata.stream_offsets import EARLIEST, LATEST
from tierctl.spark.sources.predicates import Predicate

_STARTS = {"earliest": EARLIEST, "latest": LATEST}
_NARROWING: dict[str, Callable[[str], Any]] = {
    "topic": str,
    "topic_id": str,
    "partition": int,
    "metadata_partition": int,
}
_NAMES = frozenset(
    {
        *("metadata", "path", "command_config", "broker_config", *_NARROWING),
        *(
            "records_per_task",
            "starting_offsets",
            "max_offsets_per_trigger",
            "fail_on_data_loss",
            "limit_factor",
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataOptions:
    """The options with their types; `starting_offset` is for partitions without a `starting_offsets`."""

    location: TopicLocation
    predicates: tuple[Predicate, ...] = ()
    records_per_task: int | None = None
    starting_offset: int = EARLIEST
    starting_offsets: Mapping[int, int]
    max_offsets_per_trigger: int | None = None
    fail_on_data_loss: bool = True
    limit_factor: int = 1

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Parse the texts of `.option(...)`; raise UsageError for missing, unknown and invalid ones."""
        given = {name.lower(): text for name, text in options.items()}
        if unknown := sorted(given.keys() - _NAMES):
            raise UsageError(
                f"remote_log_metadata has no option {', '.join(unknown)}",
                hint=f"it has {', '.join(sorted(_NAMES))}",
            )
        uri = given.get("metadata") or given.get("path")
        if not uri:
            raise UsageError(
                "option metadata is missing",
                hint="kafka://host:port, or a folder as /dir or s3://bucket/dir",
            )
        start = given.get("starting_offsets", "earliest").strip()
        return cls(
            location=topic_location(
                "option metadata",
                uri,
                command_config=_path(given, "command_config"),
                broker_config=_path(given, "broker_config"),
            ),
            predicates=tuple(
                _predicate(name, given[name], kind) for name, kind in _NARROWING.items() if name in given
            ),
            records_per_task=_count(given, "records_per_task"),
            starting_offset=_STARTS.get(start.lower(), EARLIEST),
            starting_offsets={} if start.lower() in _STARTS else _offsets(start),
            max_offsets_per_trigger=_count(given, "max_offsets_per_trigger"),
            fail_on_data_loss=_flag(given, "fail_on_data_loss", otherwise=True),
            limit_factor=_count(given, "limit_factor") or 1,
        )


def _path(given: Mapping[str, str], name: str) -> Path | None:
    return Path(given[name]) if given.get(name) else None


def _predicate(name: str, text: str, kind: Callable[[str], Any]) -> Predicate:
    try:
        return Predicate(name, "in", tuple(kind(part.strip()) for part in text.split(",")))
    except ValueError:
        raise UsageError(f"option {name}: {text!r}", hint="numbers, commas between") from None


def _count(given: Mapping[str, str], name: str) -> int | None:
    if name not in given:
        return None
    if not given[name].isdecimal() or int(given[name]) < 1:
        raise UsageError(f"option {name}: {given[name]!r}", hint="a number of 1 or more")
    return int(given[name])


def _flag(given: Mapping[str, str], name: str, *, otherwise: bool) -> bool:
    text = given.get(name, str(otherwise)).lower()
    if text not in {"true", "false"}:
        raise UsageError(f"option {name}: {text!r}", hint="true or false")
    return text == "true"


def _offsets(text: str) -> dict[int, int]:
    """Parse a JSON object that maps metadata partitions to offsets."""
    wrong = UsageError(
        f"option starting_offsets: {text!r}", hint='earliest, latest, or JSON as {"0": 17, "1": -2}'
    )
    try:
        found = json.loads(text)
        offsets = {int(number): offset for number, offset in found.items()}
    except (ValueError, AttributeError):
        raise wrong from None
    for number, offset in offsets.items():
        if number < 0 or not isinstance(offset, int) or isinstance(offset, bool) or offset < EARLIEST:
            raise wrong
    return offsets
