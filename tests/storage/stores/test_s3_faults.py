"""What only an S3 server does: faults at each request, and prefixes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ConnectionClosedError, EndpointConnectionError
from botocore.hooks import HierarchicalEmitter
from tierctl.errors import (
    AuthenticationError,
    NotFoundError,
    RemoteObjectDiffers,
    RemoteStorageError,
    StoreWriteUnknown,
    TierctlError,
    UsageError,
)
from tierctl.storage.open_tier import TierSpec, open_tier
from tierctl.storage.stores import base
from tierctl.storage.stores.base import Endpoint, delete_all, hashed_file
from tierctl.storage.stores.s3 import client
from tierctl.storage.stores.s3.client import s3_client
from tierctl.storage.stores.s3.store import S3Store

from tests.storage.segments import data_in, metadata_of
from tests.storage.stores.test_s3_uploads import MIB, uploads
from tests.support.amounts import TRIES_ALL
from tests.support.faulty_proxy import KINDS, Fault, FaultyProxy, Kind
from tests.support.servers import S3Server, found

TIMEOUT_S = 0.4
_FRESH = count()

ANSWERED = tuple(kind for kind in KINDS if kind != "errors inside")
"""Faults of requests whose successful responses have no XML."""


@dataclass(frozen=True, slots=True)
class Sides:
    """One bucket, opened through the proxy with faults, and opened directly."""

    proxy: FaultyProxy
    far: S3Store
    near: S3Store

    def keys(self) -> tuple[str, str, str]:
        """Return three new keys."""
        number = next(_FRESH)
        return f"{number}/a", f"{number}/b", f"{number}/c"

    def spoiled(self, fault: Fault, act: Callable[..., object], *args: object) -> bool:
        """Return whether `act` raised an error of tierctl with this fault; other exceptions are raised."""
        self.proxy.faults = [fault]
        try:
            act(*args)
        except TierctlError:
            return True
        finally:
            self.proxy.faults = []
        return False

    def holds(self, keys: tuple[str, ...]) -> dict[str, bytes]:
        return {key: self.near.open(key).read() for key in self.near.sizes_bytes(keys)}

    def uploads(self, prefix: str) -> list[Any]:
        return self.near._s3.list_multipart_uploads(Bucket=self.near._bucket, Prefix=prefix).get(
            "Uploads", []
        )


def hasty_client(proxy: FaultyProxy) -> Any:
    """Return a client of the proxy that waits for an answer no longer than a test can.

    The servers of the other tests may take longer on a busy machine.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "READ_TIMEOUT_S", TIMEOUT_S)
        return s3_client(Endpoint(proxy.endpoint))


@pytest.fixture(scope="module")
def sides(s3_session: S3Server) -> Iterator[Sides]:
    with pytest.MonkeyPatch.context() as patch, FaultyProxy(s3_session.port) as proxy:
        found(s3_session, patch)
        bucket = s3_session.bucket()
        near = S3Store(s3_client(), bucket, part_bytes=5 * MIB)
        patch.setattr(client, "CLIENT_ATTEMPTS", 1)
        patch.setattr(client, "WAIT_MAX_S", 0)
        far = S3Store(hasty_client(proxy), bucket, part_bytes=5 * MIB)
        yield Sides(proxy, far, near)
        far.close()
        near.close()


