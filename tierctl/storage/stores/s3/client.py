"""Create boto3 clients with bounded timeouts; bodies, checksums, listed objects, and errors as tierctl's."""

from __future__ import annotations

import base64
import io
import os
import random
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import boto3
import botocore.session
from botocore import exceptions
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ProfileNotFound,
)
from botocore.loaders import Loader, create_loader
from urllib3.exceptions import HTTPError

from tierctl.errors import (
    AuthenticationError,
    NotFoundError,
    ObjectArchived,
    RemoteResourceNotFound,
    RemoteStorageError,
    StoreRefused,
    StoreWriteUnknown,
    TierctlError,
    TransferStopped,
    UsageError,
)
from tierctl.model import HashedFile
from tierctl.storage.stores.base import (
    ARCHIVE_CLASSES,
    CompleteRange,
    Endpoint,
    RemoteObject,
    changed,
    unreadable,
)
from tierctl.storage.stores.s3.answers import ForeignAnswerError, parse_listings, parsed_time
from tierctl.storage.throttle import UNLIMITED, Direction, Throttle

if TYPE_CHECKING:
    from botocore.awsrequest import AWSRequest
    from mypy_boto3_s3 import S3Client

# Wait for a server that asks for fewer requests, and note which repeated requests may have taken effect.
#
# botocore repeats each request a few times within seconds. A store that adapts to a load, as S3 does at a
# cold start, refuses requests for longer.

WAIT_MAX_S: float = 120
"""How long a request is repeated that the server answers with a request to slow down."""

_FIRST_S, _LAST_S = 0.05, 1.0
_CODES = frozenset(
    {
        "429",
        "503",
        "RequestLimitExceeded",
        "RequestThrottled",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequests",
    }
)
"""Error codes for too many requests; responses to HEAD have no body, and so only a status."""

_BUSY = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
"""Statuses for too many requests, also with other codes: ServiceUnavailable, or SlowDownWrite of MinIO.

With such a code the request may have taken effect in part of the server.
"""

MAY_BE_DONE = "tierctl-may-be-done"
"""The field of a response's metadata which states that an earlier attempt may have taken effect."""
_NOT_SENT = (EndpointConnectionError, ConnectTimeoutError)
"""The errors of an attempt that did not reach the server; they get MAY_BE_DONE if an earlier one may have."""


def wait_when_throttled(events: Any) -> None:
    """Make a client with these events wait for a server that is throttling; call it once per client."""
    events.register_first("needs-retry.s3", _delay_s)
    events.register_first("needs-retry.s3.HeadBucket", _end_redirects)


def _delay_s(
    *,
    response: Any,
    attempts: int,
    request_dict: dict[str, Any],
    caught_exception: Exception | None = None,
    **_event: object,
) -> float | None:
    """Return the time to wait before a throttled request is repeated; None leaves the decision to botocore.

    The context of the request is the same for all of its attempts.
    """
    context, now_s = request_dict["context"], time.monotonic()
    parsed = {} if response is None else response[1]
    status = parsed.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    is_untried = parsed.get("Error", {}).get("Code") in _CODES
    if context.get(MAY_BE_DONE):
        parsed.setdefault("ResponseMetadata", {})[MAY_BE_DONE] = True
        if isinstance(caught_exception, _NOT_SENT):
            vars(caught_exception)[MAY_BE_DONE] = True
    if (not status or status >= 500) and not is_untried and not isinstance(caught_exception, _NOT_SENT):
        context[MAY_BE_DONE] = True
    is_busy = is_untried or status in _BUSY
    if not is_busy or now_s >= context.setdefault("tierctl-wait-until", now_s + WAIT_MAX_S):
        return None
    longest_s = min(_FIRST_S * 2.0 ** min(attempts, 30), _LAST_S)
    return random.uniform(longest_s / 2, longest_s)


_REDIRECTS = frozenset({301, 302, 303, 307, 308})


