"""Uploads to S3: concurrent objects, parts, checksums, and files that change during the upload."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tierctl.errors import (
    RemoteObjectDiffers,
    RemoteResourceNotFound,
    RemoteStorageError,
    StoreWriteFailed,
    StoreWriteUnknown,
)
from tierctl.model import HashedFile
from tierctl.storage.stores.base import Source, hashed_file
from tierctl.storage.stores.s3.client import s3_client
from tierctl.storage.stores.s3.store import S3Store

from tests.support.servers import S3Server

MIB = 1 << 20
PART = 5 * MIB
SIZES = {"one request": PART, "parts": PART + 1}


@pytest.fixture
def store(s3_server: S3Server) -> Iterator[S3Store]:
    opened = S3Store(s3_client(), s3_server.bucket(), "t/", part_bytes=PART)
    yield opened
    opened.close()


in_one_request_and_in_parts = pytest.mark.parametrize("log", SIZES.values(), ids=SIZES, indirect=True)


@pytest.fixture
def log(request: pytest.FixtureRequest, tmp_path: Path) -> HashedFile:
    """Return a log, which is small in tests that do not depend on its size."""
    size_bytes = getattr(request, "param", 1 << 16)
    path = tmp_path / "log"
    path.write_bytes(bytes(at % 251 for at in range(1 << 16)) * (size_bytes // (1 << 16) + 1))
    with path.open("r+b") as file:
        file.truncate(size_bytes)
    return hashed_file(path)


def uploads(store: S3Store) -> list[Any]:
    return list(store._s3.list_multipart_uploads(Bucket=store._bucket).get("Uploads", []))


def requests_of(store: S3Store) -> list[str]:
    """Return the operations of the store's later requests."""
    sent: list[str] = []
    store._s3.meta.events.register(
        "before-send.s3", lambda event_name, **_: sent.append(event_name.rsplit(".", 1)[1])
    )
    return sent


@in_one_request_and_in_parts
def test_a_verified_object_is_not_read_again(store: S3Store, log: HashedFile) -> None:
    objects: dict[str, Source | None] = {"log": log, "index": b"small", "none": None, "last": b"end"}
    store.put_all(objects)
    sent = requests_of(store)
    store.verify_all(objects)
    assert sent == ["ListObjectsV2"], "the server returned the checksums with the writes"
    sent.clear()
    store.verify_all(objects)
    assert sorted(sent) == ["HeadObject"] * 4, "the writes of this process count once"
    assert b"".join(store.open("log")) == log.path.read_bytes()


@pytest.mark.parametrize(
    ("key", "stored", "error"),
    [
        ("log", b"x" * 100, RemoteObjectDiffers),
        ("index", b"SMALL", RemoteObjectDiffers),
        ("index", None, RemoteResourceNotFound),
        ("none", b"exists", RemoteObjectDiffers),
    ],
    ids=["another size", "the same size", "deleted", "should not exist"],
)
def test_another_program_changed_what_was_written(
    store: S3Store, log: HashedFile, key: str, stored: bytes | None, error: type[Exception]
) -> None:
    """An object with another ETag than that of the confirmed write is verified on its own."""
    objects: dict[str, Source | None] = {"log": log, "index": b"small", "none": None, "last": b"end"}
    store.put_all(objects)
    where = {"Bucket": store._bucket, "Key": f"t/{key}"}
    if stored is None:
        store._s3.delete_object(**where)
    else:
        store._s3.put_object(**where, Body=stored)
    with pytest.raises(error, match=key):
        store.verify_all(objects)


@pytest.mark.parametrize(
    "answer", [{"ChecksumCRC32C": None}, {"ChecksumCRC32C": "AAAAAA=="}, {"ETag": "other"}]
)
def test_a_write_that_the_server_did_not_confirm(store: S3Store, log: HashedFile, answer: Any) -> None:
    """The server returns no checksum, one of other bytes, or an ETag that its listings do not have."""
    objects: dict[str, Source | None] = {"log": log, "index": b"small"}
    note = store._confirmed.note

    def changed(key: str, source: Source, response: Any) -> None:
        note(key, source, response | (answer if key == "t/index" else {}))

    store._confirmed.note = changed  # type: ignore[method-assign]
    store.put_all(objects)
    sent = requests_of(store)
    store.verify_all(objects)
    assert sent == ["ListObjectsV2", "HeadObject"]
    with pytest.raises(RemoteObjectDiffers, match="index"):
        store.verify_all(objects | {"index": b"SMALL"})


def test_the_last_object_is_stored_last(store: S3Store, log: HashedFile) -> None:
    seen: list[set[str]] = []
    write = store._write

    def watched(key: str, source: Source, condition: dict[str, str]) -> None:
        if key == "manifest":
            seen.append(set(store.sizes_bytes(["log", "index"])))
        write(key, source, condition)

    store._write = watched  # type: ignore[method-assign]
    store.put_all({"log": log, "index": b"small", "manifest": b"end"})
    assert seen == [{"log", "index"}]


def test_small_objects_do_not_wait_for_the_log(store: S3Store, log: HashedFile) -> None:
    """The log is sent only after the index is stored: sequential uploads would wait for ever."""
    stored, write = threading.Event(), store._write

    def watched(key: str, source: Source, condition: dict[str, str]) -> None:
        if key == "log":
            assert stored.wait(20)
        write(key, source, condition)
        if key == "index":
            stored.set()

    store._write = watched  # type: ignore[method-assign]
    store.put_all({"log": log, "index": b"small", "last": b"end"})


