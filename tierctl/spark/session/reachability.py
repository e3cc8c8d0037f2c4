"""Check that a Spark master is reachable, within seconds; Spark itself would wait for minutes."""

import threading
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

from tierctl.errors import EngineError, UsageError
from tierctl.storage.stores.listening import why_refused

T = TypeVar("T")

_PORTS = {"spark": 7077, "sc": 15002}


def require_reachable(master: str | None) -> None:
    """Raise EngineError if no address of a spark:// or sc:// master accepts connections.

    Other masters are not checked. Raise UsageError for a malformed address.
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
    server = "Spark Connect server" if scheme == "sc" else "Spark master"
    raise EngineError(
        f"no {server} answers at {'; '.join(reasons)}",
        hint="check that it is running and reachable from here",
    )


def _why_not(master: str, address: str, default_port: int) -> str | None:
    try:
        parts = urlsplit(f"//{address}")
        host, port = parts.hostname, parts.port or default_port
    except ValueError as e:
        raise UsageError(f"--master {master}: {e}") from None
    if not host:
        raise UsageError(f"--master {master} has no host", hint="as spark://host:7077 or sc://host:15002")
    return why_refused(host, port)


def within(timeout_s: float, call: Callable[[], T], server: str) -> T:
    """Return or raise the result of `call`; raise EngineError if it takes longer than `timeout_s`.

    A call that takes longer keeps running on its own thread. `server` is named in the error.
    """
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
        raise EngineError(f"{server} has not answered for {timeout_s:.0f} s", hint="check the port")
    return answers[0]
