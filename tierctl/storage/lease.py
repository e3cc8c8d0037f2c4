"""Leases, by which only one tierctl at a time changes a tier.

Other packages take the lease of a tier by `open_lease`, and leases on other objects by `ObjectLease`.
"""

import errno
import fcntl
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from tierctl.errors import ConditionsRefused, LockedError, SafetyRefusal, StoreWriteUnknown, TierctlError
from tierctl.files import named
from tierctl.storage.remote_storage_manager import RemoteStorageManager
from tierctl.storage.stores.base import ConditionalStore
from tierctl.storage.stores.local_store import LocalStore

_PROC = Path("/proc")
_START_TIME_FIELD = 19
"""Position of the start time in /proc/<pid>/stat after the process name: field 22 of proc(5)."""

_held: set[str] = set()
"""Ids of the runs of this process that hold a lease or try to acquire one."""

WITHOUT_LEASE = (
    "make sure that no other tierctl changes this tier, then add --no-lease to copy, sweep, delete or apply"
)
"""The hint where a store has no lease."""


def facts_of_a_run() -> dict[str, Any]:
    """Return what a lease says of its holder, for a new run of this process.

    `pid` and `started` identify the process within `place`, a boot and a PID namespace.
    """
    pid = os.getpid()
    return {
        "host": socket.gethostname(),
        "place": _place(),
        "pid": pid,
        "started": _started(pid),
        "run": uuid.uuid4().hex,
    }


def has_ended(facts: Mapping[str, Any]) -> bool:
    """Return whether the run that wrote `facts` has certainly ended: its process ran on this machine."""
    place, pid, started = facts.get("place"), facts.get("pid"), facts.get("started")
    if not place or place != _place() or not isinstance(pid, int) or pid <= 0 or not started:
        return False
    if pid == os.getpid() and started == _started(pid):
        return facts.get("run") not in _held
    seen = _started(pid)
    return seen != str(started) if seen else not _exists(pid)


def _exists(pid: int) -> bool:
    """Return whether there is such a process, also one of another user that /proc hides (hidepid)."""
    try:
        os.kill(pid, 0)
    # The number in a lease may be no valid process id.
    except (OSError, OverflowError) as e:
        return not isinstance(e, ProcessLookupError)
    return True


def _place() -> str:
    """Return the boot and the PID namespace of this process; "" if /proc is not available."""
    with suppress(OSError):
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {(_PROC / 'self/ns/pid').readlink()}"
    return ""


def _started(pid: int) -> str:
    """Return the start time of a process in clock ticks since boot; "" if it does not exist or is hidden."""
    with suppress(OSError, IndexError):
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[_START_TIME_FIELD]
    return ""


_CANNOT_LOCK = {errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}
"""Errors of a file system without locks (Lustre: ENOSYS), or (NFS) without locks of folders."""


class FolderLease:
    """Context manager that holds the lease; raise LockedError if another run holds it.

    The locks are on the folders themselves, because a lock file would be among the tier's objects. `root`, in
    which the tier's keys begin, is created if it does not exist yet, so that only one of two first copies
    runs. `base`, with which all keys begin, may be the root of a run that names the tier otherwise. It is not
    created: an empty folder in its place would count as a tier that lost its objects. Raise SafetyRefusal if
    the file system has no locks, unless the lease `is_optional`.
    """

    def __init__(self, root: Path, base: Path, *, is_optional: bool = False) -> None:
        self._root = root
        self._base = base
        self._is_optional = is_optional
        self._held: list[tuple[int, Path]] = []
        """The descriptors of the locked folders, and their paths."""

    def __enter__(self) -> Self:
        with suppress(OSError):
            # If the folder can't be made, neither can the tier: the copy reports the error.
            self._root.mkdir(parents=True, exist_ok=True)
        # A second lock of the same folder would be refused.
        for folder in dict.fromkeys((self._root, self._base)):
            try:
                self._lock(folder)
            except BaseException:
                self._close()
                raise
        return self

    def _lock(self, folder: Path) -> None:
        with suppress(FileNotFoundError, NotADirectoryError):
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._held.append((fd, folder))
            try:
                with named(folder):
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LockedError(
                    f"another tierctl changes the tier in {folder}", hint="wait for it to end"
                ) from None
            except OSError as e:
                if e.errno not in _CANNOT_LOCK:
                    raise
                if not self._is_optional:
                    raise SafetyRefusal(
                        f"{folder} can't be locked ({e.strerror}), so another tierctl could change the "
                        "tier at the same time",
                        hint=WITHOUT_LEASE,
                    ) from e

    def __exit__(self, *_: object) -> None:
        self._close()

    def is_lost(self) -> bool:
        """Return whether a path leads to another folder than the locked one: another run may lock that.

        The locks themselves are held as long as this process has the folders open.
        """
        try:
            return not all(os.path.samestat(os.fstat(fd), folder.stat()) for fd, folder in self._held)
        except OSError:
            return True

    def _close(self) -> None:
        while self._held:
            os.close(self._held.pop()[0])


