"""Parse listings fast, and refuse responses that lack what every response of S3 has: botocore takes them."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from html import unescape
from http import HTTPStatus
from typing import Any, Final

from botocore import handlers
from botocore.exceptions import BotoCoreError
from botocore.utils import parse_timestamp

from tierctl.errors import RemoteStorageError


class ForeignAnswerError(BotoCoreError):
    """A successful response that is not the document of the operation, or lacks fields, or has wrong ones."""

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
NEXT_OBJECTS: Final = "NextContinuationToken"
NEXT_UPLOADS: Final = "NextKeyMarker"
"""The fields of pages of listings in which the server names the next page."""
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


def require_fields(*, model: Any, parsed: dict[str, Any], http_response: Any, **_event: Any) -> None:
    """Raise ForeignAnswerError for a successful response that lacks one of `_FIELDS`.

    A page that names the next one goes on, also if it lacks IsTruncated: boto3 takes it for the last.
    """
    if http_response.status_code >= HTTPStatus.MULTIPLE_CHOICES:
        return
    if parsed.get(NEXT_OBJECTS) or parsed.get(NEXT_UPLOADS):
        parsed.setdefault("IsTruncated", True)
    for (operation, place), names in _FIELDS.items():
        if operation == model.name:
            for entry in parsed.get(place, ()) if place else (parsed,):
                if not entry.keys() >= names:
                    lacks, key = ", ".join(sorted(names - entry.keys())), entry.get("Key", "")
                    raise ForeignAnswerError(
                        expected=f"{lacks} in {place or operation} {key}".rstrip(), found="none"
                    )


def parsed_time(text: str) -> datetime:
    """Parse a time in a response, in UTC if it names no zone; raise ForeignAnswerError if it is no time.

    botocore's own parser would take half of the time of a listing.
    """
    try:
        time: datetime = datetime.fromisoformat(text) if text.endswith("Z") else parse_timestamp(text)
    except (ValueError, RuntimeError) as e:
        raise ForeignAnswerError(expected="a time", found=repr(text)) from e
    return time if time.tzinfo else time.replace(tzinfo=UTC)


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


# Parse the objects in a page of a listing faster than botocore does.
#
# botocore parses a page of 1,000 objects element by element in about 60 ms, longer than most servers take to
# answer. The parser here takes 2 ms; a page of an unusual form is left to botocore.

_BEFORE_PARSING = "before-parse.s3.*"
_CHECK_OF_BODY = getattr(handlers, "_handle_200_error", None)
"""botocore's check for incomplete bodies and for errors; the check parses the whole body once more."""
_OPERATION = "ListObjectsV2"

_BEGIN, _END = b"<Contents>", b"</Contents>"
_BETWEEN = re.compile(rb"</Contents>\s*<Contents>")
_KEY = re.compile(rb"<Key>([^<]*)</Key>")
_SIZE = re.compile(rb"<Size>([0-9]{1,19})</Size>")
_MODIFIED = re.compile(rb"<LastModified>([^<]*)</LastModified>")
_TAG = re.compile(rb"<ETag>([^<]*)</ETag>")
_CLASS = re.compile(rb"<StorageClass>([^<]*)</StorageClass>")


def parse_listings(events: Any) -> None:
    """Make a client with these events parse listings by `parse_objects` before botocore checks the body.

    The check then parses the remaining part of the body, which still shows an error or a truncated body, and
    `check_answers` examines what is neither.
    """
    if _CHECK_OF_BODY is not None:
        events.unregister(_BEFORE_PARSING, _CHECK_OF_BODY)
    events.register_first(_BEFORE_PARSING, parse_objects)
    if _CHECK_OF_BODY is not None:
        events.register_first(_BEFORE_PARSING, _CHECK_OF_BODY)
    check_answers(events)


def parse_objects(
    operation_model: Any,
    response_dict: dict[str, Any],
    customized_response_dict: dict[str, Any],
    **_event: Any,
) -> None:
    """Move the objects from the response body to the parsed response, in the form of botocore's own parser.

    Only the fields Key, Size, LastModified, ETag and StorageClass are parsed. The response is left unchanged
    if it is an error, if it belongs to another operation, or if the number of values of a field differs from
    the number of objects; all objects may lack a storage class.
    """
    if operation_model.name != _OPERATION:
        return
    body: bytes = response_dict["body"]
    begin, end = body.find(_BEGIN), body.rfind(_END) + len(_END)
    if response_dict["status_code"] != 200 or begin < 0:
        return
    section = body[begin:end]
    fields = [each.findall(section) for each in (_KEY, _SIZE, _MODIFIED, _TAG)]
    count = len(_BETWEEN.findall(section)) + 1
    fields.append(_CLASS.findall(section) or [b""] * count)
    if {*map(len, fields), section.count(_BEGIN), section.count(_END)} != {count}:
        return
    try:
        objects = [
            {
                "Key": unescape(key.decode()),
                "Size": int(size),
                "LastModified": datetime.fromisoformat(time.decode()),
                "ETag": unescape(tag.decode()),
                "StorageClass": unescape(storage_class.decode()),
            }
            for key, size, time, tag, storage_class in zip(*fields, strict=True)
        ]
    except ValueError:
        return
    customized_response_dict["Contents"] = objects
    response_dict["body"] = body[:begin] + body[end:]
