"""A small S3 server in memory that lacks what some stores lack, or refuses what they refuse at times.

with LackingStore({Lack.DELETE_OBJECTS}) as store:
    store.found(monkeypatch)

It listens on a free loopback port, and accepts every credential. Its answers are those of the reports about
the stores that `Lack` names.
"""

import hashlib
import re
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from email.utils import formatdate
from enum import Enum
from http.server import BaseHTTPRequestHandler
from typing import ClassVar
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from uuid import uuid4
from xml.sax.saxutils import escape, unescape

import pytest

from tests.support.servers import HttpServer, found

BUCKET = "tier"
_SKIPPED = {"x-amz-checksum-mode"}


class Lack(Enum):
    """What a store lacks: the status and the error code of its refusal, and the message."""

    DELETE_OBJECTS = (501, "NotImplemented", "A query you provided requested a function")
    """Google Cloud Storage."""
    DELETE_OBJECTS_400 = (400, "InvalidArgument", "Invalid argument.")
    CONDITIONS = (
        501,
        "NotImplemented",
        "A header you provided implies functionality that is not implemented",
    )
    """Backblaze B2, Alibaba OSS."""
    CHECKSUMS = (501, "NotImplemented", "Header 'x-amz-checksum-crc32c' with a value not implemented")
    """Cloudflare R2 in part."""
    CHECKSUMS_400 = (400, "InvalidArgument", "Unsupported header 'x-amz-checksum-crc32c' received")
    """Older Ceph, OCI."""
    VALID_TOKEN = (400, "ExpiredToken", "The provided token has expired.")
    IS_TRUNCATED = (200, "", "in pages of one object, whether the listing goes on")
    WRITES = (501, "NotImplemented", "writes")
    LISTINGS = (501, "NotImplemented", "listings")
    WRITES_FORBIDDEN = (403, "AccessDenied", "writes")
    READS_FORBIDDEN = (403, "AccessDenied", "reads")
    DELETES_FORBIDDEN = (403, "AccessDenied", "deletes")
    EACH_DELETE_FORBIDDEN = (200, "AccessDenied", "each delete")
    """AWS: DeleteObjects succeeds, and its answer names the keys that were not deleted."""
    ADDRESS = (301, "Moved", "at this address is no bucket")
    """A proxy that redirects from http:// to https://."""
    DATE = (200, "", "the header Date")
    ETAG = (200, "", "the header ETag")
    """A proxy that compresses answers removes it."""
    UPLOAD_ID = (200, "", "the id of an upload in parts")
    RANGES = (200, "", "a part of an object")
    RIGHT_RANGES = (206, "", "the requested part of an object")
    LONG_RANGES = (206, "", "more than the first byte of the requested part")
    """RFC 9110 permits it."""
    BODIES = (200, "", "the bytes of an object")
    LISTINGS_FORBIDDEN = (403, "AccessDenied", "listings")


@dataclass
class _Object:
    body: bytes
    headers: dict[str, str]
    written_s: float = field(default_factory=time.time)

    @property
    def tag(self) -> str:
        return f'"{hashlib.md5(self.body + str(self.written_s).encode()).hexdigest()}"'


