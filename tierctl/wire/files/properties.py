"""Java .properties files, in which Kafka's settings are written (java.util.Properties.load)."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tierctl.errors import CorruptInputError, UsageError
from tierctl.model.settings.file_kinds import FileKind, require_kind
from tierctl.model.settings.stated import Origin, SettingSource, StatedSettings

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
