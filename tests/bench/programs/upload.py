"""Upload files with eight threads, as a script would: `upload.py boto3|obstore BUCKET FILE...`."""

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

THREADS = 8


def with_boto3(bucket: str) -> Callable[[str, Path], object]:
    """Return a function that stores a file at a key, with the checksum that boto3 adds by default."""
    import boto3
    from botocore.config import Config

    s3 = boto3.client("s3", config=Config(max_pool_connections=THREADS))

    def put(key: str, path: Path) -> None:
        with path.open("rb") as body:
            s3.put_object(Bucket=bucket, Key=key, Body=body)

    return put


def with_obstore(bucket: str) -> Callable[[str, Path], object]:
    """Return a function that stores a file at a key, without a hash of its bytes in the signature."""
    import obstore
    from obstore.store import S3Store

    options = {"client_options": {"allow_http": True}, "virtual_hosted_style_request": False}
    endpoint = os.environ["AWS_ENDPOINT_URL_S3"]
    store = S3Store(bucket, endpoint=endpoint, unsigned_payload=True, **options)
    return lambda key, path: obstore.put(store, key, path)


library, bucket, *files = sys.argv[1:]
put = {"boto3": with_boto3, "obstore": with_obstore}[library](bucket)
with ThreadPoolExecutor(THREADS) as pool:
    list(pool.map(lambda path: put(f"{path.parent.name}/{path.name}", path), map(Path, files)))
