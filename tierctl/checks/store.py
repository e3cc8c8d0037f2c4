"""Check the permissions, features and lifecycle rules of a store; a probe writes two small objects."""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from tierctl.checks.check import Examination, Result, fault, not_checked, ok, prevented
from tierctl.checks.environment import check_clock, read_clock
from tierctl.checks.registry import DoctorCheck
from tierctl.errors import (
    AuthenticationError,
    ConditionsRefused,
    NotFoundError,
    RemoteStorageError,
    RemoteTierMissing,
    StoreRefused,
    StoreWriteFailed,
    TierctlError,
)
from tierctl.files import is_dir
from tierctl.model.choices import Severity
from tierctl.model.selection import counted
from tierctl.model.times import iso_utc
from tierctl.storage.remote_storage_manager import RemoteStorageManager
from tierctl.storage.stores.base import (
    ARCHIVE_CLASSES,
    ConditionalStore,
    InspectableStore,
    LifecycleRule,
    ObjectStore,
    Versioning,
)
from tierctl.storage.stores.local_store import LocalStore

_DAY_MS = 24 * 60 * 60 * 1000
_PROBE = "only writing shows it: add --probe-writes"
_UNKNOWN = "the store does not implement the question"
REFUSALS = (AuthenticationError, NotFoundError, RemoteTierMissing, StoreRefused)


def examine_store(
    examination: Examination, tier: RemoteStorageManager, clock_ms: Callable[[], int], *, is_probed: bool
) -> None:
    """Make the checks of a store that read only; those that only writing can make, unless `is_probed`."""
    store, subject = tier.store, tier.store.name_of("")
    examination.make([DoctorCheck.STORE_LIST], subject, lambda: check_list(store))
    examination.make([DoctorCheck.STORE_READ], subject, lambda: check_read(tier, is_probed=is_probed))
    examination.make([DoctorCheck.STORE_LEASE], subject, lambda: check_lease(store, is_probed=is_probed))
    if not is_probed:
        examination.make(
            [DoctorCheck.STORE_WRITE, DoctorCheck.STORE_DELETE], subject, lambda: check_write_access(store)
        )
        unknown = not_checked(DoctorCheck.STORE_CONDITIONS, subject, _PROBE)
        examination.make([DoctorCheck.STORE_CONDITIONS], subject, lambda: [unknown])
    if isinstance(store, InspectableStore):
        bucket = store
        examination.make([DoctorCheck.STORE_CLOCK], subject, lambda: _clock(bucket, subject, clock_ms))
        examination.make([DoctorCheck.STORE_VERSIONING], subject, lambda: check_versioning(bucket, subject))
        examination.make([DoctorCheck.STORE_LIFECYCLE], subject, lambda: check_lifecycle(bucket, subject))
        examination.make(
            [DoctorCheck.STORE_UPLOADS], subject, lambda: check_uploads(bucket, subject, clock_ms())
        )
        return
    what = "a folder" if isinstance(store, LocalStore) else "this kind of store"
    unreported = (DoctorCheck.STORE_VERSIONING, DoctorCheck.STORE_LIFECYCLE, DoctorCheck.STORE_UPLOADS)
    none = [not_checked(check, subject, f"{what} does not report it") for check in unreported]
    examination.make(unreported, subject, lambda: none)


def check_list(store: ObjectStore) -> Iterator[Result]:
    """Yield the results of listing the top folder of the store, and of a local one the folders in it."""
    subject = store.name_of("")
    try:
        found = store.list_folder("")
    except REFUSALS as e:
        yield fault(DoctorCheck.STORE_LIST, subject, e.message, fix=e.hint)
        return
    unlisted = [] if not isinstance(store, LocalStore) else _without(os.R_OK | os.X_OK, store.root)
    if unlisted:
        count = counted(len(unlisted), "folder")
        yield fault(
            DoctorCheck.STORE_LIST,
            str(unlisted[0]),
            f"{count} can't be listed by this user; this is the first",
            fix="see its owner and mode",
        )
        return
    names = f"{counted(len(found.folders), 'folder')} and {counted(len(found.objects), 'object')}"
    yield ok(DoctorCheck.STORE_LIST, subject, f"listed the top folder: {names}")


def check_read(tier: RemoteStorageManager, *, is_probed: bool) -> Iterator[Result]:
    """Yield the result of reading the first byte of the first object in the tier.

    In a tier without objects, nothing is yielded if the store is probed: the probe reads the object that it
    writes.
    """
    subject = tier.store.name_of("")
    key = next((each.key for each in tier.list_objects() if each.problem is None and each.size_bytes), None)
    if key is None and is_probed:
        return
    if key is None:
        yield not_checked(DoctorCheck.STORE_READ, subject, f"the tier has no object to read; {_PROBE}")
        return
    try:
        with tier.store.open(key, 0, 1) as stream:
            stream.read()
    except REFUSALS as e:
        yield fault(DoctorCheck.STORE_READ, tier.store.name_of(key), e.message, fix=e.hint)
        return
    yield ok(DoctorCheck.STORE_READ, subject, f"read the first byte of {key}")


