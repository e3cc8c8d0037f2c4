"""The YAML file of `backup-config`: topics with their ids, partition counts and settings.

    version: 1
    saved: '2026-11-23T10:00:00Z'
    cluster_id: dGllcmN0bC10ZXN0cy0wMQ
    not_covered: [ACLs, quotas, ...]
    topics:
      orders:
        topic_id: 2QZ5FAXaQrqgUzsReWnweA
        partitions: 3
        settings:
          retention.ms: '604800000'
    # End of the topics.

A file that begins with the comments of `backup-config` must end with that comment: one that was cut off
may be valid YAML. Values are read as the text that the file has: `true` and `604800000` need no quotes.
`version`, `topics`, and of each topic `topic_id` and `partitions`, must be there; unknown keys are refused.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NoReturn

import yaml

from tierctl.errors import UsageError
from tierctl.model.events import Uuid, is_legal_topic_name
from tierctl.model.local import NOT_COVERED, SavedTopic, SavedTopics
from tierctl.model.settings.known import FileKind
from tierctl.model.times import iso_utc, parse_time_ms
from tierctl.wire.files.properties import require_kind_of_file

VERSION = 1

PARTITIONS_MAX = 1_000_000
"""Far above what a cluster can have; it bounds the records that a file makes tierctl write."""

_HINT = "expected a file as tierctl backup-config writes it"

_BEGIN = "# Topics of a Kafka cluster, written by tierctl backup-config"

_HEAD = f"""\
{_BEGIN} for the day on which it is lost.
# Not covered: {", ".join(NOT_COVERED)}, settings of brokers, internal topics.
"""

_END = "# End of the topics."

_SETTING = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")

_DIGITS = re.compile(r"[0-9]{1,7}\Z")

_NULL = "tag:yaml.org,2002:null"

_FILE_KEYS = ("version", "saved", "cluster_id", "not_covered", "topics")

_TOPIC_KEYS = ("topic_id", "partitions", "settings")


def write_topics_file(saved: SavedTopics) -> bytes:
    """Return the bytes of the file, with topics and settings in the order of their names."""
    content = {
        "version": VERSION,
        "saved": None if saved.saved_ms is None else iso_utc(saved.saved_ms),
        "cluster_id": saved.cluster_id,
        "not_covered": list(NOT_COVERED),
        "topics": {name: _content(topic) for name, topic in sorted(saved.topics.items())},
    }
    known = {name: value for name, value in content.items() if value is not None}
    text = yaml.safe_dump(known, sort_keys=False, allow_unicode=False, default_flow_style=False, width=110)
    return f"{_HEAD}{text}{_END}\n".encode()


def begins_backup(head: bytes) -> bool:
    """Return whether a file that begins with these bytes was written by `backup-config`."""
    return head.startswith(_BEGIN.encode())


def _content(topic: SavedTopic) -> dict[str, object]:
    return {
        "topic_id": str(topic.topic_id),
        "partitions": topic.partitions,
        "settings": dict(sorted(topic.settings.items())),
    }


def read_topics_file(data: bytes, source: str) -> SavedTopics:
    """Return the topics in a file; UsageError with `source`, the line, what was expected and what was found.

    YAML tags are not supported, and values are always read as text.
    """
    if begins_backup(data):
        _require_end(data, source)
    try:
        return _Reader(source).read(data)
    except UsageError:
        require_kind_of_file(data, FileKind.SAVED_TOPICS, Path(source))
        raise


def _require_end(data: bytes, source: str) -> None:
    lines = data.rstrip().splitlines()
    if lines[-1] != _END.encode():
        raise UsageError(
            f"{source}, line {len(lines)}: expected the last line {_END!r}, found "
            f"{lines[-1][:100].decode(errors='replace')!r}: the file was cut off",
            hint="name a whole copy of the file; if you added lines at its end, put them before that one",
        )


class _Loader(yaml.SafeLoader):
    """Refuses aliases: a few of them make a small file large, and `backup-config` writes none."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            problem = "expected no alias, found one"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=self.get_mark())
        node: yaml.Node | None = super().compose_node(parent, index)
        return node


