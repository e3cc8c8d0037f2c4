"""Exclude brokers from log directories that decide deletes, and other tierctl runs from the tier.

A copy excludes no broker from the directories that it reads (`plan.fencing`). A metadata topic in a folder
excludes other writers by its own lock, also a broker.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tierctl.apply.stop import Stop
from tierctl.files import broker_kept_out
from tierctl.locallog import is_locked
from tierctl.metadata.topic.folder import partitions_in
from tierctl.model.progress import WAITS, Progress
from tierctl.plan.safety import RunningBroker
from tierctl.storage.base import RemoteStorageManager
from tierctl.storage.lease import Lease, ObjectLease, open_lease

_WRITTEN_HINT = (
    "files in this directory are written: stop the broker, or leave the directory out; no option overrides "
    "this check"
)
_DECIDING_HINT = (
    "deletes are decided from the log start and the leader epochs in this directory, which a running broker "
    "changes: name the broker's cluster with --bootstrap-server, which then decides, or stop the broker; "
    "--allow-live-brokers overrides this check"
)


@contextmanager
def brokers_kept_out(log_dirs: Sequence[Path], *, are_written: bool = False) -> Iterator[None]:
    """Prevent brokers from starting on `log_dirs` during the block.

    Raise SafetyRefusal if a broker already runs on one of them. `are_written` selects its hint: whether the
    run writes files there, or only decides from them what is deleted.
    """
    hint = _WRITTEN_HINT if are_written else _DECIDING_HINT
    with ExitStack() as held:
        for folder in dict.fromkeys(log_dir.resolve() for log_dir in log_dirs):
            held.enter_context(broker_kept_out(folder, hint=hint))
        yield


def running_brokers(log_dirs: Iterable[Path]) -> tuple[RunningBroker, ...]:
    """Return the brokers that run on these log directories now."""
    return tuple(
        RunningBroker(log_dir=log_dir, metadata_partitions=partitions_in(log_dir))
        for log_dir in log_dirs
        if log_dir.is_dir() and is_locked(log_dir)
    )


@contextmanager
def leased(
    remote: RemoteStorageManager | None,
    stop: Stop,
    progress: Progress,
    *,
    is_optional: bool = False,
) -> Iterator[Lease | None]:
    """Hold the lease of the tier during the block; yield None if `remote` is None.

    Raise LockedError if another tierctl holds the lease. If the store supports no lease, yield None if the
    lease `is_optional`; otherwise raise SafetyRefusal; if only its writes show that, `progress` warns what
    is lost. Once the lease is lost or uncertain, `stop` ends the run before its next side effect.
    """
    lease = None if remote is None else open_lease(remote, is_optional=is_optional)
    if lease is None:
        yield None
        return
    with ExitStack() as held:
        with WAITS.waiting("taking the lease of the tier"):
            held.enter_context(lease)
        if isinstance(lease, ObjectLease) and lease.why_without is not None:
            progress.warn(lease.why_without)
        stop.guard(lease.is_lost)
        yield lease
