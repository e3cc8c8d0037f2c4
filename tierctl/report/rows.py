"""Print typed results: each becomes one row of its kind."""

import io
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

from tierctl.model import RemoteLogSegmentMetadata
from tierctl.report.columns import Columns
from tierctl.report.render import Shown, render
from tierctl.report.tables import SEGMENTS
from tierctl.report.view import Row, View
from tierctl.wire.metadata.schema import json_fields


def show_rows(items: Iterable[Any], output: str, columns: Columns, view: View) -> Shown:
    """Print one row per item: a mapping as it is, a segment or another dataclass by its fields."""
    return render(map(row_of, items), output, columns, view)


def row_of(item: Any) -> Row:
    """Return the row of an item: a mapping as it is, a segment or another dataclass by its fields."""
    if isinstance(item, RemoteLogSegmentMetadata):
        return segment_row(item)
    return asdict(item) if is_dataclass(item) and not isinstance(item, type) else item


def segment_row(segment: RemoteLogSegmentMetadata) -> dict[str, Any]:
    """Return the segment as a row of `SEGMENTS`; a field that its dialect does not have is None."""
    shown = json_fields(segment)
    return {name: shown.get(name) for name in SEGMENTS.names}


def show_texts(texts: Iterable[str], output: str, columns: Columns, view: View) -> Shown:
    """Print rows that executors have rendered: text of csv without its header, otherwise of jsonl.

    What is printed equals `show_rows` of the same rows, byte for byte. The text is that of csv only if
    `output` is csv and the view is plain.
    """
    out = sys.stdout
    if output == "table" or not view.is_plain:
        lines = (line for text in texts for line in io.StringIO(text))
        return show_rows(map(json.loads, lines), output, columns, view)
    counted = _CountedLines(texts)
    match output:
        case "json":
            separator = "["
            for text in counted:
                out.write(f"{separator}\n" + text.rstrip("\n").replace("\n", ",\n"))
                separator = ","
            out.write("[]\n" if separator == "[" else "\n]\n")
        case _:
            if output == "csv":
                show_rows([], output, columns, view)
            out.writelines(counted)
    return Shown(rows=counted.count)


@dataclass(slots=True)
class _CountedLines:
    """Texts whose lines are counted while they are read."""

    texts: Iterable[str]
    count: int = 0

    def __iter__(self) -> Iterator[str]:
        for text in self.texts:
            self.count += text.count("\n")
            yield text
