"""A listing in spans has every key once, in order, for any keys and any ends of spans."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tierctl.errors import RemoteStorageError
from tierctl.storage.stores.s3 import transfers
from tierctl.storage.stores.s3.client import s3_client
from tierctl.storage.stores.s3.store import S3Store
from tierctl.storage.stores.s3.transfers import in_order, object_pages

from tests.support.servers import S3Server

ODD = (
    "a",
    "a/",
    "a//b",
    "a/./b",
    "a/../b",
    "a b",
    "a+b",
    "a%2Fb",
    "a&<>\"'",
    "\u00e4/\u20ac",
    "\U0001f600/x",
    "/",
    "//",
)
FOLDERS = st.sampled_from(
    ["", "a/", "a-/", "a.", "a/b/", "a//", "b/", "\u20ac/", "\U0001f600/", " +%/", "z/"]
)
NAMES = st.one_of(st.sampled_from(["", "/", ".", ".."]), st.integers(0, 30).map("{:02d}.log".format))
KEYS = st.one_of(st.sampled_from(ODD), st.builds("{}{}{}".format, FOLDERS, FOLDERS, NAMES)).filter(bool)


class ModelS3:
    """ListObjectsV2 over `keys`, in pages of `page` entries, as S3 answers it.

    `hidden` are folders that the listing with a delimiter leaves out. With `ignores_start` the server ignores
    StartAfter; with `unordered_after`, pages after that key list their keys backwards.
    """

    def __init__(
        self,
        keys: Sequence[str],
        page: int,
        *,
        hidden: Sequence[str] = (),
        ignores_start: bool = False,
        unordered_after: str | None = None,
    ) -> None:
        self.keys = sorted(keys)
        self.page = page
        self.hidden = hidden
        self.ignores_start = ignores_start
        self.unordered_after = unordered_after
        self.requests = 0

    def paginate(self, **asked: str) -> Iterator[Any]:
        assert asked["Bucket"] == "bucket"
        prefix, delimiter = asked["Prefix"], "Delimiter" in asked
        after = "" if self.ignores_start else asked.get("StartAfter", "")
        found = [key for key in self.keys if key.startswith(prefix) and key > after]
        if delimiter:
            found = [key[: key.find("/", len(prefix)) + 1] or key for key in found]
            found = [key for key in dict.fromkeys(found) if key not in self.hidden]
        for first in range(0, max(len(found), 1), self.page):
            self.requests += 1
            page = found[first : first + self.page]
            folders = [{"Prefix": key} for key in page if delimiter and key.endswith("/")]
            objects = [{"Key": key} for key in page if not (delimiter and key.endswith("/"))]
            if self.unordered_after is not None and page and page[0] > self.unordered_after:
                objects.reverse()
            yield {"Contents": objects, "CommonPrefixes": folders}


def listed(s3: ModelS3, prefix: str = "") -> list[str]:
    return [each["Key"] for page in object_pages(s3.paginate, "bucket", prefix) for each in page]


@contextmanager
def limits(**values: int) -> Iterator[None]:
    """Set constants of the module while the block runs."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setattr(transfers, name, value)
        yield


@given(
    st.lists(KEYS, unique=True),
    st.integers(1, 7),
    st.sampled_from(["", "a", "a/", "b/"]),
    st.booleans(),
    st.data(),
)
@example(sorted(ODD), 1, "", False, None)
def test_every_key_is_listed_once_and_by_key(
    keys: list[str], page: int, prefix: str, ignores_start: bool, data: st.DataObject | None
) -> None:
    hidden = [] if data is None else data.draw(st.lists(FOLDERS, max_size=2))
    s3 = ModelS3(keys, page, hidden=hidden, ignores_start=ignores_start)
    with limits(PAGE_MAX=page, PAGES_PER_SPAN=1):
        assert listed(s3, prefix) == sorted(key for key in keys if key.startswith(prefix))


def test_a_long_listing_takes_few_more_requests_than_pages() -> None:
    keys = [f"t/{folder:04d}/{number:03d}" for folder in range(200) for number in range(500)]
    s3 = ModelS3(keys, 1000)
    assert listed(s3, "t/") == keys
    assert 105 < s3.requests <= 115
    flat = ModelS3([f"t/{number:06d}" for number in range(50_000)], 1000)
    assert listed(flat, "t/") == flat.keys
    assert flat.requests == 50
    short = ModelS3(keys[:900], 1000)
    assert listed(short) == keys[:900]
    assert short.requests == 1


def test_a_server_that_lists_in_another_order_is_listed_completely_or_refused() -> None:
    keys = [f"{folder:02d}/{number}" for folder in range(20) for number in range(5)]
    with limits(PAGE_MAX=5, PAGES_PER_SPAN=1):
        assert sorted(listed(ModelS3(keys, 5, unordered_after=""))) == keys
        with pytest.raises(RemoteStorageError, match=r"did not list the keys after .* in their order"):
            listed(ModelS3(keys, 5, unordered_after="10"))


def test_pages_come_in_order_and_an_error_comes_after_them() -> None:
    def pages(numbers: Sequence[int], error: str = "") -> Iterator[int]:
        yield from numbers
        if error:
            raise ValueError(error)

    found: list[int] = []
    parts = [
        pages([1, 2, 3]),
        pages([]),
        pages(range(4, 40), "of the third span"),
        pages([99], "of the last"),
    ]
    with pytest.raises(ValueError, match="of the third span"):
        found.extend(in_order(iter(parts)))
    assert found == list(range(1, 40))
    assert list(in_order(iter(()))) == []
    assert next(in_order(pages([number]) for number in range(100))) == 0


def test_pages_that_are_not_used_are_not_fetched() -> None:
    fetched: list[int] = []

    def pages(span: int) -> Iterator[int]:
        for number in range(1000):
            fetched.append(span)
            yield number

    assert list(islice(in_order(pages(span) for span in range(100)), 500)) == list(range(500))
    assert set(fetched) == set(range(transfers.SPANS_AT_ONCE))
    assert max(map(fetched.count, range(1, 8))) <= transfers.PAGES_AHEAD + 1


def test_a_real_server_lists_in_spans_as_in_pages(s3_server: S3Server) -> None:
    bucket, names = s3_server.bucket(), ["a", "a-b", "a b+c%2F&<", "ä", "\U0001f600", "z"]
    root = s3_server.folder / "data" / bucket
    for name in names:
        for number in range(400):
            path = root / "tier" / name / f"{number:03d}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    (root / "tier" / "a.b").touch()
    client = s3_client()
    whole = client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
    expected = [each["Key"] for page in whole for each in page["Contents"]]
    assert sorted(expected) == expected
    assert len(expected) == 400 * len(names) + 1
    starts: set[str] = set()
    client.meta.events.register(
        "provide-client-params.s3.ListObjectsV2", lambda params, **_: starts.add(params.get("StartAfter", ""))
    )
    found = list(S3Store(client, bucket, "tier/").list_objects(""))
    assert [f"tier/{each.key}" for each in found] == expected
    assert len(starts) > 2
    client.close()
