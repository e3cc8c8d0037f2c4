"""Behaviour that only a tier in a folder has."""

import errno
import itertools
import os
import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tierctl.errors import (
    AuthenticationError,
    ObjectUnreadable,
    RemoteStorageError,
    SafetyRefusal,
    StoreWriteUnknown,
    UnsupportedFormatError,
    UsageError,
)
from tierctl.files import FileSystem
from tierctl.model import IndexType, LogSegmentData, Uuid
from tierctl.storage.layouts.aiven.layout import AivenLayout, AivenSettings
from tierctl.storage.layouts.kafka import KafkaLayout, segment_object_name
from tierctl.storage.open_tier import TierSpec, open_tier
from tierctl.storage.stores.base import plain_objects
from tierctl.storage.stores.local_store import LocalStore

from tests.metadata.events import TOPIC_ID
from tests.storage.segments import data_in, delete_segment, metadata_of
from tests.storage.tiers import local_tier
from tests.support.faults import NEVER, Failing, assert_durable, operations_of, run_and_die


@pytest.fixture
def data(tmp_path: Path) -> LogSegmentData:
    return data_in(tmp_path / "source")


def folder_of(root: Path) -> Path:
    return root / "kafka-tiered-storage" / "orders-0-2QZ5FAXaQrqgUzsReWnweA"


class TestLayout:
    @pytest.mark.parametrize(
        "key",
        [
            "kafka-tiered-storage/orders-0-2QZ5FAXaQrqgUzsReWnweA/00000000000000000000-2QZ5FAXaQrqgUzsReWnweA.log.tmp",
            "kafka-tiered-storage/orders-0-2QZ5FAXaQrqgUzsReWnweA/0-2QZ5FAXaQrqgUzsReWnweA.log",
            "kafka-tiered-storage/orders/00000000000000000000-2QZ5FAXaQrqgUzsReWnweA.log",
            "kafka-tiered-storage/orders-0-2QZ5FAXaQrqgUzsReWnweA/00000000000000000000-2QZ5FAXaQrqgUzsReWnweA.pdf",
            "x",
        ],
    )
    def test_other_names_are_nobodys(self, key: str) -> None:
        assert segment_object_name(key) is None

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("segment_id", Uuid("../../../../etc/passwd")),
            ("topic_id", Uuid("/")),
            ("start_offset", -1),
            ("partition", -1),
        ],
    )
    def test_nothing_of_the_metadata_leads_out(self, tmp_path: Path, field: str, value: object) -> None:
        with pytest.raises(SafetyRefusal):
            local_tier(tmp_path).objects_of(replace(metadata_of(), **{field: value}))  # type: ignore[arg-type]

    def test_which_folder_is_the_tier(self, tmp_path: Path, data: LogSegmentData) -> None:
        named = tmp_path / "kafka-tiered-storage"
        local_tier(named).copy_log_segment_data(metadata_of(), data)
        assert folder_of(tmp_path).is_dir()
        assert len(local_tier(tmp_path).objects_of(metadata_of())) == 6
        # A broker whose rsm.config.dir has that name creates another folder of the same name inside.
        (named / "kafka-tiered-storage").mkdir()
        assert local_tier(named).objects_of(metadata_of()) == []