def _end_redirects(*, response: Any, request_dict: dict[str, Any], **_event: object) -> None:
    """Mark a redirected question for the region of a bucket as answered, unless the response names a region.

    botocore asks it when a request is redirected, and asks again for ever when the question is, too.
    """
    metadata = {} if response is None else response[1].get("ResponseMetadata", {})
    is_redirected = metadata.get("HTTPStatusCode") in _REDIRECTS
    if is_redirected and "x-amz-bucket-region" not in metadata.get("HTTPHeaders", {}):
        request_dict["context"].setdefault("s3_redirect", {})["redirected"] = True


_NOT_FOUND = frozenset({"404", "NoSuchKey", "NotFound"})
REFUSED = frozenset(
    {
        "401",
        "403",
        "AccessDenied",
        "ExpiredToken",
        "Forbidden",
        "InvalidAccessKeyId",
        "InvalidToken",
        "SignatureDoesNotMatch",
    }
)
RIGHTS_HINT = "check the rights of this identity on the bucket and prefix"
CREDENTIALS_HINT = (
    "give credentials as AWS clients expect them (environment, profile, the machine's role), or log in again"
)
_NO_CREDENTIALS: Final = (
    exceptions.CredentialRetrievalError,
    exceptions.MetadataRetrievalError,
    exceptions.NoCredentialsError,
    exceptions.PartialCredentialsError,
    exceptions.SSOError,
    exceptions.TokenRetrievalError,
    # Older versions have no `aws login`.
    getattr(exceptions, "LoginError", exceptions.SSOError),
)
"""The errors of a client that can't sign a request, and so sends none."""
_HINTS = {
    "RequestTimeTooSkewed": "set the clock of this machine: S3 refuses requests of another time",
    **dict.fromkeys(
        ("ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch"), CREDENTIALS_HINT
    ),
}
NOT_DONE_HERE = frozenset({"NotImplemented", "MethodNotAllowed", "405", "501"})
"""Error codes of servers that do not implement an operation."""

_PERMANENT = frozenset({400, 405, 501})
"""HTTP statuses with which servers refuse the form of a request, which the next attempt has, too."""

_TRANSIENT = _CODES | {
    "BadDigest",
    "IncompleteBody",
    "InternalError",
    "RequestTimeout",
    "XAmzContentSHA256Mismatch",
}
"""Error codes with one of these statuses that come from the transfer or the load, not from the request."""

_REDIRECT_HINT = (
    "set AWS_ENDPOINT_URL_S3, with https:// if the server wants it, and AWS_REGION to those of the bucket: "
    "tierctl follows no redirect"
)
_CHECKSUM_HINT = (
    "if the store does not know checksum headers, set AWS_REQUEST_CHECKSUM_CALCULATION=when_required and "
    "AWS_RESPONSE_CHECKSUM_VALIDATION=when_required (request_checksum_calculation and "
    "response_checksum_validation in the AWS config file)"
)

PRECONDITION_FAILED = frozenset({"412", "PreconditionFailed", "ConditionalRequestConflict", "409"})


def code_of(error: ClientError) -> str:
    """Return S3's error code, or the HTTP status if the response had no body."""
    return str(error.response.get("Error", {}).get("Code", "")) or str(status_of(error))


def status_of(error: ClientError) -> int:
    """Return the HTTP status; 0 if there was no response."""
    metadata: Any = error.response.get("ResponseMetadata", {})
    return int(metadata.get("HTTPStatusCode", 0))


@contextmanager
def suppressed(codes: Collection[str]) -> Iterator[None]:
    """Ignore errors whose S3 error code is in `codes`."""
    try:
        yield
    except TierctlError as e:
        if not (isinstance(e.__cause__, ClientError) and code_of(e.__cause__) in codes):
            raise


