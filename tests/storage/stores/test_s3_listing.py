"""Listings of S3: pages as botocore parses them, spans with every key once, requests about many keys."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import escape

import pytest
from botocore import handlers, parsers
from botocore.exceptions import ClientError
from botocore.session import get_session
from hypothesis import example, given
from hypothesis import strategies as st
from tierctl.errors import AuthenticationError, RemoteStorageError
from tierctl.storage.stores.s3 import transfers
from tierctl.storage.stores.s3.answers import parse_objects
from tierctl.storage.stores.s3.client import s3_client
from tierctl.storage.stores.s3.store import S3Store
from tierctl.storage.stores.s3.transfers import delete_objects, in_order, listed_objects, object_pages

from tests.support.servers import S3Server

KEYS = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=30)
TIMES = st.integers(0, 1 << 43).map(lambda at_ms: datetime.fromtimestamp(at_ms / 1000, UTC))
OBJECTS = st.lists(st.tuples(KEYS, st.integers(0, 5 << 40), TIMES))
TIME = datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)
A_TO_C = [("a&b<c>'", 1, TIME), ("&amp;copy;", 0, TIME)]
MODEL = get_session().get_service_model("s3")
LISTING = MODEL.operation_model("ListObjectsV2")


def element(key: str, size_bytes: int, modified: datetime) -> str:
    time = modified.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return (
        f"<Contents><ETag>&quot;e&quot;</ETag><Key>{key}</Key><LastModified>{time}</LastModified>"
        f"<Size>{size_bytes}</Size><StorageClass>STANDARD</StorageClass></Contents>"
    )


def page(objects: str, *, after: str = "<CommonPrefixes><Prefix>x/</Prefix></CommonPrefixes>") -> bytes:
    head = '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><Name>b</Name><KeyCount>1</KeyCount>'
    return f"{head}{objects}{after}<IsTruncated>false</IsTruncated></ListBucketResult>".encode()


def parsed(body: bytes, *, by_botocore: bool, status: int = 200) -> dict[str, Any]:
    response = {"body": body, "headers": {}, "status_code": status}
    more: dict[str, Any] = {}
    if not by_botocore:
        parse_objects(operation_model=LISTING, response_dict=response, customized_response_dict=more)
    found = parsers.create_parser("rest-xml").parse(response, LISTING.output_shape)
    return dict(found | more)


def assert_same(body: bytes, *, is_left: bool = False) -> None:
    ours, theirs = parsed(body, by_botocore=False), parsed(body, by_botocore=True)
    objects = [
        [
            tuple(map(each.get, ("Key", "Size", "LastModified", "ETag", "StorageClass")))
            for each in found.pop("Contents", ())
        ]
        for found in (ours, theirs)
    ]
    assert objects[0] == objects[1]
    assert ours == theirs
    response, more = {"body": body, "headers": {}, "status_code": 200}, {}
    parse_objects(operation_model=LISTING, response_dict=response, customized_response_dict=more)
    assert (more == {}) is is_left


@given(OBJECTS, st.booleans(), st.sampled_from(["", "\n  "]))
@example(A_TO_C, False, "")
def test_a_page_is_parsed_as_by_botocore(
    objects: list[tuple[str, int, datetime]], is_quoted: bool, between: str
) -> None:
    encode = quote if is_quoted else escape
    listed = between.join(element(encode(key), *more) for key, *more in objects)
    assert_same(page(listed), is_left=not objects)


@pytest.mark.parametrize(
    "objects",
    [
        "<Contents><Key><![CDATA[a]]></Key><Size>1</Size><LastModified>2026-01-01T00:00:00Z</LastModified></Contents>",
        "<Contents><Size>1</Size><LastModified>2026-01-01T00:00:00Z</LastModified></Contents>",
        element("a", 1, TIME)
        + "<CommonPrefixes><Prefix>p/</Prefix></CommonPrefixes>"
        + element("q", 1, TIME),
        element("a", 1, TIME).replace("2026-01-02T03:04:05.678Z", "Thu, 01 Jan 2026 00:00:00 GMT"),
        '<Contents a="b"><Key>k</Key><Size>1</Size></Contents>',
    ],
    ids=["CDATA", "no key", "prefixes between objects", "another form of time", "an attribute"],
)
def test_a_page_of_another_form_is_left_to_botocore(objects: str) -> None:
    assert_same(page(objects), is_left=True)


def test_a_body_that_was_cut_off_is_still_an_error() -> None:
    whole = page(element("a", 1, TIME))
    refused = b"<Error><Code>InternalError</Code></Error>"
    for body, expected in ((whole, 200), (whole[:-20], 500), (refused, 500)):
        response = {"body": body, "headers": {}, "status_code": 200, "context": {}}
        parse_objects(operation_model=LISTING, response_dict=response, customized_response_dict={})
        handlers._handle_200_error(operation_model=LISTING, response_dict=response)
        assert response["status_code"] == expected


def test_the_client_parses_before_it_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    body = page(element("a", 1, TIME))
    sizes: list[int] = []

    def check(_status: int, content: bytes) -> bool:
        sizes.append(len(content))
        return False

    monkeypatch.setattr(handlers, "_looks_like_special_case_error", check)
    more: dict[str, Any] = {}
    s3_client().meta.events.emit(
        "before-parse.s3.ListObjectsV2",
        operation_model=LISTING,
        response_dict={"body": body, "headers": {}, "status_code": 200},
        customized_response_dict=more,
    )
    assert [each["Key"] for each in more["Contents"]] == ["a"]
    assert sizes == [len(page(""))]


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
ODD_KEYS = st.one_of(st.sampled_from(ODD), st.builds("{}{}{}".format, FOLDERS, FOLDERS, NAMES)).filter(bool)


class ModelS3:
    """ListObjectsV2 over `keys`, in pages of `page` entries, as S3 answers it.

    `hidden` are folders that the listing with a delimiter leaves out. With `ignores_start` the server ignores
    StartAfter; with `unordered_after`, pages after that key list their keys backwards.
    """

    bucket = "bucket"

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

    def _found(self, asked: Mapping[str, str]) -> list[str]:
        assert asked["Bucket"] == self.bucket
        after = asked.get("ContinuationToken", "" if self.ignores_start else asked.get("StartAfter", ""))
        return [key for key in self.keys if key.startswith(asked["Prefix"]) and key > after]

    def head_object(self, *, Key: str, **_: str) -> None:  # noqa: N803
        self.requests += 1
        if Key not in self.keys:
            raise ClientError({"Error": {"Code": "404"}}, "HeadObject")

    def list_objects_v2(self, **asked: str) -> Any:
        """Return one page; the size of each object is the length of its key."""
        self.requests += 1
        found = self._found(asked)
        page = found[: self.page]
        answer: dict[str, Any] = {"IsTruncated": len(found) > len(page)}
        if page:
            answer["Contents"] = [{"Key": key, "Size": len(key)} for key in page]
        if answer["IsTruncated"]:
            answer["NextContinuationToken"] = page[-1]
        return answer

    def paginate(self, **asked: str) -> Iterator[Any]:
        prefix, delimiter, found = asked["Prefix"], "Delimiter" in asked, self._found(asked)
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


class DirectoryBucket(ModelS3):
    """A directory bucket, which lists folders backwards, and only by prefixes that are folders."""

    bucket = "logs--use1-az4--x-s3"

    def _found(self, asked: Mapping[str, str]) -> list[str]:
        assert asked["Bucket"] == self.bucket
        assert "StartAfter" not in asked
        assert asked["Prefix"][-1:] in {"", "/"}
        keys = sorted(self.keys, key=lambda key: key.rpartition("/")[0], reverse=True)
        begin = keys.index(asked["ContinuationToken"]) + 1 if "ContinuationToken" in asked else 0
        return [key for key in keys[begin:] if key.startswith(asked["Prefix"])]


def listed(s3: ModelS3, prefix: str = "") -> list[str]:
    return [each["Key"] for page in object_pages(s3.paginate, s3.bucket, prefix) for each in page]


@contextmanager
def limits(**values: int) -> Iterator[None]:
    """Set constants of the module while the block runs."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setattr(transfers, name, value)
        yield


