"""Each fault between a client and an S3 server, at each request: the contract holds, or an error is raised.

The client does not retry, so that no fault is hidden; tests/apply checks that whole commands converge.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tierctl.errors import RemoteObjectDiffers, StoreWriteUnknown, TierctlError
from tierctl.storage.stores.base import Endpoint, delete_all, hashed_file
from tierctl.storage.stores.s3 import client
from tierctl.storage.stores.s3.client import s3_client
from tierctl.storage.stores.s3.store import S3Store

from tests.support.amounts import TRIES_ALL
from tests.support.faulty_proxy import KINDS, Fault, FaultyProxy, Kind
from tests.support.servers import S3Server, found

MIB = 1 << 20
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


@pytest.fixture(scope="module")
def sides(s3_session: S3Server) -> Iterator[Sides]:
    with pytest.MonkeyPatch.context() as patch, FaultyProxy(s3_session.port) as proxy:
        found(s3_session, patch)
        bucket = s3_session.bucket()
        near = S3Store(s3_client(), bucket, part_bytes=5 * MIB)
        patch.setattr(client, "READ_TIMEOUT_S", TIMEOUT_S)
        patch.setattr(client, "CLIENT_ATTEMPTS", 1)
        patch.setattr(client, "WAIT_MAX_S", 0)
        far = S3Store(s3_client(Endpoint(proxy.endpoint)), bucket, part_bytes=5 * MIB)
        yield Sides(proxy, far, near)
        far.close()
        near.close()


@pytest.fixture
def repeating(sides: Sides) -> Iterator[S3Store]:
    """Open the bucket through the proxy with a client that repeats a request once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "CLIENT_ATTEMPTS", 2)
        store = S3Store(s3_client(Endpoint(sides.proxy.endpoint)), sides.near._bucket)
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


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "uploads"), ("PUT", "partNumber=2"), ("POST", "uploadId")],
    ids=["create", "part", "complete"],
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


@pytest.mark.parametrize("request_of", [("POST", "delete"), ("GET", "uploads")], ids=["delete", "uploads"])
def test_deleting(sides: Sides, kind: Kind, request_of: tuple[str, str]) -> None:

    def delete(keys: tuple[str, ...], deleted: list[str]) -> None:
        for key in keys:
            delete_all(sides.far, [key])
            deleted.append(key)

    for nth in positions(kind):
        keys = sides.keys()
        sides.near.put_all(dict.fromkeys(keys, b"x"))
        deleted: list[str] = []
        sides.spoiled(Fault(kind, *request_of, nth), delete, keys, deleted)
        assert not set(sides.holds(keys)) & set(deleted)
        delete_all(sides.near, keys)
        assert sides.holds(keys) == {}