@contextmanager
def translated(doing: str, *, writing: bool = False) -> Iterator[None]:
    """Translate boto3's errors in the body into tierctl's, with `doing` as context.

    With `writing`, raise StoreWriteUnknown for a request without a response, and for a request that the
    client repeated and the server then refused: an earlier attempt may still succeed, unless the server asked
    for fewer requests. A failed condition does not raise StoreWriteUnknown.
    """
    try:
        yield
    except ClientError as e:
        error = _of_answer(doing, e)
        if writing and _may_be_done(e) and code_of(e) not in PRECONDITION_FAILED:
            error = StoreWriteUnknown(f"{error.message} (repeated)", hint=error.hint)
        raise error from e
    except (*_NO_CREDENTIALS, ProfileNotFound) as e:
        raise AuthenticationError(f"{doing}: {e}".rstrip(), hint=CREDENTIALS_HINT) from e
    except (exceptions.ParamValidationError, exceptions.EndpointProviderError) as e:
        raise UsageError(
            f"{doing}: {e}", hint="correct the bucket in --remote, or the AWS settings for it"
        ) from e
    except EndpointConnectionError as e:
        is_unknown = writing and MAY_BE_DONE in vars(e)
        raise (StoreWriteUnknown if is_unknown else RemoteStorageError)(
            f"{doing}: {e}",
            hint="check that the endpoint (AWS_ENDPOINT_URL_S3) is right and reachable from here",
        ) from e
    except ForeignAnswerError as e:
        raise RemoteStorageError(
            f"{doing}: {e}",
            hint="another program than S3 answers: check the endpoint (AWS_ENDPOINT_URL_S3), and the proxies "
            "and sign-in pages before it",
        ) from e
    except (BotoCoreError, HTTPError, OSError) as e:
        # botocore does not translate all errors of reading a body, such as a damaged TLS record.
        kind = StoreWriteUnknown if writing else RemoteStorageError
        raise kind(f"{doing}: {type(e).__name__}: {e}") from e


def _may_be_done(error: ClientError) -> bool:
    metadata: Any = error.response.get("ResponseMetadata", {})
    return bool(metadata.get(MAY_BE_DONE))


def _of_answer(doing: str, error: ClientError) -> TierctlError:
    code = code_of(error)
    message = f"{doing}: {code}: {error.response.get('Error', {}).get('Message', '')}".rstrip(": ")
    if code in {"NoSuchBucket", "InvalidBucketName"}:
        return NotFoundError(message, hint="create the bucket, or correct --remote")
    if code in _NOT_FOUND:
        return RemoteResourceNotFound(message)
    if code == "InvalidObjectState":
        return ObjectArchived(
            message,
            hint="the object is in an archive class (GLACIER, DEEP_ARCHIVE): restore it (aws s3api "
            "restore-object), or copy it to another class, then run again; see the bucket's lifecycle rules",
        )
    status = status_of(error)
    if code in REFUSED or (status == 403 and code not in _TRANSIENT):
        return AuthenticationError(message, hint=_HINTS.get(code, RIGHTS_HINT))
    if code in NOT_DONE_HERE or status in _REDIRECTS or (status in _PERMANENT and code not in _TRANSIENT):
        return _refusal(message, error)
    return RemoteStorageError(message)


def _refusal(message: str, error: ClientError) -> StoreRefused:
    if status_of(error) in _REDIRECTS:
        metadata: Any = error.response["ResponseMetadata"]
        to = urlsplit(metadata.get("HTTPHeaders", {}).get("location", ""))
        # The rest of the URL may have secrets.
        server = f" to {to.scheme}://{to.netloc.rpartition('@')[2]}" if to.netloc else ""
        return StoreRefused(f"{message}: the server redirects{server}", hint=_REDIRECT_HINT)
    if names_checksums(error):
        return StoreRefused(message, hint=_CHECKSUM_HINT)
    advice = "no retry helps; tierctl doctor --probe-writes finds what the store lacks"
    return StoreRefused(message, hint=f"{advice}; {_CHECKSUM_HINT}")


def names_checksums(error: ClientError) -> bool:
    """Return whether a server refuses a request because it does not know its checksums.

    Only its code and message are looked at: the names of objects may have these words.
    """
    text = f"{code_of(error)} {error.response.get('Error', {}).get('Message', '')}".lower()
    return any(word in text for word in ("checksum", "x-amz-sdk", "x-amz-trailer", "aws-chunked"))


