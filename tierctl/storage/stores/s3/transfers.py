"""Uploads in parts, deletions and long listings of S3, in threads where that is faster."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Generic, TypeVar, cast

import numpy as np

from tierctl.errors import (
    AuthenticationError,
    RemoteResourceNotFound,
    RemoteStorageError,
    StoreRefused,
    TierctlError,
)
from tierctl.model import HashedFile
from tierctl.model.selection import counted
from tierctl.storage.stores.base import common_prefix
from tierctl.storage.stores.s3.answers import NEXT_OBJECTS, NEXT_UPLOADS, Answer, ForeignAnswerError
from tierctl.storage.stores.s3.client import (
    REFUSED,
    RIGHTS_HINT,
    FileRange,
    encoded_crc,
    file_range,
    head_object,
    sends_checksums,
    suppressed,
    translated,
)
from tierctl.storage.throttle import UNLIMITED, Throttle
from tierctl.wire.primitives import crc32c_extend

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ErrorTypeDef, ListObjectsV2OutputTypeDef, ObjectTypeDef

# Send requests to S3 about many keys: DeleteObjects, and listings that look for known keys.
#
# Keys are complete, not relative to the store's folder.

DELETE_BATCH = 1_000
"""The maximum number of keys in a DeleteObjects request."""

_DELETES_AT_ONCE = 8

PAGE_MAX = 1_000
"""The maximum number of objects in a page of a listing."""

PAGE_MIN = 20
_MISSING = frozenset({"NoSuchKey", "404"})


def delete_objects(s3: S3Client, bucket: str, keys: Sequence[str]) -> dict[str, TierctlError]:
    """Delete up to DELETE_BATCH objects by one request; return the error of each key that has one.

    Raise RemoteStorageError if the request fails, or if the response has an error of none of the keys: the
    objects may then be deleted or not.
    """
    with translated(f"deleting {counted(len(keys), 'object')}, s3://{bucket}/{keys[0]} first"):
        answer = s3.delete_objects(
            Bucket=bucket,
            # Quiet: the response has only the keys that were not deleted.
            Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True},
        )
    errors = answer.get("Errors", ())
    asked = frozenset(keys)
    for each in errors:
        if each.get("Key") not in asked:
            raise RemoteStorageError(
                f"deleting {counted(len(keys), 'object')} of s3://{bucket}: expected errors of their keys, "
                f"found one of {each.get('Key')!r}: {each.get('Code')}: {each.get('Message')}",
                hint="run the command again: it resumes the deletion",
            )
    return {each["Key"]: _not_deleted(bucket, each) for each in errors if each.get("Code") not in _MISSING}


def _not_deleted(bucket: str, found: ErrorTypeDef) -> TierctlError:
    """Return the error of one key; S3 checks rights per key, and answers the request itself with success."""
    message = f"s3://{bucket}/{found['Key']} was not deleted: {found.get('Code')}: {found.get('Message')}"
    if found.get("Code") in REFUSED:
        return AuthenticationError(message, hint=RIGHTS_HINT)
    return RemoteStorageError(message, hint="run the command again: it resumes the deletion")


class Deletions:
    """Deletes objects of one bucket: with DeleteObjects, or key by key if the store refuses that request."""

    def __init__(self, s3: S3Client, bucket: str) -> None:
        self._s3 = s3
        self._bucket = bucket
        self._is_in_bulk = True

    def delete(self, keys: Sequence[str]) -> dict[str, TierctlError]:
        """Delete up to DELETE_BATCH objects; return the error of each key that has one.

        Raise RemoteStorageError if a request for all of them fails: they may then be deleted or not.
        """
        if self._is_in_bulk:
            try:
                return delete_objects(self._s3, self._bucket, keys)
            except StoreRefused:
                # Google Cloud Storage has no DeleteObjects.
                pass
        with ThreadPoolExecutor(min(_DELETES_AT_ONCE, len(keys))) as pool:
            errors = dict(zip(keys, pool.map(self._error_of, keys), strict=True))
        failed = {key: error for key, error in errors.items() if error is not None}
        if len(failed) < len(keys):
            self._is_in_bulk = False
        return failed

    def _error_of(self, key: str) -> TierctlError | None:
        """Delete one object; return the error, None if the object does not exist any more."""
        try:
            with translated(f"deleting s3://{self._bucket}/{key}"):
                self._s3.delete_object(Bucket=self._bucket, Key=key)
        except RemoteResourceNotFound:
            return None
        except TierctlError as e:
            return e
        return None


def is_directory(bucket: str) -> bool:
    """Return whether the name is that of a directory bucket of S3, or of an access point to one.

    They list in no order, ignore StartAfter, and know only prefixes that end with `/`.
    """
    return bucket.endswith(("--x-s3", "--xa-s3"))


def prefix_for(bucket: str, prefix: str) -> str:
    """Return the prefix by which the bucket lists the keys that begin with `prefix`, maybe among others."""
    return prefix[: prefix.rfind("/") + 1] if is_directory(bucket) else prefix


def listed_objects(s3: S3Client, bucket: str, keys: Collection[str]) -> dict[str, ObjectTypeDef]:
    """Return the entry in a listing of each object that exists; keys between the given ones are skipped.

    A key counts as missing only once the listing has passed it, or has ended if the server does not list in
    key order, as directory buckets do not. A request for the first key that a page passes shows whether the
    server lists in key order. Raise RemoteStorageError if the server first lists in key order and later does
    not, and if it names no next page, or the same one again.
    """
    ordered, wanted = sorted(keys), frozenset(keys)
    objects: dict[str, ObjectTypeDef] = {}
    at, continuation, page_size = 0, "", PAGE_MAX
    is_by_key, is_proven = not is_directory(bucket), False
    while at < len(ordered):
        page = _page(s3, bucket, ordered[at:] if at else ordered, continuation, page_size)
        found = page.get("Contents", [])
        objects |= {each["Key"]: each for each in found if each["Key"] in wanted}
        if not page.get("IsTruncated"):
            break
        passed = bisect_right(ordered, found[-1]["Key"], at) - at if found and is_by_key else 0
        missing = next((key for key in ordered[at : at + passed] if key not in objects), None)
        is_in_order = _is_by_key("", [each["Key"] for each in found])
        if is_in_order and missing is not None and is_by_key and not is_proven:
            is_in_order = is_proven = _is_missing(s3, bucket, missing)
        if is_by_key and not is_in_order:
            if at:
                raise _not_in_order(f"s3://{bucket}/{ordered[at]}", ordered[at - 1])
            is_by_key, passed = False, 0
        # The next page begins at the next key; if this page did not come to the first one, it follows it.
        continuation = "" if passed else _next_token(page, continuation, f"s3://{bucket}/{ordered[at]}")
        # If the keys are far apart, each page contains only one of them: then ask for small pages, which are
        # read faster.
        page_size = max(PAGE_MIN, min(2 * passed, PAGE_MAX)) if passed else PAGE_MAX
        at += passed
    return objects


def _is_missing(s3: S3Client, bucket: str, key: str) -> bool:
    """Return whether an object that a listing left out does not exist; True without the right to read it."""
    try:
        with suppressed({"401", "403"}), translated(f"examining s3://{bucket}/{key}"):
            head_object(s3, bucket, key)
            return False
    except RemoteResourceNotFound:
        pass
    return True


def _next_token(page: ListObjectsV2OutputTypeDef, before: str, wanted: str) -> str:
    """Return where the page after the truncated `page` begins; `before` is where that page began.

    `wanted` names the object that is looked for.
    """
    token = page.get(NEXT_OBJECTS, "")
    if not token or token == before:
        raise _endless(wanted, f"as next page {token!r} again" if token else "no next page")
    return token


def _endless(listed: str, named: str) -> RemoteStorageError:
    return RemoteStorageError(
        f"listing {listed}: the server says that the listing goes on, and names {named}",
        hint="run the command again; if the error stays, the server does not list as S3 does",
    )


def whole_pages(pages: Iterable[Any], token: str, listed: str) -> Iterator[Any]:
    """Yield pages of boto3's paginator, which takes a page that names no next one in `token` for the last.

    Raise RemoteStorageError if the server says that the listing goes on after that page; `listed` names it.
    """
    for page in pages:
        if page.get("IsTruncated") and not page.get(token):
            raise _endless(listed, "no next page")
        yield page


def _page(
    s3: S3Client, bucket: str, keys: Sequence[str], continuation: str, size: int
) -> ListObjectsV2OutputTypeDef:
    """Return the page at `continuation`; if that is "", the page that begins shortly before the first key."""
    prefix = prefix_for(bucket, common_prefix(keys))
    begin = {"ContinuationToken": continuation} if continuation else {}
    if not (begin or is_directory(bucket)):
        # S3 lists the keys after StartAfter; a key without its last character comes before that key.
        begin = {"StartAfter": keys[0][:-1]}
    with translated(f"listing s3://{bucket}/{prefix}"):
        return s3.list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=size, **begin)  # type: ignore[arg-type]


# List long prefixes with several threads: each thread lists a span of keys; pages are yielded in key order.
#
# A page has at most 1,000 objects and names the next page, so that a single thread spends most of its time
# waiting for the server. A span has all keys after one boundary up to the next boundary. The boundaries are
# names of folders, but every key is in exactly one span whatever the boundaries are: a folder that is created
# or deleted meanwhile, or that the first page did not show, makes a span longer and omits no key.
#
# The library obstore, which also lists fast, cannot replace this: it changes or refuses keys with an empty
# or a relative part (`a//b`, `a/`, `a/../b`), and a key that is missing from a listing counts as a missing
# object.

SPANS_AT_ONCE: Final = 8
PAGES_AHEAD: Final = 8
"""Maximum number of fetched pages per span that wait in memory."""
PAGES_PER_SPAN: Final = 8
"""Estimated pages per span; each span costs half a page more, which the server lists beyond its end."""

Page = TypeVar("Page")
Objects = Sequence[Mapping[str, Any]]
"""Consecutive objects of a listing: `Key`, `Size` and `LastModified` of each."""
Paginate = Callable[..., Iterable[Any]]
"""The method `paginate` of boto3's paginator for list_objects_v2."""


