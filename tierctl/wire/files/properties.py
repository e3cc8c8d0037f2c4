"""Files of settings with the line of each key: .properties, TOML, and the YAML file of `backup-config`."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from tierctl.errors import CorruptInputError, UsageError
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


def read_properties(path: Path, source: SettingSource) -> StatedSettings:
    """Return the settings in a .properties file with their lines; `source` is the kind of the file.

    Raise UsageError if the file is unreadable, malformed, or of another kind. The message omits the text of a
    malformed line, which may contain a password.
    """
    try:
        found = parse_properties(path.read_bytes())
    except OSError as e:
        raise UsageError(f"{path} can't be read: {e.strerror}") from e
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
#
# Python's parser reads the values. One pass over the text finds the line of each statement. A statement
# that is malformed is blanked, and the rest is read again, so that it hides no later one.

_PROBLEMS_MAX = 20
"""Number of malformed statements after which the rest of a file is not read."""
_DOTS_MAX = 32
"""Dots outside of texts on one line: the time of Python's parser grows with the square of a key's parts."""
_AT_LINE = re.compile(r"\(at line (\d+)")
_TOKEN = re.compile(
    r'"""|' + "'''" + r"""|"(?:[^"\\\n]|\\[^\n])*"|'[^'\n]*'|\#[^\n]*|[\[\]{}=\n]|[^"'\#\[\]{}=\n]+|."""
)
_STRING_ENDS = {
    '"""': re.compile(r'(?:[^"\\]|\\.|"(?!""))*"{3,5}', re.DOTALL),
    "'''": re.compile(r"(?:[^']|'(?!''))*'{3,5}", re.DOTALL),
}
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")

KeyPath = tuple[str, ...]


class TomlEntry(NamedTuple):
    """A key or a table: its whole path, its value ({} for a table) and its first line, from 1."""

    path: KeyPath
    value: Any
    line: int


class TomlProblem(NamedTuple):
    """A line that is not TOML, or that states a key again; `first_line` stated the key before."""

    line: int
    message: str
    first_line: int | None = None


class TomlFile(NamedTuple):
    """The entries of a file in their order, the first of several with the same path, and its problems."""

    entries: list[TomlEntry]
    problems: list[TomlProblem]


def parse_toml(text: str) -> TomlFile:
    """Return the keys and tables in `text`, and the statements that are not TOML, at most twenty."""
    import tomllib

    if (long := _long_key(text)) is not None:
        return TomlFile([], [long])
    lines = re.split("\r?\n", text)
    problems: list[TomlProblem] = []
    while True:
        kept = "\n".join(lines)
        statements = list(_statements(kept))
        try:
            return TomlFile(_entries(tomllib.loads(kept), statements), problems)
        except (tomllib.TOMLDecodeError, RecursionError) as e:
            problem, last_line = _problem(e, statements, len(lines))
            problems.append(problem)
            if len(problems) == _PROBLEMS_MAX:
                return TomlFile([], problems)
            lines[problem.line - 1 : last_line] = [""] * (last_line - problem.line + 1)


def _long_key(text: str) -> TomlProblem | None:
    """Return the problem of the first line that has a key of too many parts; None without one."""
    line, dots = 1, 0
    for token in _TOKEN.findall(text):
        line, dots = (line + 1, 0) if token == "\n" else (line, dots)
        dots += 0 if token[0] in "\"'#" else token.count(".")
        if dots > _DOTS_MAX:
            return TomlProblem(line, f"not TOML that is read: a key has more than {_DOTS_MAX} dots")
    return None


class _Statement(NamedTuple):
    first_line: int
    last_line: int
    path: KeyPath | None
    """The whole path of its key or table; None if it has none."""
    is_table: bool
    is_whole: bool
    """Whether all its brackets are closed."""