@pytest.mark.parametrize("failing", ["log", "index", "last"])
def test_nothing_is_under_way_after_a_failure(store: S3Store, log: HashedFile, failing: str) -> None:
    busy: set[str] = set()
    write = store._write

    def watched(key: str, source: Source, condition: dict[str, str]) -> None:
        if key == failing:
            raise StoreWriteFailed(f"{key} fails")
        busy.add(key)
        time.sleep(0.05)
        write(key, source, condition)
        busy.remove(key)

    store._write = watched  # type: ignore[method-assign]
    with pytest.raises(StoreWriteFailed, match=f"{failing} fails"):
        store.put_all({"log": log, "index": b"small", "more": b"small", "last": b"end"})
    assert not busy
    assert "last" not in store.sizes_bytes(["last"])


def test_an_unknown_outcome_counts_before_a_failure(store: S3Store, log: HashedFile) -> None:
    errors = {"log": StoreWriteFailed("failed"), "two": StoreWriteUnknown("unknown")}

    def failing(key: str, _source: Source, _condition: dict[str, str]) -> None:
        if key in errors:
            raise errors[key]

    store._write = failing  # type: ignore[method-assign]
    with pytest.raises(StoreWriteUnknown, match="unknown"):
        store.put_all({"log": log, "one": b"1", "two": b"2", "last": b"end"})


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_part_that_fails_leaves_no_upload(store: S3Store, tmp_path: Path, number: int) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(2 * PART + 1))
    sent: list[Any] = []

    def fail(**kwargs: Any) -> None:
        sent.append(kwargs)
        if len(sent) >= number:
            raise OSError("connection reset")

    store._s3.meta.events.register("before-send.s3.UploadPart", fail)
    with pytest.raises(RemoteStorageError, match=f"writing part {number} of"):
        store.put_all({"index": b"small", "log": hashed_file(path)})
    assert uploads(store) == []
    assert set(store.sizes_bytes(["index", "log"])) == {"index"}


def flip(path: Path) -> None:
    with path.open("r+b") as file:
        byte = file.read(1)[0]
        file.seek(0)
        file.write(bytes([byte ^ 1]))


def shorten(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)


@in_one_request_and_in_parts
@pytest.mark.parametrize("change", [flip, shorten, Path.unlink])
def test_bytes_that_were_not_hashed_never_pass(store: S3Store, log: HashedFile, change: Any) -> None:
    """The file changes after it was checked: the store refuses it, or the verification fails."""

    def copy() -> None:
        store.put_all({"index": b"small", "log": log})
        store.verify_all({"index": b"small", "log": log})

    change(log.path)
    with pytest.raises(RemoteStorageError) as caught:
        copy()
    assert not isinstance(caught.value, StoreWriteUnknown), "then its objects would not be cleaned up"
    assert uploads(store) == []


@in_one_request_and_in_parts
@pytest.mark.parametrize("reported", ["none", "of its parts"])
def test_other_checksums_than_the_whole_objects(
    store: S3Store, log: HashedFile, reported: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store without checksums is read back; one without FULL_OBJECT reports the checksum of the parts."""
    if reported == "of its parts":
        create = store._s3.create_multipart_upload

        def composite(**kwargs: Any) -> Any:
            return create(**{**kwargs, "ChecksumType": "COMPOSITE"})

        monkeypatch.setattr(store._s3, "create_multipart_upload", composite)
    if reported == "none":
        monkeypatch.setattr(store._confirmed, "note", lambda *_: None)
    store.put_all({"log": log})
    head = store._head

    def without(key: str) -> Any:
        return {name: value for name, value in (head(key) or {}).items() if name != "ChecksumCRC32C"}

    if reported == "none":
        monkeypatch.setattr(store, "_head", without)
    elif log.size_bytes > PART:
        assert "-" in (head("log") or {})["ChecksumCRC32C"]
    sent = requests_of(store)
    store.verify_all({"log": log})
    assert ("GetObject" in sent) == (reported == "none")
    flip(log.path)
    with pytest.raises(RemoteObjectDiffers, match="differs from its source"):
        store.verify_all({"log": hashed_file(log.path)})


@in_one_request_and_in_parts
@pytest.mark.parametrize(
    "case", [("s3_tls_server", None, False), ("s3_tls_server", "true", True), ("s3_server", None, True)]
)
def test_the_bytes_of_a_file_are_signed_without_tls_or_if_the_aws_settings_ask_for_it(
    case: tuple[str, str | None, bool],
    log: HashedFile,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    server, setting, is_signed = case
    bucket = request.getfixturevalue(server).bucket()
    config = log.path.with_name("config")
    config.write_text("[default]\n" + (f"s3 =\n  payload_signing_enabled = {setting}\n" if setting else ""))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    store = S3Store(s3_client(), bucket, part_bytes=PART)
    sent: dict[str, set[Any]] = {"PutObject": set(), "UploadPart": set()}
    for operation, seen in sent.items():
        store._s3.meta.events.register(
            f"before-send.s3.{operation}",
            lambda request, seen=seen, **_: seen.add(request.headers["X-Amz-Content-SHA256"]),
        )
    store.put_all({"log": log})
    store.verify_all({"log": log})
    found = sent["PutObject"] | sent["UploadPart"]
    assert (b"UNSIGNED-PAYLOAD" in found or "UNSIGNED-PAYLOAD" in found) == (not is_signed)
    sent["PutObject"].clear()
    store.put_all({"index": b"small"})
    assert not {b"UNSIGNED-PAYLOAD", "UNSIGNED-PAYLOAD"} & sent["PutObject"]
    store.close()
