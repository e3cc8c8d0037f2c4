"""Decoded rows and columns have the results of the scalar codec, in both forms of the kernels."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.amounts import examples
from tests.wire.metadata.samples import KAFKA_EVENTS, columns, golden, mutated
from tierctl.errors import CorruptInputError
from tierctl.model import MetadataEvent, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, Uuid
from tierctl.model.events import dialect_of
from tierctl.wire.metadata.decode import (
    CUSTOM_LENGTH,
    EPOCH_COUNT,
    HAS_TAGS,
    KIND,
    ODD,
    TOMBSTONE,
    DecodedEvents,
    decode_values,
    rows_of,
)
from tierctl.wire.metadata.schema import FIELD_NAMES
from tierctl.wire.metadata.values import EVENT_SCHEMA, decode, encode

pytestmark = pytest.mark.usefixtures("both_forms")


Outcome = MetadataEvent | str | None

SURROUNDINGS = (b"\x01\x00\x00\x05", bytes(40), b"\xff" * 40)
"""Bytes before and after the values, which must have no effect."""


def scalar(value: bytes | None) -> Outcome:
    """Return the event of a value, or its error."""
    try:
        return None if value is None else decode(value)
    except CorruptInputError as error:
        return str(error)


def outcomes(decoded: DecodedEvents) -> list[Outcome]:
    """Return the event or the error of each row."""
    kinds = decoded.rows[:, KIND].tolist()
    assert [row for row, kind in enumerate(kinds) if kind == ODD] == sorted(decoded.errors)
    return [
        None if kind == TOMBSTONE else str(decoded.errors[row]) if kind == ODD else decoded.event(row)
        for row, kind in enumerate(kinds)
    ]


def check(values: Sequence[bytes | None]) -> None:
    """Check that the rows of values equal the scalar results, whatever surrounds the values."""
    wholes = [pa.array([around, *values, around], pa.binary()) for around in SURROUNDINGS]
    first, *others = (decode_values(whole.slice(1, len(values))) for whole in wholes)
    assert outcomes(first) == [scalar(value) for value in values]
    for other in others:
        assert np.array_equal(other.rows, first.rows)
        assert np.array_equal(other.epochs, first.epochs)


@pytest.mark.parametrize("dialect", ["kafka", "kip405"])
def test_golden_values(dialect: str) -> None:
    check(golden(dialect))


@given(KAFKA_EVENTS)
def test_rows_of_an_event_are_those_of_its_value(event: MetadataEvent) -> None:
    made, decoded = rows_of([event]), decode_values(pa.array([encode(event)], pa.binary()))
    assert made.event(0) == decoded.event(0) == event
    for column in (KIND, HAS_TAGS, CUSTOM_LENGTH, EPOCH_COUNT):
        assert made.rows[0, column] == decoded.rows[0, column]


def test_the_kernel_decodes_what_brokers_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tierctl.wire.metadata.decode.decode", lambda _value: pytest.fail("scalar codec"))
    values = [value for value in golden("kafka") if not rows_of([decode(value)]).rows[0, HAS_TAGS]]
    assert len(values) > 300
    assert (decode_values(pa.array(values, pa.binary())).rows[:, KIND] < TOMBSTONE).all()


@pytest.mark.parametrize("dialect", ["kafka", "kip405"])
def test_values_after_one_of_200_000_epochs_are_decoded(dialect: str) -> None:
    """Also after one that states as many, and ends before."""
    good = next(e for e in map(decode, golden(dialect)) if isinstance(e, RemoteLogSegmentMetadata))
    epochs = tuple((number, number) for number in range(200_000))
    many, after = encode(replace(good, segment_leader_epochs=epochs), dialect), encode(good, dialect)
    found = decode_values(pa.array([many, after, many[: len(many) // 2], after], pa.binary()))
    assert found.rows[:, EPOCH_COUNT].tolist()[:2] == [200_000, len(good.segment_leader_epochs)]
    assert outcomes(found) == [scalar(each) for each in (many, after, many[: len(many) // 2], after)]
    assert sorted(found.errors) == [2]


@pytest.mark.parametrize(
    ("count", "seed"), [(2_000, 27), *(pytest.param(100_000, n, marks=pytest.mark.matrix) for n in range(10))]
)
def test_mutated_values(count: int, seed: int) -> None:
    """The ten shares in the matrix are a million mutations, too many for the time limit of one test."""
    source = Random(seed)
    bases = [value for name in ("kafka", "kip405") for value in golden(name) if len(value) < 400]
    for _ in range(0, count, 1000):
        check([mutated(source.choice(bases), source.choice(bases), source) for _ in range(1000)])


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
    row |= {name: value.bytes for name, value in row.items() if isinstance(value, Uuid)}
    if row["segment_leader_epochs"] is not None:
        row["segment_leader_epochs"] = [list(pair) for pair in row["segment_leader_epochs"]]
    return row | {"dialect": dialect_of(event)}


def table_of(values: Sequence[bytes | None]) -> pa.Table:
    return decode_values(pa.array(values, pa.binary())).table()


def check_table(values: list[bytes | None], column: pa.BinaryArray | None = None) -> None:
    """Check that the table of decoded values equals the scalar results."""
    decoded = decode_values(pa.array(values, pa.binary()) if column is None else column)
    table = decoded.table()
    table.validate(full=True)
    assert table.schema == EVENT_SCHEMA
    assert table.to_pylist() == [expected_row(value) for value in values]
    for some in (["segment_id"], ["error", "topic", "state"], EVENT_SCHEMA.names[::-2]):
        assert decoded.table(some).equals(table.select(some))


@examples(200)
@given(columns())
def test_a_column_decodes_as_its_values_do(values: list[bytes | None]) -> None:
    check(values)
    check_table(values)


@examples(40)
@given(columns(), st.data())
def test_a_slice_decodes_as_its_values_do(values: list[bytes | None], data: st.DataObject) -> None:
    whole = pa.array([b"before", None, *values, b"after"], pa.binary())
    cut = data.draw(st.integers(0, len(values)))
    check_table(values[:cut], whole.slice(2, cut))
    check_table(values[cut:], whole.slice(2 + cut, len(values) - cut))


def test_a_row_that_breaks_a_rule_is_told_apart_within_its_shape() -> None:
    good = golden("kafka")[0]
    event = decode(good)
    start = good.index(event.segment_id.bytes) + 17  # type: ignore[union-attr]
    bad = good[:start] + b"\xff" + good[start + 1 :]
    check_table([good] * COPIES + [bad] + [good] * COPIES)


@pytest.mark.parametrize("name_length", [6, 249])
def test_a_cut_segment_record_is_told_apart_from_updates_of_its_length(name_length: int) -> None:
    event = next(e for e in map(decode, golden("kip405")) if isinstance(e, RemoteLogSegmentMetadataUpdate))
    update = encode(replace(event, topic="u" * (name_length + 1)), "kip405")
    whole = next(v for v in golden("kafka") if v[1] == 0)
    cut = encode(replace(decode(whole), topic="c" * name_length))[: len(update)]  # type: ignore[type-var]
    values = [update] * COPIES + [cut] + [update] * COPIES
    check_table(values)
    assert table_of(values).column("error").null_count == 2 * COPIES
