"""Check a tier's store by writing, replacing and deleting two small objects of tierctl's own."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from uuid import uuid4

from tierctl.doctor.checks import Check
from tierctl.doctor.clocks import check_clock, read_clock
from tierctl.doctor.examination import Examination, Result, fault, ok, prevented
from tierctl.errors import (
    AuthenticationError,
    ConditionsRefused,
    RemoteStorageError,
    StoreRefused,
    StoreWriteFailed,
    TierctlError,
)
from tierctl.storage.stores.base import ConditionalStore, InspectableStore, ObjectStore
from tierctl.storage.stores.local import LocalStore
from tierctl.storage.tier import ObjectTier

_BODY = b"written by tierctl doctor --probe-writes; may be deleted\n"
_CONDITION = "-condition"
_CHECKS = (
    Check.STORE_WRITE,
    Check.STORE_READ,
    Check.STORE_CONDITIONS,
    Check.STORE_LEASE,
    Check.STORE_CLOCK,
    Check.STORE_DELETE,
)


def probe_store(examination: Examination, tier: ObjectTier, clock_ms: Callable[[], int]) -> None:
    """Make the checks that need probe objects, and delete these objects."""
    key = tier.own_key(f"probe-{uuid4().hex}")
    examination.make(_CHECKS, tier.store.name_of(key), lambda: _probe(tier.store, key, clock_ms))


def _probe(store: ObjectStore, key: str, clock_ms: Callable[[], int]) -> Iterator[Result]:
    subject = store.name_of(key)
    with suppress(AuthenticationError, StoreRefused):
        # Nothing is written if the tier does not exist. A refusal to list is reported by another check.
        store.list_folder("")
    left: TierctlError | None = None
    written = _Written(store, key)
    try:
        reading = read_clock(written.at_ms, clock_ms, unit_ms=1000)
        yield ok(Check.STORE_WRITE, subject, f"stored an object of {len(_BODY)} bytes")
        yield ok(Check.STORE_READ, subject, "read the object that was stored")
        if not isinstance(store, InspectableStore):
            yield from check_clock(Check.STORE_CLOCK, store.name_of(""), reading)
        written.doing = Check.STORE_CONDITIONS
        yield from _conditions(store, f"{key}{_CONDITION}")
    except ConditionsRefused as e:
        yield fault(Check.STORE_CONDITIONS, subject, e.message)
        yield fault(Check.STORE_LEASE, subject, f"the store has no conditional writes: {e.message}")
    except (AuthenticationError, StoreRefused, StoreWriteFailed) as e:
        yield fault(written.doing, subject, e.message, fix=e.hint)
    finally:
        left = _remove(store, key)
    if written.doing is not Check.STORE_WRITE or left is not None:
        yield from _deleted(subject, left)


@dataclass(slots=True)
class _Written:
    """The object of a probe; `doing` is the check whose request is sent."""

    store: ObjectStore
    key: str
    doing: Check = Check.STORE_WRITE

    def at_ms(self) -> int:
        """Store the object, compare it with what was stored, and return its time of modification."""
        self.store.put_all({self.key: _BODY})
        self.doing = Check.STORE_READ
        with self.store.open(self.key) as stream:
            if stream.read() != _BODY:
                raise RemoteStorageError(f"{self.store.name_of(self.key)} differs from the stored bytes")
        self.doing = Check.STORE_LIST
        found = [each for each in self.store.list_objects(self.key) if each.key == self.key]
        if not found or found[0].modified_ms is None:
            raise RemoteStorageError(f"{self.store.name_of(self.key)} was stored, but is not listed")
        return found[0].modified_ms


def _conditions(store: ObjectStore, key: str) -> Iterator[Result]:
    """Yield the results about writes whose condition does not hold."""
    subject = store.name_of(key)
    if isinstance(store, ConditionalStore):
        why_not = _broken_condition(store, key)
    else:
        is_broken = not store.create(key, _BODY) or store.create(key, _BODY)
        why_not = "an object was created although it existed, or not created" if is_broken else None
    if why_not is not None:
        yield fault(Check.STORE_CONDITIONS, subject, why_not)
        if isinstance(store, ConditionalStore):
            yield fault(Check.STORE_LEASE, subject, f"conditional writes do not work: {why_not}")
        return
    yield ok(Check.STORE_CONDITIONS, subject, "of two writes on the same condition, one was refused")
    if isinstance(store, ConditionalStore) and not isinstance(store, LocalStore):
        yield ok(Check.STORE_LEASE, subject, "conditional writes keep a second run out")


def _broken_condition(store: ConditionalStore, key: str) -> str | None:
    """Return which refused write was carried out; None if the store refuses as it must."""
    first = store.put_if(key, _BODY, None)
    if first is None:
        return "a new object was not created (If-None-Match)"
    if store.put_if(key, _BODY, None) is not None:
        return "an object was created although it existed (If-None-Match is ignored)"
    second = store.put_if(key, _BODY + b"2\n", first)
    if second is None:
        return "an object that had not changed was not replaced (If-Match)"
    if store.put_if(key, _BODY + b"3\n", first) is not None:
        return "an object was replaced although it had changed (If-Match is ignored)"
    return None


def _remove(store: ObjectStore, key: str) -> TierctlError | None:
    """Delete the objects of a probe; return the first error, or None if they are deleted.

    Those that a probe surely writes are deleted also if the store refuses to list, or shows them late.
    """
    keys, left = {key: None, f"{key}{_CONDITION}": None}, list[str]()
    try:
        with suppress(AuthenticationError, StoreRefused):
            keys |= {each.key: None for each in store.list_objects(key)}
        errors = store.delete([*keys])
        if errors:
            return next(iter(errors.values()))
        with suppress(AuthenticationError, StoreRefused):
            left = [each.key for each in store.list_objects(key)]
    except TierctlError as e:
        return e
    return (
        RemoteStorageError(f"{store.name_of(left[0])} is still listed after its deletion") if left else None
    )


def _deleted(subject: str, error: TierctlError | None) -> Iterator[Result]:
    if error is None:
        yield ok(Check.STORE_DELETE, subject, "deleted it again")
    elif isinstance(error, AuthenticationError | StoreRefused) or "still listed" in error.message:
        yield fault(Check.STORE_DELETE, subject, f"{error.message}; the object is left")
    else:
        yield prevented(Check.STORE_DELETE, subject, error)
