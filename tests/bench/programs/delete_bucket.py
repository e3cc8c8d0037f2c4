"""Delete every object of a bucket with boto3, 1,000 keys a request, 8 threads: `delete_bucket.py BUCKET`."""

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3

bucket = sys.argv[1]
s3 = boto3.client("s3")


def delete(page: Any) -> None:
    """Delete the objects of one page of a listing."""
    keys = [{"Key": found["Key"]} for found in page["Contents"]]
    assert not s3.delete_objects(Bucket=bucket, Delete={"Objects": keys}).get("Errors")


with ThreadPoolExecutor(8) as pool:
    list(pool.map(delete, s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)))
