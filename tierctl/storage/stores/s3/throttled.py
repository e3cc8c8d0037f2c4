"""Wait for a server that asks for fewer requests, and note which repeated requests may have taken effect.

botocore repeats each request a few times within seconds. A store that adapts to a load, as S3 does at a cold
start, refuses requests for longer.
"""

import random
import time
from typing import Any

WAIT_MAX_S: float = 120
"""How long a request is repeated that the server answers with a request to slow down."""

_FIRST_S, _LAST_S = 0.05, 1.0
_CODES = frozenset(
    {
        "429",
        "503",
        "RequestLimitExceeded",
        "RequestThrottled",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequests",
    }
)
"""Error codes for too many requests; responses to HEAD have no body, and so only a status."""

MAY_BE_DONE = "tierctl-may-be-done"
"""The field of a response's metadata which states that an earlier attempt may have taken effect."""


def wait_when_throttled(events: Any) -> None:
    """Make a client with these events wait for a server that is throttling; call it once per client."""
    events.register_first("needs-retry.s3", _delay_s)


def _delay_s(*, response: Any, attempts: int, request_dict: dict[str, Any], **_event: object) -> float | None:
    """Return the time to wait before a throttled request is repeated; None leaves the decision to botocore.

    The context of the request is the same for all of its attempts.
    """
    context, now_s = request_dict["context"], time.monotonic()
    parsed = {} if response is None else response[1]
    status = parsed.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    is_throttled = parsed.get("Error", {}).get("Code") in _CODES
    if context.get(MAY_BE_DONE):
        parsed.setdefault("ResponseMetadata", {})[MAY_BE_DONE] = True
    if (not status or status >= 500) and not is_throttled:
        context[MAY_BE_DONE] = True
    if not is_throttled or now_s >= context.setdefault("tierctl-wait-until", now_s + WAIT_MAX_S):
        return None
    longest_s = min(_FIRST_S * 2.0 ** min(attempts, 30), _LAST_S)
    return random.uniform(longest_s / 2, longest_s)
