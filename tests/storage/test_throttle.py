"""Limits of bytes per second: never exceeded in any time span, for every store; waits end on signals."""

import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tierctl.commands.resources import Resources
from tierctl.commands.verify.command import VerifyRequest
from tierctl.errors import TransferStopped, UsageError
from tierctl.model.progress import SilentProgress
from tierctl.storage.stores.base import CHUNK_BYTES, hashed_file, sent_chunks
from tierctl.storage.stores.local_store import LocalStore
from tierctl.storage.stores.s3.client import s3_client
from tierctl.storage.stores.s3.store import S3Store
from tierctl.storage.throttle import Direction, Limit, Throttle, ThrottleSettings, parse_rate

from tests.support.servers import S3Server

KIB, MIB = 1 << 10, 1 << 20


@dataclass
class Clock:
    """A clock that only sleeping advances."""

    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def throttle(clock: Clock, rate: float, window_s: int = 1) -> Throttle:
    limit = Limit.of(rate, window_s)
    return Throttle(ThrottleSettings(copy=limit, fetch=limit), clock_s=clock, sleep=clock.sleep)


@settings(deadline=None)
@given(
    rate=st.integers(1 << 10, 1 << 30),
    window_s=st.integers(1, 11),
    steps=st.lists(st.tuples(st.floats(0, 20), st.floats(0, 3)), min_size=1, max_size=30),
)
def test_no_time_span_has_more_than_rate_and_burst(
    rate: int, window_s: int, steps: list[tuple[float, float]]
) -> None:
    """`steps` are pauses, and sizes relative to the burst."""
    clock = Clock()
    limited = throttle(clock, rate, window_s)
    burst = Limit.of(rate, window_s).burst_bytes
    sent: list[tuple[float, int]] = []
    for pause_s, bursts in steps:
        clock.sleep(pause_s)
        left = int(bursts * burst)
        while left:
            part = limited.part_bytes(Direction.COPY, left)
            before_s = clock.now_s
            waited_s = limited.wait(Direction.COPY, part)
            assert clock.now_s - before_s == pytest.approx(waited_s)
            sent.append((clock.now_s, part))
            left -= part
            if len(sent) > 200:
                break
    for first in range(len(sent)):
        total = 0
        for at_s, size in sent[first:]:
            total += size
            span_s = at_s - sent[first][0]
            assert total <= (rate * span_s + burst) * (1 + 1e-6) + 1


def test_the_rate_is_reached() -> None:
    clock = Clock()
    limited = throttle(clock, 1000_000)
    for _ in range(100):
        limited.wait(Direction.FETCH, 100_000)
    assert clock.now_s == pytest.approx(1009.0)
    times = limited.times[Direction.FETCH].ended
    assert (times.count, times.max_s) == (90, pytest.approx(0.1))
    assert limited.elapsed_s == pytest.approx(9.0)
    assert limited.times[Direction.COPY].ended.count == 0


