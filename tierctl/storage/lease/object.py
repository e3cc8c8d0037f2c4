"""A lease in an object store: an object created with If-None-Match, and renewed with If-Match.

The store's clock decides the age of another run's lease. The monotonic clock of this process decides how long
its own lease is valid, counted from the moment before a renewal was sent.
"""

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from tierctl.errors import ConditionsRefused, LockedError, SafetyRefusal, TierctlError
from tierctl.storage.lease.owner import WITHOUT_LEASE, Owner, has_ended
from tierctl.storage.stores.base import ConditionalStore

LEASE_S = 60.0
"""How long a lease is valid after it was written."""

RENEW_S = 15.0
MARGIN_S = 10.0
"""No side effect starts in this time before the lease ends, because a request may reach the store late."""

TAKE_OVER_S = 2 * LEASE_S
"""Age at which another run may replace the lease of a run that was killed on another machine."""


class ObjectLease:
    """Context manager that holds the lease and renews it by a thread; LockedError if another run holds it.

    Raise SafetyRefusal if the store has no writes on a condition, unless the lease `is_optional`: the run
    then continues without a lease, and `why_without` says so.
    """

    def __init__(
        self,
        store: ConditionalStore,
        key: str,
        *,
        owner: Owner,
        clock_s: Callable[[], float] = time.monotonic,
        renew_s: float = RENEW_S,
        is_optional: bool = False,
    ) -> None:
        self._store = store
        self._key = key
        self._owner = owner
        self._clock_s = clock_s
        self._renew_s = renew_s
        self._is_optional = is_optional
        self._tag = ""
        self._valid_until_s = 0.0
        self._count = 0
        self._is_taken = False
        self.why_without: str | None = None
        """Why the run continues without this lease, which is optional; None if the lease is held."""
        self._ended = threading.Event()
        self._renewer = threading.Thread(target=self._renew_until_end, name="tierctl-lease", daemon=True)

    def __enter__(self) -> Self:
        self._owner.begin()
        try:
            self._acquire()
        except ConditionsRefused as e:
            self._owner.end()
            self._refused(e)
            return self
        except TierctlError:
            self._owner.end()
            raise
        self._renewer.start()
        return self

    def _refused(self, error: ConditionsRefused) -> None:
        """Continue without the lease if it is optional, otherwise raise SafetyRefusal."""
        if not self._is_optional:
            raise SafetyRefusal(
                f"{self._store.name_of(self._key)}: the store has no writes on a condition, which a lease "
                f"needs, so another tierctl could change the tier at the same time: {error.message}",
                hint=WITHOUT_LEASE,
            ) from error
        self.why_without = (
            f"{self._store.name_of('')} has no writes on a condition: nothing keeps another tierctl out of "
            "this tier, and objects are written without a check whether another program wrote them"
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.why_without is not None:
            return
        self._ended.set()
        self._renewer.join()
        if not self.is_lost():
            # Best effort: the lease expires anyway.
            with suppress(TierctlError):
                self._store.delete_if(self._key, self._tag)
        self._owner.end()

    def is_lost(self) -> bool:
        """Return whether another run may hold the lease now, so that no side effect may start.

        A run without a lease loses none.
        """
        if self.why_without is not None:
            return False
        return self._is_taken or self._clock_s() > self._valid_until_s - MARGIN_S

    def renew(self) -> None:
        """Write the lease again; if the store fails or refuses that, the lease stays valid until its end."""
        with suppress(TierctlError):
            self._is_taken = not self._write(self._tag)

    def _renew_until_end(self) -> None:
        while not self._is_taken and not self._ended.wait(self._renew_s):
            self.renew()

    def _acquire(self) -> None:
        if self._write(None):
            return
        found = self._store.get_tagged(self._key)
        holder = {} if found is None else _facts(found.body)
        if found is not None and found.age_s < TAKE_OVER_S and not has_ended(holder):
            who = f"process {holder.get('pid', '?')} on {ascii(holder.get('host', '?'))[:200]}"
            raise LockedError(
                f"another tierctl holds the lease: {who} renewed {self._key} {found.age_s:.0f} s ago",
                hint=f"wait for it to end; the lease of a killed run expires after {TAKE_OVER_S:.0f} s",
            )
        if not self._write(None if found is None else found.tag):
            raise LockedError(
                f"another tierctl took {self._key} just now", hint="wait for it to end, then run again"
            )

    def _write(self, tag: str | None) -> bool:
        """Create the lease (`tag` None) or replace the lease with `tag`; return whether that succeeded."""
        sent_s = self._clock_s()
        self._count += 1
        body = json.dumps({**self._owner.facts(), "count": self._count, "lease_s": LEASE_S}).encode()
        written = self._store.put_if(self._key, body, tag)
        if written is None:
            found = self._store.get_tagged(self._key)
            if found is None or found.body != body:
                return False
            # This run wrote the object, and only the response was lost.
            written = found.tag
        self._tag, self._valid_until_s = written, sent_s + LEASE_S
        return True


def _facts(body: bytes) -> dict[str, Any]:
    """Return the facts about its holder in a lease; no facts if tierctl did not write the object."""
    with suppress(ValueError):
        found = json.loads(body)
        return found if isinstance(found, dict) else {}
    return {}