class LackingStore(HttpServer):
    """Serve one bucket during the block.

    `archived` is a part of the keys whose objects are in the class `archive`; they can be read only if they
    are `restored`. `forbidden` is a part of the keys whose objects may not be read. The first `slow`
    requests are answered with `slow_code`. If there is a `page`, it answers every request for no object, as a
    proxy does, or a server that does not know the request.
    """

    def __init__(self, lacks: Collection[Lack] = (), *, archived: str = "", slow: int = 0) -> None:
        self.lacks = set(lacks)
        self.archived = archived
        self.archive = "GLACIER"
        self.restored = False
        self.forbidden = ""
        self.slow = slow
        self.slow_code = "SlowDown"
        self.page: bytes | None = None
        self.objects: dict[str, _Object] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.requests: list[str] = []
        self.lock = threading.Lock()
        super().__init__(_Handler)

    def found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Set the address of the server and credentials in the environment."""
        found(self, monkeypatch)

    def put(self, objects: dict[str, bytes]) -> None:
        """Store objects without a request."""
        self.objects |= {key: _Object(body, {}) for key, body in objects.items()}

    def count(self, begin: str) -> int:
        """Return the number of requests that begin with a method and a path."""
        return sum(each.startswith(begin) for each in self.requests)

    def refusal(self, method: str, key: str, query: dict[str, str], headers: dict[str, str]) -> Lack | None:
        """Return why the request is refused; None if it is not."""
        if method == "GET" and self.forbidden and self.forbidden in key:
            return Lack.READS_FORBIDDEN
        checksums = {name for name in headers if name.startswith(("x-amz-checksum", "x-amz-sdk-checksum"))}
        is_write = method in {"PUT", "POST"} and bool(key)
        is_deletion = "delete" in query or (method == "DELETE" and "uploadId" not in query)
        is_refused = {
            Lack.ADDRESS: True,
            Lack.VALID_TOKEN: bool(key),
            Lack.DELETE_OBJECTS: "delete" in query,
            Lack.DELETE_OBJECTS_400: "delete" in query,
            Lack.CONDITIONS: is_write and not headers.keys().isdisjoint({"if-none-match", "if-match"}),
            Lack.CHECKSUMS: is_write and bool(checksums - _SKIPPED),
            Lack.CHECKSUMS_400: is_write and bool(checksums - _SKIPPED),
            Lack.WRITES: is_write,
            Lack.WRITES_FORBIDDEN: is_write,
            Lack.READS_FORBIDDEN: method == "GET" and bool(key),
            Lack.LISTINGS: method == "GET" and "list-type" in query,
            Lack.LISTINGS_FORBIDDEN: method == "GET" and "list-type" in query,
            Lack.DELETES_FORBIDDEN: is_deletion,
        }
        return next((lack for lack, refuses in is_refused.items() if refuses and lack in self.lacks), None)

    @property
    def restore(self) -> str:
        """The header x-amz-restore of archived objects."""
        if self.restored:
            return 'ongoing-request="false", expiry-date="Fri, 21 Dec 2040 00:00:00 GMT"'
        return 'ongoing-request="true"'

    def is_archived(self, key: str) -> bool:
        """Return whether the object is in an archive class."""
        return bool(self.archived) and self.archived in key


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body are sent at once: two small packets would wait 40 ms for an acknowledgement.
    wbufsize = 1 << 20
    owner: ClassVar[LackingStore]

    def handle_expect_100(self) -> bool:
        """Ask for the body at once: the client waits a second for that."""
        self.send_response_only(100)
        self.end_headers()
        self.wfile.flush()
        return True

    def handle_any(self) -> None:
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        key = unquote(url.path).removeprefix(f"/{BUCKET}").removeprefix("/")
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", 0)))
        with self.owner.lock:
            self.owner.requests.append(f"{self.command} {self.path}")
            if len(self.owner.requests) <= self.owner.slow:
                self._error(503, self.owner.slow_code, "Please reduce your request rate.")
            elif self.owner.page is not None and not key:
                self._answer(200, self.owner.page, {})
            elif lack := self.owner.refusal(self.command, key, query, headers):
                self._error(*lack.value)
            else:
                getattr(self, f"_{self.command.lower()}")(key, query, headers, body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any  # noqa: N815

    def _get(self, key: str, query: dict[str, str], headers: dict[str, str], _body: bytes) -> None:
        if not key:
            return self._list(query)
        stored = self.owner.objects.get(key)
        if stored is None:
            return self._error(404, "NoSuchKey", key)
        is_archived = self.owner.is_archived(key)
        if is_archived and self.command == "GET" and not self.owner.restored:
            return self._error(403, "InvalidObjectState", "The operation is not valid for the storage class")
        answer = {
            **stored.headers,
            "ETag": stored.tag,
            "Last-Modified": formatdate(stored.written_s, usegmt=True),
            **({"x-amz-storage-class": self.owner.archive} if is_archived else {}),
            **({"x-amz-restore": self.owner.restore} if is_archived else {}),
        }
        span = re.fullmatch(r"bytes=(\d+)-(\d*)", headers.get("range", ""))
        if span is None or self.owner.lacks & {Lack.RANGES, Lack.BODIES}:
            return self._answer(200, b"" if span and Lack.BODIES in self.owner.lacks else stored.body, answer)
        start, last, size = int(span[1]), span[2], len(stored.body)
        if Lack.RIGHT_RANGES in self.owner.lacks:
            start, last = 0, ""
        if start >= size:
            return self._error(416, "InvalidRange", key)
        if Lack.LONG_RANGES in self.owner.lacks:
            last = str(start)
        end = min(int(last or size - 1), size - 1) + 1
        answer["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        return self._answer(206, stored.body[start:end], answer)

    _head = _get

    def _list(self, query: dict[str, str]) -> None:
        if "uploads" in query:
            return self._answer(200, b"<ListMultipartUploadsResult></ListMultipartUploadsResult>", {})
        if "list-type" not in query:
            return self._error(501, "NotImplemented", "an unknown query")
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after", "")
        entries: dict[str, str] = {}
        for key in sorted(self.owner.objects, key=str.encode):
            if key.startswith(prefix) and key > after:
                folder, found, _ = key[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
                name = prefix + folder + found if found else key
                entries[name] = f"<Prefix>{quote(name)}</Prefix>" if found else self._entry(key)
        token = ""
        if Lack.IS_TRUNCATED in self.owner.lacks and len(entries) > 1:
            token, entries = min(entries), {min(entries): entries[min(entries)]}
            token = f"<NextContinuationToken>{quote(token)}</NextContinuationToken>"
        tags = ("CommonPrefixes", "Contents")
        text = "".join(
            f"<{tags[each.startswith('<Key>')]}>{each}</{tags[each.startswith('<Key>')]}>"
            for each in sorted(entries.values(), key=lambda each: not each.startswith("<Key>"))
        )
        answer = f"<ListBucketResult><EncodingType>url</EncodingType>{token}{text}</ListBucketResult>"
        return self._answer(200, answer.encode(), {})

    def _entry(self, key: str) -> str:
        stored = self.owner.objects[key]
        written = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(stored.written_s))
        storage_class = self.owner.archive if self.owner.is_archived(key) else "STANDARD"
        return (
            f"<Key>{quote(key)}</Key><LastModified>{written}</LastModified><ETag>{escape(stored.tag)}</ETag>"
            f"<Size>{len(stored.body)}</Size><StorageClass>{storage_class}</StorageClass>"
        )

    def _put(self, key: str, query: dict[str, str], headers: dict[str, str], body: bytes) -> None:
        if "uploadId" in query:
            self.owner.uploads[query["uploadId"]][int(query["partNumber"])] = body
            return self._answer(200, b"", {"ETag": f'"{query["partNumber"]}"'})
        stored = self.owner.objects.get(key)
        wanted = headers.get("if-match")
        if (stored and "if-none-match" in headers) or (wanted and (not stored or stored.tag != wanted)):
            return self._error(412, "PreconditionFailed", key)
        sums = {} if self.owner.lacks & {Lack.CHECKSUMS, Lack.CHECKSUMS_400} else self._checksums(headers)
        kept = _Object(body, sums)
        self.owner.objects[key] = kept
        return self._answer(200, b"", {"ETag": kept.tag, **sums})

    def _checksums(self, headers: dict[str, str]) -> dict[str, str]:
        return {name: value for name, value in headers.items() if name.startswith("x-amz-checksum-crc")}

    def _post(self, key: str, query: dict[str, str], _headers: dict[str, str], body: bytes) -> None:
        if "delete" in query:
            keys = re.findall(r"<Key>(.*?)</Key>", body.decode(), re.DOTALL)
            status, code, message = Lack.EACH_DELETE_FORBIDDEN.value
            if Lack.EACH_DELETE_FORBIDDEN in self.owner.lacks:
                more = f"<Code>{code}</Code><Message>{message}</Message>"
                text = "".join(f"<Error><Key>{each}</Key>{more}</Error>" for each in keys)
                return self._answer(status, f"<DeleteResult>{text}</DeleteResult>".encode(), {})
            for each in keys:
                self.owner.objects.pop(unescape(each), None)
            return self._answer(200, b"<DeleteResult></DeleteResult>", {})
        if "uploads" in query:
            upload = uuid4().hex
            self.owner.uploads[upload] = {}
            result = "" if Lack.UPLOAD_ID in self.owner.lacks else f"<UploadId>{upload}</UploadId>"
            text = f"<InitiateMultipartUploadResult>{result}</InitiateMultipartUploadResult>"
            return self._answer(200, text.encode(), {})
        parts = self.owner.uploads.pop(query["uploadId"])
        self.owner.objects[key] = kept = _Object(b"".join(parts[number] for number in sorted(parts)), {})
        text = (
            f"<CompleteMultipartUploadResult><ETag>{escape(kept.tag)}</ETag></CompleteMultipartUploadResult>"
        )
        return self._answer(200, text.encode(), {})

    def _delete(self, key: str, query: dict[str, str], _headers: dict[str, str], _body: bytes) -> None:
        if "uploadId" not in query:
            self.owner.objects.pop(key, None)
        self._answer(204, b"", {})

    def _error(self, status: int, code: str, message: str) -> None:
        text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
        self._answer(status, text.encode(), {})

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response_only(status)
        if Lack.DATE not in self.owner.lacks:
            self.send_header("Date", formatdate(usegmt=True))
        for name, value in headers.items():
            if name != "ETag" or Lack.ETAG not in self.owner.lacks:
                self.send_header(name, value)
        if status == Lack.ADDRESS.value[0]:
            self.send_header("Location", "https://user:hunter2@elsewhere.example:9000/bucket?token=hunter2")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
