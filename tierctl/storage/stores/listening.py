"""Check that a server accepts connections, within seconds; the clients of stores would retry for minutes."""

import socket
import time

from tierctl.errors import RemoteStorageError

ANSWER_TIMEOUT_S = 10
REFUSED_FOR_S = 1.5
"""How long a server may refuse connections before it counts as down: it may be restarting."""
_PAUSE_S = 0.3


def why_refused(host: str, port: int) -> str | None:
    """Return why a connection failed, None if it was made."""
    try:
        with socket.create_connection((host, port), timeout=ANSWER_TIMEOUT_S):
            return None
    except OSError as e:
        return e.strerror or str(e)


def require_listening(host: str, port: int, named_by: str) -> None:
    """Raise RemoteStorageError if host:port refuses every connection for REFUSED_FOR_S.

    `named_by` is the option or setting that names the server. A slow or unknown network is left to the
    client, which may reach the server in another way.
    """
    deadline_s = time.monotonic() + REFUSED_FOR_S
    while True:
        try:
            with socket.create_connection((host, port), timeout=ANSWER_TIMEOUT_S):
                return
        except (ConnectionRefusedError, socket.gaierror) as e:
            if time.monotonic() + _PAUSE_S > deadline_s:
                raise RemoteStorageError(
                    f"no server accepts connections at {host}:{port} ({named_by}): {e.strerror or e}",
                    hint=f"check that the server is running, and check {named_by}",
                ) from e
        except OSError:
            return
        time.sleep(_PAUSE_S)
