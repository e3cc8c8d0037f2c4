"""Check what tierctl works with: clocks, rights, secrets, the state directory, log directories, executors."""

import os
import platform
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from shlex import quote
from typing import Self

import pyarrow as pa

import tierctl
from tierctl.checks.check import Result, fault, made, not_checked, ok, prevented
from tierctl.checks.registry import DoctorCheck
from tierctl.checks.settings import some_of
from tierctl.errors import AuthenticationError, TierctlError
from tierctl.files import exists, is_dir, is_file, user_name, why_distrusted, why_folder_distrusted
from tierctl.kafka.client_settings import Right
from tierctl.locallog import read_log_dirs
from tierctl.locallog.folders import (
    is_file_for_brokers,
    list_log_files,
    parse_partition_folder,
    require_log_dirs,
)
from tierctl.model import TopicPartition
from tierctl.model.choices import Severity
from tierctl.model.events import INTERNAL_TOPICS, writer_text
from tierctl.model.selection import counted
from tierctl.model.settings.known import holds_secret
from tierctl.model.times import iso_utc
from tierctl.plan.steps import CLOCK_SKEW_MS_MAX
from tierctl.report.table import bytes_text
from tierctl.state.log_start import unreadable_of
from tierctl.state.tier_state import TierState
from tierctl.storage.index_cache import cached_by_broker

WARN_MS = 30_000
"""A larger difference is no coincidence: synchronized clocks differ by less than a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A clock that was read between two readings of this machine's clock; all in milliseconds since 1970."""

    before_ms: int
    clock_ms: int
    after_ms: int

    @property
    def ahead_ms(self) -> int:
        """How far the clock is ahead of this machine's, at least; negative if it is behind, 0 if unclear."""
        if self.clock_ms > self.after_ms:
            return self.clock_ms - self.after_ms
        return min(self.clock_ms - self.before_ms, 0)


def read_clock(read_ms: Callable[[], int], own_ms: Callable[[], int], *, unit_ms: int = 1) -> Reading:
    """Read a clock whose time is rounded down to `unit_ms`, and `own_ms`, this machine's, around it."""
    before_ms = own_ms()
    clock_ms = read_ms()
    return Reading(before_ms=before_ms - unit_ms, clock_ms=clock_ms, after_ms=own_ms())


def check_clock(check: DoctorCheck, subject: str, reading: Reading) -> Iterator[Result]:
    """Yield the result about one clock."""
    ahead_ms = reading.ahead_ms
    if abs(ahead_ms) <= WARN_MS:
        yield ok(check, subject, f"differs by less than {WARN_MS // 1000} s from this machine's clock")
        return
    side = "ahead of" if ahead_ms > 0 else "behind"
    found = (
        f"{abs(ahead_ms) / 1000:.0f} s {side} this machine's clock: "
        f"{iso_utc(reading.clock_ms)}, and {iso_utc(reading.after_ms)} here"
    )
    severity = Severity.ERROR if abs(ahead_ms) > CLOCK_SKEW_MS_MAX else Severity.WARNING
    yield fault(check, subject, found, severity=severity)


def check_controller_clock(
    read: Callable[[], tuple[int, int]], own_ms: Callable[[], int]
) -> Iterator[Result]:
    """Yield the result about the active controller, whose id and clock `read` returns."""
    ids: list[int] = []

    def read_ms() -> int:
        controller, clock_ms = read()
        ids.append(controller)
        return clock_ms

    reading = read_clock(read_ms, own_ms)
    yield from check_clock(DoctorCheck.CONTROLLER_CLOCK, f"controller {ids[0]}", reading)


def check_event_clock(
    writers_ms: Mapping[int, int], now_ms: int, unusable: TierctlError | None = None
) -> Iterator[Result]:
    """Yield the results about brokers whose last event has a time after `now_ms`.

    `writers_ms` has the time of the last event of each broker that wrote after `now_ms`, and `unusable` is
    the error of an event that can't be used, whose time is not known.
    """
    is_good = True
    for broker_id, at_ms in sorted(writers_ms.items()):
        ahead_ms = at_ms - now_ms
        if ahead_ms > WARN_MS:
            is_good = False
            found = f"its last event is {ahead_ms / 1000:.0f} s in the future: {iso_utc(at_ms)}"
            severity = Severity.ERROR if ahead_ms > CLOCK_SKEW_MS_MAX else Severity.WARNING
            yield fault(DoctorCheck.EVENT_CLOCK, writer_text(broker_id), found, severity=severity)
    if unusable is not None:
        yield prevented(DoctorCheck.EVENT_CLOCK, "", unusable)
    elif is_good:
        yield ok(DoctorCheck.EVENT_CLOCK, "", "no event of the metadata topic has a time in the future")


