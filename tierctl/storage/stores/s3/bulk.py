"""Send requests to S3 about many keys: DeleteObjects, and listings that look for known keys.

Keys are complete, not relative to the store's folder.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tierctl.errors import RemoteResourceNotFound, RemoteStorageError, StoreRefused, TierctlError
from tierctl.storage.stores.base import common_prefix
from tierctl.storage.stores.s3.errors import translated

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ListObjectsV2OutputTypeDef, ObjectTypeDef

DELETE_BATCH = 1_000
"""The maximum number of keys in a DeleteObjects request."""

_DELETES_AT_ONCE = 8

PAGE_MAX = 1_000
"""The maximum number of objects in a page of a listing."""

PAGE_MIN = 20
_MISSING = frozenset({"NoSuchKey", "404"})


def delete_objects(s3: S3Client, bucket: str, keys: Sequence[str]) -> dict[str, TierctlError]:
    """Delete up to DELETE_BATCH objects by one request; return the error of each key that has one.

    Raise RemoteStorageError if the request fails: the objects may then be deleted or not.
    """
    with translated(f"deleting {len(keys)} objects, s3://{bucket}/{keys[0]} first"):
        answer = s3.delete_objects(
            Bucket=bucket,
            # Quiet: the response has only the keys that were not deleted.
            Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True},
        )
    return {
        error["Key"]: RemoteStorageError(
            f"s3://{bucket}/{error['Key']} was not deleted: {error.get('Code')}: {error.get('Message')}",
            hint="run the command again: it resumes the deletion",
        )
        for error in answer.get("Errors", ())
        if error.get("Code") not in _MISSING
    }


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


def listed_objects(s3: S3Client, bucket: str, keys: Collection[str]) -> dict[str, ObjectTypeDef]:
    """Return the entry in a listing of each object that exists; keys between the given ones are skipped.

    A key counts as missing only once the listing has passed it.
    """
    ordered, wanted = sorted(keys), frozenset(keys)
    objects: dict[str, ObjectTypeDef] = {}
    at, continuation, page_size = 0, "", PAGE_MAX
    while at < len(ordered):
        page = _page(s3, bucket, ordered[at:] if at else ordered, continuation, page_size)
        found = page.get("Contents", [])
        objects |= {each["Key"]: each for each in found if each["Key"] in wanted}
        if not page.get("IsTruncated"):
            break
        passed = bisect_right(ordered, found[-1]["Key"], at) - at if found else 0
        # The next page begins at the next key; if this page did not come to the first one, it follows it.
        continuation = "" if passed else page["NextContinuationToken"]
        # If the keys are far apart, each page contains only one of them: then ask for small pages, which are
        # read faster.
        page_size = max(PAGE_MIN, min(2 * passed, PAGE_MAX)) if passed else PAGE_MAX
        at += passed
    return objects


def _page(
    s3: S3Client, bucket: str, keys: Sequence[str], continuation: str, size: int
) -> ListObjectsV2OutputTypeDef:
    """Return the page at `continuation`; if that is "", the page that begins shortly before the first key."""
    prefix = common_prefix(keys)
    # S3 lists the keys after StartAfter; a key without its last character comes before that key.
    begin = {"ContinuationToken": continuation} if continuation else {"StartAfter": keys[0][:-1]}
    with translated(f"listing s3://{bucket}/{prefix}"):
        return s3.list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=size, **begin)  # type: ignore[arg-type]
