"""Text for people, escaped, in units and counted; and aligned columns, as many as fit at a terminal."""

import os
import re
import shutil
import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, groupby, zip_longest
from typing import Any, TextIO

from tierctl.errors import UsageError
from tierctl.model.selection import counted
from tierctl.report.columns import Column, Columns, Kind

UNSAFE = (
    *((0x0000, 0x001F), (0x007F, 0x009F), (0x00AD, 0x00AD), (0x0600, 0x0605), (0x061C, 0x061C)),
    *((0x06DD, 0x06DD), (0x070F, 0x070F), (0x0890, 0x0891), (0x08E2, 0x08E2), (0x180E, 0x180E)),
    *((0x200B, 0x200F), (0x2028, 0x202E), (0x2060, 0x206F), (0xD800, 0xDFFF), (0xFEFF, 0xFEFF)),
    *((0xFFF9, 0xFFFB), (0x110BD, 0x110BD), (0x110CD, 0x110CD), (0x13430, 0x1343F)),
    *((0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE007F)),
)
"""The code points, from first to last, of control characters, of surrogates, and of the format characters and
line separators of Unicode, which reorder or hide text."""
_UNSAFE = re.compile("[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in UNSAFE) + "]")
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
    if code > 0xFFFF:
        return f"\\U{code:08x}"
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


_PERCENT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*%?")
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


def not_understood_text(partitions: int) -> str:
    """Return how many partitions could not be interpreted."""
    return f"{counted(partitions, 'partition')} not understood"


@dataclass(slots=True)
class Tally:
    """Rows with `columns` that are counted while they are read.

    `topics` are the topic ids, `named` their names, and `unnamed` the names in rows without an id; `words`
    counts the values of the column `columns.word`, and `size_bytes` is the sum of `columns.size`. Rows with
    the word `columns.apart` are in `apart` only.
    """

    columns: Columns
    rows: int = 0
    size_bytes: int = 0
    topics: set[str] = field(default_factory=set)
    named: set[str] = field(default_factory=set)
    unnamed: set[str] = field(default_factory=set)
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
            number = 1 if self.columns.number is None else _value(row, self.columns.number)
            self.rows += number
            topic = _value(row, "topic")
            if topic_id := _value(row, "topic_id"):
                self.topics.add(topic_id)
                self.named.add(topic or "")
            elif topic:
                self.unnamed.add(topic)
            if found is not None:
                self.words[str(found)] += number
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
        topics = len(self.topics) + len(self.unnamed - self.named)
        if topics and "topic" not in self.columns.noun:
            text += f" of {counted(topics, 'topic')}"
        if self.words:
            texts = self.columns.word_texts
            words = (f"{number} {texts.get(word, word)}" for word, number in self.words.most_common())
            text += f": {', '.join(words)}"
        return text if self.columns.size is None else f"{text}, {bytes_text(self.size_bytes)}"


def _value(row: Any, name: str) -> Any:
    """Return the value of a column of a row, None if it has none."""
    return row.get(name) if isinstance(row, Mapping) else getattr(row, name, None)