_UNREPORTED = "the brokers report no rights"


@dataclass(frozen=True, slots=True)
class Needed:
    """An operation that some commands need; `severity` is that of a login without the right."""

    operation: str
    commands: str
    severity: Severity


ON_METADATA_TOPIC = (
    Needed("Describe", "all commands", Severity.ERROR),
    Needed("Read", "all commands", Severity.ERROR),
    Needed("Write", "copy, sweep, delete and apply", Severity.WARNING),
)
ON_TOPICS = (
    Needed("Describe", "copy, sweep, verify and status", Severity.WARNING),
    Needed("DescribeConfigs", "copy and sweep", Severity.WARNING),
    Needed("Read", "sweep of topics with retention.bytes", Severity.WARNING),
    Needed("Delete", "sweep (DeleteRecords)", Severity.WARNING),
)
ON_CLUSTER = (
    Needed("DescribeConfigs", "copy, sweep and delete", Severity.WARNING),
    Needed("Describe", "sweep of topics with retention.bytes, and this check of the clock", Severity.WARNING),
)


def check_controller(
    ask: Callable[[], str | None], name: str, *, is_tiering: bool | None
) -> Iterator[Result]:
    """Yield the result about the controller; `ask` returns why it would refuse a new topic that is tiered."""
    try:
        refusal = ask()
    except AuthenticationError as e:
        yield not_checked(DoctorCheck.CONTROLLER_TIERS, name, e.message)
        return
    if refusal is None:
        yield ok(DoctorCheck.CONTROLLER_TIERS, name, "it would accept a tiered topic")
    elif is_tiering is False:
        yield ok(DoctorCheck.CONTROLLER_TIERS, name, "neither the brokers nor the controller tier")
    else:
        yield fault(DoctorCheck.CONTROLLER_TIERS, name, f"it refuses a tiered topic: {refusal}")


def check_rights(
    check: DoctorCheck,
    topic: str | None,
    operations: frozenset[str] | TierctlError,
    needed: Sequence[Needed],
) -> Iterator[Result]:
    """Yield the results about the cluster or a topic of it, given the operations that it allows."""
    subject = topic or ""
    if isinstance(operations, TierctlError):
        yield prevented(check, subject, operations)
        return
    if not operations:
        yield not_checked(check, subject, _UNREPORTED)
        return
    missing = [each for each in needed if each.operation not in operations]
    for each in missing:
        found = f"{each.operation} is not allowed; it is needed by {each.commands}"
        yield fault(check, subject, found, severity=each.severity, fix=Right(each.operation, topic).hint)
    if not missing:
        allowed = ", ".join(each.operation for each in needed)
        yield ok(check, subject, f"allowed: {allowed}")


def check_topic_rights(operations: Mapping[str, frozenset[str] | TierctlError]) -> Iterator[Result]:
    """Yield the results about user topics: one for each operation that some of them do not allow."""
    known: dict[str, frozenset[str]] = {}
    for topic, found in operations.items():
        if isinstance(found, TierctlError):
            yield prevented(DoctorCheck.TOPIC_RIGHTS, topic, found)
        elif found:
            known[topic] = found
    if not known:
        if not operations:
            yield ok(
                DoctorCheck.TOPIC_RIGHTS,
                "",
                "no topics to ask for; a login may not see topics without Describe",
            )
        elif not any(isinstance(each, TierctlError) for each in operations.values()):
            yield not_checked(DoctorCheck.TOPIC_RIGHTS, "", _UNREPORTED)
        return
    is_good = True
    for each in ON_TOPICS:
        lacking = [topic for topic, allowed in known.items() if each.operation not in allowed]
        if lacking:
            is_good = False
            found_text = (
                f"{each.operation} is not allowed on {some_of(lacking)}; it is needed by {each.commands}"
            )
            fix = Right(each.operation, lacking[0]).hint
            yield fault(DoctorCheck.TOPIC_RIGHTS, each.operation, found_text, severity=each.severity, fix=fix)
    if is_good:
        subject_text = counted(len(known), "topic allows/topics allow")
        allowed_text = ", ".join(each.operation for each in ON_TOPICS)
        yield ok(DoctorCheck.TOPIC_RIGHTS, "", f"{subject_text} {allowed_text}")


