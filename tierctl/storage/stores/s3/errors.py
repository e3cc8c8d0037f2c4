"""What boto3 raises, as errors of the tree."""

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
PRECONDITION_FAILED = frozenset({"412", "PreconditionFailed", "ConditionalRequestConflict", "409"})


def code_of(error: ClientError) -> str:
    """S3's error code, or the HTTP status where the answer had no body."""
    return str(error.response.get("Error", {}).get("Code", "")) or str(status_of(error))


def status_of(error: ClientError) -> int:
    """The HTTP status, 0 when there was none."""
    metadata: Any = error.response.get("ResponseMetadata", {})
    return int(metadata.get("HTTPStatusCode", 0))


@contextmanager
def suppressed(codes: Collection[str]) -> Iterator[None]:
    """Nothing happens where the store answers with one of these codes."""
    try:
        yield
    except TierctlError as e:
        if not (isinstance(e.__cause__, ClientError) and code_of(e.__cause__) in codes):
            raise


@contextmanager
def translated(doing: str, *, writing: bool = False) -> Iterator[None]:
    """boto3's errors as the tree's; `writing` makes an answer that never came StoreWriteUnknown."""
    try:
        yield
    except ClientError as e:
        raise _of_answer(doing, e) from e
    except (NoCredentialsError, PartialCredentialsError, ProfileNotFound) as e:
        raise AuthenticationError(
            f"{doing}: {e}",
            hint="give credentials the usual AWS ways: environment, profile, or the machine's role",
        ) from e
    except EndpointConnectionError as e:
        raise RemoteStorageError(
            f"{doing}: {e}", hint="is the endpoint right (AWS_ENDPOINT_URL_S3), and reachable from here?"
        ) from e
    except (BotoCoreError, OSError) as e:
        kind = StoreWriteUnknown if writing else RemoteStorageError
        raise kind(f"{doing}: {type(e).__name__}: {e}") from e


def _of_answer(doing: str, error: ClientError) -> TierctlError:
    code = code_of(error)
    message = f"{doing}: {code}: {error.response.get('Error', {}).get('Message', '')}".rstrip(": ")
    if code == "NoSuchBucket":
        return NotFoundError(message, hint="make the bucket, or mend --remote")
    if code in _NOT_FOUND:
        return RemoteResourceNotFound(message)
    if code in _REFUSED:
        return AuthenticationError(message, hint="which rights has this identity on the bucket and prefix?")
    return RemoteStorageError(message)
