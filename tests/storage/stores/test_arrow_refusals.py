"""Refusals of Google's and Azure's stores are errors at once; what may pass is repeated."""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from pyarrow import fs
from tierctl.errors import AuthenticationError, RemoteStorageError, StoreRefused, TierctlError
from tierctl.storage.layouts.kafka import KafkaLayout
from tierctl.storage.remote_storage_manager import RemoteStorageManager, RetrySettings
from tierctl.storage.stores.arrow import ArrowStore

from tests.support.servers import HttpServer

ATTEMPTS = 3


class Refusing(HttpServer):
    """A server that answers every request with `status`."""

    status = 403

    def __init__(self) -> None:
        super().__init__(_Handler)

    @property
    def address(self) -> str:
        return self.endpoint.removeprefix("http://")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: Refusing

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        body = json.dumps({"error": {"code": self.owner.status, "message": "refused"}}).encode()
        self.send_response(self.owner.status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer  # noqa: N815

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Refusing]:
    with Refusing() as made:
        yield made


def google(address: str) -> Any:
    limit = timedelta(milliseconds=10)
    return fs.GcsFileSystem(anonymous=True, endpoint_override=address, scheme="http", retry_time_limit=limit)


def azure(address: str) -> Any:
    places = {f"{kind}_storage_authority": address for kind in ("blob", "dfs")}
    schemes = {f"{kind}_storage_scheme": "http" for kind in ("blob", "dfs")}
    return fs.AzureFileSystem(account_name="account", account_key="a2V5", **places, **schemes)


@pytest.mark.parametrize("name", ["GcsFileSystem", "AzureFileSystem"])
@pytest.mark.parametrize(
    ("status", "expected"), [(400, StoreRefused), (401, AuthenticationError), (403, AuthenticationError)]
)
def test_a_refusal_is_an_error_at_once(
    name: str, status: int, expected: type[TierctlError], server: Refusing
) -> None:
    if not hasattr(fs, name):
        pytest.skip(f"this pyarrow has no {name}")
    server.status = status
    open_filesystem: Callable[[str], Any] = google if name.startswith("Gcs") else azure
    waits: list[float] = []
    store = ArrowStore(open_filesystem(server.address), "bucket/tier/")
    retrying = RemoteStorageManager(
        store, KafkaLayout(), RetrySettings(attempts=ATTEMPTS), sleep=waits.append
    )
    with pytest.raises(expected) as found:
        list(retrying.list_folder().folders)
    assert (waits, found.value.hint is not None) == ([], True)
    for call in (lambda: store.put_all({"topic-0-403/key": b"x"}), lambda: store.open("topic-0-403/key")):
        with pytest.raises(expected):
            call()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("AccessControlException: Permission denied: user=tierctl", AuthenticationError),
        ("google::cloud::Status(UNIMPLEMENTED: no)", StoreRefused),
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
