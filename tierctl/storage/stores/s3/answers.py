"""Refuse responses that lack what every response of S3 has; botocore takes them as they are."""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from botocore.exceptions import BotoCoreError

from tierctl.errors import RemoteStorageError


class ForeignAnswerError(BotoCoreError):
    """A successful response whose body is not the document that the operation returns."""

    fmt = "expected the document {expected}, found {found}"


_DOCUMENTS: Final = {
    "CreateMultipartUpload": "InitiateMultipartUploadResult",
    "DeleteObjects": "DeleteResult",
    "GetBucketLifecycleConfiguration": "LifecycleConfiguration",
    "GetBucketVersioning": "VersioningConfiguration",
    "ListMultipartUploads": "ListMultipartUploadsResult",
    "ListObjectsV2": "ListBucketResult",
}
_ROOT = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<[?!][^>]*>\s*)*<(?:[\w.-]+:)?([\w.-]+)[\s/>]")
_SHOWN_BYTES = 60


def require_document(operation_model: Any, response_dict: dict[str, Any], **_event: Any) -> None:
    """Raise ForeignAnswerError for a successful response to `_DOCUMENTS` with another root element, or none.

    botocore takes every XML document for the result, and fields that it lacks for empty ones: the page of a
    proxy would be an empty listing, or the deletion of all objects.
    """
    expected = _DOCUMENTS.get(operation_model.name)
    if expected is None or response_dict["status_code"] >= HTTPStatus.MULTIPLE_CHOICES:
        return
    body: bytes = response_dict["body"]
    root = _ROOT.match(body)
    if root is None or root[1].decode(errors="replace") != expected:
        found = repr(body[:_SHOWN_BYTES].decode(errors="replace")) if body else "an empty body"
        raise ForeignAnswerError(expected=expected, found=found)


class Answer(dict[str, Any]):
    """A response of S3; to use a field that the server left out raises RemoteStorageError with `name`."""

    def __init__(self, name: str, response: Mapping[str, Any]) -> None:
        super().__init__(response)
        self._name = name

    def __missing__(self, field: str) -> Any:
        raise RemoteStorageError(
            f"{self._name}: the response of the server has no {field}",
            hint="the server, or a proxy before it, leaves out a header that tierctl needs",
        )
