"""Faults between Kafka's clients and a broker: requests go through, and some connections are spoilt.

with KafkaProxy(broker.proxied_at, broker.ports[2]) as proxy:
    proxy.faults = [Fault("reset after", PRODUCE, nth=2)]
"""

import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, Self

PRODUCE = 0

_HEAD = struct.Struct(">ih")
_PIECE_BYTES = 1 << 16


@dataclass
class Fault:
    """Inject a fault into the nth request of an API (from 1), or with `on` into all from the nth on.

    Its connection is reset before the broker receives it, or after the broker has responded.
    """

    kind: Literal["reset before", "reset after"]
    api: int
    nth: int = 1
    on: bool = False
    seen: int = field(default=0, init=False)

    def hits(self, api: int) -> bool:
        if api != self.api:
            return False
        self.seen += 1
        return self.seen == self.nth or (self.on and self.seen > self.nth)


class KafkaProxy:
    """Forward connections from `port` to `target_port` of this host during the block."""

    def __init__(self, port: int, target_port: int) -> None:
        self.faults: list[Fault] = []
        self._target = ("127.0.0.1", target_port)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._server = socket.create_server(("127.0.0.1", port))
        self._accepting = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        # A shutdown wakes a thread that waits in accept; a close does not.
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._accepting.join(10)
        with self._lock:
            left, self._open = self._open, set()
        for each in left:
            _reset(each)

    def fault_of(self, api: int) -> str | None:
        with self._lock:
            return next((fault.kind for fault in self.faults if fault.hits(api)), None)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(self._target, timeout=10)
            except OSError:
                _reset(client)
                continue
            broker.settimeout(None)
            with self._lock:
                self._open |= {client, broker}
            connection = _Connection(self, client, broker)
            for work in (connection.pass_requests, connection.pass_answers):
                threading.Thread(target=work, daemon=True).start()


class _Connection:
    def __init__(self, proxy: KafkaProxy, client: socket.socket, broker: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._broker = broker
        self._is_spoilt = False

    def pass_requests(self) -> None:
        with suppress(OSError):
            while head := _exactly(self._client, _HEAD.size):
                length, api = _HEAD.unpack(head)
                rest = _exactly(self._client, length + 4 - _HEAD.size)
                kind = self._proxy.fault_of(api)
                if kind == "reset before":
                    break
                # The broker responds in order, so the next response belongs to this request or an earlier
                # one.
                self._is_spoilt = self._is_spoilt or kind == "reset after"
                self._broker.sendall(head + rest)
        self._end()

    def pass_answers(self) -> None:
        with suppress(OSError):
            while data := self._broker.recv(_PIECE_BYTES):
                if self._is_spoilt:
                    break
                self._client.sendall(data)
        self._end()

    def _end(self) -> None:
        for each in (self._client, self._broker):
            _reset(each)


def _exactly(source: socket.socket, size_bytes: int) -> bytes:
    """Return exactly so many bytes, or None if the connection ends before them."""
    data = bytearray()
    while len(data) < size_bytes:
        piece = source.recv(min(size_bytes - len(data), _PIECE_BYTES))
        if not piece:
            return b""
        data += piece
    return bytes(data)


def _reset(each: socket.socket) -> None:
    with suppress(OSError):
        # Without SO_LINGER, closing the socket sends a reset.
        each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        each.shutdown(socket.SHUT_RDWR)
    with suppress(OSError):
        each.close()
