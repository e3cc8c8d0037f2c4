"""Create a boto3 client with bounded timeouts and few retries of its own.

Credentials, region, endpoint, profile and the use of checksums are read from the sources that every AWS
client reads (environment, ~/.aws, the machine's role), never from tierctl's options.
"""

import os
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import boto3
import botocore.session
from botocore.config import Config
from botocore.loaders import Loader, create_loader
from botocore.utils import parse_timestamp

from tierctl.storage.stores.base import Endpoint
from tierctl.storage.stores.listening import require_listening
from tierctl.storage.stores.s3.body import FileRange
from tierctl.storage.stores.s3.listing import parse_listings
from tierctl.storage.stores.s3.throttled import wait_when_throttled

if TYPE_CHECKING:
    from botocore.awsrequest import AWSRequest
    from mypy_boto3_s3 import S3Client

READ_TIMEOUT_S: float = 60
CLIENT_ATTEMPTS = 4


@cache
def _descriptions(data_path: str | None) -> Loader:
    """Return boto3's service descriptions, parsed once per process: parsing is the slowest step."""
    return create_loader(data_path)


def _timestamp(text: str) -> datetime:
    """Parse a time in a response; botocore's own parser would take half of the time of a listing."""
    return datetime.fromisoformat(text) if text.endswith("Z") else parse_timestamp(text)


def s3_client(endpoint: Endpoint | None = None) -> "S3Client":
    """Return a client for the server at `endpoint`, or for the server that the environment names."""
    endpoint = endpoint or Endpoint()
    session = botocore.session.get_session()
    session.register_component("data_loader", _descriptions(session.get_config_variable("data_path")))
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_timestamp)
    client = boto3.session.Session(botocore_session=session).client(
        "s3",
        endpoint_url=endpoint.url,
        region_name=endpoint.region,
        config=Config(
            connect_timeout=10,
            read_timeout=READ_TIMEOUT_S,
            retries={"mode": "standard", "total_max_attempts": CLIENT_ATTEMPTS},
            max_pool_connections=32,
            request_checksum_calculation=endpoint.request_checksums,
            response_checksum_validation=endpoint.response_checksums,
        ),
    )
    chosen: Any = client.meta.config
    if (chosen.s3 or {}).get("payload_signing_enabled") is None:
        for operation in ("PutObject", "UploadPart"):
            client.meta.events.register(f"before-sign.s3.{operation}", _sign_no_file)
    for operation in ("PutObject", "UploadPart"):
        client.meta.events.register(f"before-send.s3.{operation}", _begin_sending)
    parse_listings(client.meta.events)
    wait_when_throttled(client.meta.events)
    return client


def _begin_sending(request: Any, **_: object) -> None:
    """Switch the body of a signed request to sending, before each attempt to send it."""
    if isinstance(request.body, FileRange):
        request.body.is_sending = True


_UNSIGNED_BODY = Config(s3={"payload_signing_enabled": False})


def _sign_no_file(request: "AWSRequest", **_: object) -> None:
    """Omit the bytes of a file from the signature over TLS, unless the AWS settings require them.

    The SHA-256 in the signature would be computed in this process and in the store. The CRC-32C of the file
    is a header, which is signed. Without TLS only the signature protects the bytes.
    """
    if isinstance(request.data, FileRange) and str(request.url).startswith("https:"):
        request.context["client_config"] = _UNSIGNED_BODY


def require_endpoint(endpoint_url: str) -> None:
    """Raise RemoteStorageError if the endpoint in the settings refuses connections.

    AWS's own endpoints and endpoints behind a proxy are not checked here; the client reports their errors.
    """
    url = urlsplit(endpoint_url)
    host = url.hostname or ""
    if not host or getproxies().keys() - {"no"} or host.endswith((".amazonaws.com", ".amazonaws.com.cn")):
        return
    settings = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    named_by = next((name for name in settings if os.environ.get(name)), "endpoint_url of the AWS profile")
    require_listening(host, url.port or (443 if url.scheme == "https" else 80), named_by)