GAP = "  "
_SENTENCE_MIN = 28
_ANY_LENGTH = frozenset({Kind.SENTENCE, Kind.CONTENT})
_LONG_NAME = 64
"""One topic with a longer name, of up to 249 characters, must not take the place of the other columns."""
_NARROWEST = 16
"""Sentences, contents and names get no narrower than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """The columns that a terminal shows, with their widths, and the names of those that it does not show."""

    columns: tuple[Column, ...]
    widths: tuple[int, ...]
    dropped: tuple[str, ...]


def width_of(texts: Iterable[str]) -> int:
    """Return the length of the longest text."""
    return max(map(len, texts), default=0)


def fit(columns: Sequence[Column], ranks: Sequence[int], natural: Sequence[int], available: int) -> Fitted:
    """Return the columns that fit into `available` characters.

    `natural[i]` is the width that column `i` needs, and `ranks[i]` its rank: columns with the highest ranks
    are dropped first, those of rank 0 never. Sentences are wrapped, and contents of records cut, down to 28
    characters before a column is dropped, and names that are never dropped are cut down to 64. If no more can
    be dropped, both get narrower and then names are cut, the widest column first, down to 16 characters. If
    that does not suffice, the lines are longer.
    """
    least = [_least(*each) for each in zip(columns, ranks, natural, strict=True)]
    kept = list(range(len(columns)))
    while total(least[i] for i in kept) > available and max(ranks[i] for i in kept) > 0:
        # Drop the column with the highest rank; among columns of equal rank, the last one.
        kept.remove(max(kept, key=lambda i: (ranks[i], i)))
    widths = {i: least[i] for i in kept}
    for kind in (Kind.SENTENCE, Kind.CONTENT, Kind.NAME):
        _make_narrower(columns, kind, widths, total(widths.values()) - available)
    _widen(widths, natural, available - total(widths.values()))
    return Fitted(
        columns=tuple(columns[i] for i in kept),
        widths=tuple(widths[i] for i in kept),
        dropped=tuple(column.name for i, column in enumerate(columns) if i not in kept),
    )


def _least(column: Column, rank: int, natural: int) -> int:
    """Return the width to which a column is narrowed before another column is dropped."""
    if column.kind in _ANY_LENGTH:
        return min(natural, _SENTENCE_MIN)
    return min(natural, _LONG_NAME) if column.kind is Kind.NAME and rank == 0 else natural


def _make_narrower(columns: Sequence[Column], kind: Kind, widths: dict[int, int], excess: int) -> None:
    """Make the columns of `kind` narrower, the widest first, until `excess` characters are saved."""
    of_kind = [i for i in widths if columns[i].kind is kind]
    for i in sorted(of_kind, key=lambda i: -widths[i]):
        cut = max(0, min(excess, widths[i] - _NARROWEST))
        widths[i] -= cut
        excess -= cut


def _widen(widths: dict[int, int], natural: Sequence[int], spare: int) -> None:
    for i, width in widths.items():
        more = max(0, min(spare, natural[i] - width))
        widths[i] = width + more
        spare -= more


def shortened(text: str, width: int) -> str:
    """Return `text` with … in its middle if it has more than `width` characters, of which 16 always stay."""
    width = max(width, _NARROWEST)
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def total(widths: Iterable[int]) -> int:
    """Return the width of a line of columns with gaps between them."""
    each = list(widths)
    return sum(each) + len(GAP) * max(0, len(each) - 1)


class Colour(StrEnum):
    """The parameter of the terminal's escape sequence for a colour or an attribute (ECMA-48, SGR)."""

    BOLD = "1"
    DIM = "2"
    RED = "31"
    GREEN = "32"
    YELLOW = "33"


OF_WORDS = (
    dict.fromkeys(
        ("error", "problem", "failed", "corrupt", "missing", "delete_segment", "delete_partition"), Colour.RED
    )
    | dict.fromkeys(("warning", "unsupported", "dropped", "pending", "mark_partition"), Colour.YELLOW)
    | dict.fromkeys(
        ("lower", "raise", "drop", "drop_line", "rewrite", "start_over", "compact"), Colour.YELLOW
    )
    | dict.fromkeys(("COPY_SEGMENT_STARTED", "DELETE_SEGMENT_STARTED"), Colour.YELLOW)
    | dict.fromkeys(("DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED"), Colour.YELLOW)
    | dict.fromkeys(("done", "ok", "copy_segment", "COPY_SEGMENT_FINISHED"), Colour.GREEN)
    | dict.fromkeys(
        ("info", "keep", "not_checked", "DELETE_SEGMENT_FINISHED", "DELETE_PARTITION_FINISHED", "Header"),
        Colour.DIM,
    )
)
"""The colours of words in columns of `Kind.WORD`: red needs attention, yellow is not final, green is."""


