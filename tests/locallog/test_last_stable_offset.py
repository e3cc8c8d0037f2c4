"""The last stable offset is that of the history of a log, with any of its snapshots and indexes."""

import os
import shutil
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tierctl.errors import TierctlError
from tierctl.locallog import read_log_dirs, with_open_transaction
from tierctl.model import LocalLog, OpenTransaction
from tierctl.wire.batches.batch_head import Record
from tierctl.wire.batches.record_batch import ControlType, encode_batch
from tierctl.wire.files.checkpoints import ProducerEntry

from tests.locallog.made import PARTITION, TIME_MS, batch, write_log
from tests.support.amounts import examples
from tests.wire.batches.same import scan
from tests.wire.batches.samples import marker

# The steps of a history: (kind, producer); every step takes one offset.
Step = tuple[str, int]


def _encode(offset: int, kind: str, producer: int) -> bytes:
    if kind == "plain":
        return batch(offset)
    if kind == "data":
        record = Record(offset, TIME_MS + offset, None, b"t" * 20)
        return encode_batch(
            [record], producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True
        )
    if kind == "cleaned":
        return encode_batch(
            [], base_offset=offset, last_offset=offset, producer_id=producer, transactional=True, control=True
        )
    return marker(offset, ControlType.ABORT if kind == "abort" else ControlType.COMMIT, producer)


def _open_at(history: list[Step], offset: int) -> dict[int, int]:
    """Return for each producer the first offset of its transaction that is open at `offset`."""
    began: dict[int, int] = {}
    for at, (kind, producer) in enumerate(history[:offset]):
        if kind == "data":
            began.setdefault(producer, at)
        elif kind in {"abort", "commit"}:
            began.pop(producer, None)
    return began


def _snapshot(history: list[Step], offset: int) -> list[ProducerEntry]:
    began = _open_at(history, offset)
    return [ProducerEntry(p, 0, 0, offset - 1, 0, TIME_MS, 3, began.get(p, -1)) for p in range(1, 4)]


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Step], list[int], list[int], int]:
    kinds = st.sampled_from(["plain", "data", "data", "abort", "commit", "commit", "cleaned"])
    history = draw(st.lists(st.tuples(kinds, st.integers(1, 3)), min_size=1, max_size=60))
    inside = st.integers(1, len(history))
    rolls = sorted(draw(st.sets(inside, max_size=4)) - {len(history)})
    return history, rolls, sorted(draw(st.sets(inside, max_size=4))), draw(st.integers(0, len(history)))


def _write(directory: Path, history: list[Step], rolls: list[int], snapshots: list[int], mark: int) -> Path:
    bounds = [0, *rolls, len(history)]
    segments = [[_encode(at, *history[at]) for at in range(start, end)] for start, end in pairwise(bounds)]
    return write_log(
        directory,
        segments,
        high_watermark=mark,
        snapshots={offset: _snapshot(history, offset) for offset in snapshots},
    )


def _read(directory: Path) -> LocalLog:
    (log,) = read_log_dirs([directory])
    return log


@examples(120)
@given(made=histories(), broken=st.integers(0, 3))
def test_the_oldest_open_transaction_at_the_high_watermark(
    made: tuple[list[Step], list[int], list[int], int], broken: int
) -> None:
    history, rolls, snapshots, mark = made
    with TemporaryDirectory() as name:
        folder = _write(Path(name), history, rolls, snapshots, mark)
        for path in sorted(folder.glob("*.snapshot"), reverse=True)[:broken]:
            path.write_bytes(path.read_bytes()[:-1])
        log = _read(Path(name))
    assert log.log_end_offset == len(history)
    assert log.last_stable_offset == min([*_open_at(history, mark).values(), mark])


def test_a_broken_batch_leaves_what_follows_undecided(tmp_path: Path) -> None:
    """The batch may contain a transaction marker, so no record from there on may be copied."""
    history: list[Step] = [("data", 1), ("plain", 0), ("commit", 1), ("plain", 0), ("data", 2), ("commit", 2)]
    folder = _write(tmp_path, history, [4], [], 6)
    path = folder / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[list(scan(bytes(data)))[3].position + 50] ^= 1
    path.write_bytes(data)
    assert _read(tmp_path).last_stable_offset == 3