def _statements(text: str) -> Iterator[_Statement]:
    """Yield each key with its value, and each table, with the lines on which it stands."""
    table: KeyPath = ()
    line, at, depth = 1, 0, 0
    first: tuple[int, int] | None = None
    equals: int | None = None
    while at <= len(text):
        token = text[at : at + 1] if at == len(text) else _TOKEN.match(text, at)[0]  # type: ignore[index]
        if token in {"\n", ""} and first is not None and (not depth or not token):
            path, is_table = _path_of(text[first[1] : at if equals is None else equals], equals, table)
            table = path if is_table and path is not None else table
            yield _Statement(first[0], line, path, is_table, not depth)
            first, equals, depth = None, None, 0
        if not token:
            return
        if first is None and not token.isspace() and not token.startswith("#"):
            first = line, at
        depth = max(depth + (token in "[{") - (token in "]}"), 0)
        equals = at if token == "=" and not depth and equals is None else equals
        line, at = line + (token == "\n"), at + len(token)
        if token in _STRING_ENDS:
            end = _STRING_ENDS[token].match(text, at)
            begin, at = at, len(text) if end is None else end.end()
            line += text.count("\n", begin, at)


def _path_of(text: str, equals: int | None, table: KeyPath) -> tuple[KeyPath | None, bool]:
    """Return the path of the statement that begins with `text`, and whether it is a table."""
    import tomllib

    words, is_table = text.strip(), equals is None
    if not is_table and _BARE_KEY.fullmatch(words):
        return (*table, words), False
    try:
        path = next(_flat(tomllib.loads(words if is_table else f"{words} = 0"), ()))[0]
    except (tomllib.TOMLDecodeError, RecursionError, StopIteration):
        return None, is_table
    return path if is_table else (*table, *path), is_table


def _problem(error: Exception, statements: list[_Statement], line_count: int) -> tuple[TomlProblem, int]:
    """Return the problem that stopped Python's parser, and the last line that must be blanked to go on."""
    at = _AT_LINE.search(str(error))
    line = int(at[1]) if at else line_count
    index = next((i for i, each in enumerate(statements) if each.first_line <= line <= each.last_line), None)
    message = re.sub(r" \(at .*\)$", "", str(error)) or "too many levels"
    text = f"not TOML: {message[:1].lower()}{message[1:]}"
    if index is None:
        return TomlProblem(line, text), line
    found = statements[index]
    before = (each for each in islice(statements, index) if each.path == found.path is not None)
    first = next(before, None)
    if first is not None and found.path is not None:
        text = f"{'.'.join(found.path)} is stated twice"
    known = None if first is None else first.first_line
    # Without its end, the statement seems to have the following ones, too.
    last_line = found.last_line if found.is_whole else max(line - 1, found.first_line)
    return TomlProblem(found.first_line, text, known), last_line


def _entries(values: Mapping[str, Any], statements: list[_Statement]) -> list[TomlEntry]:
    """Return the keys in `values` and the tables of `statements`, in the order of their lines."""
    lines: dict[KeyPath, int] = {}
    found = []
    for each in statements:
        if each.path is not None and each.path not in lines:
            lines[each.path] = each.first_line
            if each.is_table:
                found.append(TomlEntry(each.path, {}, each.first_line))
    for path, value in _flat(values, ()):
        # The keys of an inline table stand on its line.
        stated = next((path[:length] for length in range(len(path), 0, -1) if path[:length] in lines), ())
        if path not in lines or value != {}:
            found.append(TomlEntry(path, value, lines.get(stated, 1)))
    return sorted(found, key=lambda entry: entry.line)


def _flat(values: Mapping[str, Any], path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    """Yield the path of each value that is no table, or an empty one, with the value."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, (*path, key))
        else:
            yield (*path, key), value


_SIMILAR = 0.8
"""Names of at least this similarity count as typing errors of each other."""


def read_topic_configs(path: Path, brokers: BrokerDefaults | None = None) -> dict[str, TopicConfig]:
    """Return the settings of each topic in the file, by topic name, as `brokers` understand them.

    A topic's name may hold dots, so the setting is the longest known one that ends the key:
    `a.local.retention.ms` is `local.retention.ms` of topic `a`. UsageError for a key that ends in no known
    setting, an illegal topic name or an invalid value.
    """
    stated = read_properties(path, SettingSource.FILE)
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