class _NotInOrderError(RemoteStorageError):
    """A page does not have the keys after the requested key in key order."""


def _not_in_order(listed: str, after: str) -> _NotInOrderError:
    return _NotInOrderError(
        f"listing {listed}: the server did not list the keys after {after!r} in their order",
        hint="run the command again; if the error stays, the server does not list as S3 does",
    )


def object_pages(paginate: Paginate, bucket: str, prefix: str) -> Iterator[Objects]:
    """Yield every object whose key begins with `prefix`, in pages in key order.

    If the server ignores the requested start of a listing, or does not list in key order, one page after the
    other is requested, in the server's order. Raise RemoteStorageError if the server first lists in key order
    and later does not.
    """
    listing = _Listing(paginate, bucket, prefix_for(bucket, prefix))
    pages = listing.pages("")
    if is_directory(bucket):
        yield from (
            [each for each in page if each["Key"].startswith(prefix)] for page in in_order(iter([pages]))
        )
        return
    first = next(pages, ())
    yield first
    keys = [each["Key"] for each in first]
    others = in_order(iter([pages]))
    if len(keys) == PAGE_MAX and _is_by_key("", keys) and (bounds := listing.folders_after(keys)):
        in_spans = in_order(listing.span(*span) for span in pairwise([keys[-1], *bounds, None]))
        # The first page shows whether the server respects the requested start.
        with suppress(_NotInOrderError):
            others = chain([next(in_spans, ())], in_spans)
    yield from others