class _Reader:
    def __init__(self, source: str) -> None:
        self._source = source

    def read(self, data: bytes) -> SavedTopics:
        root = self._parsed(data)
        if root is None:
            raise UsageError(f"{self._source} is empty", hint=_HINT)
        fields = dict(self._fields(root, "the file", _FILE_KEYS))
        version = self._required(fields, root, "version")
        if self._text(version) != str(VERSION):
            self._refuse(version, f"version {VERSION}", self._text(version))
        saved = fields.get("saved")
        cluster = fields.get("cluster_id")
        topics = self._required(fields, root, "topics")
        return SavedTopics(
            topics={
                name: self._topic(name, key, node) for name, key, node in self._pairs(topics, "the topics")
            },
            cluster_id=None if cluster is None else self._text(cluster),
            saved_ms=None if saved is None else self._time_ms(saved),
        )

    def _parsed(self, data: bytes) -> yaml.Node | None:
        try:
            return yaml.compose(data, Loader=_Loader)
        except yaml.MarkedYAMLError as e:
            mark = e.problem_mark or e.context_mark
            line = "" if mark is None else f", line {mark.line + 1}"
            raise UsageError(f"{self._source}{line}: no YAML: {e.problem or e.context}", hint=_HINT) from e
        except yaml.YAMLError as e:
            raise UsageError(f"{self._source}: no YAML text: {e}", hint=_HINT) from e
        except RecursionError:
            raise UsageError(f"{self._source}: nested too deeply", hint=_HINT) from None

    def _topic(self, name: str, key: yaml.Node, node: yaml.Node) -> SavedTopic:
        if not is_legal_topic_name(name):
            self._refuse(key, "a topic's name", name)
        fields = dict(self._fields(node, f"topic {name}", _TOPIC_KEYS))
        settings = fields.get("settings")
        return SavedTopic(
            topic=name,
            topic_id=self._topic_id(self._required(fields, node, "topic_id")),
            partitions=self._count(self._required(fields, node, "partitions")),
            settings={} if settings is None else dict(self._settings(settings)),
        )

    def _settings(self, node: yaml.Node) -> Iterator[tuple[str, str]]:
        for name, key, value in self._pairs(node, "settings"):
            if not _SETTING.match(name):
                self._refuse(key, "the name of a topic setting", name)
            yield name, self._text(value)

    def _topic_id(self, node: yaml.Node) -> Uuid:
        text = self._text(node)
        try:
            return Uuid.parse(text)
        except UsageError:
            self._refuse(node, "a topic id of 22 characters, as kafka-topics prints it", text)

    def _count(self, node: yaml.Node) -> int:
        text = self._text(node)
        if not _DIGITS.match(text) or not 1 <= int(text) <= PARTITIONS_MAX:
            self._refuse(node, f"a number of partitions from 1 to {PARTITIONS_MAX}", text)
        return int(text)

    def _time_ms(self, node: yaml.Node) -> int:
        text = self._text(node)
        try:
            return parse_time_ms(text)
        except UsageError:
            self._refuse(node, "a time", text)

    def _fields(self, node: yaml.Node, what: str, names: tuple[str, ...]) -> Iterator[tuple[str, yaml.Node]]:
        for name, key, value in self._pairs(node, what):
            if name not in names:
                self._refuse(key, f"one of {', '.join(names)}", name)
            yield name, value

    def _pairs(self, node: yaml.Node, what: str) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
        """Yield name, key and value of each entry of a mapping; refuse other nodes and repeated names."""
        if not isinstance(node, yaml.MappingNode):
            self._refuse(node, f"{what}: lines 'name: value'", _found(node))
        seen: set[str] = set()
        for key, value in node.value:
            name = self._text(key)
            if name in seen:
                self._refuse(key, f"each name once in {what}", f"{name} again")
            seen.add(name)
            yield name, key, value

    def _required(self, fields: Mapping[str, yaml.Node], node: yaml.Node, name: str) -> yaml.Node:
        if name not in fields:
            self._refuse(node, f"{name}:", f"only {', '.join(fields) or 'nothing'}")
        return fields[name]

    def _text(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode) or node.tag == _NULL:
            self._refuse(node, "a value", _found(node))
        text: str = node.value
        return text

    def _refuse(self, node: yaml.Node, expected: str, found: str) -> NoReturn:
        raise UsageError(
            f"{self._source}, line {node.start_mark.line + 1}: expected {expected}, found {found[:100]!r}",
            hint=_HINT,
        )


def _found(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        found: str = node.value
        return found or "nothing"
    return "a list" if isinstance(node, yaml.SequenceNode) else "several lines 'name: value'"
