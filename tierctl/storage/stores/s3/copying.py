"""Copy an object within a bucket on the server (CopyObject)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tierctl.errors import RemoteObjectDiffers, RemoteResourceNotFound
from tierctl.storage.stores.s3.checksums import checksum_mode
from tierctl.storage.stores.s3.errors import translated

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_CHECKSUMS = ("ChecksumCRC32C", "ChecksumCRC64NVME", "ChecksumCRC32", "ChecksumSHA256", "ChecksumSHA1")


def copy_object(s3: S3Client, bucket: str, key: str, new_key: str) -> None:
    """Copy an object of at most 5 GiB, the limit of one request; segments have at most 2 GiB.

    Nothing is copied if the new object has the size and a checksum, or the ETag, of the first. Raise
    RemoteResourceNotFound if there is no object `key`, and RemoteObjectDiffers if the new one differs.
    """
    source = _head(s3, bucket, key)
    if _are_equal(source, _found(s3, bucket, new_key)):
        return
    with translated(f"copying s3://{bucket}/{key} to {new_key}", writing=True):
        s3.copy_object(
            Bucket=bucket,
            Key=new_key,
            CopySource={"Bucket": bucket, "Key": key},
            CopySourceIfMatch=source["ETag"],
        )
    copied = _head(s3, bucket, new_key)
    if _are_equal(source, copied) is False:
        raise RemoteObjectDiffers(
            f"s3://{bucket}/{new_key} differs from {key}, of which it is a copy: it has "
            f"{copied['ContentLength']} bytes and ETag {copied['ETag']}",
            hint="another program writes to this tier: find it, then run again",
        )


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


def _head(s3: S3Client, bucket: str, key: str) -> dict[str, Any]:
    with translated(f"examining s3://{bucket}/{key}"):
        return dict(s3.head_object(Bucket=bucket, Key=key, **checksum_mode(s3)))


def _found(s3: S3Client, bucket: str, key: str) -> dict[str, Any] | None:
    try:
        return _head(s3, bucket, key)
    except RemoteResourceNotFound:
        return None