class _Listing:
    """The requests that list the keys of a bucket with a given prefix."""

    def __init__(self, paginate: Paginate, bucket: str, prefix: str) -> None:
        self._paginate = paginate
        self._bucket = bucket
        self._prefix = prefix

    def pages(self, after: str) -> Iterator[Objects]:
        """Yield the pages of all keys after the key `after`; "" stands for the beginning of the listing."""
        begin: Any = {"StartAfter": after} if after else {}
        for page in self._paginated(self._prefix, begin):
            yield page.get("Contents", ())

    def span(self, after: str | None, last: str | None) -> Iterator[Objects]:
        """Yield the pages of the keys after `after` up to `last` (inclusive); None stands for the end.

        Raise `_NotInOrderError` if the server does not return the keys after `after` in their order.
        """
        after = after or ""
        for page in self.pages(after):
            keys = [each["Key"] for each in page]
            if not _is_by_key(after, keys):
                raise _not_in_order(f"s3://{self._bucket}/{self._prefix}", after)
            count = len(keys) if last is None else bisect_right(keys, last)
            yield page[:count]
            if count < len(keys):
                return
            after = keys[-1] if keys else after

    def folders_after(self, keys: Sequence[str]) -> list[str]:
        """Return boundaries of spans for the keys after `keys`, which are the first page of the listing.

        The boundaries are sorted names of folders. They are chosen so that a span has about PAGES_PER_SPAN
        pages if the following folders are as large as those of `keys`.
        """
        last = keys[-1]
        parents = [last[: at + 1] for at in range(len(self._prefix), len(last)) if last[at] == "/"]
        # The folder of the last key is not counted, because its objects have other names.
        levels = [self._prefix, *parents][:-1]
        found = {each for level in levels for each in self._folders_in(level, last) if each > last}
        folder_count = len({key.rpartition("/")[0] for key in keys})
        step = PAGES_PER_SPAN * folder_count
        return sorted(found)[::step]

    def _folders_in(self, prefix: str, after: str) -> Iterator[str]:
        for page in self._paginated(prefix, {"StartAfter": after, "Delimiter": "/"}):
            folders = page.get("CommonPrefixes", ())
            yield from (each["Prefix"] for each in folders)
            if len(folders) < len(page.get("Contents", ())):
                # This page and probably the next ones list mostly objects.
                return

    def _paginated(self, prefix: str, more: Any) -> Iterator[Any]:
        pages = self._paginate(Bucket=self._bucket, Prefix=prefix, **more)
        return whole_pages(pages, NEXT_OBJECTS, f"s3://{self._bucket}/{prefix}")


