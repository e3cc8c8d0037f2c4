"""Decoded rows have the results of the scalar codec, value by value, in both forms of the kernels."""

from collections.abc import Sequence
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from tests.support.amounts import examples
from tests.wire.metadata.samples import KAFKA_EVENTS, columns, golden
from tierctl.errors import CorruptInputError
from tierctl.model import MetadataEvent
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
from tierctl.wire.metadata.values import decode, encode

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


@examples(200)
@given(columns())
def test_values_decode_as_the_scalar_codec_does(values: list[bytes | None]) -> None:
    check(values)


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


def mutated(value: bytes, other: bytes, source: Random) -> bytes:
    """Return a value that is cut, overwritten, lengthened, shortened, or joined with another one."""
    at = source.randrange(len(value) + 1)
    match source.randrange(5):
        case 0:
            return value[:at]
        case 1:
            return value[:at] + source.randbytes(source.randint(1, 4)) + value[at:]
        case 2:
            return value[:at] + value[at + source.randint(1, 4) :]
        case 3:
            return value[:at] + other[source.randrange(len(other) + 1) :]
        case _:
            out = bytearray(value)
            for _ in range(source.randint(1, 3)):
                byte = source.choice((0, 1, 2, 0x7F, 0x80, 0xFF, source.randrange(256)))
                out[source.randrange(len(out))] = byte
            return bytes(out)


@pytest.mark.parametrize(
    ("count", "seed"), [(2_000, 27), *(pytest.param(100_000, n, marks=pytest.mark.matrix) for n in range(10))]
)
def test_mutated_values(count: int, seed: int) -> None:
    """The ten shares in the matrix are a million mutations, too many for the time limit of one test."""
    source = Random(seed)
    bases = [value for name in ("kafka", "kip405") for value in golden(name) if len(value) < 400]
    for _ in range(0, count, 1000):
        check([mutated(source.choice(bases), source.choice(bases), source) for _ in range(1000)])
