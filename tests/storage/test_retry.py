"""The description of a tier, which executors receive, and retries: how many, and the waits."""

import io
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tierctl.errors import (
    AuthenticationError,
    RemoteObjectDiffers,
    RemoteResourceNotFound,
    RemoteStorageError,
    SafetyRefusal,
    StoreWriteFailed,
    StoreWriteUnknown,
    UsageError,
)
from tierctl.model import IndexType, LogSegmentData, TopicIdPartition
from tierctl.storage import open_tier as open_module
from tierctl.storage.layouts.aiven.layout import AivenLayout, AivenSettings
from tierctl.storage.layouts.kafka import KafkaLayout
from tierctl.storage.open_tier import TierSpec, open_tier
from tierctl.storage.remote_storage_manager import RemoteStorageManager, RetrySettings

from tests.metadata.events import TOPIC_ID
from tests.storage.memory import FailingStore
from tests.storage.segments import data_in, delete_segment, metadata_of
from tests.storage.tiers import local_tier

M = metadata_of()
OTHER = TopicIdPartition(TOPIC_ID, "bills", 3)


class Store:
    """A retried store in memory with one segment, and the recorded waits."""

    def __init__(self, folder: Path, settings: RetrySettings | None = None) -> None:
        self.data: LogSegmentData = data_in(folder)
        self.inner = FailingStore()
        self.waits_s: list[float] = []
        self.retrying = RemoteStorageManager(
            self.inner,
            KafkaLayout(),
            settings or RetrySettings(jitter=0),
            sleep=self.waits_s.append,
            chance=lambda: 0.5,
        )
        self.retrying.copy_log_segment_data(M, self.data)
        self.inner.calls.clear()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "source")


CALLS = {
    "copy_log_segment_data": ("put_all", lambda s: s.retrying.copy_log_segment_data(M, s.data)),
    "verify_log_segment_data": ("verify_all", lambda s: s.retrying.verify_log_segment_data(M, s.data)),
    "store_indexes": ("put_all", lambda s: s.retrying.store_indexes(M, {IndexType.OFFSET: b"x"})),
    "copy_objects": ("sizes_bytes", lambda s: s.retrying.copy_objects(M, OTHER)),
    "fetch_log_segment": ("open", lambda s: s.retrying.fetch_log_segment(M, 0).read()),
    "fetch_index": ("open", lambda s: s.retrying.fetch_index(M, IndexType.OFFSET).read()),
    "delete_log_segments": ("delete", lambda s: delete_segment(s.retrying, M)),
    "objects_of": ("sizes_bytes", lambda s: s.retrying.objects_of(M)),
    "objects_of_each": ("sizes_bytes", lambda s: _raised(s.retrying.objects_of_each([M]))),
    "list_objects": ("list_objects", lambda s: list(s.retrying.list_objects())),
    "list_folder": ("list_folder", lambda s: s.retrying.list_folder()),
}
"""Calls of the tier by name, each with the operation of the store that it begins with."""


def _raised(results: Iterable[object]) -> None:
    for result in results:
        if isinstance(result, Exception):
            raise result


@pytest.mark.parametrize("name", CALLS)
class TestEveryCall:
    @pytest.mark.parametrize("error", [RemoteStorageError, StoreWriteFailed])
    def test_is_repeated_with_growing_waits(
        self, store: Store, name: str, error: type[RemoteStorageError]
    ) -> None:
        operation, call = CALLS[name]
        store.inner.errors = [error("try again") for _ in range(4)]
        call(store)
        calls = store.inner.calls
        assert (calls[:5], set(calls[5:]) & {operation}) == ([operation] * 5, set())
        assert store.waits_s == [0.5, 1, 2, 4]

    def test_ends_after_the_last_attempt(self, store: Store, name: str) -> None:
        operation, call = CALLS[name]
        store.inner.errors = [RemoteStorageError(f"failure {n}") for n in range(9)]
        with pytest.raises(RemoteStorageError, match="failure 4"):
            call(store)
        assert store.inner.calls == [operation] * 5
        assert len(store.waits_s) == 4

    @pytest.mark.parametrize(
        "error", [RemoteResourceNotFound, RemoteObjectDiffers, SafetyRefusal, ValueError]
    )
    def test_is_not_repeated_when_that_cannot_help(
        self, store: Store, name: str, error: type[Exception]
    ) -> None:
        operation, call = CALLS[name]
        store.inner.errors = [error("no")]
        with pytest.raises(error):
            call(store)
        assert (store.inner.calls, store.waits_s) == ([operation], [])