@pytest.fixture
def repeating(sides: Sides) -> Iterator[S3Store]:
    """Open the bucket through the proxy with a client that repeats a request once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "CLIENT_ATTEMPTS", 2)
        store = S3Store(hasty_client(sides.proxy), sides.near._bucket)
    yield store
    store.close()


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    made: Kind = request.param
    return made


def positions(kind: Kind) -> tuple[int, ...]:
    """Return the first, middle and last of three requests, and all; only one if the fault takes time.

    Without `TRIES_ALL`, the middle one and all.
    """
    if kind in {"hang", "timeout"}:
        return (2,)
    return (1, 2, 3, 0) if TRIES_ALL else (2, 0)


def test_writing(sides: Sides, kind: Kind) -> None:
    for nth in positions(kind):
        keys = sides.keys()
        wanted = {key: key.encode() * 50 for key in keys}
        failed = sides.spoiled(Fault(kind, "PUT", nth=nth), sides.far.put_all, wanted)
        held = sides.holds(keys)
        assert held.items() <= wanted.items()
        assert failed or held == wanted
        sides.near.put_all(wanted)
        assert sides.holds(keys) == wanted


@pytest.mark.parametrize("look", ["403", "500", "reset before"])
def test_an_unknown_write_stays_unknown_when_the_look_fails(sides: Sides, look: Kind) -> None:
    """If it were a failure, it would be cleaned up at once, and the write could take effect afterwards."""
    sides.proxy.faults = [Fault("reset before", "PUT"), Fault(look, "HEAD")]
    with pytest.raises(StoreWriteUnknown):
        sides.far.put_all({sides.keys()[0]: b"late"})


@pytest.mark.parametrize("later", ["403", "500", "503"])
def test_a_refused_repetition_leaves_the_first_request_unknown(
    sides: Sides, repeating: S3Store, later: Kind
) -> None:
    sides.proxy.faults = [Fault("reset before", "PUT"), Fault(later, "PUT", nth=1)]
    with pytest.raises(StoreWriteUnknown, match="repeated"):
        repeating.put_all({sides.keys()[0]: b"late"})


@pytest.mark.parametrize("first", [ConnectionClosedError, EndpointConnectionError])
def test_a_server_that_goes_away_after_a_write_leaves_it_unknown(first: type[Exception]) -> None:
    events, request = HierarchicalEmitter(), {"context": {}}
    client.wait_when_throttled(events)
    refused = EndpointConnectionError(endpoint_url="http://s3")
    for attempts, caught in enumerate((first(endpoint_url="http://s3"), refused)):
        events.emit(
            "needs-retry.s3.PutObject",
            response=None,
            attempts=attempts,
            request_dict=request,
            caught_exception=caught,
        )
    with pytest.raises(RemoteStorageError) as raised, client.translated("storing a/b", writing=True):
        raise refused
    assert isinstance(raised.value, StoreWriteUnknown) is (first is ConnectionClosedError)


def test_a_repetition_that_finds_the_first_write_is_a_success(sides: Sides, repeating: S3Store) -> None:
    sides.proxy.faults = [Fault("reset after", "PUT")]
    key = sides.keys()[0]
    repeating.put_all({key: b"once"})
    assert sides.holds((key,)) == {key: b"once"}


def test_writing_over_what_is_there(sides: Sides, kind: Kind) -> None:
    for nth in positions(kind):
        keys = sides.keys()
        old, new = ({key: key.encode() * times for key in keys} for times in (10, 20))
        sides.near.put_all(old)
        # Two requests per object: the first finds the object.
        fault = Fault(kind, "PUT", nth=2 * nth)
        failed = sides.spoiled(fault, sides.far.put_all, new)
        held = sides.holds(keys)
        assert held.keys() == set(keys)
        assert all(held[key] in (old[key], new[key]) for key in keys)
        assert failed or held == new
        sides.near.put_all(new)
        assert sides.holds(keys) == new


def with_kinds(tried: dict[tuple[str, str], tuple[Kind, ...]]) -> list[Any]:
    """Return each request with every kind of fault; `make test` tries the kinds that are given for it."""
    return [
        pytest.param(*request, kind, marks=[] if kind in kinds else pytest.mark.matrix)
        for request, kinds in tried.items()
        for kind in KINDS
    ]


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    with_kinds(
        {
            ("POST", "uploads"): ("500", "reset after"),
            ("PUT", "partNumber=2"): ("403", "truncated"),
            ("POST", "uploadId"): KINDS,
        }
    ),
)
def test_writing_in_parts(sides: Sides, kind: Kind, method: str, path: str, tmp_path: Path) -> None:
    source = tmp_path / "log"
    source.write_bytes(bytes(range(256)) * (5 * MIB // 256) + b"end")
    key = sides.keys()[0]
    failed = sides.spoiled(Fault(kind, method, path), sides.far.put_all, {key: hashed_file(source)})
    held = sides.holds((key,))
    assert held in ({}, {key: source.read_bytes()})
    assert failed or held
    sides.near.put_all({key: hashed_file(source)})
    sides.near.verify_all({key: hashed_file(source)})
    delete_all(sides.near, [key])
    assert (sides.holds((key,)), sides.uploads(key)) == ({}, [])


@pytest.mark.parametrize("kind", ANSWERED)
def test_verifying(sides: Sides, kind: Kind) -> None:
    """A wrong object never passes the verification."""
    keys = sides.keys()
    sides.near.put_all(dict.fromkeys(keys, b"right"))

    def differing(source: bytes) -> None:
        for key in keys:
            with pytest.raises(RemoteObjectDiffers):
                sides.far.verify_all({key: source})

    def same(source: bytes) -> None:
        for key in keys:
            sides.far.verify_all({key: source})

    for nth in positions(kind):
        # A response to HEAD has no body that could be cut.
        assert sides.spoiled(Fault(kind, "HEAD", nth=nth), same, b"right") or kind == "truncated"
        sides.spoiled(Fault(kind, "HEAD", nth=nth), differing, b"wrong")


@pytest.mark.parametrize("kind", ANSWERED)
def test_reading(sides: Sides, kind: Kind) -> None:
    """A read returns all bytes or raises an error; bytes are never missing or wrong."""
    keys = sides.keys()
    wanted = {key: key.encode() * 5000 for key in keys}
    sides.near.put_all(wanted)
    whole = {key: data[3:] for key, data in wanted.items()}

    def take(read: dict[str, bytes]) -> None:
        for key in keys:
            with sides.far.open(key, 3) as stream:
                read[key] = stream.read()

    for nth in positions(kind):
        read: dict[str, bytes] = {}
        failed = sides.spoiled(Fault(kind, "GET", nth=nth), take, read)
        assert read.items() <= whole.items()
        assert failed or read == whole


def test_listing(sides: Sides, kind: Kind) -> None:
    """A listing is complete or raises an error; missing objects would count as deleted."""
    keys = sides.keys()
    sides.near.put_all(dict.fromkeys(keys, b"x"))

    def look(seen: list[set[str]]) -> None:
        seen.append({o.key for o in sides.far.list_objects(keys[0][:-1])})
        seen.append(set(sides.far.sizes_bytes(keys)))
        seen.append(set(sides.far.sizes_bytes(keys[:2])) | {keys[2]})

    for nth in positions(kind):
        seen: list[set[str]] = []
        failed = sides.spoiled(Fault(kind, "GET", "list-type", nth), look, seen)
        assert all(each == set(keys) for each in seen)
        assert failed or len(seen) == 3


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    with_kinds({("POST", "delete"): KINDS, ("GET", "uploads"): ("403", "500", "truncated")}),
)
def test_deleting(sides: Sides, kind: Kind, method: str, path: str) -> None:
    def delete(keys: tuple[str, ...], deleted: list[str]) -> None:
        for key in keys:
            delete_all(sides.far, [key])
            deleted.append(key)

    for nth in positions(kind):
        keys = sides.keys()
        sides.near.put_all(dict.fromkeys(keys, b"x"))
        deleted: list[str] = []
        sides.spoiled(Fault(kind, method, path, nth), delete, keys, deleted)
        assert not set(sides.holds(keys)) & set(deleted)
        delete_all(sides.near, keys)
        assert sides.holds(keys) == {}


@pytest.fixture
def store(s3_server: S3Server) -> S3Store:
    return S3Store(s3_client(), s3_server.bucket(), "a/b/", part_bytes=5 * MIB)


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
