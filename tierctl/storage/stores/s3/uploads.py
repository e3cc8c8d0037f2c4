"""Upload objects to S3 in parts, and abort uploads that a killed run did not complete."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np

from tierctl.errors import AuthenticationError, StoreRefused, TierctlError
from tierctl.model import HashedFile
from tierctl.storage.stores.base import common_prefix
from tierctl.storage.stores.s3.body import FileRange, file_range
from tierctl.storage.stores.s3.checksums import encoded_crc, sends_checksums
from tierctl.storage.stores.s3.errors import suppressed, translated
from tierctl.storage.throttle import UNLIMITED, Throttle
from tierctl.wire.crc import crc32c_extend

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


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

    def __init__(self, s3: "S3Client", bucket: str, throttle: Throttle = UNLIMITED) -> None:
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
        return {"PartNumber": number, "ETag": answer["ETag"], **checksum}

    def abort_all(self, keys: Sequence[str]) -> None:
        """Abort the uploads to exactly these keys, which earlier runs did not complete.

        Do nothing if the credentials do not permit listing uploads, or if the store does not support it.
        """
        wanted, prefix = set(keys), common_prefix(keys)
        with (
            suppress(AuthenticationError, StoreRefused),
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
