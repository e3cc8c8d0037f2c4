"""Text for people: escaped, in units, and counted."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tierctl.errors import UsageError
from tierctl.report.columns import Columns

# C0, DEL, C1, surrogates, and the characters that reorder or hide text.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

PIECE_CHARS = 1 << 16
"""A longer text is escaped and written in pieces: its copies would take many times its memory."""


class _Escapes(dict[int, str]):
    """The text for each character that was asked for."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        self[code] = text = _escaped(char) if _UNSAFE.match(char) else char
        return text


def _escaped(char: str) -> str:
    code = ord(char)
    return _SHORT.get(char) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def printable(text: str) -> str:
    """Return `text` on one line, with each control, format and surrogate character as an escape sequence."""
    # What Python calls printable has none of these characters; most texts are.
    return text if text.isprintable() else "".join(printable_pieces(text))


def printable_pieces(text: str) -> Iterator[str]:
    """Yield the text that `printable` returns, in pieces of up to PIECE_CHARS characters of `text`."""
    escapes = _Escapes()
    for at in range(0, len(text), PIECE_CHARS):
        piece = text[at : at + PIECE_CHARS]
        if _UNSAFE.search(piece) is None:
            yield piece
        elif piece.isascii():
            # Five times as fast; a backslash, which this codec doubles, stays as it is.
            yield piece.encode("unicode_escape").decode("ascii").replace("\\\\", "\\")
        else:
            yield piece.translate(escapes)


_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%?")
_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def bytes_text(size_bytes: int) -> str:
    """Return a size in binary units with one decimal: 512 B, 1.5 KiB, 12.4 GiB."""
    size, unit = float(size_bytes), "B"
    for larger in _UNITS:
        # 1023.95 KiB rounded to one decimal would be printed as 1024.0 KiB.
        if abs(size) < (1023.95 if unit != "B" else 1024):
            break
        size, unit = size / 1024, larger
    return f"{size_bytes} B" if unit == "B" else f"{size:.1f} {unit}"


def parse_percent(text: str) -> float:
    """Return the percentage in `text`, as 1%, 0.5% or 1; UsageError unless it is above 0 and at most 100."""
    match = _PERCENT.fullmatch(text.strip())
    percent = float(match[1]) if match else 0.0
    if not 0 < percent <= 100:
        raise UsageError(f"{text!r} is no percentage", hint="expected for example 1%: above 0, at most 100")
    return percent


def counted(number: int, noun: str) -> str:
    """Return `1 segment`, `3 segments` or `no segments`; `noun` may have its plural after a slash."""
    singular, _, plural = noun.partition("/")
    return f"{number or 'no'} {singular if number == 1 else plural or f'{singular}s'}"


@dataclass(slots=True)
class Tally:
    """Rows with `columns` that are counted while they are read.

    `topics` are the topic ids, or the names of topics without ids; `words` counts the values of the column
    `columns.word`, and `size_bytes` is the sum of `columns.size`. Rows with the word `columns.apart` are in
    `apart` only.
    """

    columns: Columns
    rows: int = 0
    size_bytes: int = 0
    topics: set[str] = field(default_factory=set)
    words: Counter[str] = field(default_factory=Counter)
    apart: int = 0

    def of(self, rows: Iterable[Any]) -> Iterator[Any]:
        """Yield the rows, which are mappings or have the columns as attributes."""
        word, size = self.columns.word, self.columns.size
        for row in rows:
            found = None if word is None else _value(row, word)
            if found is not None and found == self.columns.apart:
                self.apart += 1
                yield row
                continue
            self.rows += 1
            if topic := _value(row, "topic_id") or _value(row, "topic"):
                self.topics.add(topic)
            if found is not None:
                self.words[str(found)] += 1
            if size is not None:
                self.size_bytes += _value(row, size) or 0
            yield row

    @property
    def text(self) -> str:
        """What was counted: `36 segments of 5 topics, 33.1 MiB`, `2 problems: 2 error; 3 info`."""
        text = self._text
        return f"{text}; {self.apart} {self.columns.apart}" if self.apart else text

    @property
    def _text(self) -> str:
        text = counted(self.rows, self.columns.noun)
        if not self.rows:
            return text
        if self.topics and "topic" not in self.columns.noun:
            text += f" of {counted(len(self.topics), 'topic')}"
        if self.words:
            texts = self.columns.word_texts
            words = (f"{number} {texts.get(word, word)}" for word, number in self.words.most_common())
            text += f": {', '.join(words)}"
        return text if self.columns.size is None else f"{text}, {bytes_text(self.size_bytes)}"


def _value(row: Any, name: str) -> Any:
    """Return the value of a column of a row, None if it has none."""
    return row.get(name) if isinstance(row, Mapping) else getattr(row, name, None)