def is_reachable(path: Path) -> bool:
    """Return whether every user may enter all folders above `path`, a path without links."""
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in path.parents)


def replaceable_in(path: Path) -> Path | None:
    """Return the folder above `path` in which every user may replace entries; None if there is none.

    In a folder with the sticky bit, users may replace only their own entries.
    """
    for folder in path.parents:
        mode = folder.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX and is_reachable(folder):
            return folder
    return None


_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class SecretFile:
    """A file that tierctl reads; `holds` names the secret in it, None if there is none."""

    path: Path
    holds: str | None


def settings_files(path: Path, settings: Mapping[str, str]) -> Iterator[SecretFile]:
    """Yield the file with `settings`, and the key stores and key files that they name."""
    held = sorted(name for name, value in settings.items() if holds_secret(name, value))
    yield SecretFile(path, ", ".join(held[:3]) + (", …" if len(held) > 3 else "") if held else None)
    for name, value in sorted(settings.items()):
        if name.endswith(("keystore.location", ".private.key.file")):
            yield SecretFile(Path(value.strip()), name)


def profile_file(path: Path) -> SecretFile:
    """Return tierctl.toml, which contains a secret if a text in it has one, in a URI or as NAME=VALUE."""
    with path.open("rb") as file:
        texts = re.split(r"[\"'\n]", file.read(_BYTES_MAX).decode(errors="replace"))
    is_secret = any(holds_secret("", text) for text in texts)
    return SecretFile(path, "a secret, in a URI or a setting" if is_secret else None)


def check_secrets(files: Iterable[SecretFile]) -> Iterator[Result]:
    """Yield the results about the files, each once; files that do not exist, or can't be found, have none."""
    for path, holds in {each.path: each.holds for each in files}.items():
        if os.access(path, os.F_OK):
            yield from _of_file(path, holds)


def _of_file(path: Path, holds: str | None) -> Iterator[Result]:
    subject, real = str(path), path.resolve()
    mode = stat.S_IMODE(real.stat().st_mode)
    what = f"it holds {holds}" if holds else "it holds no secret"
    is_open = is_reachable(real)
    if mode & stat.S_IWOTH and is_open:
        yield fault(DoctorCheck.SECRETS, subject, f"every user may write it (mode {mode:04o}); {what}")
    elif (folder := replaceable_in(real)) is not None:
        yield fault(
            DoctorCheck.SECRETS, subject, f"every user may replace it, as {folder} can be written; {what}"
        )
    elif holds and mode & stat.S_IROTH and is_open:
        yield fault(DoctorCheck.SECRETS, subject, f"every user may read it (mode {mode:04o}); {what}")
    elif not os.access(real, os.R_OK):
        found = f"this user can't read it (mode {mode:04o}, owner {user_name(real.stat().st_uid)}); {what}"
        fix = "run the check as a user who may read the file, or correct its owner and mode"
        yield fault(DoctorCheck.SECRETS, subject, found, why="A run that needs the file fails.", fix=fix)
    elif mode & stat.S_IWGRP:
        found = f"its group may write it (mode {mode:04o}); {what}"
        yield fault(DoctorCheck.SECRETS, subject, found, severity=Severity.WARNING)
    elif (why := why_distrusted(real, sticky_folder=True)) is not None:
        yield fault(
            DoctorCheck.SECRETS, subject, f"others may change it: {why}; {what}", severity=Severity.WARNING
        )
    else:
        yield ok(DoctorCheck.SECRETS, subject, f"mode {mode:04o}; {what}")


SPARE_BYTES = 64 << 20
"""Free space that a run needs besides a second copy of the directory."""
_FILES_MIN = 1000


def check_state_dir_access(folder: Path) -> Iterator[Result]:
    """Yield the results about owner, mode and files of the directory."""
    subject = str(folder)
    if not exists(folder):
        yield from _missing(folder)
        return
    if not is_dir(folder):
        yield fault(
            DoctorCheck.STATE_DIR_ACCESS, subject, "is no folder", fix="name a folder, or remove the file"
        )
        return
    found = list(_faults(folder))
    yield from found
    if not found:
        mode = stat.S_IMODE(folder.stat().st_mode)
        yield ok(
            DoctorCheck.STATE_DIR_ACCESS,
            subject,
            f"can be written, mode {mode:04o}, owner {user_name(folder.stat().st_uid)}",
        )


