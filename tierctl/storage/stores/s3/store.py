"""Store objects in S3 and in other stores that implement its protocol."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast
from urllib.parse import urlsplit
from urllib.request import getproxies

from botocore.exceptions import ClientError

from tierctl.errors import (
    ConditionsRefused,
    RemoteObjectDiffers,
    RemoteResourceNotFound,
    RemoteStorageError,
    StoreRefused,
    StoreWriteFailed,
    StoreWriteUnknown,
    TierctlError,
)
from tierctl.model import HashedFile
from tierctl.storage.stores.base import (
    ChecksumUse,
    Endpoint,
    FolderListing,
    LifecycleRule,
    RemoteObject,
    Source,
    StoreAddress,
    TaggedObject,
    UnfinishedUpload,
    Versioning,
    delete_all,
    differs,
    require_listening,
    source_crc32c,
    source_size_bytes,
    verify_stream,
)
from tierctl.storage.stores.s3.answers import NEXT_OBJECTS, NEXT_UPLOADS, Answer, parsed_time
from tierctl.storage.stores.s3.client import (
    NOT_DONE_HERE,
    PRECONDITION_FAILED,
    FileRange,
    ResponseBody,
    checksum_mode,
    code_of,
    encoded_crc,
    endpoint_setting,
    file_range,
    head_object,
    names_checksums,
    remote_objects,
    s3_client,
    sends_checksums,
    settings_understood,
    suppressed,
    translated,
)
from tierctl.storage.stores.s3.transfers import (
    DELETE_BATCH,
    Deletions,
    Uploads,
    composite_checksum,
    listed_objects,
    object_pages,
    prefix_for,
    whole_pages,
)
from tierctl.storage.throttle import UNLIMITED, Direction, Throttle
from tierctl.wire.primitives import crc32c

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_NO_RULES = frozenset({"NoSuchLifecycleConfiguration"})
_UPLOADS_MAX = 100_000


def _rule(raw: Mapping[str, Any]) -> LifecycleRule:
    """Return a rule of GetBucketLifecycleConfiguration; in old rules, `Prefix` is not within `Filter`."""
    criteria = raw.get("Filter", {})
    criteria = criteria.get("And", criteria)
    expiration = raw.get("Expiration", {})
    after = None
    if "Days" in expiration:
        after = f"{expiration['Days']} days"
    elif "Date" in expiration:
        after = f"{expiration['Date']:%Y-%m-%d}"
    return LifecycleRule(
        name=raw.get("ID", ""),
        prefix=criteria.get("Prefix", raw.get("Prefix", "")),
        is_filtered=bool(criteria.keys() - {"Prefix"}),
        expires_after=after,
        transitions=tuple(each["StorageClass"] for each in raw.get("Transitions", ())),
        expires_noncurrent="NoncurrentVersionExpiration" in raw,
    )


_CHECKSUMS = ("ChecksumCRC32C", "ChecksumCRC64NVME", "ChecksumCRC32", "ChecksumSHA256", "ChecksumSHA1")


def _are_equal(one: dict[str, Any], other: dict[str, Any] | None) -> bool | None:
    """Return whether two objects have the same bytes; None if the store states nothing to compare.

    Checksums of an object that was uploaded in parts depend on the parts; ETags also on the encryption.
    """
    if other is None or one["ContentLength"] != other["ContentLength"]:
        return False
    if one["ETag"] == other["ETag"]:
        return True
    sums = [
        one[name] == other[name]
        for name in _CHECKSUMS
        if _is_of_whole(one, name) and _is_of_whole(other, name)
    ]
    return all(sums) if sums else None


def _is_of_whole(head: dict[str, Any], name: str) -> bool:
    """Return whether the checksum is that of the whole object; one made of parts ends with their number."""
    return "-" not in head.get(name, "-")


_CONTENT_RANGE = re.compile(r"\s*bytes ([0-9]+)-([0-9]+)/([0-9]+|\*)\s*", re.IGNORECASE)


def _is_range(answer: Mapping[str, Any], start: int, end: int | None) -> bool:
    """Return whether a response has every byte of the object from `start` to `end` (exclusive), and no other.

    A server may return fewer bytes than were requested (RFC 9110, 15.3.7). The response may be the whole
    object, with another status: it has no other bytes if it is short or empty.
    """
    size_bytes = answer["ContentLength"]
    fits = end is None or size_bytes <= end - start
    if answer["ResponseMetadata"]["HTTPStatusCode"] != HTTPStatus.PARTIAL_CONTENT:
        return fits and (not start or not size_bytes)
    if "ContentRange" not in answer:
        return fits
    stated = _CONTENT_RANGE.fullmatch(answer["ContentRange"])
    if stated is None or not fits:
        return False
    begin, stop = int(stated[1]), int(stated[2]) + 1
    is_whole = begin == start and (stop == end or stated[3] in {"*", str(stop)})
    return is_whole and stop - begin == size_bytes


WRITES_MAX = 10_000
"""Number of writes to remember; objects of forgotten ones are verified by requests of their own."""


class _Write(NamedTuple):
    tag: str
    size_bytes: int
    crc32c: int


class ConfirmedWrites:
    """The objects that this process wrote whole, and whose CRC-32C the server returned with the write.

    An ETag belongs to one write. An object in a listing with the ETag and the size of a confirmed write
    therefore has the bytes with that checksum, whatever other programs wrote under its key in between. Keys
    are complete, not relative to the store's folder. Safe to use from several threads.
    """

    def __init__(self) -> None:
        self._writes: dict[str, _Write] = {}

    def __contains__(self, key: str) -> bool:
        """Return whether the last write of the key was confirmed and has not been verified yet."""
        return key in self._writes

    def note(self, key: str, source: Source, response: Mapping[str, Any]) -> None:
        """Remember the write of `source` if the response has its checksum; otherwise forget the key."""
        self._writes.pop(key, None)
        crc = source_crc32c(source)
        if response.get("ChecksumCRC32C") == encoded_crc(crc) and "ETag" in response:
            if len(self._writes) >= WRITES_MAX:
                self._writes.clear()
            self._writes[key] = _Write(response["ETag"], source_size_bytes(source), crc)

    def verifies(self, key: str, source: Source, listed: Mapping[str, Any]) -> bool:
        """Return whether `listed`, the key's entry in a listing, is the confirmed write of `source`.

        Forget the write then.
        """
        tag, size_bytes = listed.get("ETag", ""), listed["Size"]
        expected = _Write(tag, source_size_bytes(source), source_crc32c(source))
        is_verified = self._writes.get(key) == expected and size_bytes == expected.size_bytes
        if is_verified:
            self._writes.pop(key, None)
        return is_verified


_MAY_LACK = NOT_DONE_HERE | {"InvalidArgument", "InvalidRequest"}
"""Error codes of servers that do not know a header of the request."""


class ConditionFailed(Exception):  # noqa: N818
    """The condition of a conditional write did not hold; never raised out of this package."""


@contextmanager
def conditional(condition: Mapping[str, str]) -> Iterator[None]:
    """Raise `ConditionFailed` for status 412, and for status 409, which S3 returns for concurrent writes.

    Raise ConditionsRefused if the store may lack the condition.
    """
    try:
        yield
    except TierctlError as e:
        answer = e.__cause__
        if condition and isinstance(answer, ClientError):
            if code_of(answer) in PRECONDITION_FAILED:
                raise ConditionFailed from e
            if isinstance(e, StoreRefused) and code_of(answer) in _MAY_LACK and not names_checksums(answer):
                raise ConditionsRefused(e.message, hint=e.hint) from e
        raise


PART_BYTES = 256 << 20
"""Larger objects are uploaded in parts of this size, so that a failed request repeats one part only."""

REQUESTS_MAX = 16
"""Maximum number of simultaneous requests for small objects; callers' threads send files themselves."""

