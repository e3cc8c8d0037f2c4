"""A decoded column has the results of the scalar codec, row by row."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.amounts import examples
from tests.wire.metadata.samples import columns, golden
from tierctl.errors import CorruptInputError
from tierctl.model import RemoteLogSegmentMetadataUpdate, Uuid
from tierctl.model.events import dialect_of
from tierctl.wire.metadata import decode as decode_module
from tierctl.wire.metadata.decode import decode_column
from tierctl.wire.metadata.schema import FIELD_NAMES
from tierctl.wire.metadata.values import EVENT_SCHEMA, UUID, decode, encode

pytestmark = pytest.mark.usefixtures("both_forms")

COPIES = 30
"""How often a value is repeated if a test needs many values of one shape."""


def expected_row(value: bytes | None) -> dict[str, Any]:
    """Return the result of the scalar codec as a row."""
    row: dict[str, Any] = dict.fromkeys(EVENT_SCHEMA.names)
    if value is None:
        return row
    try:
        event = decode(value)
    except CorruptInputError as error:
        return row | {"error": str(error)}
    row |= {name: getattr(event, name) for name in FIELD_NAMES if hasattr(event, name)}
    if row["segment_leader_epochs"] is not None:
        row["segment_leader_epochs"] = [list(pair) for pair in row["segment_leader_epochs"]]
    tags = [("", event.unknown_tags), *event.nested_tags]
    found = [{"place": place, "tag": tag, "data": data} for place, kept in tags for tag, data in kept]
    return row | {"dialect": dialect_of(event), "unknown_tags": found or None}


def check(values: list[bytes | None], column: pa.Array | pa.ChunkedArray) -> None:
    """Check that the decoded column equals the scalar results."""
    table = decode_column(column)
    table.validate(full=True)
    assert table.schema == EVENT_SCHEMA
    assert table.to_pylist() == [expected_row(value) for value in values]
    for some in (["segment_id"], ["error", "topic", "state"], EVENT_SCHEMA.names[::-2]):
        assert decode_column(column, columns=some).equals(table.select(some))


@examples(150)
@given(columns())
def test_a_column_decodes_as_its_values_do(values: list[bytes | None]) -> None:
    check(values, pa.array(values, pa.binary()))


@examples(40)
@given(columns(), st.sampled_from([pa.binary(), pa.large_binary()]), st.data())
def test_slices_and_chunks_decode_as_the_whole(
    values: list[bytes | None], kind: pa.DataType, data: st.DataObject
) -> None:
    whole = pa.array([b"before", None, *values, b"after"], kind)
    cut = data.draw(st.integers(0, len(values)))
    pieces = [whole.slice(2, cut), whole.slice(2 + cut, len(values) - cut)]
    check(values, pa.chunked_array(pieces, kind))
    check(values[:cut], pieces[0])


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.binary_view(), pa.null()])
def test_a_column_without_values(kind: pa.DataType) -> None:
    assert decode_column(pa.array([], kind)).equals(EVENT_SCHEMA.empty_table())
    check([None, None], pa.array([None, None], kind))
    check([], pa.chunked_array([], kind))


def test_pieces_are_bounded_and_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_module, "_PIECE_ROWS", 100)
    monkeypatch.setattr(decode_module, "_PIECE_BYTES", 3000)
    values = list(golden("kafka"))
    table = decode_column(pa.array(values, pa.binary()))
    assert table.column(0).num_chunks > 8
    assert table.to_pylist() == [expected_row(value) for value in values]


def test_a_row_that_breaks_a_rule_is_told_apart_within_its_shape() -> None:
    good = golden("kafka")[0]
    event = decode(good)
    start = good.index(event.segment_id.bytes) + 17  # type: ignore[union-attr]
    bad = good[:start] + b"\xff" + good[start + 1 :]
    check([good] * COPIES + [bad] + [good] * COPIES, pa.array([good] * COPIES + [bad] + [good] * COPIES))


@pytest.mark.parametrize("name_length", [6, 249])
def test_a_cut_segment_record_is_told_apart_from_updates_of_its_length(name_length: int) -> None:
    event = next(e for e in map(decode, golden("kip405")) if isinstance(e, RemoteLogSegmentMetadataUpdate))
    update = encode(replace(event, topic="u" * (name_length + 1)), "kip405")
    whole = next(v for v in golden("kafka") if v[1] == 0)
    cut = encode(replace(decode(whole), topic="c" * name_length))[: len(update)]  # type: ignore[type-var]
    values = [update] * COPIES + [cut] + [update] * COPIES
    check(values, pa.array(values))
    assert decode_column(pa.array(values)).column("error").null_count == 2 * COPIES


def test_ids_are_model_ids() -> None:
    table = decode_column(pa.array(golden("kafka")[:3]))
    column = table.column("topic_id")
    assert column.type == UUID
    assert isinstance(column[0].as_py(), Uuid)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    assert pa.ipc.open_stream(sink.getvalue()).read_all().equals(table)
