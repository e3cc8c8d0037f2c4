"""Store objects in S3 and in other stores that implement its protocol."""

import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, BinaryIO, cast
from urllib.parse import urlsplit
from urllib.request import getproxies

from botocore.exceptions import ClientError

from tierctl.errors import (
    RemoteObjectDiffers,
    RemoteResourceNotFound,
    RemoteStorageError,
    StoreWriteFailed,
    StoreWriteUnknown,
    TierctlError,
)
from tierctl.model import HashedFile
from tierctl.storage.base import FolderListing, RemoteObject
from tierctl.storage.stores.base import (
    Endpoint,
    Source,
    StoreAddress,
    TaggedObject,
    delete_all,
    differs,
    source_crc32c,
    source_size_bytes,
    verify_stream,
)
from tierctl.storage.stores.listening import require_listening
from tierctl.storage.stores.s3.body import FileRange, ResponseBody, file_range
from tierctl.storage.stores.s3.bucket import S3Bucket
from tierctl.storage.stores.s3.bulk import DELETE_BATCH, delete_objects, sizes_bytes
from tierctl.storage.stores.s3.client import s3_client
from tierctl.storage.stores.s3.copying import copy_object
from tierctl.storage.stores.s3.errors import PRECONDITION_FAILED, code_of, translated
from tierctl.storage.stores.s3.spans import object_pages
from tierctl.storage.stores.s3.uploads import Uploads, composite_checksum, encoded_crc
from tierctl.storage.throttle import UNLIMITED, Direction, Throttle
from tierctl.wire.crc import crc32c

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

PART_BYTES = 64 << 20
"""Larger objects are uploaded in parts of this size, so that a failed request repeats one part only."""

REQUESTS_MAX = 16
"""Maximum number of simultaneous requests for small objects; callers' threads send files themselves."""

PARTS_MAX = 10_000
_STAMP_MAX_BYTES = 1 << 16


class _ConditionFailed(Exception):  # noqa: N818
    """The condition of a conditional write did not hold; raised and caught in this module only."""


