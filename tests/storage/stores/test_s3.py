"""Behaviour that only an object store has: multipart uploads, lost responses, leases, prefixes."""

from pathlib import Path
from typing import Any

import pytest
from tierctl.errors import (
    AuthenticationError,
    NotFoundError,
    RemoteStorageError,
    UsageError,
)
from tierctl.storage.open_tier import TierSpec, open_tier
from tierctl.storage.stores import base
from tierctl.storage.stores.base import hashed_file
from tierctl.storage.stores.s3 import client
from tierctl.storage.stores.s3.client import s3_client
from tierctl.storage.stores.s3.store import S3Store

from tests.storage.segments import data_in, metadata_of
from tests.support.faulty_proxy import Fault, FaultyProxy
from tests.support.servers import S3Server

MIB = 1 << 20


@pytest.fixture
def store(s3_server: S3Server) -> S3Store:
    return S3Store(s3_client(), s3_server.bucket(), "a/b/", part_bytes=5 * MIB)


def uploads(store: S3Store) -> list[Any]:
    return list(store._s3.list_multipart_uploads(Bucket=store._bucket).get("Uploads", []))


class TestOverTls:
    def test_every_write_says_its_checksum_before_its_bytes(
        self, s3_tls_server: S3Server, tmp_path: Path
    ) -> None:
        """Over TLS, boto3 sends its own checksums after the bytes, which not all servers support."""
        store = S3Store(s3_client(), s3_tls_server.bucket(), part_bytes=5 * MIB)
        sent: list[Any] = []
        for operation in ("PutObject", "UploadPart"):
            store._s3.meta.events.register(
                f"before-send.s3.{operation}", lambda request, **_: sent.append(request.headers)
            )
        source = tmp_path / "log"
        source.write_bytes(bytes(range(256)) * (7 * MIB // 256))
        store.put_all({"log": hashed_file(source), "index": b"small"})
        store.verify_all({"log": hashed_file(source)})
        store.verify_all({"index": b"small"})
        assert [len(headers["x-amz-checksum-crc32c"]) for headers in sent] == [8] * 3
        assert not any("x-amz-trailer" in headers for headers in sent)
        assert uploads(store) == []
        store.close()

    def test_who_is_not_trusted_is_not_written_to(
        self, s3_tls_server: S3Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bucket = s3_tls_server.bucket()
        monkeypatch.delenv("AWS_CA_BUNDLE")
        monkeypatch.setattr(client, "CLIENT_ATTEMPTS", 1)
        with pytest.raises(RemoteStorageError, match="certificate verify failed"):
            S3Store(s3_client(), bucket).put_all({"log": b"secret"})


class TestLostAnswers:
    @pytest.mark.parametrize("same", [True, False])
    def test_a_write_that_meets_an_object_looks_at_it(self, store: S3Store, same: bool) -> None:
        store.put_all({"log": b"new" if same else b"old"})
        store.put_all({"log": b"new"})
        with store.open("log") as stream:
            assert stream.read() == b"new"

    def test_somebody_else_writing_the_same_key_is_an_error(
        self, store: S3Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.put_all({"log": b"old"})
        head = store._head

        def race(key: str) -> Any:
            found = head(key)
            store._s3.put_object(Bucket=store._bucket, Key=f"a/b/{key}", Body=b"theirs")
            return found

        monkeypatch.setattr(store, "_head", race)
        with pytest.raises(RemoteStorageError, match="another program"):
            store.put_all({"log": b"new"})

    def test_a_lost_answer_to_a_write_over_tls_is_a_write(
        self, s3_server: S3Server, s3_tls_session: S3Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bucket = s3_server.bucket()
        monkeypatch.setenv("AWS_CA_BUNDLE", str(s3_tls_session.certificate))
        monkeypatch.setattr(client, "CLIENT_ATTEMPTS", 1)
        with FaultyProxy(s3_server.port, s3_tls_session.certificate) as proxy:
            monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
            proxy.faults = [Fault("reset after", "PUT")]
            store = S3Store(s3_client(), bucket)
            store.put_all({"log": b"new"})
            store.verify_all({"log": b"new"})
            store.close()


class TestOpening:
    def test_prefixes_are_folders(self, s3_server: S3Server, tmp_path: Path) -> None:
        bucket = s3_server.bucket()
        data = data_in(tmp_path)
        for folder in ("", "x", "x/y/"):
            open_tier(TierSpec(f"s3://{bucket}/{folder}", layout="kafka")).copy_log_segment_data(
                metadata_of(), data
            )
        keys = {o.key for o in S3Store(s3_client(), bucket).list_objects("")}
        for root in ("", "x/", "x/y/"):
            assert sum(key.startswith(f"{root}kafka-tiered-storage/") for key in keys) == 6
        named = open_tier(TierSpec(f"s3://{bucket}/x/kafka-tiered-storage"))
        assert len(named.objects_of(metadata_of())) == 6

    def test_what_is_wrong_is_named(self, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(NotFoundError, match="NoSuchBucket"):
            open_tier(TierSpec("s3://no-such-bucket-here/x"))
        bucket = s3_server.bucket()
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        with pytest.raises(AuthenticationError) as caught:
            open_tier(TierSpec(f"s3://{bucket}/x"))
        assert "wrong" not in str(caught.value)
        monkeypatch.setattr(base, "find_spec", lambda _: None)
        with pytest.raises(UsageError) as missing:
            open_tier(TierSpec(f"s3://{bucket}/x"))
        assert missing.value.hint == "pip install tierctl[s3]"
