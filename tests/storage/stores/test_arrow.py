"""Stores of pyarrow: Google's as brokers fill it, Azure's, and refusals of both.

The answers are those of servers in memory with the interfaces of both. What may pass is repeated.
"""

import json
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from pyarrow import fs
from tierctl.errors import (
    AuthenticationError,
    ObjectArchived,
    RemoteStorageError,
    RemoteTierMissing,
    StoreRefused,
    StoreWriteFailed,
    TierctlError,
)
from tierctl.model import HashedFile
from tierctl.storage.layouts.kafka import KafkaLayout
from tierctl.storage.remote_storage_manager import RemoteStorageManager, RetrySettings
from tierctl.storage.stores.arrow import ArrowStore
from tierctl.storage.stores.base import open_store_at, parse_store_uri

from tests.support.servers import HttpServer

BUCKET = "tier"
NO_BUCKET = {"error": {"code": 404, "message": "The bucket does not exist."}}
TIME = "2026-01-02T03:04:05.678Z"


class Google(HttpServer):
    """Serve one bucket with `objects`, whose own data nobody may see; `requests` has method and path of each.

    A listing ends with 404 at its second page if `is_lost`.
    """

    def __init__(self) -> None:
        super().__init__(_GoogleHandler)
        self.objects: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.is_lost = False

    def listed(self, prefix: str, delimiter: str, *, has_trailing: bool) -> dict[str, Any]:
        """Return a page: the objects, and the folders up to the delimiter after the prefix."""
        items, prefixes = [], set()
        for key in sorted(self.objects):
            if key.startswith(prefix):
                at = key.find(delimiter, len(prefix)) + 1 if delimiter else 0
                prefixes |= {key[:at]} - {""}
                if not at or (has_trailing and at == len(key)):
                    items.append(self.described(key))
        page = {"kind": "storage#objects", "items": items, "prefixes": sorted(prefixes)}
        return page | ({"nextPageToken": "p2"} if self.is_lost else {})

    def described(self, key: str) -> dict[str, Any]:
        size = str(len(self.objects[key]))
        return {"kind": "storage#object", "name": key, "bucket": BUCKET, "size": size, "updated": TIME}


