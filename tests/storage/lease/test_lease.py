"""Leases on every store that supports them, and the refusal on other stores."""

import errno
import fcntl
import json
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tierctl.errors import (
    AuthenticationError,
    LockedError,
    RemoteStorageError,
    RemoteTierMissing,
    SafetyRefusal,
    StoreWriteUnknown,
)
from tierctl.storage.layouts.aiven.layout import AivenLayout
from tierctl.storage.layouts.kafka import KafkaLayout, SegmentLayout
from tierctl.storage.lease import LEASE_S, MARGIN_S, ObjectLease, facts_of_a_run, open_lease
from tierctl.storage.remote_storage_manager import RemoteStorageManager
from tierctl.storage.stores import arrow, open_store
from tierctl.storage.stores.base import ConditionalStore, TaggedObject, parse_store_uri

from tests.storage.memory import MemoryStorage, MemoryStore
from tests.storage.tiers import local_tier
from tests.support.servers import S3Server


@pytest.fixture
def store(request: pytest.FixtureRequest) -> ConditionalStore:
    if getattr(request, "param", "s3") == "hdfs":
        opened = open_store(request.getfixturevalue("hdfs"))
    else:
        server: S3Server = request.getfixturevalue("s3_server")
        opened = open_store(f"s3://{server.bucket()}/a/b")
    assert isinstance(opened, ConditionalStore)
    return opened


def put(store: ConditionalStore, written: bytes) -> None:
    """Write the lease as another program does."""
    found = store.get_tagged("lease")
    assert store.put_if("lease", written, None if found is None else found.tag) is not None


def body(store: ConditionalStore) -> bytes:
    found = store.get_tagged("lease")
    assert found is not None
    return found.body


over_each_store = pytest.mark.parametrize("store", ["s3", "hdfs"], indirect=True)