def shows_colours(stream: TextIO) -> bool:
    """Return whether `stream` is a terminal with colours; NO_COLOR and TERM=dumb switch them off."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def coloured(text: str, colour: Colour | None) -> str:
    """Return `text` within the escape sequences of the colour."""
    return f"\033[{colour}m{text}\033[0m" if colour and text else text


Cells = Sequence[str]
_INDENT = " " * 4
_WIDTH_MIN = 40
_PADDED_MAX = 2000
_NARROWED = frozenset({Kind.SENTENCE, Kind.CONTENT, Kind.NAME})


def write_table(
    columns: Sequence[Column], sample: Sequence[Cells], more: Iterable[Cells], out: TextIO, *, header: bool
) -> None:
    """Escape rows of cells and write them at their full width; widths follow from the names and `sample`.

    No cell is padded to more than _PADDED_MAX characters.
    """
    names = [column.name for column in columns]
    measured = [names, *sample] if header else sample
    starts = ([printable(cell[:_PADDED_MAX]) for cell in row] for row in measured)
    widths = [min(width_of(cells), _PADDED_MAX) for cells in zip(*starts, strict=True)]
    for row in chain([names] if header else [], sample, more):
        if sum(map(len, row)) <= PIECE_CHARS:
            out.write(_line([*map(printable, row)], columns, widths))
        else:
            _write_long(row, columns, widths, out)


def _write_long(row: Cells, columns: Sequence[Column], widths: Sequence[int], out: TextIO) -> None:
    """Write a row in pieces."""
    separator = ""
    for cell, column, width in zip(row, columns, widths, strict=True):
        out.write(separator)
        if len(cell) <= PIECE_CHARS:
            out.write(_padded(printable(cell), column, width))
        else:
            out.writelines(printable_pieces(cell))
        separator = GAP
    out.write("\n")


def _padded(cell: str, column: Column, width: int) -> str:
    return cell.rjust(width) if column.kind.is_number else cell.ljust(width)


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalTable:
    """A table at a terminal: columns with their ranks, and the first rows, from which widths follow.

    The sentences of the columns in `notes` are printed below their row where they do not fit beside its other
    cells. A dropped column in `subjects` is printed there, too, in rows without a cell of the other column.
    """

    columns: Sequence[Column]
    ranks: Sequence[int]
    sample: Sequence[Cells]
    has_header: bool
    notes: Collection[str] = ()
    subjects: Mapping[str, str] = field(default_factory=dict)

    def write(self, more: Iterable[Cells], out: TextIO) -> tuple[str, ...]:
        """Write the header, the sample and `more` rows; return the names of the columns that are left out.

        Sentences are wrapped, names and contents of records cut in the middle; no id or number is cut. Rows
        that follow each other with the same notes have them once, below the last of them.
        """
        fitted, below = self._fitted(shutil.get_terminal_size().columns)
        at = [i for i, column in enumerate(self.columns) if column in fitted.columns]
        is_coloured = shows_colours(out)
        if self.has_header:
            headings = [column.heading for column in fitted.columns]
            line = _line(headings, fitted.columns, fitted.widths).rstrip("\n")
            out.write(f"{coloured(line, Colour.BOLD) if is_coloured else line}\n")
        subjects = self._subjects(fitted.dropped)
        names = [self.columns[i].name for i in [*below, *subjects]]
        unlabelled = names[0] if below else None
        is_after_notes, printed = False, set[str]()
        for notes, rows in groupby(chain(self.sample, more), lambda row: _below(row, below, subjects)):
            if is_after_notes:
                out.write("\n")
            for row in rows:
                lines = _folded([row[i] for i in at], fitted.columns, fitted.widths)
                out.writelines(
                    _line(line, fitted.columns, fitted.widths, is_coloured=is_coloured) for line in lines
                )
            out.writelines(_sentences(names, notes, unlabelled))
            is_after_notes = any(notes)
            printed.update(name for name, note in zip(names, notes, strict=True) if note)
        return tuple(name for name in fitted.dropped if name not in printed)

    def _subjects(self, dropped: Sequence[str]) -> dict[int, int | None]:
        """Return the indexes of the dropped columns in `subjects`, each with that of its other column.

        It is None for a column that the table lacks, because no row has a cell of it.
        """
        at = {column.name: i for i, column in enumerate(self.columns)}
        return {at[name]: at.get(other) for name, other in self.subjects.items() if name in dropped}

    def _fitted(self, available: int) -> tuple[Fitted, list[int]]:
        """Return the columns side by side, and the indexes of those whose cells are printed below."""
        measured = [[column.heading for column in self.columns], *self.sample]
        rows = measured if self.has_header else self.sample
        natural = [width_of(row[i] for row in rows) for i in range(len(self.columns))]
        below = [i for i, column in enumerate(self.columns) if column.name in self.notes]
        others = [i for i in range(len(self.columns)) if i not in below]
        columns = [self.columns[i] for i in others]
        fitted = fit(columns, [self.ranks[i] for i in others], [natural[i] for i in others], available)
        beside = [i for i, each in enumerate(self.columns) if i in below or each in fitted.columns]
        widths = tuple(natural[i] for i in beside)
        if not below or total(widths) > available:
            return fitted, below
        whole = tuple(self.columns[i] for i in beside)
        return Fitted(columns=whole, widths=widths, dropped=fitted.dropped), []


def _below(row: Cells, notes: Sequence[int], subjects: Mapping[int, int | None]) -> list[str]:
    """Return the cells below a row: its notes, and its subjects if the other cell is empty."""
    texts = ("" if other is not None and row[other] else row[i] for i, other in subjects.items())
    return [*(row[i] for i in notes), *texts]


def _line(row: Cells, columns: Sequence[Column], widths: Sequence[int], *, is_coloured: bool = False) -> str:
    padded = []
    for cell, column, width in zip(row, columns, widths, strict=True):
        text = _padded(cell, column, width)
        if is_coloured and column.kind is Kind.WORD:
            text = coloured(cell, OF_WORDS.get(cell)) + " " * (width - len(cell))
        padded.append(text)
    return GAP.join(padded).rstrip() + "\n"


def _folded(row: Cells, columns: Sequence[Column], widths: Sequence[int]) -> Iterator[Cells]:
    """Yield the lines of one row: sentences are wrapped, other long cells get … in the middle."""
    cells = []
    for cell, column, width in zip(row, columns, widths, strict=True):
        if len(cell) <= width or column.kind not in _NARROWED:
            cells.append([cell])
        elif column.kind is Kind.SENTENCE:
            cells.append(textwrap.wrap(cell, width, break_on_hyphens=False))
        else:
            cells.append([shortened(cell, width)])
    return zip_longest(*cells, fillvalue="")


def write_blocks(columns: Sequence[Column], below: Sequence[str], rows: Iterable[Cells], out: TextIO) -> None:
    """Write each row: the cells of `columns` on one line, those named in `below` wrapped under them.

    Empty cells are left out. The sentences have their column's name as a label, except the first of `below`.
    """
    width = max(shutil.get_terminal_size().columns, _WIDTH_MIN)
    is_coloured = shows_colours(out)
    for row in rows:
        cells = dict(zip((column.name for column in columns), row, strict=True))
        first, *others = [cell for name, cell in cells.items() if name not in below and cell]
        for at in sorted(range(len(others)), key=lambda at: -len(others[at])):
            excess = len(GAP.join([first, *others])) - width
            if excess > 0:
                others[at] = shortened(others[at], len(others[at]) - excess)
        written = len(GAP.join([first, *others]))
        head = coloured(first, OF_WORDS.get(first)) if is_coloured else first
        names = [coloured(each, Colour.BOLD) if is_coloured else each for each in others]
        out.write(GAP.join([head, *names]))
        sentences = [name for name in below if cells[name]]
        if len(sentences) == 1 and written + len(GAP) + len(cells[sentences[0]]) <= width:
            out.write(f"{GAP}{cells[sentences[0]]}\n")
            continue
        out.write("\n")
        out.writelines(_sentences(below, [cells[name] for name in below], below[0]))


def _sentences(names: Sequence[str], cells: Cells, unlabelled: str | None) -> Iterator[str]:
    """Yield the lines of the sentences below a row, each with its column's name, except for `unlabelled`."""
    width = max(shutil.get_terminal_size().columns, _WIDTH_MIN)
    for name, cell in zip(names, cells, strict=True):
        if cell:
            label = "" if name == unlabelled else f"{name}: "
            yield from (f"{line}\n" for line in _wrapped(label, cell, width))


def _wrapped(label: str, text: str, width: int) -> list[str]:
    """Return the lines of a sentence; those after the first begin below its first word."""
    indent = _INDENT + " " * len(label)
    return textwrap.wrap(
        f"{label}{text}", width, initial_indent=_INDENT, subsequent_indent=indent, break_on_hyphens=False
    )