class TestOpening:
    def test_makes_nothing(self, tmp_path: Path) -> None:
        open_tier(TierSpec((tmp_path / "tier").as_uri()))
        assert not (tmp_path / "tier").exists()

    @pytest.mark.parametrize(
        ("uri", "message", "hint"),
        [
            ("s3:///prefix", "not the URI of a store", "expected s3://bucket/folder"),
            (
                "abfs://container@account/folder",
                "not the URI of a store",
                "expected abfs://container@account.dfs.core.windows.net/folder",
            ),
            ("file://host/dir", "not the URI of a store", "expected file:///dir"),
            ("file:", "not the URI of a store", "expected file:///dir"),
            ("s3://bucket/a?b=c", "not the URI of a store", "expected s3://bucket/folder"),
            ("ftp://name/dir", "unknown scheme 'ftp'", "known schemes: file, s3, hdfs, gs"),
            ("s4://bucket/dir", "unknown scheme 's4'", r"did you mean s3://\? known schemes: file, s3"),
            ("dir", "unknown scheme ''", "known schemes: file, s3, hdfs, gs"),
        ],
    )
    def test_other_uris_are_refused(self, uri: str, message: str, hint: str) -> None:
        with pytest.raises(UsageError, match=message) as caught:
            open_tier(TierSpec(uri))
        assert re.search(hint, caught.value.hint or "")

    def test_the_layout_is_what_is_there(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="unknown layout"):
            open_tier(TierSpec(tmp_path.as_uri(), layout="other"))
        assert isinstance(open_tier(TierSpec(tmp_path.as_uri())).layout, KafkaLayout)
        name = "00000000000000000000-2QZ5FAXaQrqgUzsReWnweA.rsm-manifest"
        manifest = tmp_path / "tier" / "sensors-3pXvhekyQiiXrCvqiFuNCQ" / "0" / name
        manifest.parent.mkdir(parents=True)
        manifest.touch()
        for uri, base in (
            (tmp_path.as_uri(), "tier/"),
            (f"{tmp_path.as_uri()}/tier", ""),
            (f"{tmp_path.as_uri()}/tier/", ""),
        ):
            tier = open_tier(TierSpec(uri))
            assert isinstance(tier.layout, AivenLayout)
            assert tier.layout.base == base
        with pytest.raises(UsageError, match="has layout aiven, as 'tier/sensors-"):
            open_tier(TierSpec(tmp_path.as_uri(), layout="kafka"))
        (tmp_path / "kafka-tiered-storage").mkdir()
        assert isinstance(open_tier(TierSpec(tmp_path.as_uri())).layout, KafkaLayout)

    def test_two_tiers_are_one_too_many(self, tmp_path: Path) -> None:
        for prefix in ("one", "two"):
            log = tmp_path / prefix / "sensors-3pXvhekyQiiXrCvqiFuNCQ" / "0" / f"{0:020d}-{TOPIC_ID}.log"
            log.parent.mkdir(parents=True)
            log.touch()
        with pytest.raises(UsageError, match="several tiers"):
            open_tier(TierSpec(tmp_path.as_uri()))
        chosen = open_tier(
            TierSpec(tmp_path.as_uri(), layout="aiven", aiven=AivenSettings(key_prefix="two/"))
        ).layout
        assert isinstance(chosen, AivenLayout)
        assert chosen.base == "two/"

    def test_iceberg_is_refused_by_name(self, tmp_path: Path) -> None:
        table = tmp_path / "warehouse" / "orders" / "metadata"
        table.mkdir(parents=True)
        (table / "2QZ5FAXaQrqgUzsReWnweA.puffin").touch()
        with pytest.raises(UnsupportedFormatError, match="iceberg"):
            open_tier(TierSpec(tmp_path.as_uri()))
        with pytest.raises(UnsupportedFormatError, match="iceberg"):
            open_tier(
                TierSpec(
                    (tmp_path / "new").as_uri(),
                    aiven=AivenSettings.from_settings({"rsm.config.segment.format": "ICEBERG"}),
                )
            )

    def test_escaped_uris(self, tmp_path: Path, data: LogSegmentData) -> None:
        folder = tmp_path / "with space"
        open_tier(TierSpec(folder.as_uri(), layout="kafka")).copy_log_segment_data(metadata_of(), data)
        assert folder_of(folder).is_dir()


class TestDelete:
    def test_other_files_stay(self, tmp_path: Path, data: LogSegmentData) -> None:
        store = local_tier(tmp_path)
        store.copy_log_segment_data(metadata_of(), data)
        stem = f"{0:020d}-{metadata_of().segment_id}"
        strangers = [folder_of(tmp_path) / f"{stem}.log.old", folder_of(tmp_path) / f"{stem}x.log"]
        for path in strangers:
            path.write_bytes(b"keep")
        delete_segment(store, metadata_of())
        assert sorted(folder_of(tmp_path).iterdir()) == sorted(strangers)

    def test_a_tier_that_is_not_mounted_is_not_an_empty_one(
        self, tmp_path: Path, data: LogSegmentData
    ) -> None:
        store = local_tier(tmp_path / "tier")
        store.copy_log_segment_data(metadata_of(), data)
        (tmp_path / "tier").rename(tmp_path / "elsewhere")
        for call in (
            lambda: delete_segment(store, metadata_of()),
            lambda: store.objects_of(metadata_of()),
            lambda: list(store.list_objects()),
            lambda: store.fetch_log_segment(metadata_of(), 0),
        ):
            with pytest.raises(RemoteStorageError, match="there is no tier") as caught:
                call()
            assert caught.value.hint