class TestUnknownOutcome:
    def test_a_copy_is_repeated_after_a_look(self, store: Store) -> None:
        store.inner.errors = [StoreWriteUnknown("timeout")]
        store.retrying.copy_log_segment_data(M, store.data)
        assert store.inner.calls == ["put_all", "sizes_bytes", "put_all"]

    @pytest.mark.parametrize("look", [RemoteStorageError("still down"), AuthenticationError("403")])
    def test_a_copy_is_not_repeated_blindly(self, store: Store, look: Exception) -> None:
        store.inner.errors = [StoreWriteUnknown("timeout"), look]
        with pytest.raises(StoreWriteUnknown, match="timeout"):
            store.retrying.copy_log_segment_data(M, store.data)
        assert store.inner.calls == ["put_all", "sizes_bytes"]

    @pytest.mark.parametrize("later", [StoreWriteFailed("no"), AuthenticationError("no")])
    def test_a_failure_after_it_stays_unknown(
        self, store: Store, later: Exception, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The first write may still take effect, so a clean-up must not forget the segment."""
        errors: list[Exception] = [StoreWriteUnknown("timeout"), *[later] * 9]

        def fail(*_: object) -> None:
            raise errors.pop(0)

        monkeypatch.setattr(store.inner, "put_all", fail)
        with pytest.raises(StoreWriteUnknown, match="no; earlier: timeout"):
            store.retrying.copy_log_segment_data(M, store.data)

    def test_a_delete_is_by_exact_key_and_just_repeated(self, store: Store) -> None:
        store.inner.errors = [StoreWriteUnknown("timeout")]
        delete_segment(store.retrying, M)
        assert store.inner.calls == ["delete", "delete"]


class Breaking(io.BytesIO):
    """Raise an error after some bytes."""

    def __init__(self, data: bytes, good_bytes: int) -> None:
        super().__init__(data)
        self._good_bytes = good_bytes

    def read(self, size: int | None = -1, /) -> bytes:
        wanted = min(
            self._good_bytes - self.tell(), len(self.getvalue()) if size is None or size < 0 else size
        )
        if wanted <= 0:
            raise RemoteStorageError("connection reset")
        return super().read(wanted)


class BreakingStore(FailingStore):
    """A store whose streams break after 700 bytes, again and again."""

    def open(self, key: str, start: int = 0, end: int | None = None) -> BinaryIO:
        with super().open(key, start, end) as whole:
            data = whole.read()
        return Breaking(data, 700) if len(data) > 700 else io.BytesIO(data)


@pytest.mark.parametrize(("start", "end"), [(0, None), (5, 2500), (5, 600), (0, 699), (0, 700)])
def test_streams_go_on_where_they_broke(tmp_path: Path, start: int, end: int | None) -> None:
    data = data_in(tmp_path)
    waits: list[float] = []
    retrying = RemoteStorageManager(
        BreakingStore(), KafkaLayout(), RetrySettings(), sleep=waits.append, chance=lambda: 0
    )
    retrying.copy_log_segment_data(M, data)
    whole = data.log_segment.path.read_bytes()
    with retrying.fetch_log_segment(M, start, end) as stream:
        assert stream.read() == whole[start : None if end is None else end + 1]
    assert len(waits) == (min(len(whole), len(whole) if end is None else end + 1) - start - 1) // 700


class TestSettings:
    def test_kafkas_defaults_and_names(self) -> None:
        assert RetrySettings.from_settings({}) == RetrySettings(
            backoff_ms=500, backoff_max_ms=30_000, jitter=0.2
        )
        given_settings = {
            "remote.log.manager.task.retry.backoff.ms": "7",
            "remote.log.manager.task.retry.backoff.max.ms": "70",
            "remote.log.manager.task.retry.jitter": "0.5",
        }
        assert RetrySettings.from_settings(given_settings, attempts=2) == RetrySettings(
            backoff_ms=7, backoff_max_ms=70, jitter=0.5, attempts=2
        )

    @pytest.mark.parametrize("name", ["backoff.ms", "backoff.max.ms", "jitter"])
    @pytest.mark.parametrize("value", ["x", "-1", ""])
    def test_wrong_values(self, name: str, value: str) -> None:
        with pytest.raises(UsageError, match=r"remote\.log\.manager\.task\.retry"):
            RetrySettings.from_settings({f"remote.log.manager.task.retry.{name}": value})

    def test_jitter_has_kafkas_bounds(self) -> None:
        with pytest.raises(UsageError, match=r"between 0 and 0\.5"):
            RetrySettings(jitter=0.51)

    @given(
        failures=st.integers(1, 2000),
        chance=st.floats(0, 1, exclude_max=True),
        jitter=st.floats(0, 0.5),
        backoff_ms=st.integers(0, 10_000),
    )
    def test_waits_stay_within_jitter_and_maximum(
        self, failures: int, chance: float, jitter: float, backoff_ms: int
    ) -> None:
        settings = RetrySettings(backoff_ms=backoff_ms, backoff_max_ms=30_000, jitter=jitter)
        wait_ms = settings.wait_ms(failures, chance)
        term = min(backoff_ms * 2 ** (failures - 1), 30_000)
        assert term * (1 - jitter) - 1e-6 <= wait_ms <= min(term * (1 + jitter) + 1e-6, 30_000)


def test_closing_closes_the_store(store: Store) -> None:
    store.retrying.close()
    assert store.inner.calls == ["close"]


BACKOFF = {"remote.log.manager.task.retry.backoff.ms": "7"}


@pytest.fixture
def data(tmp_path: Path) -> LogSegmentData:
    return data_in(tmp_path / "source")


def test_an_executor_detects_no_layout(
    tmp_path: Path, data: LogSegmentData, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = local_tier(tmp_path / "tier", AivenLayout(AivenSettings(chunk_size=700), key_prefix="some/"))
    written.copy_log_segment_data(metadata_of(), data)
    spec = TierSpec((tmp_path / "tier").as_uri())
    resolved = pickle.loads(pickle.dumps(spec.resolved(open_tier(spec))))

    def detect(*_: object, **__: object) -> None:
        raise AssertionError("detected again")

    monkeypatch.setattr(open_module, "detect_layouts", detect)
    with pytest.raises(AssertionError, match="detected again"):
        open_tier(spec)
    tier = open_tier(resolved)
    assert tier.layout.base == "some/"
    assert tier.fetch_log_segment(metadata_of(), 0).read() == data.log_segment.path.read_bytes()


def test_calls_are_repeated_by_the_settings_but_not_on_local_disk(tmp_path: Path) -> None:
    assert TierSpec.from_settings("s3://bucket/folder", BACKOFF).retry == RetrySettings(backoff_ms=7)
    assert TierSpec.from_settings(tmp_path.as_uri(), BACKOFF).retry is None
    asked = RetrySettings(backoff_ms=7, attempts=2)
    spec = TierSpec.from_settings(tmp_path.as_uri(), {}, retry=asked)
    tier = open_tier(spec)
    assert tier.retry == asked
    assert TierSpec(spec.uri).resolved(tier).retry == asked


def test_private_keys_of_the_command_line_take_precedence() -> None:
    settings = {f"rsm.config.encryption.key.pairs.{key}.private.key.file": f"/{key}" for key in ("a", "b")}
    spec = TierSpec.from_settings(
        "s3://bucket", settings, private_keys={"b": Path("/other"), "": Path("/any")}
    )
    assert spec.aiven.private_keys == {"a": Path("/a"), "b": Path("/other"), "": Path("/any")}


def test_a_password_never_reaches_an_executor(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must not contain"):
        TierSpec("abfs://container:secret@account/folder").resolved(local_tier(tmp_path))
