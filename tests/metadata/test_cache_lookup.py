"""The entry of a cache file that serves an offset, and the entry at a position, in Kafka's own files."""

from collections.abc import Iterator
from typing import Any

import pytest
from tierctl.metadata.cache_files import entry_rows, found_rows

from tests.conftest import DATA

Row = dict[str, Any]
FILES = ("flat-named.flat", "flat-unnamed.flat", "kafka-3.6/remote_log_snapshot")


def spans(row: Row) -> Iterator[tuple[int, int, int]]:
    """Yield the leader epochs of a segment, each with its first and last offset."""
    pairs = row["segment_leader_epochs"]
    ends = [*(start - 1 for _, start in pairs[1:]), row["end_offset"]]
    yield from ((epoch, start, end) for (epoch, start), end in zip(pairs, ends, strict=True) if start <= end)


def serving(rows: list[Row], epoch: int, offset: int) -> Row | None:
    """Return the last entry of the finished segment with the offset in which the epoch starts last."""
    last: dict[str, Row] = {}
    for row in rows:
        last.pop(row["segment_id"], None)
        last[row["segment_id"]] = row
    found = [
        (start, number)
        for number, row in enumerate(last.values())
        if row["state"] == "COPY_SEGMENT_FINISHED"
        for each, start, end in spans(row)
        if each == epoch and start <= offset <= end
    ]
    return list(last.values())[max(found)[1]] if found else None


@pytest.mark.parametrize("name", FILES)
def test_the_entry_is_that_of_a_search_of_all_entries(name: str) -> None:
    path = DATA / "vectors" / name
    rows = [row for row in entry_rows(path).rows if row.get("segment_id")]
    asked = [(epoch, offset) for row in rows[::9] for epoch, *ends in spans(row) for offset in ends]
    answers = [serving(rows, epoch, offset) for epoch, offset in asked]
    assert len([answer for answer in answers if answer is not None]) > 3
    assert None in answers
    for (epoch, offset), answer in zip(asked, answers, strict=True):
        found = list(found_rows(path, epoch=epoch, offset=offset, position=None).rows)
        assert found == ([] if answer is None else [answer]), (epoch, offset)


@pytest.mark.parametrize("name", FILES)
def test_every_entry_is_found_by_its_position_and_nothing_else_is(name: str) -> None:
    path = DATA / "vectors" / name
    rows = {row["position"]: row for row in entry_rows(path).rows}
    for position, row in rows.items():
        assert list(found_rows(path, epoch=None, offset=None, position=position).rows) == [row]
        assert not found_rows(path, epoch=None, offset=None, position=position + 3).rows