class S3Store:
    """Implement ObjectStore over a bucket; the prefix is prepended to keys without adding a `/`."""

    def __init__(
        self,
        s3: "S3Client",
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
        self._pool = ThreadPoolExecutor(REQUESTS_MAX, thread_name_prefix="tierctl-s3")

    @property
    def endpoint(self) -> Endpoint:
        """Implement `ObjectStore.endpoint`: the server may come from the environment of this process."""
        meta = self._s3.meta
        host = urlsplit(meta.endpoint_url).hostname or ""
        # The URLs of AWS's own endpoints depend on the bucket, so another process must derive them again.
        aws = host.endswith((".amazonaws.com", ".amazonaws.com.cn"))
        return Endpoint(None if aws else meta.endpoint_url, meta.region_name)

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
        except _ConditionFailed as failed:
            self._confirm_or_replace(key, source, failed)
        except StoreWriteUnknown as unknown:
            try:
                is_stored = self._has_same_bytes(key, source)
            except TierctlError:
                # A look that fails leaves the outcome unknown: the write may still land.
                raise unknown from None
            if not is_stored:
                raise

    def verify_all(self, objects: Mapping[str, Source | None]) -> None:
        """Implement `ObjectStore.verify_all` by the store's checksums, or by the bytes if it has none."""
        self._at_once(self._verify, list(objects.items()))

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
        """Implement `ObjectStore.copy` by one request: the bytes stay in the store."""
        copy_object(self._s3, self._bucket, self._prefix + key, self._prefix + new_key)

    def open(self, key: str, start: int = 0, end: int | None = None) -> BinaryIO:
        """Implement `ObjectStore.open` by one ranged request."""
        if end is not None and end <= start:
            return io.BytesIO()
        span = f"bytes={start}-{'' if end is None else end - 1}"
        try:
            with translated(f"reading {self.name_of(key)}"):
                answer = self._s3.get_object(Bucket=self._bucket, Key=self._prefix + key, Range=span)
        except RemoteStorageError as e:
            if isinstance(e.__cause__, ClientError) and code_of(e.__cause__) in {"416", "InvalidRange"}:
                return io.BytesIO()
            raise
        return io.BufferedReader(
            ResponseBody(answer["Body"], self.name_of(key), answer["ContentLength"], self._throttle),
            1 << 17,
        )

    def create(self, key: str, body: bytes) -> bool:
        """Implement `ObjectStore.create` by If-None-Match."""
        return self.put_if(key, body, None) is not None

    def sizes_bytes(self, keys: Sequence[str]) -> dict[str, int]:
        """Implement `ObjectStore.sizes_bytes` by a listing that skips the keys between the given ones."""
        whole = {self._prefix + key for key in keys}
        sizes = sizes_bytes(self._s3, self._bucket, whole)
        return {key.removeprefix(self._prefix): size_bytes for key, size_bytes in sizes.items()}

    def name_of(self, key: str) -> str:
        """Implement `ObjectStore.name_of`."""
        return f"s3://{self._bucket}/{self._prefix}{key}"

    def list_objects(self, prefix: str) -> Iterator[RemoteObject]:
        """Implement `ObjectStore.list_objects` by several simultaneous requests."""
        with translated(f"listing s3://{self._bucket}/{self._prefix}{prefix}"):
            paginate = self._s3.get_paginator("list_objects_v2").paginate
            for page in object_pages(paginate, self._bucket, self._prefix + prefix):
                yield from self._objects_in(page)

    def list_folder(self, prefix: str) -> FolderListing:
        """Implement `ObjectStore.list_folder`: S3 lists the common prefixes that end with `/`."""
        folders: list[str] = []
        objects: list[RemoteObject] = []
        with translated(f"listing s3://{self._bucket}/{self._prefix}{prefix}"):
            pages = self._s3.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._prefix + prefix, Delimiter="/"
            )
            for page in pages:
                found = page.get("CommonPrefixes", ())
                folders += (each["Prefix"].removeprefix(self._prefix) for each in found)
                objects += self._objects_in(page.get("Contents", ()))
        return FolderListing(tuple(folders), tuple(objects))

    def _objects_in(self, page: Sequence[Mapping[str, Any]]) -> Iterator[RemoteObject]:
        for found in page:
            modified_ms = int(found["LastModified"].timestamp() * 1000)
            yield RemoteObject(found["Key"].removeprefix(self._prefix), found["Size"], modified_ms)

    def delete(self, keys: Sequence[str]) -> dict[str, TierctlError]:
        """Implement `ObjectStore.delete` with 1,000 keys per request; the response lists failed keys.

        Incomplete uploads of killed runs to these keys are aborted first: no later run would find them.
        """
        errors: dict[str, TierctlError] = {}
        for first in range(0, len(keys), DELETE_BATCH):
            batch = [self._prefix + key for key in keys[first : first + DELETE_BATCH]]
            try:
                self._uploads.abort_all(batch)
                failed = delete_objects(self._s3, self._bucket, batch)
            except RemoteStorageError as e:
                failed = dict.fromkeys(batch, e)
            errors |= {key.removeprefix(self._prefix): error for key, error in failed.items()}
        return errors

    def put_if(self, key: str, body: bytes, tag: str | None) -> str | None:
        """Implement `ConditionalStore.put_if`."""
        condition = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
        try:
            return self._put_body(key, body, crc32c(body), condition)
        except (_ConditionFailed, RemoteResourceNotFound):
            return None

    def get_tagged(self, key: str) -> TaggedObject | None:
        """Implement `ObjectStore.get_tagged`; the age is the header Date minus Last-Modified."""
        try:
            with translated(f"examining {self.name_of(key)}"):
                answer = self._s3.get_object(Bucket=self._bucket, Key=self._prefix + key)
                body = answer["Body"].read(_STAMP_MAX_BYTES)
        except RemoteResourceNotFound:
            return None
        now = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
        age_s = (now - answer["LastModified"]).total_seconds()
        return TaggedObject(answer["ETag"], body, age_s)

    def delete_if(self, key: str, tag: str) -> None:
        """Implement `ConditionalStore.delete_if` by a check before: not all servers support If-Match."""
        head = self._head(key)
        if head is not None and head["ETag"] == tag:
            delete_all(self, [key])

    @property
    def bucket(self) -> S3Bucket:
        """Implement `InspectableStore.bucket`."""
        return S3Bucket(self._s3, self._bucket, self._prefix)

    def close(self) -> None:
        """Implement `ObjectStore.close`."""
        self._pool.shutdown()
        self._s3.close()

    def _head(self, key: str) -> dict[str, Any] | None:
        try:
            with translated(f"examining {self.name_of(key)}"):
                return dict(
                    self._s3.head_object(Bucket=self._bucket, Key=self._prefix + key, ChecksumMode="ENABLED")
                )
        except RemoteResourceNotFound:
            return None

    def _has_same_bytes(self, key: str, source: Source) -> bool:
        with suppress(RemoteObjectDiffers, RemoteResourceNotFound):
            self._verify(key, source)
            return True
        return False

    def _confirm_or_replace(self, key: str, source: Source, failed: _ConditionFailed) -> None:
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
        except _ConditionFailed as again:
            raise StoreWriteFailed(
                f"{self.name_of(key)} is being written by another program",
                hint="no two attempts share a segment id: find the other program that writes to this tier",
            ) from again

    def _write(self, key: str, source: Source, condition: dict[str, str]) -> None:
        if isinstance(source, bytes):
            self._throttle.wait(Direction.COPY, len(source))
            self._put_body(key, source, crc32c(source), condition)
        elif source.size_bytes <= self._part_bytes:
            with file_range(source, 0, source.size_bytes, self._throttle) as body:
                self._put_body(key, body, source.crc32c, condition)
        else:
            with _conditional():
                self._uploads.put(self._prefix + key, source, self._part_size_bytes(source), condition)

    def _part_size_bytes(self, source: HashedFile) -> int:
        return max(self._part_bytes, -(-source.size_bytes // PARTS_MAX))

    def _put_body(self, key: str, body: bytes | FileRange, crc: int, condition: dict[str, str]) -> str:
        with _conditional(), translated(f"writing {self.name_of(key)}", writing=True):
            answer = self._s3.put_object(
                Bucket=self._bucket,
                Key=self._prefix + key,
                Body=cast("BinaryIO", body),
                ChecksumCRC32C=encoded_crc(crc),
                **condition,  # type: ignore[arg-type]
            )
        return answer["ETag"]


@contextmanager
def _conditional() -> Iterator[None]:
    """Raise `_ConditionFailed` for status 412, and for status 409, which S3 returns for concurrent writes."""
    try:
        yield
    except TierctlError as e:
        if isinstance(e.__cause__, ClientError) and code_of(e.__cause__) in PRECONDITION_FAILED:
            raise _ConditionFailed from e
        raise


def open_store(address: StoreAddress) -> S3Store:
    """Open the store below a folder of a bucket."""
    client = s3_client(address.endpoint)
    _require_listening(client.meta.endpoint_url)
    return S3Store(client, address.authority, address.folder, throttle=address.throttle)


def _require_listening(endpoint_url: str) -> None:
    """Raise RemoteStorageError if the endpoint in the settings refuses connections.

    AWS's own endpoints and endpoints behind a proxy are not checked here; the client reports their errors.
    """
    url = urlsplit(endpoint_url)
    host = url.hostname or ""
    if not host or getproxies().keys() - {"no"} or host.endswith((".amazonaws.com", ".amazonaws.com.cn")):
        return
    settings = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    named_by = next((name for name in settings if os.environ.get(name)), "endpoint_url of the AWS profile")
    require_listening(host, url.port or (443 if url.scheme == "https" else 80), named_by)
