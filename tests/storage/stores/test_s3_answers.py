"""What tierctl makes of the answers and errors of an S3 server and its client: kinds, hints, listings."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from botocore import exceptions
from botocore.exceptions import ClientError
from tierctl.errors import (
    AuthenticationError,
    NotFoundError,
    RemoteStorageError,
    StoreRefused,
    StoreWriteUnknown,
    TierctlError,
    UsageError,
)
from tierctl.storage.open_tier import TierSpec, open_tier
from tierctl.storage.stores.base import Endpoint, hashed_file
from tierctl.storage.stores.s3 import client, transfers
from tierctl.storage.stores.s3.client import s3_client
from tierctl.storage.stores.s3.store import ConditionFailed, S3Store, conditional
from urllib3.exceptions import HTTPError

from tests.support.faulty_proxy import Fault, FaultyProxy, Kind
from tests.support.lacking_store import BUCKET, Lack, LackingStore

Lacking = Callable[..., tuple[LackingStore, S3Store]]


@pytest.fixture
def lacking(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lacking]:
    """Return a function that starts a server which lacks something, and opens its bucket."""
    with ExitStack() as started:

        def start(*lacks: Lack, slow: int = 0, part_bytes: int | None = None) -> tuple[LackingStore, S3Store]:
            server = started.enter_context(LackingStore(lacks, slow=slow))
            server.found(monkeypatch)
            store = S3Store(s3_client(), BUCKET, part_bytes=part_bytes)
            started.callback(store.close)
            return server, store

        yield start


@pytest.mark.parametrize(
    "lacks", [set(), {Lack.RANGES}, {Lack.RIGHT_RANGES}, {Lack.LONG_RANGES}, {Lack.BODIES}]
)
@pytest.mark.parametrize("data", [b"", b"0123456789"])
def test_other_bytes_than_the_requested_ones_are_never_returned(
    lacks: set[Lack], data: bytes, lacking: Lacking
) -> None:
    server, store = lacking(*lacks)
    server.put({"log": data})
    for start, end in ((0, None), (0, 4), (0, 10), (0, 99), (4, None), (4, 6), (9, 10), (99, None)):
        sent = {Lack.LONG_RANGES: data[start:end][:1], Lack.BODIES: b""}
        if any(sent.get(lack, data) != data[start:end] for lack in lacks):
            with pytest.raises(RemoteStorageError, match=f"expected bytes={start}-.*, found "):
                store.open("log", start, end)
        else:
            assert store.open("log", start, end).read() == data[start:end]


@pytest.mark.parametrize(
    "page",
    [
        b"<?xml version='1.0'?><!DOCTYPE html><html><head/><body>Sign in</body></html>",
        b"<ListAllMyBucketsResult/>",
        b"",
    ],
)
def test_the_answer_of_another_program_is_not_an_empty_bucket(page: bytes, lacking: Lacking) -> None:
    """botocore takes any document for a result that lacks all fields: nothing stored, everything deleted."""
    server, store = lacking()
    server.put({"a": b"x"})
    server.page = page
    for call in (
        lambda: list(store.list_objects("")),
        lambda: store.list_folder(""),
        lambda: store.sizes_bytes(["a"]),
        lambda: list(store.unfinished_uploads()),
        store.versioning,
        store.lifecycle_rules,
    ):
        with pytest.raises(RemoteStorageError, match="expected the document ") as caught:
            call()
        assert caught.value.hint
    # The server that does not know uploads may know deletions; this one does not.
    assert "expected the document DeleteResult" in store.delete(["a"])["a"].message
    server.page = None
    assert store.delete(["a"]) == {}


def test_a_redirect_is_named(lacking: Lacking) -> None:
    """botocore looks for the bucket's region then, with a request that is redirected, too, and so on."""
    server, store = lacking(Lack.ADDRESS)
    for call in (
        lambda: list(store.list_objects("")),
        lambda: store.sizes_bytes(["a"]),
        lambda: store.open("a"),
        lambda: store.put_all({"a": b"x"}),
        lambda: store.put_if("lease", b"x", None),
    ):
        with pytest.raises(StoreRefused, match=r"redirects to https://elsewhere\.example:9000$") as caught:
            call()
        assert "AWS_ENDPOINT_URL_S3" in (caught.value.hint or "")
    assert isinstance(store.delete(["a"])["a"], StoreRefused)
    assert len(server.requests) < 30