def check_write_access(store: ObjectStore) -> Iterator[Result]:
    """Yield results about permissions to write and delete, without writing: from the mode of a folder."""
    subject = store.name_of("")
    for check in (DoctorCheck.STORE_WRITE, DoctorCheck.STORE_DELETE):
        if not isinstance(store, LocalStore):
            yield not_checked(check, subject, _PROBE)
        elif not is_dir(store.root):
            yield not_checked(check, subject, "the folder does not exist; the first copy makes it")
        elif refused := _without(os.W_OK | os.X_OK, store.root):
            yield fault(
                check, subject, f"{refused[0]} can't be written by this user", fix="see its owner and mode"
            )
        else:
            yield ok(check, subject, "by their modes, the folder and those in it can be written")


_LEVELS = 4
"""Levels of folders below a tier's: Aiven's layout has the prefix of keys, a topic's and a partition's."""


def _without(rights: int, root: Path) -> list[Path]:
    """Return the folders from `root` down to `_LEVELS` on which this user lacks some of `rights`."""
    lacking: list[Path] = []
    folders = [root]
    for _ in range(_LEVELS):
        lacking += (each for each in folders if not os.access(each, rights))
        listed = (each for each in folders if os.access(each, os.R_OK | os.X_OK))
        folders = [Path(each) for folder in listed for each in sorted(_folders_in(folder))]
    return lacking


def _folders_in(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.path for entry in entries if entry.is_dir()]


def check_lease(store: ObjectStore, *, is_probed: bool) -> Iterator[Result]:
    """Yield the result about leases; the lease of an object store depends on its conditional writes."""
    subject = store.name_of("")
    if isinstance(store, LocalStore):
        yield from _lock_of_folder(store.root)
    elif not isinstance(store, ConditionalStore):
        yield fault(DoctorCheck.STORE_LEASE, subject, "tierctl has no lease for this kind of store")
    elif not is_probed:
        yield not_checked(DoctorCheck.STORE_LEASE, subject, f"it needs conditional writes; {_PROBE}")


def _lock_of_folder(root: Path) -> Iterator[Result]:
    """Yield whether the file system has locks; another folder than the tier's is locked, for a moment."""
    folder = _beside(root)
    if folder is None:
        yield not_checked(
            DoctorCheck.STORE_LEASE, str(root), "there is no folder in it whose lock can be tried"
        )
        return
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        pass
    except OSError as e:
        found = f"{folder} can't be locked: {e.strerror or errno.errorcode[e.errno or 0]}"
        yield fault(DoctorCheck.STORE_LEASE, str(root), found)
        return
    finally:
        os.close(fd)
    yield ok(DoctorCheck.STORE_LEASE, str(root), "its file system has locks")


def _beside(root: Path) -> Path | None:
    """Return a folder in `root` on the same file system; the lock of `root` itself belongs to the lease."""
    with suppress(OSError):
        device = root.stat().st_dev
        return next(
            (each for each in sorted(root.iterdir()) if is_dir(each) and each.stat().st_dev == device), None
        )
    return None


def _clock(bucket: InspectableStore, subject: str, clock_ms: Callable[[], int]) -> Iterator[Result]:
    return check_clock(DoctorCheck.STORE_CLOCK, subject, read_clock(bucket.clock_ms, clock_ms, unit_ms=1000))


def check_versioning(bucket: InspectableStore, subject: str) -> Iterator[Result]:
    """Yield the result about versions of deleted objects, which a lifecycle rule may remove."""
    versioning = bucket.versioning()
    if versioning is None:
        yield not_checked(DoctorCheck.STORE_VERSIONING, subject, _UNKNOWN)
        return
    if versioning is not Versioning.ENABLED:
        yield ok(DoctorCheck.STORE_VERSIONING, subject, f"versioning is {versioning}")
        return
    # A rule for a part of the tier leaves the versions in the other parts.
    rules = [each for each in bucket.lifecycle_rules() or () if bucket.folder.startswith(each.prefix)]
    removing = [each for each in rules if each.expires_noncurrent and not each.is_filtered]
    if removing:
        found = f"versioning is enabled, and rule {removing[0].name} removes noncurrent versions"
        yield ok(DoctorCheck.STORE_VERSIONING, subject, found)
    else:
        found = "versioning is enabled, and no lifecycle rule removes noncurrent versions of all objects"
        yield fault(DoctorCheck.STORE_VERSIONING, subject, found)


