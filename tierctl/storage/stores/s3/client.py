"""A boto3 client with bounded waits, few retries of its own, and checksums.

Credentials, region, endpoint and profile come from the sources that every AWS client reads (environment,
~/.aws, the machine's role), never from tierctl's options.
"""

from functools import cache
from typing import TYPE_CHECKING

import boto3
import botocore.session
from botocore.config import Config
from botocore.loaders import Loader, create_loader

from tierctl.storage.stores.base import Endpoint

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

READ_TIMEOUT_S: float = 60
CLIENT_ATTEMPTS = 4


@cache
def _descriptions(data_path: str | None) -> Loader:
    """Return boto3's descriptions of services, parsed once per process: parsing is the slowest step."""
    return create_loader(data_path)


def s3_client(endpoint: Endpoint | None = None) -> "S3Client":
    """Return a client for the server at `endpoint`, or for the server that the environment names."""
    endpoint = endpoint or Endpoint()
    session = botocore.session.get_session()
    session.register_component("data_loader", _descriptions(session.get_config_variable("data_path")))
    return boto3.session.Session(botocore_session=session).client(
        "s3",
        endpoint_url=endpoint.url,
        region_name=endpoint.region,
        config=Config(
            connect_timeout=10,
            read_timeout=READ_TIMEOUT_S,
            retries={"mode": "standard", "total_max_attempts": CLIENT_ATTEMPTS},
            max_pool_connections=32,
            request_checksum_calculation="when_supported",
            response_checksum_validation="when_supported",
        ),
    )
