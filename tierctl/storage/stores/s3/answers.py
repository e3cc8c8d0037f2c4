"""Refuse responses that lack what every response of S3 has; botocore takes them as they are."""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from botocore.exceptions import BotoCoreError

from tierctl.errors import RemoteStorageError


class ForeignAnswerError(BotoCoreError):
    """A successful response whose body is not the document that the operation returns, or lacks fields."""

    fmt = "expected {expected}, found {found}"


_DOCUMENTS: Final = {
    "CreateMultipartUpload": "InitiateMultipartUploadResult",
    "DeleteObjects": "DeleteResult",
    "GetBucketLifecycleConfiguration": "LifecycleConfiguration",
    "GetBucketVersioning": "VersioningConfiguration",
    "ListMultipartUploads": "ListMultipartUploadsResult",
    "ListObjectsV2": "ListBucketResult",
}
_FIELDS: Final = {
    ("CreateMultipartUpload", ""): {"UploadId"},
    ("GetBucketLifecycleConfiguration", "Rules"): {"Status"},
    ("ListMultipartUploads", "Uploads"): {"Key", "UploadId", "Initiated"},
    ("ListObjectsV2", "CommonPrefixes"): {"Prefix"},
    ("ListObjectsV2", "Contents"): {"Key", "LastModified", "Size"},
}
"""The fields of each entry of a list in a response, or of the response itself, that tierctl uses."""
_ROOT = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<[?!][^>]*>\s*)*<(?:[\w.-]+:)?([\w.-]+)[\s/>]")
_SHOWN_BYTES = 60


def check_answers(events: Any) -> None:
    """Make a client with these events refuse responses without the document or the fields that are used."""
    events.register_first("before-parse.s3.*", require_document)
    events.register("after-call.s3", require_fields)


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
        raise ForeignAnswerError(expected=f"the document {expected}", found=found)


def require_fields(*, model: Any, parsed: Mapping[str, Any], http_response: Any, **_event: Any) -> None:
    """Raise ForeignAnswerError for a successful response that lacks one of `_FIELDS`."""
    if http_response.status_code >= HTTPStatus.MULTIPLE_CHOICES:
        return
    for (operation, place), names in _FIELDS.items():
        if operation == model.name:
            for entry in parsed.get(place, ()) if place else (parsed,):
                if not entry.keys() >= names:
                    lacks, key = ", ".join(sorted(names - entry.keys())), entry.get("Key", "")
                    raise ForeignAnswerError(
                        expected=f"{lacks} in {place or operation} {key}".rstrip(), found="none"
                    )


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
