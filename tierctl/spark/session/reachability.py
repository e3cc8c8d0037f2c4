"""Whether somebody answers at a master's address, known in seconds rather than after Spark's own minutes."""

import socket
import threading
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

from tierctl.errors import EngineError, UsageError

T = TypeVar("T")

ANSWER_TIMEOUT_S = 10
_PORTS = {"spark": 7077, "sc": 15002}


def require_answer(master: str | None) -> None:
    """EngineError when nobody listens at any address of a spark:// or sc:// master; others are not asked.

    UsageError for an address that is none.
    """
    scheme, _, rest = (master or "").partition("://")
    if scheme not in _PORTS:
        return
    reasons = []
    for address in rest.partition("/")[0].partition(";")[0].split(","):
        reason = _why_not(str(master), address, _PORTS[scheme])
        if reason is None:
            return
        reasons.append(f"{address}: {reason}")
    what = "Spark Connect server" if scheme == "sc" else "Spark master"
    raise EngineError(
        f"no {what} answers at {'; '.join(reasons)}", hint="is it started, and reachable from here?"
    )


def _why_not(master: str, address: str, default_port: int) -> str | None:
    try:
        parts = urlsplit(f"//{address}")
        host, port = parts.hostname, parts.port or default_port
    except ValueError as e:
        raise UsageError(f"--master {master}: {e}") from None
    if not host:
        raise UsageError(f"--master {master} has no host", hint="as spark://host:7077 or sc://host:15002")
    try:
        with socket.create_connection((host, port), timeout=ANSWER_TIMEOUT_S):
            return None
    except OSError as e:
        return e.strerror or str(e)


def within(timeout_s: float, call: Callable[[], T], what: str) -> T:
    """What `call` returns or raises; EngineError when it takes longer, and nobody waits any more."""
    answers: list[T] = []
    errors: list[Exception] = []

    def run(*_: Any) -> None:
        try:
            answers.append(call())
        except Exception as e:
            errors.append(e)

    thread = threading.Thread(target=run, name="spark-connect", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if errors:
        raise errors[0]
    if not answers:
        raise EngineError(f"{what} has not answered for {timeout_s:.0f} s", hint="is it the right port?")
    return answers[0]