PARTS_MAX = 10_000
_STAMP_MAX_BYTES = 1 << 16


class S3Store:
    """Implement ObjectStore over a bucket; the prefix is prepended to keys without adding a `/`."""

    def __init__(
        self,
        s3: S3Client,
        bucket: str,
        prefix: str = "",
        *,
        part_bytes: int | None = None,
        throttle: Throttle = UNLIMITED,
    ) -> None:
        self._throttle = throttle
        self._s3 = s3
        self._bucket = bucket
        self._prefix = prefix
        self._part_bytes = part_bytes or PART_BYTES
        self._uploads = Uploads(s3, bucket, throttle)
        self._deletions = Deletions(s3, bucket)
        self._has_conditions = True
        self._confirmed = ConfirmedWrites()
        self._pool = ThreadPoolExecutor(REQUESTS_MAX, thread_name_prefix="tierctl-s3")

    @property
    def endpoint(self) -> Endpoint:
        """Implement `ObjectStore.endpoint`: what this process's environment and AWS files may state."""
        meta = self._s3.meta
        host = urlsplit(meta.endpoint_url).hostname or ""
        # The URLs of AWS's own endpoints depend on the bucket, so another process must derive them again.
        aws = host.endswith((".amazonaws.com", ".amazonaws.com.cn"))
        return Endpoint(None if aws else meta.endpoint_url, meta.region_name, *_checksum_settings(self._s3))

    @property
    def delete_batch(self) -> int:
        """Implement `ObjectStore.delete_batch` by the limit of DeleteObjects."""
        return DELETE_BATCH

    def put_all(self, objects: Mapping[str, Source | None]) -> None:
        """Implement `ObjectStore.put_all`; the store checks a CRC-32C of every request.

        Every write requires that the key does not exist yet. If it exists with the same bytes, they were
        written by an attempt whose response was lost. If it exists with other bytes, they come from an
        earlier attempt, and are replaced on the condition that the object does not change meanwhile.
        """
        *others, last = objects.items()
        self._at_once(self._put_or_delete, others)
        self._put_or_delete(*last)

    def _put_or_delete(self, key: str, source: Source | None) -> None:
        if source is not None:
            self._put(key, source)
        elif self._head(key) is not None:
            delete_all(self, [key])

    def _at_once(
        self, do: Callable[[str, Source | None], None], objects: Sequence[tuple[str, Source | None]]
    ) -> None:
        """Call `do` for every object: files in this thread, small objects in parallel.

        Return when all calls have ended. If calls failed, raise one of the errors: a StoreWriteUnknown, if
        there is one.
        """
        errors: list[BaseException] = []
        small = [self._pool.submit(do, *each) for each in objects if not isinstance(each[1], HashedFile)]
        try:
            for key, source in objects:
                if isinstance(source, HashedFile):
                    do(key, source)
        except TierctlError as e:
            errors.append(e)
        finally:
            wait(small)
        errors += [error for each in small if (error := each.exception()) is not None]
        if errors:
            raise next((e for e in errors if isinstance(e, StoreWriteUnknown)), errors[0])

    def _put(self, key: str, source: Source) -> None:
        try:
            self._write(key, source, {"IfNoneMatch": "*"})
        except ConditionFailed as failed:
            self._confirm_or_replace(key, source, failed)
        except StoreWriteUnknown as unknown:
            try:
                is_stored = self._has_same_bytes(key, source)
            except TierctlError:
                # If this check fails too, the outcome is unknown: the write may still be carried out.
                raise unknown from None
            if not is_stored:
                raise

    def verify_all(self, objects: Mapping[str, Source | None]) -> None:
        """Implement `ObjectStore.verify_all` by the store's checksums, or by the bytes if it has none.

        One listing verifies the objects whose checksum the store returned when they were written here.
        """
        rest = objects
        if any(self._prefix + key in self._confirmed for key in objects):
            listed = listed_objects(self._s3, self._bucket, {self._prefix + key for key in objects})
            rest = {key: source for key, source in objects.items() if not self._is_in(listed, key, source)}
        self._at_once(self._verify, list(rest.items()))

    def _is_in(self, listed: Mapping[str, Mapping[str, Any]], key: str, source: Source | None) -> bool:
        """Return whether a listing proves that the object is the one that was written, or does not exist."""
        found = listed.get(self._prefix + key)
        if source is None or found is None:
            return source is None and found is None
        return self._confirmed.verifies(self._prefix + key, source, found)

    def _verify(self, key: str, source: Source | None) -> None:
        head = self._head(key)
        if source is None:
            if head is not None:
                raise RemoteObjectDiffers(f"{key} is in the tier, but the segment has no such file")
            return
        if head is None:
            raise RemoteResourceNotFound(f"{self.name_of(key)} does not exist")
        expected = source_size_bytes(source), source_crc32c(source)
        stored = head.get("ChecksumCRC32C")
        if head["ContentLength"] != expected[0]:
            raise differs(self.name_of(key), f"{head['ContentLength']} bytes", expected)
        if stored is None:
            with self.open(key) as stream:
                verify_stream(self.name_of(key), stream, source)
        elif stored != self._checksum(source, is_composite="-" in stored):
            raise differs(self.name_of(key), f"the checksum {stored}", expected)

    def _checksum(self, source: Source, *, is_composite: bool) -> str:
        """Return the checksum that S3 reports for `source`."""
        if is_composite and isinstance(source, HashedFile):
            return composite_checksum(source, self._part_size_bytes(source))
        return encoded_crc(source_crc32c(source))

    def copy(self, key: str, new_key: str) -> None:
        """Implement `ObjectStore.copy` with one request, whose limit is 5 GiB; the store copies the bytes.

        Nothing is copied if the new object has the size and a checksum, or the ETag, of the first.
        """
        source = self._existing(key)
        if _are_equal(source, self._head(new_key)):
            return
        with translated(f"copying {self.name_of(key)} to {self._prefix}{new_key}", writing=True):
            self._s3.copy_object(
                Bucket=self._bucket,
                Key=self._prefix + new_key,
                CopySource={"Bucket": self._bucket, "Key": self._prefix + key},
                CopySourceIfMatch=source["ETag"],
            )
        copied = self._existing(new_key)
        if _are_equal(source, copied) is False:
            raise RemoteObjectDiffers(
                f"{self.name_of(new_key)} differs from {self._prefix}{key}, of which it is a copy: it has "
                f"{copied['ContentLength']} bytes and ETag {copied['ETag']}",
                hint="another program writes to this tier: find it, then run again",
            )

    def open(self, key: str, start: int = 0, end: int | None = None) -> BinaryIO:
        """Implement `ObjectStore.open` by one ranged request; raise RemoteStorageError for other bytes."""
        if end is not None and end <= start:
            return io.BytesIO()
        span = f"bytes={start}-{'' if end is None else end - 1}"
        try:
            with translated(f"reading {self.name_of(key)}"):
                found = self._s3.get_object(Bucket=self._bucket, Key=self._prefix + key, Range=span)
        except RemoteStorageError as e:
            if isinstance(e.__cause__, ClientError) and code_of(e.__cause__) in {"416", "InvalidRange"}:
                return io.BytesIO()
            raise
        answer = Answer(self.name_of(key), found)
        # An empty response may come from a proxy; a server of S3 sends one for an empty object only.
        is_short = not answer["ContentLength"] and self._existing(key)["ContentLength"] > start
        if is_short or not _is_range(answer, start, end):
            answer["Body"].close()
            raise RemoteStorageError(
                f"reading {self.name_of(key)}: expected {span} of it, found "
                f"{answer.get('ContentRange', 'the whole object')} with {answer['ContentLength']} bytes",
                hint="the server, or a proxy before it, does not obey the header Range, which tierctl needs",
            )
        return io.BufferedReader(
            ResponseBody(answer["Body"], self.name_of(key), answer["ContentLength"], self._throttle),
            1 << 17,
        )

    def create(self, key: str, body: bytes) -> bool:
        """Implement `ObjectStore.create` by If-None-Match, or by a check before if the store lacks it."""
        try:
            return self.put_if(key, body, None) is not None
        except ConditionsRefused:
            if self._head(key) is not None:
                return False
            self._write(key, body, {})
            return True

    def sizes_bytes(self, keys: Sequence[str]) -> dict[str, int]:
        """Implement `ObjectStore.sizes_bytes` by a listing that skips the keys between the given ones."""
        found = listed_objects(self._s3, self._bucket, {self._prefix + key for key in keys})
        return {key.removeprefix(self._prefix): each["Size"] for key, each in found.items()}

    def name_of(self, key: str) -> str:
        """Implement `ObjectStore.name_of`."""
        return f"s3://{self._bucket}/{self._prefix}{key}"

    def list_objects(self, prefix: str) -> Iterator[RemoteObject]:
        """Implement `ObjectStore.list_objects` by several simultaneous requests."""
        with translated(f"listing s3://{self._bucket}/{self._prefix}{prefix}"):
            paginate = self._s3.get_paginator("list_objects_v2").paginate
            for page in object_pages(paginate, self._bucket, self._prefix + prefix):
                yield from remote_objects(self._s3, self._bucket, page, self._prefix)

    def list_folder(self, prefix: str) -> FolderListing:
        """Implement `ObjectStore.list_folder`: S3 lists the common prefixes that end with `/`."""
        folders: list[str] = []
        objects: list[RemoteObject] = []
        begin = self._prefix + prefix
        with translated(f"listing s3://{self._bucket}/{begin}"):
            pages = self._s3.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=prefix_for(self._bucket, begin), Delimiter="/"
            )
            for page in whole_pages(pages, NEXT_OBJECTS, self.name_of(prefix)):
                found = [each["Prefix"] for each in page.get("CommonPrefixes", ())]
                folders += (each.removeprefix(self._prefix) for each in found if each.startswith(begin))
                listed = [each for each in page.get("Contents", ()) if each["Key"].startswith(begin)]
                objects += remote_objects(self._s3, self._bucket, listed, self._prefix)
        return FolderListing(tuple(folders), tuple(objects))

    def delete(self, keys: Sequence[str]) -> dict[str, TierctlError]:
        """Implement `ObjectStore.delete` with 1,000 keys per request, or one if the store lacks that.

        Incomplete uploads of killed runs to these keys are aborted first: no later run would find them.
        """
        errors: dict[str, TierctlError] = {}
        for first in range(0, len(keys), DELETE_BATCH):
            batch = [self._prefix + key for key in keys[first : first + DELETE_BATCH]]
            try:
                self._uploads.abort_all(batch)
                failed = self._deletions.delete(batch)
            except RemoteStorageError as e:
                failed = dict.fromkeys(batch, e)
            errors |= {key.removeprefix(self._prefix): error for key, error in failed.items()}
        return errors

    def put_if(self, key: str, body: bytes, tag: str | None) -> str | None:
        """Implement `ConditionalStore.put_if`."""
        condition = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
        try:
            response = self._put_body(key, body, crc32c(body), condition)
        except (ConditionFailed, RemoteResourceNotFound):
            return None
        written: str = Answer(self.name_of(key), response)["ETag"]
        return written

    def get_tagged(self, key: str) -> TaggedObject | None:
        """Implement `ObjectStore.get_tagged`; the age is the header Date minus Last-Modified."""
        try:
            with translated(f"examining {self.name_of(key)}"):
                found = self._s3.get_object(Bucket=self._bucket, Key=self._prefix + key)
                answer = Answer(self.name_of(key), found)
                body = answer["Body"].read(_STAMP_MAX_BYTES)
        except RemoteResourceNotFound:
            return None
        age_s = (self._time_of(answer) - answer["LastModified"]).total_seconds()
        return TaggedObject(answer["ETag"], body, age_s)

    def delete_if(self, key: str, tag: str) -> None:
        """Implement `ConditionalStore.delete_if` by a check before: not all servers support If-Match."""
        head = self._head(key)
        if head is not None and head["ETag"] == tag:
            delete_all(self, [key])

    @property
    def folder(self) -> str:
        """Implement `InspectableStore.folder`."""
        return self._prefix

    def clock_ms(self) -> int:
        """Implement `InspectableStore.clock_ms` by the header Date of a response."""
        with translated(f"asking for bucket {self._bucket}"):
            answer = self._s3.list_objects_v2(Bucket=self._bucket, Prefix=self._prefix, MaxKeys=1)
        return int(self._time_of(answer).timestamp() * 1000)

    def _time_of(self, answer: Mapping[str, Any]) -> datetime:
        """Return the time of a response; raise RemoteStorageError if its header Date has none."""
        with translated(f"the server of bucket {self._bucket} does not state its time"):
            return parsed_time(answer["ResponseMetadata"]["HTTPHeaders"].get("date", ""))

    def versioning(self) -> Versioning | None:
        """Implement `InspectableStore.versioning`."""
        answers: list[Versioning] = []
        with suppressed(NOT_DONE_HERE), translated(f"asking for the versioning of bucket {self._bucket}"):
            status = self._s3.get_bucket_versioning(Bucket=self._bucket).get("Status")
            answers.append(Versioning(status.lower()) if status else Versioning.OFF)
        return answers[0] if answers else None

    def lifecycle_rules(self) -> list[LifecycleRule] | None:
        """Implement `InspectableStore.lifecycle_rules`."""
        answers: list[list[LifecycleRule]] = []
        with suppressed(NOT_DONE_HERE):
            answers.append([_rule(each) for each in self._raw_rules() if each["Status"] == "Enabled"])
        return answers[0] if answers else None

    def _raw_rules(self) -> list[Mapping[str, Any]]:
        rules: list[Mapping[str, Any]] = []
        with suppressed(_NO_RULES), translated(f"asking for the lifecycle rules of bucket {self._bucket}"):
            rules += self._s3.get_bucket_lifecycle_configuration(Bucket=self._bucket).get("Rules", ())
        return rules

    def unfinished_uploads(self) -> Iterator[UnfinishedUpload]:
        """Implement `InspectableStore.unfinished_uploads`; at most the first 100,000."""
        with translated(f"listing the uploads to s3://{self._bucket}/{self._prefix}"):
            pages = self._s3.get_paginator("list_multipart_uploads").paginate(
                Bucket=self._bucket,
                Prefix=self._prefix,
                PaginationConfig={"MaxItems": _UPLOADS_MAX},
            )
            for page in whole_pages(pages, NEXT_UPLOADS, f"uploads to {self.name_of('')}"):
                for each in page.get("Uploads", ()):
                    yield UnfinishedUpload(each["Key"], int(each["Initiated"].timestamp() * 1000))

    def close(self) -> None:
        """Implement `ObjectStore.close`."""
        self._pool.shutdown()
        self._s3.close()

    def _existing(self, key: str) -> Answer:
        """Return the head of an object; raise RemoteResourceNotFound if it does not exist."""
        with translated(f"examining {self.name_of(key)}"):
            found = head_object(self._s3, self._bucket, self._prefix + key, **checksum_mode(self._s3))
            return Answer(self.name_of(key), found)

    def _head(self, key: str) -> Answer | None:
        try:
            return self._existing(key)
        except RemoteResourceNotFound:
            return None

    def _has_same_bytes(self, key: str, source: Source) -> bool:
        with suppress(RemoteObjectDiffers, RemoteResourceNotFound):
            self._verify(key, source)
            return True
        return False

    def _confirm_or_replace(self, key: str, source: Source, failed: ConditionFailed) -> None:
        """Return if the existing object has the bytes of `source`; otherwise replace the object."""
        head = self._head(key)
        if self._has_same_bytes(key, source):
            return
        if head is None:
            raise StoreWriteUnknown(
                f"{self.name_of(key)} was created and deleted by another program while it was being written"
            ) from failed
        try:
            self._write(key, source, {"IfMatch": head["ETag"]})
        except ConditionFailed as again:
            raise StoreWriteFailed(
                f"{self.name_of(key)} is being written by another program",
                hint="tierctl uses each segment id only once: find the other program that writes to this "
                "tier",
            ) from again

    def _write(self, key: str, source: Source, condition: dict[str, str]) -> None:
        """Write the object on a condition, without it if the store has no conditions.

        The object then replaces what another program wrote under the key, which has a new segment id.
        """
        if condition and self._has_conditions:
            try:
                return self._write_if(key, source, condition)
            except ConditionsRefused:
                self._write_if(key, source, {})
                self._has_conditions = False
                return None
        return self._write_if(key, source, {})

    def _write_if(self, key: str, source: Source, condition: dict[str, str]) -> None:
        if isinstance(source, bytes):
            self._throttle.wait(Direction.COPY, len(source))
            response = self._put_body(key, source, crc32c(source), condition)
        elif source.size_bytes <= self._part_bytes:
            with file_range(source, 0, source.size_bytes, self._throttle) as body:
                response = self._put_body(key, body, source.crc32c, condition)
        else:
            part_bytes = self._part_size_bytes(source)
            with conditional(condition):
                response = self._uploads.put(self._prefix + key, source, part_bytes, condition)
        self._confirmed.note(self._prefix + key, source, response)

    def _part_size_bytes(self, source: HashedFile) -> int:
        return max(self._part_bytes, -(-source.size_bytes // PARTS_MAX))

    def _put_body(
        self, key: str, body: bytes | FileRange, crc: int, condition: dict[str, str]
    ) -> Mapping[str, Any]:
        with conditional(condition), translated(f"writing {self.name_of(key)}", writing=True):
            return self._s3.put_object(
                Bucket=self._bucket,
                Key=self._prefix + key,
                Body=cast("BinaryIO", body),
                **_crc_field(self._s3, crc),
                **condition,  # type: ignore[arg-type]
            )


def _require_endpoint(endpoint_url: str) -> None:
    """Raise RemoteStorageError if the endpoint in the settings refuses connections.

    AWS's own endpoints and endpoints behind a proxy are not checked here; the client reports their errors.
    """
    with settings_understood():
        url = urlsplit(endpoint_url)
        host, port = url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
    if not host or getproxies().keys() - {"no"} or host.endswith((".amazonaws.com", ".amazonaws.com.cn")):
        return
    require_listening(host, port, endpoint_setting())


def open_store(address: StoreAddress) -> S3Store:
    """Open the store below a folder of a bucket."""
    client = s3_client(address.endpoint)
    _require_endpoint(client.meta.endpoint_url)
    return S3Store(client, address.authority, address.folder, throttle=address.throttle)


def _checksum_settings(s3: S3Client) -> tuple[ChecksumUse, ChecksumUse]:
    """Return the settings of requests and responses, for a client of another process."""
    config: Any = s3.meta.config
    return config.request_checksum_calculation, config.response_checksum_validation


def _crc_field(s3: S3Client, crc: int) -> dict[str, Any]:
    """Return the field of a request with the CRC-32C of its body."""
    return {"ChecksumCRC32C": encoded_crc(crc)} if sends_checksums(s3) else {}