class TestLease:
    @over_each_store
    def test_one_at_a_time(self, store: ConditionalStore) -> None:
        tier = RemoteStorageManager(store, KafkaLayout())
        first, second = open_lease(tier), open_lease(tier)
        assert first is not None
        assert second is not None
        with first:
            assert not first.is_lost()
            with pytest.raises(LockedError, match=f"process {os.getpid()} on"), second:
                pass
            assert list(tier.list_objects()) == []
            assert tier.list_folder().objects == ()
        with open_lease(tier) as third:  # type: ignore[union-attr]
            assert not third.is_lost()
        assert store.get_tagged(tier.own_key("lease")) is None

    @over_each_store
    def test_only_one_of_many_gets_it(self, store: ConditionalStore) -> None:
        got: list[str] = []
        begin, seen = threading.Barrier(6), threading.Barrier(6)

        def compete(name: str) -> None:
            begin.wait()
            try:
                with ObjectLease(store, "lease"):
                    got.append(name)
                    seen.wait()
            except LockedError:
                seen.wait()

        threads = [threading.Thread(target=compete, args=(f"run {n}",)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(got) == 1

    def test_one_that_was_taken_is_lost_and_stays_with_the_other(self, store: ConditionalStore) -> None:
        with ObjectLease(store, "lease") as first:
            put(store, b'{"host": "thief"}')
            first.renew()
            assert first.is_lost()
        assert b"thief" in body(store)

    @pytest.mark.parametrize("error", [RemoteStorageError("timeout"), AuthenticationError("403")])
    def test_time_passes_without_renewal(
        self, error: Exception, store: ConditionalStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = [0.0]
        with ObjectLease(store, "lease", clock_s=lambda: now[0]) as lease:
            now[0] = LEASE_S - MARGIN_S - 1
            lease.renew()
            now[0] += LEASE_S - MARGIN_S - 1
            assert not lease.is_lost()

            def unreachable(*_: object) -> None:
                raise error

            monkeypatch.setattr(store, "put_if", unreachable)
            lease.renew()
            assert not lease.is_lost()
            now[0] += 2
            assert lease.is_lost()
        monkeypatch.undo()

    def test_the_time_in_which_the_machine_slept_counts(
        self, store: ConditionalStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The clock of the store goes on meanwhile, and another run may take the lease over."""
        with ObjectLease(store, "lease") as lease:
            woken_s = time.clock_gettime(time.CLOCK_BOOTTIME) + LEASE_S
            monkeypatch.setattr("time.clock_gettime", {time.CLOCK_BOOTTIME: woken_s}.__getitem__)
            assert lease.is_lost()
            monkeypatch.undo()

    def test_an_old_one_is_taken_over(self, store: ConditionalStore, monkeypatch: pytest.MonkeyPatch) -> None:
        for left in (b"[" * 100_000, b"what a killed run left"):
            put(store, left)
            with pytest.raises(LockedError), ObjectLease(store, "lease"):
                pass
        monkeypatch.setattr("tierctl.storage.lease.TAKE_OVER_S", -1.0)
        with ObjectLease(store, "lease") as second:
            assert not second.is_lost()
            assert second.holder["run"].encode() in body(store)

    def test_one_whose_process_is_gone_is_taken_over(self, store: ConditionalStore) -> None:
        gone = subprocess.Popen(["true"])
        gone.wait()
        for change in ({"pid": gone.pid}, {"started": "1"}, {"run": "an earlier one of this process"}):
            left = facts_of_a_run() | change
            put(store, json.dumps(left).encode())
            with ObjectLease(store, "lease") as lease:
                assert not lease.is_lost()

    def test_a_process_that_proc_hides_may_still_run(
        self, store: ConditionalStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With hidepid, or ProtectProc= of a unit, /proc does not list the processes of other users."""
        monkeypatch.setattr("tierctl.storage.lease._started", lambda pid: "9" * (pid == os.getpid()))
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as holder:
            left = facts_of_a_run() | {"pid": holder.pid, "started": "1"}
            put(store, json.dumps(left).encode())
            with pytest.raises(LockedError), ObjectLease(store, "lease"):
                pass
        with ObjectLease(store, "lease") as lease:
            assert not lease.is_lost()

    def test_one_of_another_machine_may_still_run(self, store: ConditionalStore) -> None:
        elsewhere = ({"place": "elsewhere", "pid": 1 << 22}, {"place": "", "pid": 1 << 22})
        for change in (*elsewhere, {"pid": "x"}, {"pid": 1 << 40}):
            left = facts_of_a_run() | {"started": "1"} | change
            put(store, json.dumps(left).encode())
            with pytest.raises(LockedError), ObjectLease(store, "lease"):
                pass

    @over_each_store
    def test_a_late_write_under_an_old_tag_never_succeeds(self, store: ConditionalStore) -> None:
        first = store.put_if("lease", b"first", None)
        assert first is not None
        second = store.put_if("lease", b"second", first)
        assert second is not None
        assert store.put_if("lease", b"late", first) is None
        store.delete_if("lease", second)
        assert store.get_tagged("lease") is None
        for tag in (first, second):
            assert store.put_if("lease", b"late", tag) is None
        assert store.put_if("lease", b"third", None) is not None
        for tag in (None, first, second):
            assert store.put_if("lease", b"late", tag) is None
        assert body(store) == b"third"

    @over_each_store
    def test_its_age_is_by_the_stores_clock(self, store: ConditionalStore) -> None:
        put(store, b"now")
        found = store.get_tagged("lease")
        assert found is not None
        assert -1 <= found.age_s < LEASE_S


class UnsureStore(MemoryStore, ConditionalStore):
    """A store in memory, each of whose next conditional writes ends as `ends` says; the others end well.

    A write that is `lost` takes effect and fails. One that is `repeated` is sent twice by the client, and
    the second request does not find the tag.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[str] = []
        self._tag = 0

    def put_if(self, key: str, body: bytes, tag: str | None) -> str | None:
        end = self.ends.pop(0) if self.ends else "good"
        if end == "failed":
            raise RemoteStorageError("503")
        if tag != (str(self._tag) if key in self.objects else None):
            return None
        self._tag += 1
        self.objects[key] = body
        if end == "lost":
            raise StoreWriteUnknown("connection reset")
        return None if end == "repeated" else str(self._tag)

    def get_tagged(self, key: str) -> TaggedObject | None:
        return TaggedObject(str(self._tag), self.objects[key], 0.0) if key in self.objects else None

    def delete_if(self, key: str, tag: str) -> None:
        if tag == str(self._tag):
            del self.objects[key]


@given(st.lists(st.sampled_from(["good", "failed", "lost", "repeated"]), max_size=8), st.booleans())
@example(["lost"], False)
@example(["lost", "good", "repeated"], False)
def test_renewals_that_take_effect_and_fail_do_not_lose_the_lease(ends: list[str], is_stolen: bool) -> None:
    store, now = UnsureStore(), [0.0]
    with ObjectLease(store, "lease", clock_s=lambda: now[0], renew_s=10 * LEASE_S) as lease:
        store.ends = ends
        while store.ends:
            lease.renew()
            assert not lease.is_lost()
        if is_stolen:
            put(store, b'{"run": "of a thief"}')
        now[0] = LEASE_S - MARGIN_S
        lease.renew()
        now[0] += 1
        assert lease.is_lost() == is_stolen
    assert (store.get_tagged("lease") is not None) == is_stolen


@pytest.mark.parametrize("layout", [KafkaLayout(), AivenLayout()], ids=["kafka", "aiven"])
def test_the_lease_lies_beside_the_folder_of_local_tiered_storage(layout: SegmentLayout) -> None:
    assert RemoteStorageManager(MemoryStorage().store, layout).own_key("lease") == ".tierctl-lease"


def test_of_two_first_copies_into_a_folder_one_is_locked_out(tmp_path: Path) -> None:
    tier = local_tier(tmp_path / "new" / "tier")
    first, second = open_lease(tier), open_lease(tier)
    assert first is not None
    assert second is not None
    with first, pytest.raises(LockedError), second:
        pass
    with second:
        assert not second.is_lost()
    with pytest.raises(RemoteTierMissing):
        list(tier.list_objects())


@pytest.mark.parametrize(
    "names",
    [
        (("", "a/"), ("a", "")),
        (("", "a/b/"), ("a/b", "")),
        (("", "a/b/"), ("a", "b/")),
        (("a", "b/"), ("a", "b/")),
        (("", "a/"), ("link", "")),
    ],
)
def test_two_names_of_one_tier_in_a_folder_have_one_lease(
    names: tuple[tuple[str, str], ...], tmp_path: Path
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to("a")
    tiers = [local_tier(tmp_path / folder, AivenLayout(key_prefix=prefix)) for folder, prefix in names]
    for first, second in (tiers, tiers[::-1]):
        with open_lease(first) as held:  # type: ignore[union-attr]
            for other in (second, first):
                with pytest.raises(LockedError), open_lease(other):  # type: ignore[union-attr]
                    pass
            assert not held.is_lost()
        with open_lease(second):  # type: ignore[union-attr]
            pass
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["a", "b", "link"]


@pytest.mark.parametrize("is_new", [True, False])
def test_a_lease_is_lost_with_a_folder_that_was_moved_away(tmp_path: Path, *, is_new: bool) -> None:
    """Objects are written by path: into the new folder, which another run may have locked."""
    folder = tmp_path / "tier"
    with open_lease(local_tier(folder)) as lease:  # type: ignore[union-attr]
        assert not lease.is_lost()
        folder.rename(tmp_path / "old")
        if is_new:
            folder.mkdir()
        assert lease.is_lost()


def test_a_lease_does_not_make_the_folder_with_which_keys_begin(tmp_path: Path) -> None:
    """If it exists, the tier exists, and has no objects: the disk may not be mounted."""
    tier = local_tier(tmp_path / "tier", AivenLayout(key_prefix="a/"))
    with open_lease(tier), pytest.raises(LockedError), open_lease(tier):  # type: ignore[union-attr]
        pass
    assert [each.name for each in tmp_path.rglob("*")] == ["tier"]
    with pytest.raises(RemoteTierMissing):
        list(tier.list_objects())


class TestWithoutALease:
    def test_a_kind_of_store_without_one_is_refused(self, tmp_path: Path) -> None:
        tier = RemoteStorageManager(arrow.open_store(parse_store_uri(tmp_path.as_uri())), KafkaLayout())
        with pytest.raises(SafetyRefusal, match="no lease for this kind of store") as refused:
            open_lease(tier)
        assert "--no-lease" in str(refused.value.hint)
        assert open_lease(tier, is_optional=True) is None

    def test_a_store_that_ignores_conditions_is_refused(self) -> None:
        class Ignoring(UnsureStore):
            def put_if(self, key: str, body: bytes, _tag_of_caller: str | None) -> str | None:
                return super().put_if(key, body, str(self._tag) if key in self.objects else None)

        with pytest.raises(SafetyRefusal, match="it ignores them"), ObjectLease(Ignoring(), "lease"):
            pass
        with ObjectLease(Ignoring(), "lease", is_optional=True) as lease:
            assert lease.why_without is not None

    @pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS], ids=errno.errorcode.get)
    def test_a_file_system_without_locks_is_refused(
        self, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def no_locks(_fd: int, _operation: int) -> None:
            raise OSError(number, os.strerror(number))

        tier = local_tier(tmp_path)
        monkeypatch.setattr(fcntl, "flock", no_locks)
        with pytest.raises(SafetyRefusal, match="can't be locked"), open_lease(tier):  # type: ignore[union-attr]
            pass
        with open_lease(tier, is_optional=True) as lease:  # type: ignore[union-attr]
            assert not lease.is_lost()