@pytest.mark.parametrize("code", ["SlowDown", "ServiceUnavailable", "SlowDownWrite"])
def test_a_busy_server_is_waited_for_under_each_of_its_codes(
    code: str, lacking: Lacking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "WAIT_MAX_S", 60)
    monkeypatch.setattr(client, "_LAST_S", 0.02)
    server, store = lacking(slow=12)
    server.slow_code = code
    store.put_all({"a": b"x"})
    server.slow = len(server.requests) + 12
    assert store.sizes_bytes(["a"]) == {"a": 1}


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("AccessDenied", "check the rights"),
        ("SignatureDoesNotMatch", "give credentials"),
        ("ExpiredToken", "give credentials"),
        ("RequestTimeTooSkewed", "set the clock"),
    ],
)
def test_each_reason_of_a_403_has_its_remedy(code: str, hint: str) -> None:
    answer: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": 403}}
    with pytest.raises(AuthenticationError) as caught, client.translated("reading"):
        raise ClientError(answer, "GetObject")
    assert (caught.value.hint or "").startswith(hint)


@pytest.mark.parametrize(
    ("error", "kinds", "hint"),
    [
        *(
            (error, (AuthenticationError,), "give credentials")
            for error in (
                exceptions.CredentialRetrievalError(provider="custom-process", error_msg="expired"),
                exceptions.MetadataRetrievalError(error_msg="the role is not known"),
                exceptions.SSOTokenLoadError(error_msg="the token does not exist"),
                exceptions.UnauthorizedSSOTokenError(),
                exceptions.TokenRetrievalError(provider="sso", error_msg="expired"),
            )
        ),
        (exceptions.ParamValidationError(report='bucket name "a b"'), (UsageError,), "correct the bucket"),
        (exceptions.EndpointProviderError(msg="no valid ARN"), (UsageError,), "correct the bucket"),
        (
            ClientError({"Error": {"Code": "InvalidBucketName"}}, "GetObject"),
            (NotFoundError,),
            "create the bucket",
        ),
        (HTTPError("decryption failed or bad record mac"), (RemoteStorageError, StoreWriteUnknown), ""),
    ],
)
def test_each_error_of_the_client_has_its_kind(
    error: Exception, kinds: tuple[type[TierctlError], ...], hint: str
) -> None:
    """The last of `kinds` is that of a write."""
    for kind, writing in ((kinds[0], False), (kinds[-1], True)):
        with pytest.raises(TierctlError) as caught, client.translated("storing", writing=writing):
            raise error
        assert type(caught.value) is kind
        assert (caught.value.hint or "").startswith(hint)
        assert isinstance(error, ClientError) or str(error) in caught.value.message
    if isinstance(error, exceptions.BotoCoreError):
        with pytest.raises(kinds[0]), client.settings_understood():
            raise error


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"AWS_ENDPOINT_URL": "http://[::1"}, "AWS_ENDPOINT_URL: Invalid IPv6 URL"),
        ({"AWS_ENDPOINT_URL_S3": "http://host:99999"}, "AWS_ENDPOINT_URL_S3: Port out of range"),
        ({"AWS_ENDPOINT_URL": "host:1"}, "AWS_ENDPOINT_URL: Invalid endpoint: host:1"),
        ({"AWS_PROFILE": "nobody"}, r"the AWS settings: The config profile \(nobody\)"),
        ({"AWS_CONFIG_FILE": __file__}, "the AWS settings: Unable to parse config file"),
    ],
)
def test_settings_that_no_client_takes(
    settings: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The server of the other tests of this module has a setting that goes before AWS_ENDPOINT_URL.
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=message):
        open_tier(TierSpec("s3://bucket/tier"))


def test_a_key_with_checksum_in_it_is_written_without_conditions(lacking: Lacking) -> None:
    """The server refuses the condition; its answer is not about the checksum."""
    server, store = lacking(Lack.CONDITIONS)
    store.put_all({"checksums-0/a": b"x"})
    assert store.create("x-amz-trailer/b", b"x")
    assert server.objects.keys() == {"checksums-0/a", "x-amz-trailer/b"}