# A lease in an object store: an object created with If-None-Match, and renewed with If-Match.
#
# The store's clock decides the age of another run's lease. The time since the machine's boot decides how long
# the own lease is valid, counted from the moment before a renewal was sent.

LEASE_S = 60.0
"""How long a lease is valid after it was written."""

RENEW_S = 15.0
MARGIN_S = 10.0
"""No side effect starts in this time before the lease ends, because a request may reach the store late."""

TAKE_OVER_S = 2 * LEASE_S
"""Age at which another run may replace the lease of a run that was killed on another machine."""


def _since_boot_s() -> float:
    """Return the time since boot; time in which the machine slept, and others did not, counts."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


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
        clock_s: Callable[[], float] = _since_boot_s,
        renew_s: float = RENEW_S,
        is_optional: bool = False,
    ) -> None:
        self._store = store
        self._key = key
        self.holder = facts_of_a_run()
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
        _held.add(self.holder["run"])
        try:
            self._acquire()
        except ConditionsRefused as e:
            _held.discard(self.holder["run"])
            self._refused(e)
            return self
        except TierctlError:
            _held.discard(self.holder["run"])
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

    def __exit__(self, *_: object) -> None:
        if self.why_without is not None:
            return
        self._ended.set()
        self._renewer.join()
        if not self.is_lost():
            # Best effort: the lease expires anyway.
            with suppress(TierctlError):
                self._store.delete_if(self._key, self._tag)
        _held.discard(self.holder["run"])

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
        if not self._write(None):
            self._take_over()
        if self._store.put_if(self._key, self._body(), None) is not None:
            raise ConditionsRefused(
                "it ignores them: it made an object with If-None-Match that it had already"
            )

    def _take_over(self) -> None:
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

    def _body(self) -> bytes:
        return json.dumps({**self.holder, "count": self._count, "lease_s": LEASE_S}).encode()

    def _write(self, tag: str | None) -> bool:
        """Create the lease (`tag` None) or replace the lease with `tag`; return False if another run has it.

        If this run holds the lease under another tag, replace that one: an earlier write took effect although
        it failed. Raise RemoteStorageError if it is unknown whether the lease was written.
        """
        sent_s = self._clock_s()
        self._count += 1
        body = self._body()
        written = self._store.put_if(self._key, body, tag)
        if written is None:
            found = self._store.get_tagged(self._key)
            if found is None or _facts(found.body).get("run") != self.holder["run"]:
                return False
            # This run wrote the object, and only the response to this write or to an earlier one was lost.
            written = found.tag if found.body == body else self._store.put_if(self._key, body, found.tag)
            if written is None:
                raise StoreWriteUnknown(f"{self._store.name_of(self._key)} changed while it was written")
        self._tag, self._valid_until_s = written, sent_s + LEASE_S
        return True


def _facts(body: bytes) -> dict[str, Any]:
    """Return the facts about its holder in a lease; no facts if tierctl did not write the object."""
    with suppress(ValueError, RecursionError):
        found = json.loads(body)
        return found if isinstance(found, dict) else {}
    return {}


Lease = FolderLease | ObjectLease


def open_lease(remote: RemoteStorageManager, *, is_optional: bool = False) -> Lease | None:
    """Return the lease of a tier for one run, not yet acquired.

    If its store supports no lease, return None if the lease `is_optional`; otherwise raise SafetyRefusal.
    """
    store, key = remote.store, remote.own_key("lease")
    if isinstance(store, LocalStore):
        return FolderLease(store.root, (store.root / key).parent, is_optional=is_optional)
    if isinstance(store, ConditionalStore):
        return ObjectLease(store, key, is_optional=is_optional)
    if is_optional:
        return None
    raise SafetyRefusal(
        f"{store.name_of('')}: tierctl has no lease for this kind of store (file, s3 and hdfs have one), so "
        "another tierctl could change the tier at the same time",
        hint=WITHOUT_LEASE,
    )
