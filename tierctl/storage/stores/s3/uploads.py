"""Multipart uploads to S3, and removal of uploads that a killed run did not complete."""

import base64
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import google_crc32c

from tierctl.errors import AuthenticationError, TierctlError
from tierctl.storage.stores.base import Source, chunks, common_prefix
from tierctl.storage.stores.s3.errors import suppressed, translated

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_NOT_DONE_HERE = frozenset({"NotImplemented", "MethodNotAllowed", "405", "501"})


def encoded_crc(crc: int) -> str:
    """Return a CRC-32C in S3's encoding."""
    return base64.b64encode(crc.to_bytes(4, "big")).decode("ascii")


class Uploads:
    """Multipart uploads to one bucket; keys are complete, not relative to the store's folder."""

    def __init__(self, s3: "S3Client", bucket: str) -> None:
        self._s3 = s3
        self._bucket = bucket

    def put(self, key: str, source: Source, part_bytes: int, condition: dict[str, str]) -> None:
        """Store `source` in parts of `part_bytes`, one in memory at a time; abort the upload if it fails."""
        target = {"Bucket": self._bucket, "Key": key}
        name = f"s3://{self._bucket}/{key}"
        with translated(f"beginning {name}"):
            upload = self._s3.create_multipart_upload(**target, ChecksumAlgorithm="CRC32C")["UploadId"]  # type: ignore[arg-type]
        done = False
        try:
            parts = [
                self.put_part(target, upload, number, part)
                for number, part in enumerate(chunks(source, part_bytes), 1)
            ]
            with translated(f"completing {name}", writing=True):
                self._s3.complete_multipart_upload(
                    **target,  # type: ignore[arg-type]
                    UploadId=upload,
                    MultipartUpload={"Parts": parts},  # type: ignore[typeddict-item]
                    **condition,  # type: ignore[arg-type]
                )
            done = True
        finally:
            if not done:
                # Parts of an incomplete upload cost money for ever. Best effort: the upload may be complete.
                with suppress(TierctlError):
                    self._abort(key, upload)

    def put_part(self, target: dict[str, str], upload: str, number: int, part: bytes) -> dict[str, Any]:
        """Upload one part; return the entry for it in the request that completes the upload."""
        checksum = encoded_crc(google_crc32c.value(part))
        with translated(f"writing part {number} of s3://{self._bucket}/{target['Key']}"):
            answer = self._s3.upload_part(
                **target,  # type: ignore[arg-type]
                UploadId=upload,
                PartNumber=number,
                Body=part,
                ChecksumCRC32C=checksum,
            )
        return {"PartNumber": number, "ETag": answer["ETag"], "ChecksumCRC32C": checksum}

    def abort_all(self, keys: Sequence[str]) -> None:
        """Abort the uploads to exactly these keys, which earlier runs did not complete.

        Do nothing if this identity may not list uploads, or the store does not support it.
        """
        wanted, prefix = set(keys), common_prefix(keys)
        with (
            suppress(AuthenticationError),
            suppressed(_NOT_DONE_HERE),
            translated(f"listing uploads to s3://{self._bucket}/{prefix}"),
        ):
            pages = self._s3.get_paginator("list_multipart_uploads").paginate(
                Bucket=self._bucket, Prefix=prefix
            )
            for page in pages:
                for found in page.get("Uploads", ()):
                    if found["Key"] in wanted:
                        self._abort(found["Key"], found["UploadId"])

    def _abort(self, key: str, upload: str) -> None:
        with suppressed({"NoSuchUpload"}), translated(f"aborting an upload of s3://{self._bucket}/{key}"):
            self._s3.abort_multipart_upload(Bucket=self._bucket, Key=key, UploadId=upload)