@given(
    st.lists(ODD_KEYS, unique=True),
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
        expected = sorted(key for key in keys if key.startswith(prefix))
        assert listed(s3, prefix) == expected
        assert sorted(listed(DirectoryBucket(keys, page), prefix)) == expected


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


FEW_KEYS = st.builds(
    "{}{:02d}{}".format,
    st.sampled_from(["", "a/", "a/b/", "b/"]),
    st.integers(0, 40),
    st.sampled_from(["", ".log", ".x"]),
)


@given(st.sets(FEW_KEYS), st.sets(FEW_KEYS), st.integers(1, 7), st.booleans())
def test_every_key_that_exists_is_found(
    stored: set[str], keys: set[str], page: int, ignores_start: bool
) -> None:
    s3 = ModelS3([*stored], page, ignores_start=ignores_start)
    for each in (s3, DirectoryBucket([*stored], page)):
        found = listed_objects(each, each.bucket, keys)  # type: ignore[arg-type]
        assert {key: of["Size"] for key, of in found.items()} == {key: len(key) for key in keys & stored}


def test_no_key_is_missing_because_the_server_lists_in_another_order() -> None:
    """A key that it lists later is not passed, also if its first page is in order by chance.

    One request for a key that was passed is enough.
    """
    asked: list[str] = []

    def head_object(*, Key: str, **_: object) -> Any:  # noqa: N803
        asked.append(Key)
        if Key in "xyz":
            raise ClientError({"Error": {"Code": "404"}}, "HeadObject")
        return {}

    def found(*pages: str, wanted: str = "bcdg") -> set[str]:
        def list_objects_v2(*, ContinuationToken: str = "0", **_: object) -> Any:  # noqa: N803
            after = int(ContinuationToken) + 1
            page: dict[str, Any] = {"Contents": [{"Key": key} for key in pages[after - 1]]}
            return page | {"IsTruncated": after < len(pages), "NextContinuationToken": str(after)}

        s3: Any = SimpleNamespace(list_objects_v2=list_objects_v2, head_object=head_object)
        return set(listed_objects(s3, "bucket", [*wanted]))

    assert found("gf", "bh", "dc") == found("fg", "bc", "d") == {"b", "c", "d", "g"}
    with pytest.raises(RemoteStorageError, match=r"listing s3://bucket/c: .* in their order") as caught:
        found("ab", "gf", "dc")
    assert caught.value.hint
    asked.clear()
    assert found("y~", "~~", "~", wanted="xyz") == {"y"}
    assert asked == ["x"]


@pytest.mark.parametrize("tokens", [{}, {"NextContinuationToken": ""}, {"NextContinuationToken": "t"}])
@pytest.mark.parametrize("listed_keys", [(), ("a/1", "a/2")])
def test_a_listing_that_does_not_go_on_is_refused(
    tokens: Mapping[str, str], listed_keys: tuple[str, ...]
) -> None:
    class Stuck:
        asked = 0

        def list_objects_v2(self, **_: Any) -> Any:
            self.asked += 1
            assert self.asked <= 2
            return {"IsTruncated": True, "Contents": [{"Key": key} for key in listed_keys], **tokens}

    with pytest.raises(RemoteStorageError, match=r"listing s3://bucket/a/3: .*next page") as caught:
        listed_objects(Stuck(), "bucket", ["a/3"])  # type: ignore[arg-type]
    assert caught.value.hint


@pytest.mark.parametrize(
    ("first", "last", "pages"), [(0, 99, 2), (500, 599, 2), (9_990, 9_999, 1), (0, 9_999, 11)]
)
def test_pages_without_the_keys_are_skipped(first: int, last: int, pages: int) -> None:
    keys = [f"folder/{number:05d}" for number in range(10_000)]
    s3 = ModelS3(keys, 1000)
    found = listed_objects(s3, "bucket", keys[first : last + 1])  # type: ignore[arg-type]
    assert list(found) == keys[first : last + 1]
    assert s3.requests <= pages
    ends = ModelS3(keys, 1000)
    assert set(listed_objects(ends, "bucket", [keys[0], keys[-1]])) == {keys[0], keys[-1]}  # type: ignore[arg-type]
    assert ends.requests == 2


@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "Key": st.sampled_from(["a", "b", "", "z"]),
                "Code": st.sampled_from(["NoSuchKey", "InternalError", "AccessDenied"]),
            },
        ),
        max_size=3,
    )
)
@example([{}])
@example([{"Key": "a", "Code": "NoSuchKey"}, {"Key": "z", "Code": "NoSuchKey"}])
@example(
    [{"Key": "a", "Code": "AccessDenied", "Message": "Object Lock"}, {"Key": "b", "Code": "InternalError"}]
)
def test_each_key_has_its_error_and_one_of_no_key_that_was_asked_for_fails_all(
    errors: list[dict[str, str]],
) -> None:
    """Which object such an error is about is not known, so none counts as deleted."""
    asked: list[Any] = []

    def answer(**request: Any) -> Any:
        asked.append((request["Bucket"], [each["Key"] for each in request["Delete"]["Objects"]]))
        return {"Errors": errors}

    s3: Any = SimpleNamespace(delete_objects=answer)
    if all(each.get("Key") in {"a", "b"} for each in errors):
        failed = {each["Key"]: each for each in errors if each.get("Code") != "NoSuchKey"}
        found = delete_objects(s3, "bucket", ["a", "b"])
        assert found.keys() == failed.keys()
        for key, each in failed.items():
            code, message = each.get("Code"), each.get("Message")
            assert isinstance(found[key], AuthenticationError) == (code == "AccessDenied")
            assert f"s3://bucket/{key} was not deleted: {code}: {message}" in found[key].message
    else:
        with pytest.raises(RemoteStorageError, match="expected errors of their keys"):
            delete_objects(s3, "bucket", ["a", "b"])
    assert asked == [("bucket", ["a", "b"])]
