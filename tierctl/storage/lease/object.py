"""One tierctl at a time on a tier in an object store: an object made If-None-Match, renewed If-Match.

The store's clock decides how old a lease is, ours only how long we may still count on it: from before a
renewal was sent, by a clock that nobody sets.
"""

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from tierctl.errors import LockedError, RemoteStorageError, TierctlError
from tierctl.storage.base import RemoteStorageManager
from tierctl.storage.lease.folder import FolderLease
from tierctl.storage.lease.owner import Owner, has_ended
from tierctl.storage.retry import RetryingStorage
from tierctl.storage.stores.base import ConditionalStore
from tierctl.storage.stores.local import LocalStore
from tierctl.storage.tier import ObjectTier

LEASE_S = 60.0
"""How long a lease holds after it was written; a run that was killed keeps others out as long."""

RENEW_S = 15.0
MARGIN_S = 10.0
"""So long before its end nothing more is begun: what is begun may take a while to reach the store."""

TAKE_OVER_S = 2 * LEASE_S


def lease_of(remote: RemoteStorageManager) -> "Lease | FolderLease | None":
    """The lease of a tier, for one run; None where the store can't keep one."""
    tier = remote.inner if isinstance(remote, RetryingStorage) else remote
    if isinstance(tier, ObjectTier) and isinstance(tier.store, LocalStore):
        return FolderLease(tier.store.root)
    if not isinstance(tier, ObjectTier) or not isinstance(tier.store, ConditionalStore):
        return None
    return Lease(tier.store, tier.lease_key, owner=Owner.of_this_run())


class Lease:
    """Held while the block runs, renewed by a thread; LockedError when another run holds it."""

    def __init__(
        self,
        store: ConditionalStore,
        key: str,
        *,
        owner: Owner,
        clock_s: Callable[[], float] = time.monotonic,
        renew_s: float = RENEW_S,
    ) -> None:
        self._store = store
        self._key = key
        self._owner = owner
        self._clock_s = clock_s
        self._renew_s = renew_s
        self._tag = ""
        self._good_until_s = 0.0
        self._count = 0
        self._taken = False
        self._ended = threading.Event()
        self._renewer = threading.Thread(target=self._keep, name="tierctl-lease", daemon=True)

    def __enter__(self) -> Self:
        self._owner.begin()
        try:
            self._acquire()
        except TierctlError:
            self._owner.end()
            raise
        self._renewer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._renewer.join()
        if not self.is_lost():
            # Best effort: it ends by itself.
            with suppress(TierctlError):
                self._store.delete_if(self._key, self._tag)
        self._owner.end()

    def is_lost(self) -> bool:
        """Whether it is not certain any more that nobody else holds it: nothing more may be begun."""
        return self._taken or self._clock_s() > self._good_until_s - MARGIN_S

    def renew(self) -> None:
        """Write it once more; a store that can't be reached leaves it as long as it was good for."""
        with suppress(RemoteStorageError):
            self._taken = not self._write(self._tag)

    def _keep(self) -> None:
        while not self._taken and not self._ended.wait(self._renew_s):
            self.renew()

    def _acquire(self) -> None:
        if self._write(None):
            return
        found = self._store.stamped(self._key)
        holder = {} if found is None else _facts(found.body)
        if found is not None and found.age_s < TAKE_OVER_S and not has_ended(holder):
            who = f"process {holder.get('pid', '?')} on {ascii(holder.get('host', '?'))[:200]}"
            raise LockedError(
                f"another tierctl changes this tier: {who} renewed {self._key} {found.age_s:.0f} s ago",
                hint=f"wait for it; one killed on another machine keeps others out for {TAKE_OVER_S:.0f} s",
            )
        if not self._write(None if found is None else found.tag):
            raise LockedError(
                f"another tierctl took {self._key} just now", hint="wait for it to end, then run again"
            )

    def _write(self, tag: str | None) -> bool:
        sent_s = self._clock_s()
        self._count += 1
        body = json.dumps({**self._owner.facts(), "count": self._count, "lease_s": LEASE_S}).encode()
        written = self._store.put_if(self._key, body, tag)
        if written is None:
            found = self._store.stamped(self._key)
            if found is None or found.body != body:
                return False
            # Ours, and only its answer was lost.
            written = found.tag
        self._tag, self._good_until_s = written, sent_s + LEASE_S
        return True


def _facts(body: bytes) -> dict[str, Any]:
    """What a lease says of its holder; nothing when it is none of ours."""
    with suppress(ValueError):
        found = json.loads(body)
        return found if isinstance(found, dict) else {}
    return {}