def _missing(folder: Path) -> Iterator[Result]:
    above = next(each for each in folder.absolute().parents if exists(each))
    if os.access(above, os.W_OK | os.X_OK):
        yield ok(DoctorCheck.STATE_DIR_ACCESS, str(folder), "does not exist; the first run makes it")
    else:
        found = f"does not exist, and {above} can't be written"
        yield fault(
            DoctorCheck.STATE_DIR_ACCESS,
            str(folder),
            found,
            fix=f"make it: install -d -m 0700 {quote(str(folder))}",
        )


def _faults(folder: Path) -> Iterator[Result]:
    subject = str(folder)
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        found = f"can't be read and written by this user; its owner is {user_name(folder.stat().st_uid)}"
        yield fault(DoctorCheck.STATE_DIR_ACCESS, subject, found)
        return
    why = why_folder_distrusted(folder)
    if why is not None:
        yield fault(DoctorCheck.STATE_DIR_ACCESS, subject, f"others may change it, so it is not used: {why}")
    for file in sorted(folder.iterdir()):
        if not is_file(file):
            continue
        if not os.access(file, os.R_OK | os.W_OK):
            found = f"can't be read and written by this user; its owner is {user_name(file.stat().st_uid)}"
        elif why is None and (distrusted := why_distrusted(file)) is not None:
            found = f"others may change it, so it is not read: {distrusted}"
        else:
            continue
        yield fault(DoctorCheck.STATE_DIR_ACCESS, str(file), found)
        return


def check_state_dir_space(folder: Path) -> Iterator[Result]:
    """Yield the results about free space and free files of the disk with the directory."""
    subject = str(folder)
    there = next(each for each in (folder.absolute(), *folder.absolute().parents) if exists(each))
    disk = os.statvfs(there)
    if not os.access(there, os.R_OK | os.X_OK):
        yield not_checked(DoctorCheck.STATE_DIR_SPACE, subject, "its files can't be listed")
        return
    used = sum(file.stat().st_size for file in folder.iterdir() if is_file(file)) if is_dir(folder) else 0
    free, needed = disk.f_bavail * disk.f_frsize, used + SPARE_BYTES
    found = f"{bytes_text(free)} free; the directory has {bytes_text(used)}"
    if free < needed:
        yield fault(DoctorCheck.STATE_DIR_SPACE, subject, f"{found}, so a run needs {bytes_text(needed)}")
    elif disk.f_files and disk.f_favail < _FILES_MIN:
        yield fault(
            DoctorCheck.STATE_DIR_SPACE, subject, f"only {disk.f_favail} more files (inodes) fit on the disk"
        )
    else:
        yield ok(DoctorCheck.STATE_DIR_SPACE, subject, found)


@dataclass(slots=True)
class _Seen:
    partitions: int = 0
    segments: int = 0


def check_log_dir(folder: Path, select: Callable[[TopicPartition], bool]) -> Iterator[Result]:
    """Yield the results about one log directory; `select` says which partitions matter."""
    subject = str(folder)
    why, fix = _why_unusable(folder)
    if why is not None:
        yield fault(DoctorCheck.LOG_DIR_ACCESS, subject, why, fix=fix)
        yield not_checked(DoctorCheck.LOG_SNAPSHOTS, subject, why)
        return
    seen, found_bad = _Seen(), set()
    for partition in sorted(folder.iterdir()):
        name = parse_partition_folder(partition.name)
        if name is None or name.topic in INTERNAL_TOPICS or not select(name):
            continue
        if is_file_for_brokers(partition):
            continue
        seen.partitions += 1
        # One log that is not understood does not keep the others from being examined.
        for result in made(
            [DoctorCheck.LOG_SNAPSHOTS], str(partition), partial(_of_partition, partition, seen)
        ):
            found_bad.add(result.check)
            yield result
    if DoctorCheck.LOG_DIR_ACCESS not in found_bad:
        found = "can be read" if seen.partitions else "to read"
        yield ok(DoctorCheck.LOG_DIR_ACCESS, subject, f"{counted(seen.partitions, 'partition')} {found}")
    if DoctorCheck.LOG_SNAPSHOTS not in found_bad:
        found = counted(seen.segments, "rolled segment")
        found += ", each with its producer snapshot" if seen.segments else ": no producer snapshot is needed"
        yield ok(DoctorCheck.LOG_SNAPSHOTS, subject, found)


