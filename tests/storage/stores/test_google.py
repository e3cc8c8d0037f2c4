"""Google's store as brokers fill it, over a server in memory that answers its JSON interface."""

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from pyarrow import fs
from tierctl.errors import RemoteStorageError, RemoteTierMissing
from tierctl.storage.stores.arrow import ArrowStore

from tests.support.servers import HttpServer

BUCKET = "tier"
NO_BUCKET = {"error": {"code": 404, "message": "The bucket does not exist."}}
TIME = "2026-01-02T03:04:05.678Z"


class Google(HttpServer):
    """Serve one bucket with `objects`; `requests` has method and path of each request."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.objects: dict[str, bytes] = {}
        self.requests: list[str] = []

    def listed(self, prefix: str, delimiter: str, *, has_trailing: bool) -> dict[str, Any]:
        """Return a page: the objects, and the folders up to the delimiter after the prefix."""
        items, prefixes = [], set()
        for key in sorted(self.objects):
            if key.startswith(prefix):
                at = key.find(delimiter, len(prefix)) + 1 if delimiter else 0
                prefixes |= {key[:at]} - {""}
                if not at or (has_trailing and at == len(key)):
                    items.append(self.described(key))
        return {"kind": "storage#objects", "items": items, "prefixes": sorted(prefixes)}

    def described(self, key: str) -> dict[str, Any]:
        size = str(len(self.objects[key]))
        return {"kind": "storage#object", "name": key, "bucket": BUCKET, "size": size, "updated": TIME}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: Google

    def do_POST(self) -> None:
        """Begin an upload, whose bytes follow in a PUT, or create a bucket."""
        self.rfile.read(int(self.headers["content-length"]))
        self.owner.requests.append(f"POST {self.path}")
        if not self.path.startswith(f"/upload/storage/v1/b/{BUCKET}/"):
            return self.answer(404, NO_BUCKET)
        return self.answer(200, {}, location=f"http://{self.headers['host']}{self.path}")

    def do_PUT(self) -> None:
        key = parse_qs(urlsplit(self.path).query)["name"][0]
        self.owner.objects[key] = self.rfile.read(int(self.headers["content-length"]))
        self.answer(200, self.owner.described(key))

    def do_GET(self) -> None:
        self.owner.requests.append(f"GET {self.path}")
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        found = re.fullmatch(r"/storage/v1/b/([^/]+)(/o)?(?:/(.+))?", url.path)
        if found is None or found[1] != BUCKET:
            return self.answer(404, NO_BUCKET)
        if found[3] is None:
            is_trailing = query.get("includeTrailingDelimiter") == "true"
            listed = (query.get("prefix", ""), query.get("delimiter", ""))
            return self.answer(200, self.owner.listed(*listed, has_trailing=is_trailing))
        key = unquote(found[3])
        if key not in self.owner.objects:
            return self.answer(404, {"error": {"code": 404, "message": "No such object"}})
        return self.answer(200, self.owner.described(key))

    def answer(self, status: int, document: dict[str, Any], **headers: str) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def google() -> Iterator[Google]:
    with Google() as made:
        yield made


def opened(google: Google, root: str) -> ArrowStore:
    if not hasattr(fs, "GcsFileSystem"):
        pytest.skip("this pyarrow has no GcsFileSystem")
    address, limit = google.endpoint.removeprefix("http://"), timedelta(milliseconds=10)
    return ArrowStore(
        fs.GcsFileSystem(anonymous=True, endpoint_override=address, scheme="http", retry_time_limit=limit),
        root,
    )


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


def test_only_objects_are_written(google: Google) -> None:
    store = opened(google, f"{BUCKET}/a/")
    assert (list(store.list_objects("")), store.sizes_bytes(["x"]), store.delete(["x"])) == ([], {}, {})
    store.put_all({"t-id/0/1.log": b"x", "t-id/0/2.log": b"", "t-id/0/3.log": None})
    assert store.create("identity", b"y")
    assert google.objects == {"a/t-id/0/1.log": b"x", "a/t-id/0/2.log": b"", "a/identity": b"y"}
