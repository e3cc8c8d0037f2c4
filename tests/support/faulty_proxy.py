"""Faults between a client and an HTTP server: each `Fault` spoils some of the requests that go through.

with FaultyProxy(server.port) as proxy:
    proxy.faults = [Fault("reset after", "PUT", nth=2)]
"""

import http.client
import socket
import struct
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import ClassVar, Literal, get_args

from tests.support.servers import HttpServer

Kind = Literal[
    "reset before",
    "reset after",
    "hang",
    "timeout",
    "403",
    "404",
    "409",
    "412",
    "500",
    "503",
    "truncated",
    "errors inside",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

_ERROR = "<?xml version='1.0'?><Error><Code>{}</Code><Message>injected</Message></Error>"
_CODES = {
    "403": "AccessDenied",
    "404": "NoSuchKey",
    "409": "OperationAborted",
    "412": "PreconditionFailed",
    "500": "InternalError",
    "503": "SlowDown",
}
_INSIDE = """<?xml version="1.0"?><DeleteResult><Error><Key>{}</Key><Code>InternalError</Code>
<Message>injected</Message></Error></DeleteResult>"""
HANG_S = 2.0


@dataclass
class Fault:
    """Inject a fault into the nth request (from 1; 0: every one) whose method and path match.

    "reset before": the connection ends before the server receives the request; "reset after": after its
    response. "hang" and "timeout" do the same, but wait for HANG_S without a response. "errors inside": a
    response with status 200 that contains an error, without an effect; that of DeleteObjects names one key as
    not deleted (a changed body would need signing).
    """

    kind: Kind
    method: str = ""
    path: str = ""
    nth: int = 1
    seen: int = field(default=0, init=False)

    def hits(self, method: str, path: str) -> bool:
        if not method.startswith(self.method) or self.path not in path:
            return False
        self.seen += 1
        return self.nth in {0, self.seen}


class FaultyProxy(HttpServer):
    """Listen during the block; with a `certificate` and its key, over TLS. The server behind has no TLS."""

    def __init__(self, target_port: int, certificate: Path | None = None) -> None:
        self.faults: list[Fault] = []
        self.requests: list[str] = []
        self.target_port = target_port
        self._lock = threading.Lock()
        super().__init__(_Handler, certificate)

    def fault_of(self, method: str, path: str) -> Kind | None:
        with self._lock:
            self.requests.append(f"{method} {path}")
            return next((fault.kind for fault in self.faults if fault.hits(method, path)), None)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: ClassVar[FaultyProxy]

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        kind = self.owner.fault_of(self.command, self.path)
        if kind == "hang":
            time.sleep(HANG_S)
        match kind:
            case "reset before" | "hang":
                return self._reset()
            case "403" | "404" | "409" | "412" | "500" | "503":
                return self._answer(int(kind), {}, _ERROR.format(_CODES[kind]).encode())
            case "errors inside" if "delete" not in self.path:
                return self._answer(200, {}, _ERROR.format("InternalError").encode())
            case "errors inside":
                key = body.partition(b"<Key>")[2].partition(b"</Key>")[0].decode()
                return self._answer(200, {}, _INSIDE.format(key).encode())
        status, headers, answer = self._forward(body)
        if kind == "timeout":
            time.sleep(HANG_S)
        if kind in {"reset after", "timeout"}:
            return self._reset()
        return self._answer(status, headers, answer, cut=kind == "truncated")

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any  # noqa: N815

    def _forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.owner.target_port, timeout=30)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() != "expect":
                    connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def _answer(self, status: int, headers: dict[str, str], body: bytes, *, cut: bool = False) -> None:
        self.send_response_only(status)
        skipped = {"content-length", "transfer-encoding", "connection"}
        for name, value in headers.items():
            if name.lower() not in skipped:
                self.send_header(name, value)
        length = headers.get("Content-Length", len(body)) if self.command == "HEAD" else len(body)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if cut else body)
        if cut:
            self._reset()

    def _reset(self) -> None:
        self.wfile.flush()
        self.close_connection = True
        # Without SO_LINGER, closing the socket sends a reset.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.shutdown(socket.SHUT_RD)