def _why_unusable(folder: Path) -> tuple[str, str | None] | tuple[None, None]:
    """Return why other commands refuse a log directory, whose name may be mistyped, and their hint."""
    if is_dir(folder) and not os.access(folder, os.R_OK | os.X_OK):
        return "can't be read by this user", None
    try:
        require_log_dirs([folder])
    except TierctlError as e:
        return e.message, e.hint
    return None, None


def check_index_cache(folder: Path) -> Iterator[Result]:
    """Yield the results about the indexes of remote segments that a broker keeps in its log directory."""
    why, _ = _why_unusable(folder)
    if why is not None:
        yield not_checked(DoctorCheck.INDEX_CACHE, str(folder), why)
        return
    count, is_good = 0, True
    for file, wrong in cached_by_broker(folder):
        count += 1
        if wrong is not None:
            is_good = False
            yield fault(DoctorCheck.INDEX_CACHE, str(file), wrong)
    if is_good:
        yield ok(DoctorCheck.INDEX_CACHE, str(folder), counted(count, "cached index/cached indexes"))


def _of_partition(partition: Path, seen: _Seen) -> Iterator[Result]:
    if unreadable := _unreadable(partition):
        why = "can't be read by this user" if exists(unreadable) else "is a link that leads nowhere"
        yield fault(DoctorCheck.LOG_DIR_ACCESS, str(unreadable), why)
    else:
        yield from _without_snapshot(partition, seen)


def _unreadable(partition: Path) -> Path | None:
    """Return the folder, or the first file in it, that can't be read; None if all can be."""
    if not is_dir(partition) or not os.access(partition, os.R_OK | os.X_OK):
        return partition
    files = (file for file in sorted(partition.iterdir()) if is_file(file))
    return next((file for file in files if not os.access(file, os.R_OK)), None)


def _without_snapshot(partition: Path, seen: _Seen) -> Iterator[Result]:
    """Yield the result about the first rolled segment of a partition without the snapshot at its end."""
    files = list_log_files(partition)
    segments, snapshots = files.segments, files.snapshots
    is_found = False
    for segment, following in pairwise(segments):
        if following.base_offset in snapshots:
            seen.segments += 1
        elif not is_found:
            is_found = True
            name = f"{following.base_offset:020d}.snapshot"
            found = f"segment {segment.base_offset:020d}.log is rolled, and {name} does not exist"
            yield fault(DoctorCheck.LOG_SNAPSHOTS, str(partition), found)


SEGMENT_BYTES = 1 << 30
"""The default of segment.bytes: the space that one task needs for a segment."""
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """The versions that driver and executors must share; `python` is major and minor."""

    python: str
    tierctl: str
    pyarrow: str
    numba: str | None

    @classmethod
    def here(cls) -> Self:
        """Return the versions of this process."""
        python = ".".join(platform.python_version_tuple()[:2])
        numba = None
        with suppress(PackageNotFoundError):
            numba = version("numba")
        return cls(python=python, tierctl=tierctl.__version__, pyarrow=pa.__version__, numba=numba)

    def __str__(self) -> str:
        """Return the versions as text."""
        numba = "no numba" if self.numba is None else f"numba {self.numba}"
        return f"Python {self.python}, tierctl {self.tierctl}, pyarrow {self.pyarrow}, {numba}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorFacts:
    """What one task found on its executor.

    `scratch` is the folder for temporary files, and `free_bytes` its free space; `scratch_error` states why
    no file can be written there.
    """

    versions: Versions
    scratch: str
    free_bytes: int = 0
    scratch_error: str | None = None


def check_versions(found: Mapping[str, Sequence[ExecutorFacts]], own: Versions) -> Iterator[Result]:
    """Yield the results about the versions on each host; `own` are those of the driver."""
    yield from joined(
        (host, _of_versions(versions, own))
        for host, tasks in found.items()
        for versions in dict.fromkeys(each.versions for each in tasks)
    )


