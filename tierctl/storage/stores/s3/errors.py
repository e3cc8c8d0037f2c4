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
    RemoteResourceNotFound,
    RemoteStorageError,
    StoreWriteUnknown,
    TierctlError,
)

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
    client repeated and the server then refused: an earlier attempt may still succeed. A failed condition does
    not raise StoreWriteUnknown.
    """
    try:
        yield
    except ClientError as e:
        error = _of_answer(doing, e)
        if writing and _is_repeated(e) and code_of(e) not in PRECONDITION_FAILED:
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


def _is_repeated(error: ClientError) -> bool:
    metadata: Any = error.response.get("ResponseMetadata", {})
    return int(metadata.get("RetryAttempts", 0)) > 0


def _of_answer(doing: str, error: ClientError) -> TierctlError:
    code = code_of(error)
    message = f"{doing}: {code}: {error.response.get('Error', {}).get('Message', '')}".rstrip(": ")
    if code == "NoSuchBucket":
        return NotFoundError(message, hint="create the bucket, or correct --remote")
    if code in _NOT_FOUND:
        return RemoteResourceNotFound(message)
    if code in _REFUSED:
        return AuthenticationError(message, hint="check the rights of this identity on the bucket and prefix")
    return RemoteStorageError(message)
