"""Uploads files with eight threads, as a script would: `upload.py boto3|obstore BUCKET FILE...`."""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

THREADS = 8


def with_boto3(bucket: str) -> Callable[[Path], object]:
    """Return a function that stores a file, with the checksum that boto3 adds by default."""
    import boto3
    from botocore.config import Config

    s3 = boto3.client("s3", config=Config(max_pool_connections=THREADS))

    def put(path: Path) -> None:
        with path.open("rb") as body:
            s3.put_object(Bucket=bucket, Key=f"{path.parent.name}/{path.name}", Body=body)

    return put


def with_obstore(bucket: str) -> Callable[[Path], object]:
    """Return a function that stores a file, without a hash of its bytes in the signature."""
    import os

    import obstore
    from obstore.store import S3Store

    store = S3Store(
        bucket,
        endpoint=os.environ["AWS_ENDPOINT_URL_S3"],
        client_options={"allow_http": True},
        virtual_hosted_style_request=False,
        unsigned_payload=True,
    )
    return lambda path: obstore.put(store, f"{path.parent.name}/{path.name}", path)


def main() -> None:
    """Upload the files."""
    library, bucket, *files = sys.argv[1:]
    put = {"boto3": with_boto3, "obstore": with_obstore}[library](bucket)
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(put, map(Path, files)))


main()