def _of_versions(versions: Versions, own: Versions) -> Result:
    check = DoctorCheck.SPARK_PYTHON
    if (versions.python, versions.tierctl) != (own.python, own.tierctl):
        return fault(check, "", f"{versions}; the driver has {own}")
    if versions.pyarrow != own.pyarrow:
        why = "Results come from executors in pyarrow's format; tierctl is tested with one version on all."
        found = f"{versions}; the driver has pyarrow {own.pyarrow}"
        return fault(check, "", found, severity=Severity.WARNING, why=why)
    if own.numba not in (None, versions.numba):
        why = (
            "Executors decode and fold by compiled loops, and many times as slowly without numba; tierctl is "
            "tested with one version on all."
        )
        found = f"{versions}; the driver has numba {own.numba}"
        return fault(check, "", found, severity=Severity.WARNING, why=why)
    return ok(check, "", str(versions))


def check_scratch(found: Mapping[str, Sequence[ExecutorFacts]]) -> Iterator[Result]:
    """Yield the results about the folders for temporary files, of which the tasks of a host share one."""
    results = []
    for host, tasks in found.items():
        for folder in dict.fromkeys(each.scratch for each in tasks):
            sharing = [each for each in tasks if each.scratch == folder]
            results.append((host, _of_scratch(folder, sharing)))
    yield from joined(results)


def _of_scratch(folder: str, sharing: Sequence[ExecutorFacts]) -> Result:
    check = DoctorCheck.SPARK_SCRATCH
    error = next((each.scratch_error for each in sharing if each.scratch_error is not None), None)
    if error is not None:
        return fault(check, "", f"{folder} can't be written: {error}")
    free_bytes = min(each.free_bytes for each in sharing)
    tasks = counted(len(sharing), "task")
    if free_bytes < SEGMENT_BYTES * len(sharing):
        found = f"{folder} has {bytes_text(free_bytes)} free for segments of {tasks} at a time"
        return fault(check, "", found, severity=Severity.WARNING)
    return ok(check, "", f"{folder} has room for segments of {tasks} at a time")


def check_reached(check: DoctorCheck, found: Iterable[tuple[str, str | TierctlError]]) -> Iterator[Result]:
    """Yield the results about one source, given host and finding of each task."""
    yield from joined(
        (host, fault(check, "", each.message, fix=each.hint))
        if isinstance(each, TierctlError)
        else (host, ok(check, "", each))
        for host, each in found
    )


def joined(results: Iterable[tuple[str, Result]]) -> Iterator[Result]:
    """Yield each different result once, with the hosts on which it was found as subject."""
    hosts: dict[Result, dict[str, None]] = {}
    for host, result in results:
        hosts.setdefault(result, {})[host] = None
    for result, named in hosts.items():
        yield replace(result, subject=hosts_text([*named]))


def hosts_text(hosts: Sequence[str]) -> str:
    """Return `executor a`, or the number of hosts and the first of them: `executors on 2 hosts: a, b`."""
    shown = ", ".join(hosts[:_SHOWN]) + (", …" if len(hosts) > _SHOWN else "")
    return f"executor {shown}" if len(hosts) == 1 else f"executors on {len(hosts)} hosts: {shown}"


def check_leader_epochs(
    folder: Path,
    select: Callable[[TopicPartition], bool],
    state: TierState,
    unusable: TierctlError | None = None,
) -> Iterator[Result]:
    """Yield a result for each replica in a log directory whose checkpoint was cut; `state` is the tier's.

    `unusable` is the error of an event that can't be used: the tier may have leader epochs that the state has
    not.
    """
    unreadable: list[tuple[Path, TierctlError]] = []
    logs = read_log_dirs([folder], select=select, on_error=lambda *found: unreadable.append(found))
    for where, error in unreadable:
        yield prevented(DoctorCheck.LEADER_EPOCHS, str(where), error)
    is_good = True
    for log in logs:
        part = state.partition(log.topic_id_partition)
        cut = None if part is None else unreadable_of(log, part.segments)
        if cut is not None:
            is_good = False
            yield fault(DoctorCheck.LEADER_EPOCHS, str(log.directory), str(cut))
    if unusable is not None:
        yield prevented(DoctorCheck.LEADER_EPOCHS, str(folder), unusable)
    elif is_good:
        found = f"{counted(len(logs), 'replica has/replicas have')} the leader epochs of the tier"
        found += " from the log start on"
        yield ok(DoctorCheck.LEADER_EPOCHS, str(folder), found)
