"""The rows of a fold say why it was slow."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
from tierctl import kernel
from tierctl.spark.fold_rows import SLOWNESS, with_slowness

SCHEMA = pa.schema([("topic", pa.string()), (SLOWNESS, pa.string()), ("outcome", pa.string())])
LARGE = 1_000_000


def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield each batch after as many events as its first column has."""
    for batch in batches:
        kernel.expect(batch.column(0)[0].as_py())
        yield pa.RecordBatch.from_pylist([{"topic": "a"}, {"topic": "b", "outcome": "c"}], schema=SCHEMA)
    yield pa.RecordBatch.from_pylist([], schema=SCHEMA)


def test_rows_of_a_fold_say_why_it_was_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_forms", kernel._Forms())
    monkeypatch.setattr(kernel, "find_spec", lambda _: None)
    batches = [pa.RecordBatch.from_pylist([{"items": items}]) for items in (0, LARGE, 0)]
    rows = pa.Table.from_batches(list(with_slowness(fold, batches)), SCHEMA)
    why = kernel.WITHOUT_NUMBA
    assert rows.column(SLOWNESS).to_pylist() == [None, None, *[why] * 4]
    assert rows.column("topic").to_pylist() == ["a", "b"] * 3
    assert rows.column("outcome").to_pylist() == [None, "c"] * 3