def head_object(s3: S3Client, bucket: str, key: str, **more: Any) -> Mapping[str, Any]:
    """Return the head of an object.

    The response to HEAD has no body. If it has status 400, as for an expired token, raise the ClientError of
    a GET, which states the reason.
    """
    try:
        return s3.head_object(Bucket=bucket, Key=key, **more)
    except ClientError as e:
        if code_of(e) == "400":
            s3.get_object(Bucket=bucket, Key=key, **more)["Body"].close()
        raise


_BLOCK_BYTES = 1 << 20
THROUGHPUT_MIN_BYTES_PER_S = 16 << 10
GRACE_S = 60.0
"""Time after which a read below the minimum throughput fails; a slow stream has no timeout of its own."""


class SendingStopped(BaseException):
    """Stop an upload because the run was told to stop; no Exception, since boto3 would repeat the request."""


class FileRange(io.RawIOBase):
    """The bytes of a file from `start` on, at most `size_bytes`; one block is in memory at a time.

    While `is_sending`, no block is returned before `throttle` allows its transfer; when the client reads the
    range only to sign it, nothing is throttled. `seek` ends the sending. `read` returns a whole block
    whatever size is requested: http.client requests 16 KiB, and a thread that sends such small blocks waits
    longer for the interpreter lock than for the network.
    """

    def __init__(self, file: HashedFile, start: int, size_bytes: int, throttle: Throttle = UNLIMITED) -> None:
        self._throttle = throttle
        self.is_sending = False
        self._file = file
        self._start = start
        self._size_bytes = min(size_bytes, file.size_bytes - start)
        self._position = 0
        self._block = memoryview(bytearray(min(_BLOCK_BYTES, self._size_bytes)))
        self._fd = -1
        try:
            self._fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as e:
            raise unreadable(file.path, e) from e
        self.failure: RemoteStorageError | None = None

    def __len__(self) -> int:
        return self._size_bytes

    def readable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Implement `io.IOBase.seek`: the client seeks to the beginning to send a failed request again."""
        begin = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size_bytes}[whence]
        self._position = begin + offset
        self.is_sending = False
        return self._position

    def tell(self) -> int:
        """Return the position in the range."""
        return self._position

    def read(self, _size_bytes: int = -1) -> memoryview:
        """Return the next block, empty at the end; the next call overwrites it.

        Raise StoreWriteFailed if the file can't be read or ends early, and keep the error in `failure`,
        because the client of S3 raises errors of its own.
        """
        block = self._block[: self._size_bytes - self._position]
        if self.is_sending and block:
            block = block[: self._throttle.part_bytes(Direction.COPY, len(block))]
            try:
                self._throttle.wait(Direction.COPY, len(block))
            except TransferStopped as e:
                self.failure = e
                raise SendingStopped from e
        try:
            count = os.preadv(self._fd, [block], self._start + self._position) if block else 0
        except OSError as e:
            self.failure = unreadable(self._file.path, e)
            raise self.failure from e
        if block and not count:
            self.failure = changed(self._file.path)
            raise self.failure
        self._position += count
        return block[:count]

    def close(self) -> None:
        """Close the file."""
        if not self.closed and self._fd >= 0:
            os.close(self._fd)
        super().close()


@contextmanager
def file_range(
    file: HashedFile, start: int, size_bytes: int, throttle: Throttle = UNLIMITED
) -> Iterator[FileRange]:
    """Open a range of a file as a request body; at the end of the context, raise its `failure`, if any."""
    with FileRange(file, start, size_bytes, throttle) as body:
        try:
            yield body
        except (TierctlError, SendingStopped) as e:
            if body.failure is None:
                raise
            raise body.failure from e


class ResponseBody(CompleteRange):
    """Check that a response body is complete and not slower than the minimum throughput."""

    def __init__(self, body: Any, name: str, size_bytes: int, throttle: Throttle = UNLIMITED) -> None:
        super().__init__(name, size_bytes, throttle)
        self._body = body
        self._begun_s = time.monotonic()

    def after_wait(self, waited_s: float) -> None:
        """Implement `CompleteRange.after_wait`: exclude the wait from the throughput measurement."""
        self._begun_s += waited_s

    def take(self, size_bytes: int) -> bytes:
        """Implement `CompleteRange.take`."""
        with translated(f"reading {self._name}"):
            data: bytes = self._body.read(size_bytes)
        self._require_throughput(len(data))
        return data

    def _require_throughput(self, new_bytes: int) -> None:
        elapsed_s = time.monotonic() - self._begun_s
        done_bytes = self._size_bytes - self._left_bytes + new_bytes
        if elapsed_s > GRACE_S and done_bytes < elapsed_s * THROUGHPUT_MIN_BYTES_PER_S:
            raise RemoteStorageError(
                f"{self._name}: {done_bytes} bytes in {elapsed_s:.0f} s is too slow",
                hint=f"at least {THROUGHPUT_MIN_BYTES_PER_S} bytes a second are expected",
            )

    def close(self) -> None:
        """Release the connection."""
        if not self.closed:
            self._body.close()
        super().close()


_REQUESTS_MAX = 16


def remote_objects(
    s3: S3Client, bucket: str, page: Iterable[Mapping[str, Any]], prefix: str
) -> Iterator[RemoteObject]:
    """Yield the objects of a page; their keys are relative to `prefix`.

    Objects without bytes whose key ends with `/` are left out: mounts and consoles write them for folders.
    Archived objects that are restored for some days can be read: they have no `archive_class`. Those that are
    deleted meanwhile are left out. Raise RemoteStorageError if the store does not answer which they are.
    """
    page = list(page)
    archived = [found["Key"] for found in page if found.get("StorageClass") in ARCHIVE_CLASSES]
    restored: dict[str, bool | None] = {}
    if archived:
        with ThreadPoolExecutor(_REQUESTS_MAX) as threads:
            is_restored = threads.map(partial(_is_restored, s3, bucket), archived)
            restored = dict(zip(archived, is_restored, strict=True))
    for found in page:
        is_readable = restored.get(found["Key"], False)
        if is_readable is None or (not found["Size"] and found["Key"].endswith("/")):
            continue
        archive_class = None if is_readable else found.get("StorageClass")
        yield RemoteObject(
            found["Key"].removeprefix(prefix),
            found["Size"],
            int(found["LastModified"].timestamp() * 1000),
            archive_class=archive_class if archive_class in ARCHIVE_CLASSES else None,
        )


def _is_restored(s3: S3Client, bucket: str, key: str) -> bool | None:
    """Return whether an archived object is restored now: None if it does not exist any more.

    False without the right to read it.
    """
    restore = ""
    try:
        with suppressed({"401", "403"}), translated(f"examining s3://{bucket}/{key}"):
            restore = head_object(s3, bucket, key).get("Restore", "")
    except RemoteResourceNotFound:
        return None
    return 'ongoing-request="false"' in restore


# Create a boto3 client with bounded timeouts and few retries of its own.
#
# Credentials, region, endpoint, profile and the use of checksums are read from the sources that every AWS
# client reads (environment, ~/.aws, the machine's role), never from tierctl's options.

READ_TIMEOUT_S: float = 60
CLIENT_ATTEMPTS = 4


@cache
def _descriptions(data_path: str | None) -> Loader:
    """Return boto3's service descriptions, parsed once per process: parsing is the slowest step."""
    return create_loader(data_path)