def _is_by_key(after: str, keys: Sequence[str]) -> bool:
    """Return whether `keys` are in key order and all come after `after`."""
    return all(a < b for a, b in pairwise(chain((after,), keys)))


class _Ahead(Generic[Page]):
    """Fetch the pages of one span: one page at a time in a thread, up to PAGES_AHEAD ahead of their use."""

    def __init__(self, threads: ThreadPoolExecutor, pages: Iterator[Page]) -> None:
        self._threads = threads
        self._pages = pages
        self._fetched: deque[Future[Page | None]] = deque()

    def fetch(self) -> None:
        """Start to fetch the next page, unless a page is being fetched or PAGES_AHEAD pages wait."""
        if self._fetched:
            last = self._fetched[-1]
            if (
                len(self._fetched) > PAGES_AHEAD
                or not last.done()
                or last.exception()
                or last.result() is None
            ):
                return
        self._fetched.append(self._threads.submit(next, self._pages, None))

    def take(self) -> Page | None:
        """Return the next page once it is complete, None after the last; raise the error of its request."""
        return self._fetched.popleft().result()


def in_order(spans: Iterator[Iterator[Page]]) -> Iterator[Page]:
    """Yield the pages of the spans in order, while threads fetch the pages of the next spans."""
    with ThreadPoolExecutor(SPANS_AT_ONCE, thread_name_prefix="tierctl-listing") as threads:
        window = deque(_Ahead(threads, pages) for pages in islice(spans, SPANS_AT_ONCE))
        while window:
            for each in window:
                each.fetch()
            page = window[0].take()
            if page is not None:
                yield page
                continue
            window.popleft()
            window.extend(_Ahead(threads, pages) for pages in islice(spans, 1))


