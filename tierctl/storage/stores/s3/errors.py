"""Translate boto3's errors into tierctl's errors."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    EndpointConnectionError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
)

from tierctl.errors import (
    AuthenticationError,
    NotFoundError,
    ObjectArchived,
    RemoteResourceNotFound,
    RemoteStorageError,
    StoreRefused,
    StoreWriteUnknown,
    TierctlError,
)
from tierctl.storage.stores.s3.throttled import MAY_BE_DONE

_NOT_FOUND = frozenset({"404", "NoSuchKey", "NotFound"})
_REFUSED = frozenset(
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
CREDENTIALS_HINT = "give credentials as AWS clients expect them: environment, profile, or the machine's role"
NOT_DONE_HERE = frozenset({"NotImplemented", "MethodNotAllowed", "405", "501"})
"""Error codes of servers that do not implement an operation."""

_PERMANENT = frozenset({400, 405, 501})
"""HTTP statuses with which servers refuse the form of a request, which the next attempt has, too."""

_TRANSIENT = frozenset(
    {
        "BadDigest",
        "IncompleteBody",
        "InternalError",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestTimeout",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequests",
        "XAmzContentSHA256Mismatch",
    }
)
"""Error codes with one of these statuses that come from the transfer or the load, not from the request."""

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
    except (NoCredentialsError, PartialCredentialsError, ProfileNotFound) as e:
        raise AuthenticationError(
            f"{doing}: {e}",
            hint=CREDENTIALS_HINT,
        ) from e
    except EndpointConnectionError as e:
        raise RemoteStorageError(
            f"{doing}: {e}",
            hint="check that the endpoint (AWS_ENDPOINT_URL_S3) is right and reachable from here",
        ) from e
    except (BotoCoreError, OSError) as e:
        kind = StoreWriteUnknown if writing else RemoteStorageError
        raise kind(f"{doing}: {type(e).__name__}: {e}") from e


def _may_be_done(error: ClientError) -> bool:
    metadata: Any = error.response.get("ResponseMetadata", {})
    return bool(metadata.get(MAY_BE_DONE))


def _of_answer(doing: str, error: ClientError) -> TierctlError:
    code = code_of(error)
    message = f"{doing}: {code}: {error.response.get('Error', {}).get('Message', '')}".rstrip(": ")
    if code == "NoSuchBucket":
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
    if code in _REFUSED or (status == 403 and code not in _TRANSIENT):
        return AuthenticationError(message, hint="check the rights of this identity on the bucket and prefix")
    if code in NOT_DONE_HERE or (status in _PERMANENT and code not in _TRANSIENT):
        return StoreRefused(message, hint=_refusal_hint(message))
    return RemoteStorageError(message)


def names_checksums(message: str) -> bool:
    """Return whether a server refuses a request because it does not know its checksums."""
    return any(word in message.lower() for word in ("checksum", "x-amz-sdk", "x-amz-trailer", "aws-chunked"))


def _refusal_hint(message: str) -> str:
    if names_checksums(message):
        return _CHECKSUM_HINT
    return f"no retry helps; tierctl doctor --probe-writes finds what the store lacks; {_CHECKSUM_HINT}"