class TestWithoutAFolderOfItsOwn:
    """Layout `aiven` without a prefix: only objects distinguish a tier from an empty mount point."""

    def test_an_empty_mount_point_is_no_tier(self, tmp_path: Path, data: LogSegmentData) -> None:
        tier = local_tier(tmp_path / "tier", AivenLayout())
        tier.copy_log_segment_data(metadata_of(), data)
        (tmp_path / "tier").rename(tmp_path / "elsewhere")
        (tmp_path / "tier").mkdir()
        for call in (
            lambda: delete_segment(tier, metadata_of()),
            lambda: tier.objects_of(metadata_of()),
            lambda: list(tier.list_objects()),
        ):
            with pytest.raises(RemoteStorageError, match="there is no tier"):
                call()

    def test_a_tier_that_was_emptied_is_still_one(self, tmp_path: Path, data: LogSegmentData) -> None:
        tier = local_tier(tmp_path / "tier", AivenLayout())
        for number in (0, 1):
            tier.copy_log_segment_data(metadata_of(number), data)
        tier.copy_log_segment_data(metadata_of(2, partition=1), data)
        for segment in (metadata_of(0), metadata_of(1), metadata_of(2, partition=1)):
            delete_segment(tier, segment)
            delete_segment(tier, segment)
        assert list(tier.list_objects()) == []
        assert [path.name for path in (tmp_path / "tier").rglob("*")] == ["orders-2QZ5FAXaQrqgUzsReWnweA"]