@pytest.mark.parametrize("code", sorted(client.PRECONDITION_FAILED))
def test_only_a_condition_can_fail(code: str) -> None:
    for condition, expected in (({}, RemoteStorageError), ({"IfMatch": "tag"}, ConditionFailed)):
        with pytest.raises(expected), conditional(condition), client.translated("storing", writing=True):
            raise ClientError({"Error": {"Code": code}}, "PutObject")


@pytest.mark.parametrize(
    ("answer", "found"),
    [("403", ["a"]), ("404", []), ("500", RemoteStorageError), ("reset before", RemoteStorageError)],
)
def test_an_archived_object_that_cannot_be_looked_at(
    answer: Kind, found: list[str] | type[TierctlError], lacking: Lacking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts as archived only if the store refuses to show it; operators would restore it otherwise."""
    server, _ = lacking()
    server.put({"a": b"x"})
    server.archived, server.restored = "a", True
    monkeypatch.setattr(client, "CLIENT_ATTEMPTS", 1)
    monkeypatch.setattr(client, "WAIT_MAX_S", 0)
    with FaultyProxy(int(server.endpoint.rpartition(":")[2])) as proxy:
        store = S3Store(s3_client(Endpoint(proxy.endpoint)), BUCKET)
        assert [each.archive_class for each in store.list_objects("")] == [None]
        proxy.faults = [Fault(answer, "HEAD", nth=0)]
        if isinstance(found, list):
            assert [(each.key, each.archive_class) for each in store.list_objects("")] == [
                (key, "GLACIER") for key in found
            ]
        else:
            with pytest.raises(found, match="examining s3://tier/a"):
                list(store.list_objects(""))
        store.close()


def test_the_reason_of_a_refused_head_is_asked_for(lacking: Lacking) -> None:
    """The response to HEAD has no body, so that an expired token looks like a header the server lacks."""
    _, store = lacking(Lack.VALID_TOKEN)
    calls: tuple[Callable[[], object], ...] = (
        lambda: store.verify_all({"a": b"x"}),
        lambda: store.delete_if("a", "tag"),
        lambda: transfers._is_missing(store._s3, BUCKET, "a"),
    )
    for call in calls:
        with pytest.raises(AuthenticationError, match="ExpiredToken") as caught:
            call()
        assert (caught.value.hint or "").startswith("give credentials")


def test_a_page_that_names_no_next_one_is_not_the_last(lacking: Lacking) -> None:
    """A server that knows only version 1 of listings answers so, and boto3 ends the listing there."""

    def listing(name: str) -> bytes:
        return f"<{name}><IsTruncated>true</IsTruncated></{name}>".encode()

    server, store = lacking()
    objects, uploads = listing("ListBucketResult"), listing("ListMultipartUploadsResult")
    calls: list[tuple[bytes, Callable[[], object]]] = [
        (objects, lambda: list(store.list_objects(""))),
        (objects, lambda: store.list_folder("")),
        (objects, lambda: store.sizes_bytes(["a"])),
        (uploads, lambda: list(store.unfinished_uploads())),
    ]
    for server.page, call in calls:
        with pytest.raises(RemoteStorageError, match=r"listing .*, and names no next page") as caught:
            call()
        assert caught.value.hint
    assert "names no next page" in store.delete(["a"])["a"].message


def test_a_page_that_names_the_next_one_is_not_the_last(lacking: Lacking) -> None:
    """boto3 ends a listing at a page without IsTruncated; the other objects would count as deleted."""
    server, store = lacking(Lack.IS_TRUNCATED)
    server.put({"a": b"x", "b": b"x", "c": b"x"})
    assert [each.key for each in store.list_objects("")] == ["a", "b", "c"]
    assert [each.key for each in store.list_folder("").objects] == ["a", "b", "c"]
    assert store.sizes_bytes(["a", "c"]) == {"a": 1, "c": 1}


_AT = "2026-01-02T03:04:05.000Z"
_OBJECT = {"Key": "a", "Size": "1", "LastModified": _AT}
_ENTRIES: tuple[tuple[str, str, dict[str, str], Callable[[S3Store], object]], ...] = (
    ("ListBucketResult", "Contents", _OBJECT, lambda store: list(store.list_objects(""))),
    ("ListBucketResult", "Contents", _OBJECT, lambda store: store.sizes_bytes(["a"])),
    ("ListBucketResult", "CommonPrefixes", {"Prefix": "a/"}, lambda store: store.list_folder("")),
    (
        "ListMultipartUploadsResult",
        "Upload",
        {"Key": "a", "UploadId": "1", "Initiated": _AT},
        lambda store: list(store.unfinished_uploads()),
    ),
    (
        "LifecycleConfiguration",
        "Rule",
        {"ID": "a", "Status": "Enabled"},
        lambda store: store.lifecycle_rules(),
    ),
)
"""A document, the tag of its entries, the fields of one of them, and a call that reads the document."""


@pytest.mark.parametrize(("document", "tag", "fields", "call"), _ENTRIES)
def test_an_entry_without_a_field_that_is_used_is_an_error(
    document: str, tag: str, fields: dict[str, str], call: Callable[[S3Store], object], lacking: Lacking
) -> None:
    server, store = lacking()
    for lacks in (None, *(fields.keys() - {"ID"})):
        entry = "".join(f"<{name}>{text}</{name}>" for name, text in fields.items() if name != lacks)
        if lacks is None and _AT in entry:
            wrong = entry.replace(_AT, "yesterday")
            server.page = f"<{document}><{tag}>{wrong}</{tag}></{document}>".encode()
            with pytest.raises(RemoteStorageError, match="expected a time, found 'yesterday'") as caught:
                call(store)
            assert caught.value.hint
        server.page = f"<{document}><{tag}>{entry}</{tag}></{document}>".encode()
        if lacks is None:
            assert call(store)
            continue
        with pytest.raises(RemoteStorageError, match=rf"(s3://| )tier.*: expected {lacks} in ") as caught:
            call(store)
        assert caught.value.hint


def test_an_upload_without_an_id_is_an_error(lacking: Lacking, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x" * 9)
    _, store = lacking(Lack.UPLOAD_ID, part_bytes=5)
    with pytest.raises(RemoteStorageError, match="s3://tier/log: expected UploadId in "):
        store.put_all({"log": hashed_file(tmp_path / "log")})


def test_a_server_that_does_not_state_its_time(lacking: Lacking) -> None:
    """How old the lease of another run is cannot be known then."""
    server, store = lacking(Lack.DATE)
    assert store.put_if("lease", b"x", None)
    for date in (None, "now", "99999999999999999999999"):
        server.objects["lease"].headers = {} if date is None else {"Date": date}
        for call in (lambda: store.get_tagged("lease"), store.clock_ms):
            with pytest.raises(RemoteStorageError, match="does not state its time") as caught:
                call()
            assert caught.value.hint
    server.objects["lease"].headers = {"Date": "Mon, 30 Nov 2099 21:00:00 -0000"}
    assert store.get_tagged("lease").age_s > 0


def test_a_server_that_leaves_out_the_tags_of_objects(lacking: Lacking, tmp_path: Path) -> None:
    """Reading and writing new objects needs none; what needs one says so."""
    (tmp_path / "log").write_bytes(b"x" * 9)
    server, store = lacking(Lack.ETAG, part_bytes=5)
    store.put_all({"a": b"x"})
    store.verify_all({"a": b"x"})
    assert store.open("a").read() == b"x"
    calls: tuple[Callable[[], object], ...] = (
        lambda: store.put_if("lease", b"x", None),
        lambda: store.get_tagged("a"),
        lambda: store.delete_if("a", "tag"),
        lambda: store.put_all({"a": b"y"}),
        lambda: store.copy("a", "b"),
        lambda: store.put_all({"log": hashed_file(tmp_path / "log")}),
    )
    for call in calls:
        with pytest.raises(RemoteStorageError, match=r"s3://tier/.*: the response .* has no ETag") as caught:
            call()
        assert caught.value.hint
    assert server.count("DELETE /tier/log?uploadId=") == 1
