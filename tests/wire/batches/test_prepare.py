"""When kernels are compiled: once many batches or records were read one by one; and for which processor."""

import os
import subprocess
import sys
from collections.abc import Iterator

import google_crc32c
import pyarrow as pa
import pytest
from tests.wire.batches.samples import Bytes, one_record_log
from tierctl import kernel
from tierctl.kernel import expect, is_compiled, use_interpreted
from tierctl.wire.batches.record_batch import RecordBatch, batches
from tierctl.wire.batches.records import record_columns
from tierctl.wire.batches.scan import OFFSET_MAX
from tierctl.wire.batches.segment_file import scan_windows
from tierctl.wire.metadata.decode import decode_values


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(kernel, "LARGE", 4)
    use_interpreted()
    yield
    use_interpreted()


@pytest.mark.parametrize(("count", "is_many"), [(60, False), (120, True)])
def test_scanned_batches(count: int, is_many: bool) -> None:
    list(scan_windows(Bytes(one_record_log(count)), 0, 0, highest_offset=OFFSET_MAX))
    assert is_compiled() == is_many


@pytest.mark.parametrize(("count", "is_many"), [(15, False), (30, True)])
def test_decoded_records(count: int, is_many: bool) -> None:
    list(record_columns(batches(one_record_log(count)), RecordBatch.records))
    assert is_compiled() == is_many


@pytest.mark.parametrize(("chunks", "is_many"), [(1, False), (2, True)])
def test_decoded_values(chunks: int, is_many: bool) -> None:
    for _ in range(chunks):
        decode_values(pa.array([b"a", b"b", None], pa.binary()))
    assert is_compiled() == is_many


def test_what_is_only_expected_is_not_counted() -> None:
    for _ in range(2):
        expect(3)
    assert not is_compiled()
    expect(4)
    assert is_compiled()


def test_a_processor_without_instructions_has_the_same_crc() -> None:
    """Numba is told to compile for another processor: the loops use tables."""
    pytest.importorskip("numba")
    code = (
        "from tierctl import compiled; from tierctl.kernel import use_compiled\n"
        "from tierctl.wire.batches.scan import bytes_of, crc32c_of\n"
        "use_compiled()\n"
        "assert compiled.instructions('crc_after_8') is None\n"
        "print(crc32c_of(bytes_of(bytes(range(100))), 3, 97))"
    )
    environment = {**os.environ, "NUMBA_CPU_NAME": "generic"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == google_crc32c.value(bytes(range(3, 97)))
