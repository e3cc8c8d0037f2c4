"""The smallest kernels: numbers as Kafka writes them, and CRC-32C, with and without the processor's help."""

import struct

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tierctl.kernel import plain_kernel
from tierctl.wire.batches.scan import bytes_of, crc32c_of
from tierctl.wire.primitives import int32_at, int64_at

pytestmark = pytest.mark.usefixtures("both_forms")


@plain_kernel
def _numbers_at(data, at):  # type: ignore[no-untyped-def]
    """Return both numbers at a position: instructions are only used where a kernel calls them."""
    return int32_at(data, at), int64_at(data, at)


@given(st.binary(min_size=8, max_size=40), st.data())
def test_a_number_is_that_of_struct(content: bytes, draw: st.DataObject) -> None:
    """Signed, most significant byte first, at any position."""
    at = draw.draw(st.integers(0, len(content) - 8))
    found = _numbers_at(bytes_of(content), at)
    assert found == (*struct.unpack_from(">i", content, at), *struct.unpack_from(">q", content, at))


@given(st.binary(max_size=200), st.data())
def test_a_crc_is_that_of_google_crc32c(content: bytes, draw: st.DataObject) -> None:
    """Of any part of the bytes, of any length."""
    start = draw.draw(st.integers(0, len(content)))
    end = draw.draw(st.integers(start, len(content)))
    assert crc32c_of(bytes_of(content), start, end) == google_crc32c.value(content[start:end])


@pytest.mark.parametrize("at", [5, 12, 1 << 62, (1 << 63) - 1])
@pytest.mark.parametrize("size", [0, 3, 12])
def test_nothing_is_read_outside(at: int, size: int) -> None:
    """The end of the data, and the highest position, whose sum with a width is negative."""
    with pytest.raises(IndexError):
        _numbers_at(bytes_of(bytes(size)), at)
    with pytest.raises(IndexError):
        crc32c_of(bytes_of(bytes(size)), min(at, 1 << 62), min(at, 1 << 62) + 9)
