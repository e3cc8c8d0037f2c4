"""Java .properties files, in which Kafka's settings are written (java.util.Properties.load)."""

import re
from typing import NamedTuple

from tierctl.errors import CorruptInputError

_LINE_END = re.compile(r"\r\n|\r|\n")


class Property(NamedTuple):
    """One setting; `line` is the number of its first line in the file, from 1."""

    key: str
    value: str
    line: int


def parse_properties(data: bytes) -> list[Property]:
    r"""Return the settings in file order, in which the last one of several with the same key counts.

    Raise CorruptInputError for a \u that four hexadecimal digits do not follow.
    """
    # It imports an HTTP client and XML: 20 ms of every run that reads no properties.
    import javaproperties

    found = []
    line = 1
    try:
        for part in javaproperties.parse(data):
            if isinstance(part, javaproperties.KeyValue):
                found.append(Property(part.key, part.value, line))
            line += len(_LINE_END.findall(part.source))
    except javaproperties.InvalidUEscapeError as e:
        raise CorruptInputError(
            f"properties, line {line}", expected="\\u and four hexadecimal digits", found=repr(e.escape)
        ) from None
    return found