def s3_client(endpoint: Endpoint | None = None) -> S3Client:
    """Return a client for the server at `endpoint`, or for the server that the environment names.

    Raise UsageError as `settings_understood`.
    """
    endpoint = endpoint or Endpoint()
    config = Config(
        connect_timeout=10,
        read_timeout=READ_TIMEOUT_S,
        retries={"mode": "standard", "total_max_attempts": CLIENT_ATTEMPTS},
        max_pool_connections=32,
        request_checksum_calculation=endpoint.request_checksums,
        response_checksum_validation=endpoint.response_checksums,
    )
    with settings_understood():
        session = botocore.session.get_session()
        session.register_component("data_loader", _descriptions(session.get_config_variable("data_path")))
        session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=parsed_time)
        client = boto3.session.Session(botocore_session=session).client(
            "s3", endpoint_url=endpoint.url, region_name=endpoint.region, config=config
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


def _sign_no_file(request: AWSRequest, **_: object) -> None:
    """Omit the bytes of a file from the signature over TLS, unless the AWS settings require them.

    The SHA-256 in the signature would be computed in this process and in the store. The CRC-32C of the file
    is a header, which is signed. Without TLS only the signature protects the bytes.
    """
    if isinstance(request.data, FileRange) and str(request.url).startswith("https:"):
        request.context["client_config"] = _UNSIGNED_BODY


def endpoint_setting() -> str:
    """Return the name of the setting that states the endpoint."""
    settings = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    return next((name for name in settings if os.environ.get(name)), "endpoint_url of the AWS profile")


@contextmanager
def settings_understood() -> Iterator[None]:
    """Raise UsageError for settings that no AWS client takes, such as an endpoint that is no URL.

    Raise AuthenticationError for credentials that can't be fetched.
    """
    try:
        yield
    except _NO_CREDENTIALS as e:
        raise AuthenticationError(f"the AWS settings: {e}".rstrip(), hint=CREDENTIALS_HINT) from None
    except BotoCoreError as e:
        where = "check AWS_PROFILE, ~/.aws/config and ~/.aws/credentials"
        raise UsageError(f"the AWS settings: {e}", hint=where) from None
    except ValueError as e:
        raise UsageError(f"{endpoint_setting()}: {e}", hint="as https://minio.example.org:9000") from None


_NATIVE_CERTIFICATES: Final = "SSL_CERT_FILE"


class OtherClient:
    """Settings of the Rust crate object_store, on which deltalake is built, by the crate's option names.

    The settings contain credentials: pass them to the client, and neither store nor print them.
    """

    def __init__(self, endpoint: Endpoint | None) -> None:
        self._endpoint = endpoint or Endpoint()
        self._session = botocore.session.get_session()

    def __call__(self) -> dict[str, str]:
        """Return the settings with presently valid credentials; raise AuthenticationError without any."""
        with translated("looking for credentials"):
            credentials = self._session.get_credentials()
            frozen = None if credentials is None else credentials.get_frozen_credentials()
        if frozen is None or not frozen.access_key or not frozen.secret_key:
            raise AuthenticationError("no credentials for S3", hint=CREDENTIALS_HINT)
        self._trust_own_certificates()
        settings = {
            "aws_access_key_id": frozen.access_key,
            "aws_secret_access_key": frozen.secret_key,
            "aws_session_token": frozen.token,
            "aws_region": self._endpoint.region or self._session.get_config_variable("region") or "us-east-1",
            "aws_endpoint": self._endpoint.url,
            "aws_allow_http": "true" if (self._endpoint.url or "").startswith("http:") else "false",
            # A version of a table is an object that is created only if it does not exist.
            "aws_conditional_put": "etag",
        }
        return {name: value for name, value in settings.items() if value is not None}

    def _trust_own_certificates(self) -> None:
        """Make the other client trust the certificates in AWS_CA_BUNDLE, a variable that it does not read."""
        bundle = self._session.get_config_variable("ca_bundle")
        if bundle and _NATIVE_CERTIFICATES not in os.environ:
            os.environ[_NATIVE_CERTIFICATES] = bundle


_ONLY_IF_REQUIRED = "when_required"


def encoded_crc(crc: int) -> str:
    """Return a CRC-32C in S3's encoding."""
    return base64.b64encode(crc.to_bytes(4, "big")).decode("ascii")


def sends_checksums(s3: S3Client) -> bool:
    """Return whether requests may have checksums (request_checksum_calculation)."""
    config: Any = s3.meta.config
    return bool(config.request_checksum_calculation != _ONLY_IF_REQUIRED)


def checksum_mode(s3: S3Client) -> dict[str, Any]:
    """Return the field of a request that asks for checksums (response_checksum_validation)."""
    config: Any = s3.meta.config
    return {} if config.response_checksum_validation == _ONLY_IF_REQUIRED else {"ChecksumMode": "ENABLED"}