def test_threads_share_the_limit() -> None:
    limited = Throttle(ThrottleSettings(fetch=Limit(bytes_per_second=100_000, burst_bytes=10_000)))
    begun_s = time.monotonic()
    threads = [
        threading.Thread(target=lambda: [limited.wait(Direction.FETCH, 5_000) for _ in range(4)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed_s = time.monotonic() - begun_s
    # 80,000 bytes minus the burst.
    assert elapsed_s >= 0.69
    assert limited.elapsed_s <= elapsed_s + 0.01 < limited.times[Direction.FETCH].ended.sum_s


@pytest.mark.parametrize("with_guard", [False, True])
def test_a_stop_ends_every_wait_at_once(with_guard: bool) -> None:
    limited = Throttle(ThrottleSettings(copy=Limit(bytes_per_second=1, burst_bytes=10)))
    limited.wait(Direction.COPY, 10)
    asked = threading.Event()
    limited.stop_when(asked.is_set)
    threading.Timer(0.1, asked.set if with_guard else limited.stop).start()
    begun_s = time.monotonic()
    with pytest.raises(TransferStopped):
        limited.wait(Direction.COPY, 5)
    assert time.monotonic() - begun_s < 1
    with pytest.raises(TransferStopped):
        limited.wait(Direction.COPY, 5)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(bytes(range(256)) * (10 * MIB // 256))
    return path


@pytest.mark.parametrize("kind", ["local", "s3", "s3 in parts"])
def test_every_byte_of_a_transfer_counts_once(
    kind: str, file: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Over HTTP, the S3 client reads a body twice to sign it, and parts are read for the checksum."""
    clock = Clock()
    limited = throttle(clock, MIB)
    if kind == "local":
        store = LocalStore(tmp_path / "store", throttle=limited)
    else:
        server: S3Server = request.getfixturevalue("s3_server")
        part_bytes = 5 * MIB if "parts" in kind else None
        store = S3Store(s3_client(), server.bucket(), "x/", part_bytes=part_bytes, throttle=limited)  # type: ignore[assignment]
    before_s = clock.now_s
    store.put_all({"a": hashed_file(file), "b": b"x" * MIB})
    assert clock.now_s - before_s == pytest.approx(10, abs=0.1)
    clock.sleep(100)
    before_s = clock.now_s
    with store.open("a", 0, 4 * MIB) as stream:
        assert len(stream.read()) == 4 * MIB
    assert clock.now_s - before_s == pytest.approx(3, abs=0.1)
    assert limited.times[Direction.FETCH].ended.max_s <= 1
    store.close()


@pytest.mark.parametrize("part_bytes", [None, 5 * MIB])
def test_an_upload_to_s3_ends_at_once_when_the_run_is_stopped(
    part_bytes: int | None, file: Path, s3_server: S3Server
) -> None:
    limited = Throttle(ThrottleSettings(copy=Limit(bytes_per_second=10 * KIB, burst_bytes=10 * KIB)))
    store = S3Store(s3_client(), s3_server.bucket(), "x/", part_bytes=part_bytes, throttle=limited)
    threading.Timer(0.4, limited.stop).start()
    begun_s = time.monotonic()
    with pytest.raises(TransferStopped):
        store.put_all({"a": hashed_file(file)})
    assert time.monotonic() - begun_s < 2
    assert list(store.list_objects("")) == []
    store.close()


def test_chunks_are_small_where_the_rate_is_low(file: Path) -> None:
    source = hashed_file(file)
    assert {len(chunk) for chunk in sent_chunks(source, Throttle())} == {CHUNK_BYTES}
    clock = Clock()
    sizes = {len(chunk) for chunk in sent_chunks(source, throttle(clock, 64 * KIB))}
    assert sizes == {64 * KIB}


def test_limits_come_from_kafkas_settings() -> None:
    assert not ThrottleSettings.from_settings({}).is_limited
    found = ThrottleSettings.from_settings(
        {
            "remote.log.manager.copy.max.bytes.per.second": "1000000",
            "remote.log.manager.copy.quota.window.size.seconds": "3",
            "remote.log.manager.fetch.max.bytes.per.second": str((1 << 63) - 1),
        }
    )
    assert found == ThrottleSettings(copy=Limit(bytes_per_second=1_000_000, burst_bytes=3_000_000))
    shared = found.shared(4).copy
    assert shared == Limit(bytes_per_second=250_000, burst_bytes=750_000)


def test_executors_share_the_limits_of_the_run(tmp_path: Path) -> None:
    request = VerifyRequest(remote=str(tmp_path), throttle_fetch=1_000_000, override=("listeners=A://:1",))
    progress = SilentProgress()
    with Resources(request=request, progress=progress) as resources:
        spec = resources.tier_spec().resolved(resources.remote).shared(lambda: 4)
    assert spec.throttle.fetch == Limit(bytes_per_second=250_000, burst_bytes=250_000)
    assert spec.throttle.copy is None


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        *(("1", 1), ("800K", 800 * KIB), ("50M", 50 * MIB)),
        *(("50MiB/s", 50 * MIB), ("2 gb", 2 << 30), ("1.5M", 3 << 19)),
    ],
)
def test_rates(text: str, rate: int) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "0", "-1", "5x", "M"])
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(UsageError):
        parse_rate(text)
