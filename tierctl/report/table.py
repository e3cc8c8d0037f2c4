"""Print aligned columns: at full width in a file or a pipe, folded to the width of a terminal."""

import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import TextIO

_GAP = "  "
_SENTENCE_MIN = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Column names and rows of cells. The widths follow from `sample`, the first rows.

    `right` are the names of the columns that are aligned to the right.
    """

    names: Sequence[str]
    right: set[str]
    sample: Sequence[Sequence[str]]

    def write(self, more: Iterable[Sequence[str]], out: TextIO) -> None:
        """Write the header, the sample and then `more` rows, each as soon as it is produced."""
        widths = [_width([name]) for name in self.names]
        widths = [max(width, _width(cells)) for width, cells in zip(widths, self._columns(), strict=True)]
        if out.isatty():
            self._to_terminal(widths, more, out)
            return
        rows = chain([self.names], self.sample, more)
        out.writelines(self._line(row, widths) for row in rows)

    def _columns(self) -> Iterator[list[str]]:
        return ([row[i] for row in self.sample] for i in range(len(self.names)))

    def _to_terminal(self, widths: Sequence[int], more: Iterable[Sequence[str]], out: TextIO) -> None:
        """Write to a terminal: fold headers at underscores and sentences at blanks, but no id or number.

        The terminal wraps lines that are still too wide; nothing is cut off.
        """
        from rich.console import Console
        from rich.text import Text

        console = Console(file=out, highlight=False)
        widths = self._fitted(widths, shutil.get_terminal_size().columns)
        headers = [_folded_header(name, width) for name, width in zip(self.names, widths, strict=True)]
        # Headers are aligned at their last lines, so that each ends directly above its column.
        lines = [*zip_longest(*(reversed(header) for header in headers), fillvalue="")][::-1]
        for line in lines:
            console.print(Text(self._line(line, widths).rstrip("\n"), style="bold"), soft_wrap=True)
        for row in chain(self.sample, more):
            out.writelines(self._line(line, widths) for line in _folded_row(row, widths))

    def _fitted(self, widths: Sequence[int], available: int) -> list[int]:
        """Return column widths that fit into `available`; `widths` if folding cannot achieve that."""
        fitted = list(widths)
        if _total(fitted) <= available:
            return fitted
        for i, (name, cells) in enumerate(zip(self.names, self._columns(), strict=True)):
            fitted[i] = max(_width(cells), _width(name.split("_")))
        for i, cells in enumerate(self._columns()):
            excess = _total(fitted) - available
            if excess > 0 and any(" " in cell for cell in cells):
                least = max(_SENTENCE_MIN, *(_width(cell.split()) for cell in cells))
                fitted[i] = min(fitted[i], max(least, fitted[i] - excess))
        return fitted if _total(fitted) <= available else list(widths)

    def _line(self, row: Sequence[str], widths: Sequence[int]) -> str:
        padded = (
            cell.rjust(width) if name in self.right else cell.ljust(width)
            for cell, name, width in zip(row, self.names, widths, strict=True)
        )
        return _GAP.join(padded).rstrip() + "\n"


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _width(texts: Iterable[str]) -> int:
    return max(map(len, texts), default=0)


def _folded_header(name: str, width: int) -> list[str]:
    """Return `name`, such as segment_size_in_bytes, on as many lines as `width` requires."""
    lines = [""]
    for i, word in enumerate(name.split("_")):
        part = word if i == 0 else f"_{word}"
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append(word)
        else:
            lines[-1] += part
    return lines


def _folded_row(row: Sequence[str], widths: Sequence[int]) -> Iterator[tuple[str, ...]]:
    cells = (
        [cell]
        if len(cell) <= width or " " not in cell
        else textwrap.wrap(cell, width, break_long_words=False, break_on_hyphens=False)
        for cell, width in zip(row, widths, strict=True)
    )
    return zip_longest(*cells, fillvalue="")
