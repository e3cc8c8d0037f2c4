"""Delete every object of a bucket with boto3, in 8 threads: `delete_bucket.py BUCKET`."""

import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import boto3

BATCH, THREADS = 1_000, 8


def main() -> None:
    """List the bucket, and delete the keys of each 1,000 objects as soon as they are listed."""
    bucket = sys.argv[1]
    s3 = boto3.client("s3")

    def delete(keys: list[str]) -> None:
        answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys]})
        assert not answer.get("Errors")

    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
    keys = (found["Key"] for page in pages for found in page.get("Contents", ()))
    with ThreadPoolExecutor(THREADS) as pool:
        deletions = []
        while batch := list(islice(keys, BATCH)):
            deletions.append(pool.submit(delete, batch))
        for deletion in deletions:
            deletion.result()


main()
