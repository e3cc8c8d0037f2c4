"""Files of settings with the line of each key: .properties, TOML, and the YAML file of `backup-config`."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, NamedTuple

from tierctl.errors import CorruptInputError, UsageError
from tierctl.model.checked_values import read_named
from tierctl.model.events import is_legal_topic_name
from tierctl.model.settings import topic
from tierctl.model.settings.known import FileKind, require_kind
from tierctl.model.settings.scopes import Origin, SettingSource, StatedSettings, place_of
from tierctl.model.settings.topic import BrokerDefaults, TopicConfig

_LINE_END = re.compile(r"\r\n|\r|\n")
_LOGICAL_LINE = re.compile(r"(?:[^\r\n\\]|\\(?:\r\n|[\s\S]|\Z))*(?:\r\n|\r|\n|\Z)")


class Property(NamedTuple):
    """One setting; `line` is the number of its first line in the file, from 1."""

    key: str
    value: str
    line: int


class MalformedLine(NamedTuple):
    """A line of a properties file that java.util.Properties refuses."""

    line: int
    expected: str
    found: str


def _raise(malformed: MalformedLine) -> None:
    raise CorruptInputError(
        f"properties, line {malformed.line}", expected=malformed.expected, found=malformed.found
    )


def parse_properties(data: bytes, on_malformed: Callable[[MalformedLine], None] = _raise) -> list[Property]:
    r"""Return the settings in file order, in which the last one of several with the same key counts.

    `on_malformed` receives each line with a \u that four hexadecimal digits do not follow; if it returns,
    parsing continues behind the line. By default such a line raises CorruptInputError.
    """
    return list(_properties(data.decode("latin-1"), on_malformed))


def _properties(text: str, on_malformed: Callable[[MalformedLine], None]) -> Iterator[Property]:
    # Imported here: the import takes 20 ms, which runs that read no properties file save.
    import javaproperties

    begin, line = 0, 1
    while begin < len(text):
        try:
            for part in javaproperties.parse(text[begin:]):
                begin += len(part.source)
                if isinstance(part, javaproperties.KeyValue):
                    yield Property(part.key, part.value, line)
                line += len(_LINE_END.findall(part.source))
        except javaproperties.InvalidUEscapeError as e:
            on_malformed(MalformedLine(line, "\\u and four hexadecimal digits", repr(e.escape)))
            bad = _LOGICAL_LINE.match(text, begin)
            end = begin + 1 if bad is None else max(bad.end(), begin + 1)
            line += len(_LINE_END.findall(text[begin:end]))
            begin = end


def read_properties(path: Path, source: SettingSource, *, trusted: bool = False) -> StatedSettings:
    """Return the settings in a .properties file with their lines; `source` is the kind of the file.

    Raise UsageError if the file is unreadable, malformed, or of another kind. The message omits the text of a
    malformed line, which may contain a password. Raise SafetyRefusal as `read_named` if it must be `trusted`.
    """
    try:
        found = parse_properties(read_named(path, trusted=trusted))
    except OSError as e:
        hint = "name a properties file that this user may read"
        raise UsageError(f"{path} can't be read: {e.strerror}", hint=hint) from e
    except CorruptInputError as e:
        raise UsageError(f"{path}: {e.what}: expected {e.expected}") from None
    settings = StatedSettings(
        {key: value for key, value, _ in found},
        {key: Origin(source=source, file=path, line=line) for key, _, line in found},
    )
    require_kind(settings, FileKind.of(source), path)
    return settings


def require_kind_of_file(data: bytes, expected: FileKind, path: Path) -> None:
    """Raise UsageError if `data`, the content of the file `path`, shows another kind of settings file."""
    found = parse_properties(data, lambda _malformed: None)
    origins = {key: Origin(source=SettingSource.FILE, file=path, line=line) for key, _, line in found}
    require_kind(StatedSettings({key: value for key, value, _ in found}, origins), expected, path)


def read_client_file(path: Path) -> StatedSettings:
    """Return the settings in a client's .properties file; raise UsageError if it can't be read."""
    return read_properties(path, SettingSource.CLIENT_FILE)


# TOML files with the line of each key, which Python's own parser does not report.

_DOTS_MAX = 32
"""Dots outside of texts on one line: the time of Python's parser grows with the square of a key's parts."""
_AT_LINE = re.compile(r" \(at line ([0-9]+).*\)")
_TEXT = r""""(?:[^"\\\n]|\\[^\n])*"|'[^'\n]*'"""
_TEXT_OR_COMMENT = re.compile(rf"{_TEXT}|#[^\n]*")
_BLOCK = r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}|' + r"'''(?:[^']|'(?!''))*'{3,5}"
"""A text that may have several lines."""
_BLOCK_TEXT_OR_COMMENT = re.compile(f"({_BLOCK})|{_TEXT_OR_COMMENT.pattern}", re.DOTALL)
_KEY = re.compile(rf"(?:{_TEXT}|[^\"'=#])+(?==)")

KeyPath = tuple[str, ...]


class TomlEntry(NamedTuple):
    """A key or a table: its whole path, its value ({} for a table) and its first line, from 1."""

    path: KeyPath
    value: Any
    line: int


class TomlProblem(NamedTuple):
    """What is not TOML, and its line; None at the end of the file."""

    line: int | None
    message: str


class TomlFile(NamedTuple):
    """The entries of a file in their order; or none, and the first thing that is not TOML."""

    entries: list[TomlEntry]
    problem: TomlProblem | None = None


def parse_toml(text: str) -> TomlFile:
    """Return the keys and tables in `text`, or the first thing in it that is not TOML."""
    import tomllib

    text = text.replace("\r\n", "\n") + "\n"
    for number, line in enumerate(text.split("\n"), 1):
        if _TEXT_OR_COMMENT.sub("", line).count(".") > _DOTS_MAX:
            message = f"not TOML that is read: a key has more than {_DOTS_MAX} dots"
            return TomlFile([], TomlProblem(number, message))
    try:
        return TomlFile(_entries(tomllib.loads(text), list(_statements(text))))
    except (tomllib.TOMLDecodeError, RecursionError) as e:
        at = _AT_LINE.search(str(e))
        message = _AT_LINE.sub("", str(e))
        problem = TomlProblem(int(at[1]) if at else None, f"not TOML: {message[:1].lower()}{message[1:]}")
        return TomlFile([], problem)


class _Statement(NamedTuple):
    path: KeyPath
    line: int
    is_table: bool


def _statements(text: str) -> Iterator[_Statement]:
    """Yield each key and each table of `text`, which is TOML, with its line."""
    import tomllib

    table: KeyPath = ()
    depth = 0
    one_line_texts = _BLOCK_TEXT_OR_COMMENT.sub(lambda m: "\n" * m[1].count("\n") if m[1] else m[0], text)
    for number, line in enumerate(one_line_texts.split("\n"), 1):
        code = _TEXT_OR_COMMENT.sub("", line)
        if depth == 0 and code.lstrip().startswith("["):
            table = next(_flat(tomllib.loads(line), ()))[0]
            yield _Statement(table, number, is_table=True)
        elif depth == 0 and (key := _KEY.match(line)):
            path = next(_flat(tomllib.loads(f"{key[0]} = 0"), ()))[0]
            yield _Statement((*table, *path), number, is_table=False)
        depth += code.count("[") + code.count("{") - code.count("]") - code.count("}")


def _entries(values: Mapping[str, Any], statements: list[_Statement]) -> list[TomlEntry]:
    """Return the keys in `values` and the tables of `statements`, in the order of their lines."""
    # The first of several: each element of an array of tables has its own.
    lines = {each.path: each.line for each in reversed(statements)}
    found = {each.path: TomlEntry(each.path, {}, lines[each.path]) for each in statements if each.is_table}
    for path, value in _flat(values, ()):
        # The keys of an inline table stand on its line.
        line = next(lines[path[:length]] for length in range(len(path), 0, -1) if path[:length] in lines)
        found[path] = TomlEntry(path, value, line)
    return sorted(found.values(), key=lambda entry: entry.line)


def _flat(values: Mapping[str, Any], path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    """Yield the path of each value that is no table, or an empty one, with the value."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, (*path, key))
        else:
            yield (*path, key), value


_SIMILAR = 0.8
"""Names of at least this similarity count as typing errors of each other."""


def read_topic_configs(
    path: Path, brokers: BrokerDefaults | None = None, *, trusted: bool = False
) -> dict[str, TopicConfig]:
    """Return the settings of each topic in the file, by topic name, as `brokers` understand them.

    A topic's name may hold dots, so the setting is the longest known one that ends the key:
    `a.local.retention.ms` is `local.retention.ms` of topic `a`. UsageError for a key that ends in no known
    setting, an illegal topic name or an invalid value, and the errors of `read_properties`.
    """
    stated = read_properties(path, SettingSource.FILE, trusted=trusted)
    topics: dict[str, dict[str, str]] = {}
    for key in stated:
        name, setting = topic.split_key(key)
        if setting is None or is_former_name(key, stated):
            raise unknown_topic_setting(place_of(stated, key), key)
        if not is_legal_topic_name(name):
            raise UsageError(
                f"{place_of(stated, key)}: {name!r} is no topic name", hint="expected TOPIC.SETTING=VALUE"
            )
        topics.setdefault(name, {})[key] = setting
    return {name: _config(path, name, stated.only(keys).stripped(), brokers) for name, keys in topics.items()}


def is_former_name(key: str, keys: Iterable[str]) -> bool:
    """Return whether `key` has a name of a draft of KIP-405, not the setting of a topic with a similar name.

    orders.remote.retention.bytes is a setting of a topic orders.remote if `keys` have others of that topic.
    """
    name = topic.split_key(key)[0]
    return topic.former_name(key) is not None and not any(
        topic.former_name(each) is None and topic.split_key(each) == (name, each.removeprefix(f"{name}."))
        for each in keys
    )


def unknown_topic_setting(place: str, key: str) -> UsageError:
    """Return the error for a key that ends in no known setting; its hint names the nearest known one."""
    former = topic.former_name(key)
    if former is not None:
        name, draft = former
        other = topic.split_key(key)[0]
        return UsageError(
            f'{place}: "{draft}" is a name in a draft of KIP-405, which no Kafka has',
            hint=f"write {name}.{topic.FORMER[draft]}"
            + ("" if other == key else f"; if a topic is called {other}, state another of its settings, too"),
        )
    endings = [key[at + 1 :] for at, character in enumerate(key) if character == "."]
    pairs = [(ending, row.name) for ending in endings for row in topic.TABLE]
    setting, nearest = max(pairs, key=_similarity, default=(key, key))
    if not pairs or _similarity((setting, nearest)) < _SIMILAR:
        setting, nearest = key, ""
    return UsageError(
        f'{place}: unknown topic setting "{setting}"',
        hint=f'did you mean "{nearest}"?' if nearest else "expected TOPIC.SETTING=VALUE",
    )


def _similarity(names: tuple[str, str]) -> float:
    """Return how similar two names are, from 0 to 1."""
    return SequenceMatcher(None, *names).ratio()


def _config(path: Path, name: str, settings: StatedSettings, brokers: BrokerDefaults | None) -> TopicConfig:
    for row in topic.TABLE:
        if row.name in settings:
            row.parse(settings[row.name], f"{place_of(settings, row.name, str(path))}: topic {name}")
    try:
        topic.require_local_retention(settings)
        return TopicConfig.from_settings(settings, brokers)
    except UsageError as error:
        raise UsageError(f"{path}: topic {name}: {error.message}", hint=error.hint) from None