def composite_checksum(source: HashedFile, part_bytes: int) -> str:
    """Return the checksum of the parts' checksums; stores without FULL_OBJECT report it for an upload."""
    count = -(-source.size_bytes // part_bytes)
    of_parts = 0
    for number in range(count):
        with file_range(source, number * part_bytes, part_bytes) as body:
            of_parts = crc32c_extend(of_parts, _crc32c(body).to_bytes(4, "big"))
    return f"{encoded_crc(of_parts)}-{count}"


def _crc32c(body: FileRange) -> int:
    """Return the checksum of the whole range, and seek back to the beginning of the range."""
    crc = 0
    while block := body.read():
        crc = crc32c_extend(crc, np.frombuffer(block, np.uint8))
    body.seek(0)
    return crc


class Uploads:
    """Multipart uploads to one bucket; keys are complete, not relative to the store's folder."""

    def __init__(self, s3: S3Client, bucket: str, throttle: Throttle = UNLIMITED) -> None:
        self._throttle = throttle
        self._s3 = s3
        self._bucket = bucket
        self._is_checked = sends_checksums(s3)

    def put(
        self, key: str, source: HashedFile, part_bytes: int, condition: dict[str, str]
    ) -> Mapping[str, Any]:
        """Store `source` in parts of `part_bytes`, one after the other; abort the upload if it fails.

        Return the response of the request that completes the upload.
        """
        target = {"Bucket": self._bucket, "Key": key}
        name = f"s3://{self._bucket}/{key}"
        # FULL_OBJECT: the store reports the checksum of the whole object, which the source has, too.
        checked: Any = (
            {"ChecksumAlgorithm": "CRC32C", "ChecksumType": "FULL_OBJECT"} if self._is_checked else {}
        )
        with translated(f"beginning {name}"):
            upload = self._s3.create_multipart_upload(
                **target,  # type: ignore[arg-type]
                **checked,
            )["UploadId"]
        done = False
        try:
            parts = [
                self.put_part(target, upload, number, source, part_bytes)
                for number in range(1, -(-source.size_bytes // part_bytes) + 1)
            ]
            with translated(f"completing {name}", writing=True):
                response = self._s3.complete_multipart_upload(
                    **target,  # type: ignore[arg-type]
                    UploadId=upload,
                    MultipartUpload={"Parts": parts},  # type: ignore[typeddict-item]
                    **condition,  # type: ignore[arg-type]
                )
            done = True
            return response
        finally:
            if not done:
                # Parts of an incomplete upload cost money for ever. Best effort: the upload may be complete.
                with suppress(TierctlError):
                    self._abort(key, upload)

    def put_part(
        self, target: dict[str, str], upload: str, number: int, source: HashedFile, part_bytes: int
    ) -> dict[str, Any]:
        """Upload one part; return its entry for the CompleteMultipartUpload request."""
        start = (number - 1) * part_bytes
        with file_range(source, start, part_bytes, self._throttle) as body:
            checksum: Any = {"ChecksumCRC32C": encoded_crc(_crc32c(body))} if self._is_checked else {}
            with translated(f"writing part {number} of s3://{self._bucket}/{target['Key']}"):
                answer = self._s3.upload_part(
                    **target,  # type: ignore[arg-type]
                    UploadId=upload,
                    PartNumber=number,
                    Body=cast("BinaryIO", body),
                    **checksum,
                )
        tag: str = Answer(f"s3://{self._bucket}/{target['Key']}", answer)["ETag"]
        return {"PartNumber": number, "ETag": tag, **checksum}

    def abort_all(self, keys: Sequence[str]) -> None:
        """Abort the uploads to exactly these keys, which earlier runs did not complete.

        Do nothing if the credentials do not permit listing uploads, or if the store does not support it.
        """
        wanted, prefix = set(keys), common_prefix(keys)
        try:
            with (
                suppress(AuthenticationError, StoreRefused),
                translated(f"listing uploads to s3://{self._bucket}/{prefix}"),
            ):
                pages = self._s3.get_paginator("list_multipart_uploads").paginate(
                    Bucket=self._bucket, Prefix=prefix_for(self._bucket, prefix)
                )
                for page in whole_pages(pages, NEXT_UPLOADS, f"uploads to s3://{self._bucket}/{prefix}"):
                    for found in page.get("Uploads", ()):
                        if found["Key"] in wanted:
                            self._abort(found["Key"], found["UploadId"])
        except RemoteStorageError as e:
            # A server that ignores the question lists objects instead.
            if not isinstance(e.__cause__, ForeignAnswerError):
                raise

    def _abort(self, key: str, upload: str) -> None:
        with suppressed({"NoSuchUpload"}), translated(f"aborting an upload of s3://{self._bucket}/{key}"):
            self._s3.abort_multipart_upload(Bucket=self._bucket, Key=key, UploadId=upload)
