"""List every object below a folder, or in a bucket of S3, by obstore: `list_with_obstore.py URI`."""

import json
import os
import sys
import time

import obstore
from obstore.store import LocalStore, S3Store


def main() -> None:
    """Print the seconds of a plain listing, in pages of 1,000 objects as Arrow, and the number of objects."""
    uri = sys.argv[1]
    store = LocalStore(uri) if not uri.startswith("s3:") else _bucket(uri.removeprefix("s3://"))
    began_s = time.perf_counter()
    count = sum(page.num_rows for page in obstore.list(store, chunk_size=1000, return_arrow=True))
    print(json.dumps({"seconds": time.perf_counter() - began_s, "objects": count}))


def _bucket(name: str) -> S3Store:
    return S3Store(
        name,
        endpoint=os.environ["AWS_ENDPOINT_URL_S3"],
        region=os.environ["AWS_REGION"],
        client_options={"allow_http": True},
        virtual_hosted_style_request=False,
    )


main()