def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    """Opening a pipe for reading waits until something writes to it."""
    store = LocalStore(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for key, kind in (("pipe", "a pipe"), ("folder", "a folder")):
        with pytest.raises(RemoteStorageError, match=f"{kind} has the name of an object"):
            store.open(key)
    (pipe,) = store.list_objects("")
    assert (pipe.key, pipe.problem) == ("pipe", "a pipe has the name of an object")
    assert list(plain_objects([pipe])) == []


class TestLinks:
    def test_a_linked_partition_is_left_alone(self, tmp_path: Path, data: LogSegmentData) -> None:
        outside = local_tier(tmp_path / "outside")
        outside.copy_log_segment_data(metadata_of(), data)
        (tmp_path / "tier" / "kafka-tiered-storage").mkdir(parents=True)
        folder_of(tmp_path / "tier").symlink_to(folder_of(tmp_path / "outside"))
        store = local_tier(tmp_path / "tier")
        for call in (
            lambda: delete_segment(store, metadata_of()),
            lambda: store.copy_log_segment_data(metadata_of(), data),
            lambda: store.objects_of(metadata_of()),
        ):
            with pytest.raises(SafetyRefusal, match="not a plain folder"):
                call()
        with pytest.raises(ObjectUnreadable, match="not a plain folder"):
            store.fetch_index(metadata_of(), IndexType.OFFSET)
        (link,) = store.list_objects()
        assert "a symbolic link" in (link.problem or "")
        outside.verify_log_segment_data(metadata_of(), data)

    def test_a_linked_object_is_not_read_and_only_the_link_is_deleted(
        self, tmp_path: Path, data: LogSegmentData
    ) -> None:
        store = local_tier(tmp_path)
        store.copy_log_segment_data(metadata_of(), data)
        secret = tmp_path / "secret"
        secret.write_bytes(b"secret")
        log = folder_of(tmp_path) / f"{0:020d}-{metadata_of().segment_id}.log"
        log.unlink()
        log.symlink_to(secret)
        with pytest.raises(RemoteStorageError, match="symbolic"):
            store.fetch_log_segment(metadata_of(), 0)
        store.copy_log_segment_data(metadata_of(), data)
        assert not log.is_symlink()
        log.unlink()
        log.symlink_to(secret)
        delete_segment(store, metadata_of())
        assert secret.read_bytes() == b"secret"
        assert list(store.list_objects()) == [], "the tier is empty, and still there"


def copy(root: Path, data: LogSegmentData, fs: FileSystem) -> None:
    local_tier(root, fs=fs).copy_log_segment_data(metadata_of(), data)


def delete(root: Path, fs: FileSystem) -> None:
    delete_segment(local_tier(root, fs=fs), metadata_of())


def create(root: Path, fs: FileSystem) -> None:
    assert LocalStore(root, fs=fs).create("folder/object", b"body")


def whole_objects(root: Path, data: LogSegmentData) -> set[str]:
    """Return the keys of the segment's existing objects; each must be complete."""
    store = local_tier(root)
    if not (root / "kafka-tiered-storage").exists():
        return set()
    reference = root.parent / "reference"
    local_tier(reference).copy_log_segment_data(metadata_of(), data)
    expected = {o.key: (reference / o.key).read_bytes() for o in local_tier(reference).list_objects()}
    found = {o.key for o in store.objects_of(metadata_of())}
    for key in found:
        assert (root / key).read_bytes() == expected[key]
    return found


def test_a_copy_a_delete_and_a_creation_are_on_the_disk(tmp_path: Path, data: LogSegmentData) -> None:
    assert_durable(partial(copy, tmp_path / "tier", data))
    assert_durable(partial(delete, tmp_path / "tier"))
    assert_durable(lambda fs: create(tmp_path / "tier", fs))


class TestFaults:
    def test_a_failed_copy_shows_no_half_object_and_can_be_repeated(
        self, tmp_path: Path, data: LogSegmentData
    ) -> None:
        operations = operations_of(lambda fs: copy(tmp_path / "watched", data, fs))
        assert {"mkdir", "create", "write", "fsync", "rename", "fsync-dir"} <= set(operations)
        errors = itertools.cycle([errno.ENOSPC, errno.EIO, errno.EACCES])
        for (nth, operation), number in zip(enumerate(operations), errors, strict=False):
            root = tmp_path / str(nth)
            with pytest.raises(RemoteStorageError) as caught:
                copy(root, data, Failing(nth, number))
            assert caught.value.hint
            unknown = isinstance(caught.value, StoreWriteUnknown)
            assert unknown == (operation == "fsync-dir" and nth == len(operations) - 1)
            whole_objects(root, data)
            assert not list(root.rglob("*.tmp"))
            copy(root, data, FileSystem())
            assert len(whole_objects(root, data)) == 6

    def test_a_failed_delete_is_no_success_and_can_be_repeated(
        self, tmp_path: Path, data: LogSegmentData
    ) -> None:
        copy(tmp_path / "watched", data, FileSystem())
        operations = operations_of(lambda fs: delete(tmp_path / "watched", fs))
        for nth, operation in enumerate(operations):
            root = tmp_path / str(nth)
            copy(root, data, FileSystem())
            if nth <= operations.index("fsync-dir"):
                with pytest.raises(RemoteStorageError):
                    delete(root, Failing(nth, errno.EIO))
            else:
                assert operation in {"rmdir", "fsync-dir"}
                delete(root, Failing(nth, errno.EACCES))
            delete(root, FileSystem())
            assert whole_objects(root, data) == set()

    @pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
    def test_a_delete_without_the_right_to_it_is_not_repeated(
        self, tmp_path: Path, data: LogSegmentData, number: int
    ) -> None:
        copy(tmp_path, data, FileSystem())
        with pytest.raises(AuthenticationError, match="deleting") as caught:
            delete(tmp_path, Failing(0, number, only=frozenset({"unlink"}), lasts=True))
        assert "owner and mode" in (caught.value.hint or "")
        assert len(whole_objects(tmp_path, data)) == 6

    def test_kill_9_at_every_step_of_a_copy(self, tmp_path: Path, data: LogSegmentData) -> None:
        for nth in range(len(operations_of(lambda fs: copy(tmp_path / "watched", data, fs)))):
            root = tmp_path / str(nth)
            assert run_and_die(partial(copy, root, data), nth)
            whole_objects(root, data)
            if (root / "kafka-tiered-storage").exists():
                dead = shutil.copytree(root, tmp_path / f"{nth} dead")
                delete(dead, FileSystem())
                assert not list(dead.rglob("*.log*")), "what a crash left goes with the segment"
            copy(root, data, FileSystem())
            local_tier(root).verify_log_segment_data(metadata_of(), data)
        assert not run_and_die(partial(copy, tmp_path / "whole", data), NEVER)

    def test_a_source_that_vanishes_is_no_missing_object(self, tmp_path: Path, data: LogSegmentData) -> None:
        data.log_segment.path.unlink()
        with pytest.raises(RemoteStorageError, match="which was to be copied") as caught:
            copy(tmp_path / "tier", data, FileSystem())
        assert "broker" in (caught.value.hint or "")

    def test_an_object_that_shrinks_while_it_is_read(self, tmp_path: Path, data: LogSegmentData) -> None:
        copy(tmp_path, data, FileSystem())
        stream = local_tier(tmp_path).fetch_log_segment(metadata_of(), 0)
        (folder_of(tmp_path) / f"{0:020d}-{metadata_of().segment_id}.log").write_bytes(b"")
        with pytest.raises(RemoteStorageError, match="ended at 0"):
            stream.read()
        stream.close()

    def test_copying_beside_a_delete_of_the_partitions_last_segment(
        self, tmp_path: Path, data: LogSegmentData
    ) -> None:
        copy(tmp_path, data, FileSystem())
        store = local_tier(tmp_path)
        taken: list[Path] = []

        def take_folder_away(operation: str, path: Path) -> None:
            if operation == "create" and not taken:
                taken.append(path)
                shutil.rmtree(folder_of(tmp_path))

        local_tier(tmp_path, fs=FileSystem(take_folder_away)).copy_log_segment_data(metadata_of(1), data)
        store.verify_log_segment_data(metadata_of(1), data)
