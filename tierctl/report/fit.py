"""Choose the columns of a table, and their widths, for a terminal of some width."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tierctl.report.columns import Column, Kind

GAP = "  "
_SENTENCE_MIN = 28
_ANY_LENGTH = frozenset({Kind.SENTENCE, Kind.CONTENT})
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
    characters before a column is dropped. If no more can be dropped, both get narrower and then names are
    cut, the widest column first, down to 16 characters. If that does not suffice, the lines are longer.
    """
    least = [
        min(width, _SENTENCE_MIN) if column.kind in _ANY_LENGTH else width
        for column, width in zip(columns, natural, strict=True)
    ]
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
