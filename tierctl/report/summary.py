"""Count the printed rows, for the line that ends a run."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tierctl.report.columns import Columns
from tierctl.report.units import bytes_text


def counted(number: int, noun: str) -> str:
    """Return `1 segment`, `3 segments` or `no segments`; `noun` may have its plural after a slash."""
    singular, _, plural = noun.partition("/")
    return f"{number or 'no'} {singular if number == 1 else plural or f'{singular}s'}"


@dataclass(slots=True)
class Tally:
    """Rows with `columns` that are counted while they are read.

    `topics` are the topic ids, or the names of topics without ids; `words` counts the values of the column
    `columns.word`, and `size_bytes` is the sum of `columns.size`.
    """

    columns: Columns
    rows: int = 0
    size_bytes: int = 0
    topics: set[str] = field(default_factory=set)
    words: Counter[str] = field(default_factory=Counter)

    def of(self, rows: Iterable[Any]) -> Iterator[Any]:
        """Yield the rows, which are mappings or have the columns as attributes."""
        word, size = self.columns.word, self.columns.size
        for row in rows:
            self.rows += 1
            if topic := _value(row, "topic_id") or _value(row, "topic"):
                self.topics.add(topic)
            if word is not None and (found := _value(row, word)) is not None:
                self.words[str(found)] += 1
            if size is not None:
                self.size_bytes += _value(row, size) or 0
            yield row

    @property
    def text(self) -> str:
        """What was counted: `36 segments of 5 topics, 33.1 MiB`, `2 problems: 2 error`, `no segments`."""
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
