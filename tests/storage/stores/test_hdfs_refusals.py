"""What the namenode does not permit this user is an error at once; what may pass is repeated."""

import io
from types import SimpleNamespace
from typing import Any

import pytest
from tierctl.errors import (
    AuthenticationError,
    ObjectUnreadable,
    RemoteStorageError,
    StoreWriteUnknown,
    TierctlError,
)
from tierctl.storage.stores.hdfs import LISTED_FROM_KEYS, HdfsStore

DENIED = "RPC error: org.apache.hadoop.security.AccessControlException: Permission denied: user=tierctl"
BUSY = "RPC error: org.apache.hadoop.ipc.RetriableException: the server is too busy"

each_answer = pytest.mark.parametrize(
    ("text", "expected"), [(DENIED, AuthenticationError), (BUSY, RemoteStorageError)], ids=["denied", "busy"]
)


class Namenode:
    """A client of a namenode that answers each of the `calls` on paths with a part `denied` by `text`.

    The path `folder` is a folder.
    """

    folder = ""

    def __init__(self, text: str, *calls: str, denied: str = "") -> None:
        self._text = text
        self._calls = calls
        self._denied = denied
        self.deleted: list[str] = []

    def _call(self, name: str, path: str) -> None:
        if name in self._calls and self._denied in path:
            raise RuntimeError(self._text)

    def get_file_info(self, path: str) -> Any:
        self._call("get_file_info", path)
        if path.endswith(".tmp"):
            raise FileNotFoundError(path)
        return SimpleNamespace(path=path, length=1, isdir=path == self.folder, modification_time=0)

    def list_status(self, folder: str) -> list[Any]:
        self._call("list_status", folder)
        return [self.get_file_info(f"{folder}/{number}") for number in range(2 * LISTED_FROM_KEYS)]

    def delete(self, path: str) -> None:
        self._call("delete", path)
        self.deleted.append(path)

    def read(self, path: str) -> Any:
        self._call("read", path)

    def create(self, path: str, _options: object) -> Any:
        self._call("create", path)
        return _Written()

    def rename(self, path: str, _to: str, **_how: object) -> None:
        self._call("rename", path)


class _Written(io.BytesIO):
    def hsync(self) -> None:
        pass


def store_of(client: Any) -> HdfsStore:
    return HdfsStore(client, "/tier/")


@each_answer
def test_every_call(text: str, expected: type[TierctlError]) -> None:
    for name, call in {
        "list_status": lambda store: store.list_folder("a/"),
        "get_file_info": lambda store: store.sizes_bytes(["a/0"]),
        "read": lambda store: store.open("a/0"),
        "create": lambda store: store.put_all({"a/0": b"x"}),
    }.items():
        with pytest.raises(expected) as found:
            call(store_of(Namenode(text, name, denied="a")))
        assert isinstance(found.value, expected)
        assert found.value.hint


@pytest.mark.parametrize("text", [DENIED, BUSY], ids=["denied", "busy"])
def test_a_new_name_that_is_refused_may_be_given_by_an_earlier_request(text: str) -> None:
    store = store_of(Namenode(text, "rename"))
    with pytest.raises(StoreWriteUnknown):
        store.create("a/0", b"")


@each_answer
@pytest.mark.parametrize("count", [2, LISTED_FROM_KEYS])
def test_deletes(text: str, expected: type[TierctlError], count: int) -> None:
    """Objects of other folders are deleted."""
    client = Namenode(text, "delete", denied="/a")
    here, there = ([f"{folder}/{number}" for number in range(count)] for folder in "ab")
    errors = store_of(client).delete([*here, *there])
    assert {key: type(error) for key, error in errors.items()} == dict.fromkeys(here, expected)
    assert client.deleted == [*(f"/tier/{key}" for key in there), "/tier/b"]


@pytest.mark.parametrize(("count", "call"), [(2, "get_file_info"), (LISTED_FROM_KEYS, "list_status")])
def test_objects_of_a_folder_that_may_not_be_looked_into(count: int, call: str) -> None:
    client = Namenode(DENIED, call, denied="/a")
    here, there = ([f"{folder}/{number}" for number in range(count)] for folder in "ab")
    errors = store_of(client).delete([*here, *there])
    assert {key: type(error) for key, error in errors.items()} == dict.fromkeys(here, AuthenticationError)
    assert client.deleted == [*(f"/tier/{key}" for key in there), "/tier/b"]


@pytest.mark.parametrize("count", [2, LISTED_FROM_KEYS])
def test_a_folder_with_the_name_of_an_object_is_there_and_is_not_deleted(count: int) -> None:
    client, keys = Namenode(""), [f"a/{number}" for number in range(count)]
    client.folder = "/tier/a/1"
    store = store_of(client)
    assert store.sizes_bytes(keys).keys() == set(keys)
    assert {key: type(error) for key, error in store.delete(keys).items()} == {"a/1": ObjectUnreadable}
    assert client.deleted == [*(f"/tier/{key}" for key in keys if key != "a/1"), "/tier/a"]
