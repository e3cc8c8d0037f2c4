"""Read a bucket's versioning, lifecycle rules and unfinished uploads, and the clock of its server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from tierctl.errors import RemoteStorageError
from tierctl.storage.stores.inspection import LifecycleRule, UnfinishedUpload, Versioning
from tierctl.storage.stores.s3.errors import NOT_DONE_HERE, suppressed, translated

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_NO_RULES = frozenset({"NoSuchLifecycleConfiguration"})
_UPLOADS_MAX = 100_000


class S3Bucket:
    """Implement `Bucket` for the keys that begin with `folder`."""

    def __init__(self, s3: S3Client, name: str, folder: str) -> None:
        self._s3 = s3
        self._name = name
        self._folder = folder

    @property
    def folder(self) -> str:
        """Implement `Bucket.folder`."""
        return self._folder

    def clock_ms(self) -> int:
        """Implement `Bucket.clock_ms` by the header Date of a response."""
        with translated(f"asking for bucket {self._name}"):
            answer = self._s3.list_objects_v2(Bucket=self._name, Prefix=self._folder, MaxKeys=1)
        date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
        if date is None:
            raise RemoteStorageError(f"the server of bucket {self._name} does not state its time")
        return int(parsedate_to_datetime(date).timestamp() * 1000)

    def versioning(self) -> Versioning | None:
        """Implement `Bucket.versioning`."""
        answers: list[Versioning] = []
        with suppressed(NOT_DONE_HERE), translated(f"asking for the versioning of bucket {self._name}"):
            status = self._s3.get_bucket_versioning(Bucket=self._name).get("Status")
            answers.append(Versioning(status.lower()) if status else Versioning.OFF)
        return answers[0] if answers else None

    def lifecycle_rules(self) -> list[LifecycleRule] | None:
        """Implement `Bucket.lifecycle_rules`."""
        answers: list[list[LifecycleRule]] = []
        with suppressed(NOT_DONE_HERE):
            answers.append([_rule(each) for each in self._raw_rules() if each["Status"] == "Enabled"])
        return answers[0] if answers else None

    def _raw_rules(self) -> list[Mapping[str, Any]]:
        rules: list[Mapping[str, Any]] = []
        with suppressed(_NO_RULES), translated(f"asking for the lifecycle rules of bucket {self._name}"):
            rules += self._s3.get_bucket_lifecycle_configuration(Bucket=self._name).get("Rules", ())
        return rules

    def unfinished_uploads(self) -> Iterator[UnfinishedUpload]:
        """Implement `Bucket.unfinished_uploads`; at most the first 100,000."""
        with translated(f"listing the uploads to s3://{self._name}/{self._folder}"):
            pages = self._s3.get_paginator("list_multipart_uploads").paginate(
                Bucket=self._name,
                Prefix=self._folder,
                PaginationConfig={"MaxItems": _UPLOADS_MAX},
            )
            for page in pages:
                for each in page.get("Uploads", ()):
                    yield UnfinishedUpload(each["Key"], int(each["Initiated"].timestamp() * 1000))


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