def check_lifecycle(bucket: InspectableStore, subject: str) -> Iterator[Result]:
    """Yield the results about rules that delete or archive objects of the tier."""
    all_rules = bucket.lifecycle_rules()
    if all_rules is None:
        yield not_checked(DoctorCheck.STORE_LIFECYCLE, subject, _UNKNOWN)
        return
    rules = _covering(all_rules, bucket.folder)
    is_good = True
    for rule in rules:
        archives = sorted(ARCHIVE_CLASSES.intersection(rule.transitions))
        does = [f"deletes objects after {rule.expires_after}"] if rule.expires_after else []
        does += [f"moves objects to {', '.join(archives)}"] if archives else []
        if does:
            is_good = False
            limits = ", if they have certain tags or sizes" if rule.is_filtered else ""
            found = f"rule {rule.name} of prefix {rule.prefix!r} {' and '.join(does)}{limits}"
            severity = Severity.WARNING if rule.is_filtered else Severity.ERROR
            yield fault(DoctorCheck.STORE_LIFECYCLE, subject, found, severity=severity)
    if is_good:
        found = f"{counted(len(rules), 'rule')} for the tier's folder; none deletes or archives objects"
        yield ok(DoctorCheck.STORE_LIFECYCLE, subject, found)


def _covering(rules: Sequence[LifecycleRule], folder: str) -> list[LifecycleRule]:
    """Return the rules whose prefix matches objects of `folder`."""
    return [each for each in rules if folder.startswith(each.prefix) or each.prefix.startswith(folder)]


def check_uploads(bucket: InspectableStore, subject: str, now_ms: int) -> Iterator[Result]:
    """Yield the result about unfinished uploads; those of the last day may be under way."""
    begun = [(each.begun_ms, each.key) for each in bucket.unfinished_uploads()]
    old = sorted(each for each in begun if each[0] < now_ms - _DAY_MS)
    if old:
        at_ms, key = old[0]
        found = f"{counted(len(old), 'unfinished upload')}, the oldest of {iso_utc(at_ms)} to {key}"
        yield fault(DoctorCheck.STORE_UPLOADS, subject, found)
    else:
        found = f"{counted(len(begun), 'unfinished upload')}, none older than a day"
        yield ok(DoctorCheck.STORE_UPLOADS, subject, found)


_BODY = b"written by tierctl doctor --probe-writes; may be deleted\n"
_CONDITION = "-condition"
_CHECKS = (
    DoctorCheck.STORE_WRITE,
    DoctorCheck.STORE_READ,
    DoctorCheck.STORE_CONDITIONS,
    DoctorCheck.STORE_LEASE,
    DoctorCheck.STORE_CLOCK,
    DoctorCheck.STORE_DELETE,
)


def probe_store(examination: Examination, tier: RemoteStorageManager, clock_ms: Callable[[], int]) -> None:
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
        yield ok(DoctorCheck.STORE_WRITE, subject, f"stored an object of {len(_BODY)} bytes")
        yield ok(DoctorCheck.STORE_READ, subject, "read the object that was stored")
        if not isinstance(store, InspectableStore):
            yield from check_clock(DoctorCheck.STORE_CLOCK, store.name_of(""), reading)
        written.doing = DoctorCheck.STORE_CONDITIONS
        yield from _conditions(store, f"{key}{_CONDITION}")
    except ConditionsRefused as e:
        yield fault(DoctorCheck.STORE_CONDITIONS, subject, e.message)
        yield fault(DoctorCheck.STORE_LEASE, subject, f"the store has no conditional writes: {e.message}")
    except (AuthenticationError, StoreRefused, StoreWriteFailed) as e:
        yield fault(written.doing, subject, e.message, fix=e.hint)
    finally:
        left = _remove(store, key)
    if written.doing is not DoctorCheck.STORE_WRITE or left is not None:
        yield from _deleted(subject, left)


@dataclass(slots=True)
class _Written:
    """The object of a probe; `doing` is the check whose request is sent."""

    store: ObjectStore
    key: str
    doing: DoctorCheck = DoctorCheck.STORE_WRITE

    def at_ms(self) -> int:
        """Store the object, compare it with what was stored, and return its time of modification."""
        self.store.put_all({self.key: _BODY})
        self.doing = DoctorCheck.STORE_READ
        with self.store.open(self.key) as stream:
            if stream.read() != _BODY:
                raise RemoteStorageError(f"{self.store.name_of(self.key)} differs from the stored bytes")
        self.doing = DoctorCheck.STORE_LIST
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
        yield fault(DoctorCheck.STORE_CONDITIONS, subject, why_not)
        if isinstance(store, ConditionalStore):
            yield fault(DoctorCheck.STORE_LEASE, subject, f"conditional writes do not work: {why_not}")
        return
    yield ok(DoctorCheck.STORE_CONDITIONS, subject, "of two writes on the same condition, one was refused")
    if isinstance(store, ConditionalStore) and not isinstance(store, LocalStore):
        yield ok(DoctorCheck.STORE_LEASE, subject, "conditional writes keep a second run out")


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
        yield ok(DoctorCheck.STORE_DELETE, subject, "deleted it again")
    elif isinstance(error, AuthenticationError | StoreRefused) or "still listed" in error.message:
        yield fault(DoctorCheck.STORE_DELETE, subject, f"{error.message}; the object is left")
    else:
        yield prevented(DoctorCheck.STORE_DELETE, subject, error)