def test_a_marker_nobody_can_read_decides_nothing(tmp_path: Path) -> None:
    """It is unknown which transaction the marker ended; records before the marker are still decided."""
    unreadable = encode_batch(
        [Record(2, TIME_MS, b"\x00", b"")], producer_id=9, producer_epoch=0, transactional=True, control=True
    )
    write_log(tmp_path, [[_encode(0, "data", 1), _encode(1, "commit", 1), unreadable, batch(3)]])
    assert _read(tmp_path).last_stable_offset == 2


@pytest.mark.parametrize(("log_start", "expected"), [(0, 0), (1, 1), (3, 5)])
def test_what_lies_below_the_log_start_is_forgotten(tmp_path: Path, log_start: int, expected: int) -> None:
    history: list[Step] = [("data", 1), ("data", 1), ("data", 1), ("plain", 0), ("plain", 0)]
    directory = tmp_path / "logs"
    folder = _write(directory, history, [], [], 5)
    (directory / "log-start-offset-checkpoint").write_text(f"0\n1\n{PARTITION.topic} 0 {log_start}\n")
    assert _read(directory).last_stable_offset == expected
    # A broker deletes a snapshot at or below the log start.
    (folder / f"{log_start:020d}.snapshot").write_bytes(b"junk")
    assert _read(directory).last_stable_offset == expected


def test_damage_to_any_file_is_named_or_harmless(tmp_path: Path) -> None:
    """Cut or flip bits in every file of a small log: the result is an expected error or ordered offsets."""
    kinds: list[Step] = [("data", 1), ("plain", 0), ("data", 2), ("abort", 1), ("plain", 0), ("data", 3)]
    folder = _write(tmp_path, kinds * 2, [4, 8], [4, 8, 12], 12)
    whole = _read(tmp_path)
    files = [path for path in [*folder.iterdir(), *tmp_path.glob("*-checkpoint")] if path.stat().st_size]
    assert len(files) > 12
    for path in files:
        data, modified_ns = path.read_bytes(), path.stat().st_mtime_ns
        step = 1 if len(data) < 120 else 7
        for at in range(0, len(data), step):
            for damaged in (data[:at], data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :]):
                path.write_bytes(damaged)
                with suppress(TierctlError):
                    log = _read(tmp_path)
                    assert log.last_stable_offset <= log.high_watermark <= log.log_end_offset, path
                    assert log.log_end_offset <= whole.log_end_offset or path.suffix == ".log", path
        path.write_bytes(data)
        os.utime(path, ns=(modified_ns, modified_ns))
    assert _read(tmp_path) == whole


def test_the_transaction_at_a_leaders_last_stable_offset(tmp_path: Path) -> None:
    """The checkpoint of a running broker is older than its log: only the leader knows the offsets."""
    batches = [batch(0, 5), _encode(5, "data", 3), batch(6)]
    folder = write_log(tmp_path, [batches], high_watermark=2)
    (log,) = read_log_dirs([tmp_path])
    assert with_open_transaction(log) is log
    ahead = replace(log, high_watermark=7, last_stable_offset=5)
    found = with_open_transaction(ahead)
    assert found.open_transaction == OpenTransaction(producer_id=3, since_ms=TIME_MS + 5)
    assert with_open_transaction(found) is found
    assert with_open_transaction(replace(ahead, last_stable_offset=6)).open_transaction is None
    shutil.rmtree(folder)
    assert with_open_transaction(ahead).open_transaction is None


def test_a_transaction_with_log_append_time_is_open_since_the_brokers_time(tmp_path: Path) -> None:
    """The producer's clock may be wrong: by a time in the future, no transaction would seem to hang."""
    opened = encode_batch(
        [Record(1, TIME_MS + 10**12, None, b"v")],
        max_timestamp_ms=TIME_MS,
        log_append_time=True,
        producer_id=3,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    write_log(tmp_path, [[batch(0), opened]])
    assert _read(tmp_path).open_transaction == OpenTransaction(producer_id=3, since_ms=TIME_MS)
