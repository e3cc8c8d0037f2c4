"""Pages of listings are parsed with the same results as in botocore, and errors are detected."""

from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import escape

import pytest
from botocore import handlers, parsers
from botocore.session import get_session
from hypothesis import example, given
from hypothesis import strategies as st
from tierctl.storage.stores.s3.client import parse_objects, s3_client

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
