"""The checksums in requests and responses, which some stores lack; botocore's settings turn them off."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from tierctl.storage.stores.base import ChecksumUse

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_ONLY_IF_REQUIRED = "when_required"


def encoded_crc(crc: int) -> str:
    """Return a CRC-32C in S3's encoding."""
    return base64.b64encode(crc.to_bytes(4, "big")).decode("ascii")


def checksum_settings(s3: S3Client) -> tuple[ChecksumUse, ChecksumUse]:
    """Return the settings of requests and responses, for a client of another process."""
    config: Any = s3.meta.config
    return config.request_checksum_calculation, config.response_checksum_validation


def sends_checksums(s3: S3Client) -> bool:
    """Return whether requests may have checksums (request_checksum_calculation)."""
    config: Any = s3.meta.config
    return bool(config.request_checksum_calculation != _ONLY_IF_REQUIRED)


def checksum_mode(s3: S3Client) -> dict[str, Any]:
    """Return the field of a request that asks for checksums (response_checksum_validation)."""
    config: Any = s3.meta.config
    return {} if config.response_checksum_validation == _ONLY_IF_REQUIRED else {"ChecksumMode": "ENABLED"}


def crc_field(s3: S3Client, crc: int) -> dict[str, Any]:
    """Return the field of a request with the CRC-32C of its body."""
    return {"ChecksumCRC32C": encoded_crc(crc)} if sends_checksums(s3) else {}