class _Answering(BaseHTTPRequestHandler):
    """Answers requests with JSON."""

    protocol_version = "HTTP/1.1"

    def answer(self, status: int, document: dict[str, Any] | bytes, **headers: str) -> None:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.send_response(status)
        for name, value in ({"content_length": str(len(body))} | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class _GoogleHandler(_Answering):
    owner: Google

    def do_POST(self) -> None:
        """Begin an upload, whose bytes follow in a PUT, copy an object, or create a bucket."""
        self.rfile.read(int(self.headers["content-length"]))
        self.owner.requests.append(f"POST {self.path}")
        if copied := re.search(r"/o/([^/]+)/rewriteTo/b/[^/]+/o/([^/?]+)", self.path):
            key, new_key = map(unquote, copied.groups())
            self.owner.objects[new_key] = self.owner.objects[key]
            described = self.owner.described(new_key)
            rewritten = {"kind": "storage#rewriteResponse", "done": True, "resource": described}
            return self.answer(200, rewritten | dict.fromkeys(("totalBytesRewritten", "objectSize"), "1"))
        if not self.path.startswith(f"/upload/storage/v1/b/{BUCKET}/"):
            return self.answer(404, NO_BUCKET)
        return self.answer(200, {}, location=f"http://{self.headers['host']}{self.path}")

    def do_DELETE(self) -> None:
        del self.owner.objects[unquote(urlsplit(self.path).path.rpartition("/")[2])]
        self.answer(204, b"")

    def do_PUT(self) -> None:
        key = parse_qs(urlsplit(self.path).query)["name"][0]
        self.owner.objects[key] = self.rfile.read(int(self.headers["content-length"]))
        self.answer(200, self.owner.described(key))

    def do_GET(self) -> None:
        self.owner.requests.append(f"GET {self.path}")
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        found = re.fullmatch(r"/storage/v1/b/([^/]+)(/o)?(?:/(.+))?", url.path)
        if found is not None and found[2] is None:
            return self.answer(403, {"error": {"code": 403, "message": "no storage.buckets.get"}})
        if found is None or found[1] != BUCKET or "pageToken" in query:
            return self.answer(404, NO_BUCKET)
        if found[3] is None:
            is_trailing = query.get("includeTrailingDelimiter") == "true"
            listed = (query.get("prefix", ""), query.get("delimiter", ""))
            return self.answer(200, self.owner.listed(*listed, has_trailing=is_trailing))
        key = unquote(found[3])
        if key not in self.owner.objects:
            return self.answer(404, {"error": {"code": 404, "message": "No such object"}})
        return self.answer(200, self.owner.described(key))


class Azure(HttpServer):
    """Serve the container `tier` of an account without a hierarchical namespace.

    Requests with `refused` as value of `comp` get 403. A listing ends with 404 at its second page if
    `is_lost`.
    """

    def __init__(self) -> None:
        super().__init__(_AzureHandler)
        self.objects: dict[str, bytes] = {}
        self.blocks: dict[str, bytes] = {}
        self.refused = ""
        self.is_lost = False


_BLOB = {
    "etag": "e",
    "last_modified": "Fri, 02 Jan 2026 03:04:05 GMT",
    "x_ms_version": "2020-02-10",
    "x_ms_request_id": "r",
    "x_ms_blob_type": "BlockBlob",
    "x_ms_creation_time": "Fri, 02 Jan 2026 03:04:05 GMT",
    "x_ms_lease_status": "unlocked",
    "x_ms_lease_state": "available",
    "x_ms_server_encrypted": "true",
    "x_ms_request_server_encrypted": "true",
    "x_ms_has_immutability_policy": "false",
    "x_ms_has_legal_hold": "false",
}
_ENTRY = (
    "<Blob><Name>{}</Name><Properties><Creation-Time>{time}</Creation-Time><Last-Modified>{time}"
    "</Last-Modified><Etag>e</Etag><Content-Length>{}</Content-Length><BlobType>BlockBlob</BlobType>"
    "<LeaseStatus>unlocked</LeaseStatus><LeaseState>available</LeaseState><ServerEncrypted>true"
    "</ServerEncrypted></Properties></Blob>"
)


class _AzureHandler(_Answering):
    owner: Azure

    def fail(self, status: int, code: str) -> None:
        self.answer(status, f"<Error><Code>{code}</Code></Error>".encode(), x_ms_error_code=code)

    def do_PUT(self) -> None:
        store, (query, key) = self.owner.objects, self.parts()
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        source, comp = self.headers.get("x-ms-copy-source"), query.get("comp")
        if comp and comp == self.owner.refused:
            return self.fail(403, "AuthorizationFailure")
        if source:
            store[key] = store[self.parts(source)[1]]
            return self.answer(202, b"", **_BLOB, x_ms_copy_id="c", x_ms_copy_status="success")
        if comp == "lease":
            status = 201 if self.headers["x-ms-lease-action"] == "acquire" else 200
            return self.answer(status, b"", **_BLOB, x_ms_lease_id="00000000-0000-0000-0000-000000000001")
        if comp == "block":
            self.owner.blocks[query["blockid"]] = body
        else:
            store[key] = b"".join(self.owner.blocks.values()) if comp == "blocklist" else body
            self.owner.blocks.clear()
        return self.answer(201, b"", **_BLOB)

    def do_DELETE(self) -> None:
        del self.owner.objects[self.parts()[1]]
        self.answer(202, b"", **_BLOB)

    def do_HEAD(self) -> None:
        store, (query, key) = self.owner.objects, self.parts()
        if "action" in query:
            return self.answer(400, b"", x_ms_error_code="HierarchicalNamespaceNotEnabled")
        if key and key not in store:
            return self.fail(404, "BlobNotFound")
        if not key and self.owner.is_lost:
            return self.fail(404, "ContainerNotFound")
        size = {"content_length": str(len(store[key]))} if key else {}
        return self.answer(200, b"", **_BLOB | size, x_ms_copy_id="c", x_ms_copy_status="success")

    def do_GET(self) -> None:
        store, (query, key) = self.owner.objects, self.parts()
        if query.get("comp") != "list":
            return self.do_HEAD() if "restype" in query else self.answer(200, store[key], **_BLOB)
        if self.owner.is_lost and "marker" in query:
            return self.fail(404, "ContainerNotFound")
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        found, folders = "", set()
        for key in sorted(each for each in store if each.startswith(prefix)):
            if delimiter and (end := key.find(delimiter, len(prefix)) + 1):
                folders.add(f"<BlobPrefix><Name>{key[:end]}</Name></BlobPrefix>")
            else:
                found += _ENTRY.format(key, len(store[key]), time=_BLOB["last_modified"])
        document = (
            f"<EnumerationResults ServiceEndpoint='http://x/' ContainerName='{BUCKET}'>"
            f"<Prefix>{prefix}</Prefix><Delimiter>/</Delimiter><Blobs>{found}{''.join(sorted(folders))}</Blobs>"
            f"<NextMarker>{'m' * self.owner.is_lost}</NextMarker></EnumerationResults>"
        )
        return self.answer(200, document.encode(), content_type="application/xml", **_BLOB)

    def parts(self, address: str = "") -> tuple[dict[str, str], str]:
        """Return the parameters and the key of a URL, by default that of the request."""
        url = urlsplit(address or self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        return query, unquote("".join(url.path.split("/", 3)[3:]))


@pytest.fixture
def google() -> Iterator[Google]:
    with Google() as made:
        yield made


@pytest.fixture
def azure() -> Iterator[Azure]:
    if not hasattr(fs, "AzureFileSystem"):
        pytest.skip("this pyarrow has no AzureFileSystem")
    with Azure() as made:
        yield made


def google_filesystem(server: HttpServer) -> Any:
    address, limit = server.endpoint.removeprefix("http://"), timedelta(milliseconds=10)
    return fs.GcsFileSystem(anonymous=True, endpoint_override=address, scheme="http", retry_time_limit=limit)


def opened(google: Google, root: str) -> ArrowStore:
    if not hasattr(fs, "GcsFileSystem"):
        pytest.skip("this pyarrow has no GcsFileSystem")
    return ArrowStore(google_filesystem(google), root)


@pytest.mark.parametrize("marked", [(), ("a/", "a/t-id/", "a/t-id/0/", "a/empty/")])
def test_folders_without_an_object_of_their_own_are_listed(google: Google, marked: tuple[str, ...]) -> None:
    keys = (
        "a/identity",
        "a/t-id/0/1.log",
        "a/t-id/0/1.rsm-manifest",
        "a/t-id/1/2.log",
        "a/u-id/0/3.log",
        "b/x",
    )
    google.objects = dict.fromkeys((*keys, *marked), b"x")
    store = opened(google, f"{BUCKET}/a/")
    top = store.list_folder("")
    assert [each.key for each in top.objects] == ["identity"]
    assert top.folders == (*(["empty/"] if marked else []), "t-id/", "u-id/")
    assert store.list_folder("t-id/").folders == ("t-id/0/", "t-id/1/")
    assert store.list_folder("t").folders == ("t-id/",)
    inner = store.list_folder("t-id/0/")
    assert (inner.folders, [each.key[7:] for each in inner.objects]) == ((), ["1.log", "1.rsm-manifest"])
    assert len(list(store.list_objects(""))) == 5


def test_a_missing_bucket_is_no_empty_tier_and_is_not_created(
    google: Google, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "project")
    mistyped = opened(google, "tire/a/")
    for call in (
        lambda: list(mistyped.list_objects("")),
        lambda: mistyped.list_folder(""),
        lambda: mistyped.sizes_bytes(["x"]),
        lambda: mistyped.delete(["x"]),
    ):
        with pytest.raises(RemoteTierMissing, match="tire does not exist") as caught:
            call()
        assert caught.value.hint
    with pytest.raises(RemoteStorageError):
        mistyped.put_all({"t-id/0/1.log": b"x"})
    assert not [each for each in google.requests if each.startswith("POST /storage/v1/b?")]


@pytest.mark.parametrize("root", ["", "a/"])
@pytest.mark.parametrize("name", ["google", "azure"])
def test_a_bucket_that_vanishes_is_no_partial_tier(
    name: str, root: str, request: pytest.FixtureRequest
) -> None:
    server: Google | Azure = request.getfixturevalue(name)
    filesystem = google_filesystem(server) if isinstance(server, Google) else azure_filesystem(server)
    store = ArrowStore(filesystem, f"{BUCKET}/{root}")
    for empty in (store.list_objects("t/"), store.list_objects(""), store.list_folder("").objects):
        assert list(empty) == []
    assert store.sizes_bytes(["k"]) == {}
    server.objects = {f"{root}k": b"x", f"{root}t/k": b"x"}
    assert [each.key for each in store.list_objects("")] == ["k", "t/k"]
    server.is_lost = True
    for prefix in ("", "t/"):
        for call in (store.list_folder, lambda prefix: list(store.list_objects(prefix))):
            with pytest.raises(RemoteTierMissing, match=f"{BUCKET} does not exist"):
                call(prefix)


def test_only_objects_are_written(google: Google) -> None:
    store = opened(google, f"{BUCKET}/a/")
    assert (list(store.list_objects("")), store.sizes_bytes(["x"]), store.delete(["x"])) == ([], {}, {})
    store.put_all({"t-id/0/1.log": b"x", "t-id/0/2.log": b"", "t-id/0/3.log": None})
    assert store.create("identity", b"y")
    assert google.objects == {"a/t-id/0/1.log": b"x", "a/t-id/0/2.log": b"", "a/identity": b"y"}


@pytest.mark.parametrize("earlier", [{}, {"a/k": b"old"}])
@pytest.mark.parametrize("name", ["google", "azure"])
def test_a_write_stores_all_of_its_bytes_or_nothing(
    name: str, earlier: dict[str, bytes], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server: Google | Azure = request.getfixturevalue(name)
    server.objects |= earlier
    streams = []

    class Keeping:
        def __getattr__(self, method: str) -> Any:
            return getattr(filesystem, method)

        def open_output_stream(self, path: str, **options: Any) -> Any:
            streams.append(filesystem.open_output_stream(path, **options))
            return streams[-1]

    filesystem = google_filesystem(server) if isinstance(server, Google) else azure_filesystem(server)
    store = ArrowStore(Keeping(), f"{BUCKET}/a/")
    (path := tmp_path / "log").write_bytes(b"changed")

    def stored() -> dict[str, bytes]:
        return {key: body for key, body in server.objects.items() if not key.endswith("/")}

    with pytest.raises(StoreWriteFailed, match="changed"):
        store.put_all({"k": HashedFile(path=path, size_bytes=7, crc32c=1)})
    for stream in streams:
        # The release of a stream does the same.
        stream.close()
    assert stored() == earlier
    if isinstance(server, Azure):
        server.refused = "block"
        with pytest.raises(AuthenticationError):
            store.put_all({"k": b"new"})
        assert stored() == earlier
        server.refused = ""
    store.put_all({"k": b"new"})
    assert stored() == {"a/k": b"new"}


@pytest.mark.parametrize("folder", ["", "d/"])
def test_a_name_with_an_empty_part_is_a_problem_and_not_listed_for_ever(azure: Azure, folder: str) -> None:
    names = ("a", "d/", "d/e", "d/f/", "d/f/g", "empty/", "z/y")
    azure.objects = {f"t/{name}": b"x" for name in (*names, f"{folder}/x")}
    store = ArrowStore(azure_filesystem(azure), f"{BUCKET}/t/")
    listed = list(store.list_objects(""))
    assert [each.key for each in listed if not each.problem] == ["a", "d/e", "d/f/g", "z/y"]
    assert [(each.key, "//" in each.problem) for each in listed if each.problem] == [(f"{folder}/", True)]
    assert [each.key for each in store.list_objects("z")] == ["z/y"]


class Refusing(HttpServer):
    """A server that answers every request with `status`."""

    status = 403

    def __init__(self) -> None:
        super().__init__(_RefusingHandler)


class _RefusingHandler(_Answering):
    owner: Refusing

    def refuse(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.answer(self.owner.status, {"error": {"code": self.owner.status, "message": "refused"}})

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = refuse  # noqa: N815


@pytest.fixture
def refusing() -> Iterator[Refusing]:
    with Refusing() as made:
        yield made


def azure_filesystem(server: HttpServer) -> Any:
    address = server.endpoint.removeprefix("http://")
    places = {f"{kind}_storage_authority": address for kind in ("blob", "dfs")}
    schemes = {f"{kind}_storage_scheme": "http" for kind in ("blob", "dfs")}
    return fs.AzureFileSystem(account_name="account", account_key="a2V5", **places, **schemes)


@pytest.mark.parametrize(
    ("name", "open_filesystem"),
    [("GcsFileSystem", google_filesystem), ("AzureFileSystem", azure_filesystem)],
)
@pytest.mark.parametrize(
    ("status", "expected"), [(400, StoreRefused), (401, AuthenticationError), (403, AuthenticationError)]
)
def test_a_refusal_is_an_error_at_once(
    name: str,
    open_filesystem: Callable[[HttpServer], Any],
    status: int,
    expected: type[TierctlError],
    refusing: Refusing,
) -> None:
    if not hasattr(fs, name):
        pytest.skip(f"this pyarrow has no {name}")
    refusing.status = status
    waits: list[float] = []
    store = ArrowStore(open_filesystem(refusing), "bucket/tier/")
    retrying = RemoteStorageManager(store, KafkaLayout(), RetrySettings(attempts=3), sleep=waits.append)
    with pytest.raises(expected) as found:
        list(retrying.list_folder().folders)
    assert (waits, found.value.hint is not None) == ([], True)
    for call in (lambda: store.put_all({"topic-0-403/key": b"x"}), lambda: store.open("topic-0-403/key")):
        with pytest.raises(expected):
            call()


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("my%20dir/", "my dir/"),
        ("my dir", "my dir/"),
        ("a%25b%3Fc", "a%b?c/"),
        ("100%/é", "100%/é/"),
        ("", ""),
    ],
)
@pytest.mark.parametrize("bucket", ["gs://b", "abfss://b@account.dfs.core.windows.net"])
def test_percent_codes_are_decoded_once(bucket: str, path: str, folder: str) -> None:
    address = parse_store_uri(f"{bucket}/{path}")
    assert (address.folder, open_store_at(address).name_of("k").partition(":")[2]) == (folder, f"b/{folder}k")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("AccessControlException: Permission denied: user=tierctl", AuthenticationError),
        ("Failed to get token from DefaultAzureCredential.", AuthenticationError),
        ("google::cloud::Status(UNKNOWN: Could not create a OAuth2 access token to", AuthenticationError),
        ("google::cloud::Status(UNIMPLEMENTED: no)", StoreRefused),
        ("Azure Error: [BlobArchived] 409 Conflict", ObjectArchived),
        ("Azure Error: [BlobBeingRehydrated] 409 Conflict", ObjectArchived),
        ("Azure Error: [LeaseAlreadyPresent] 409 Conflict at [BlobArchived].log", RemoteStorageError),
        ("Azure Error: [AuthorizationFailure] 403 This request is not authorized", AuthenticationError),
        ("google::cloud::Status(UNAVAILABLE: try again) at tier/orders-403/1.log", RemoteStorageError),
        ("Azure Error: [ServerBusy] 503 at http://store/tier/orders-403/ 401 .log", RemoteStorageError),
    ],
)
def test_texts(text: str, expected: type[TierctlError]) -> None:
    class Broken:
        def get_file_info(self, _: object) -> None:
            raise OSError(text)

    with pytest.raises(expected) as found:
        ArrowStore(Broken(), "tier/").sizes_bytes(["a"])
    assert type(found.value) is expected
    assert (found.value.hint is None) == (expected is RemoteStorageError)
