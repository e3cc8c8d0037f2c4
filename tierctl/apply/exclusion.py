"""Exclude brokers from the log directories, and other tierctl runs from the tier.

A metadata topic in a folder excludes other writers by its own lock.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tierctl.apply.stop import Stop
from tierctl.files import broker_kept_out
from tierctl.storage.base import RemoteStorageManager
from tierctl.storage.lease import Lease, open_lease


@contextmanager
def fenced(log_dirs: Sequence[Path]) -> Iterator[None]:
    """Prevent brokers from starting on `log_dirs` during the block.

    Raise SafetyRefusal if a broker already runs on one of them.
    """
    with ExitStack() as held:
        for folder in dict.fromkeys(log_dir.resolve() for log_dir in log_dirs):
            held.enter_context(broker_kept_out(folder))
        yield


@contextmanager
def leased(remote: RemoteStorageManager, stop: Stop, *, is_optional: bool = False) -> Iterator[Lease | None]:
    """Hold the lease of the tier during the block.

    Raise LockedError if another tierctl holds the lease. If the store supports no lease, yield None if the
    lease `is_optional`; otherwise raise SafetyRefusal. Once the lease is lost or uncertain, `stop` ends the
    run before its next side effect.
    """
    lease = open_lease(remote, is_optional=is_optional)
    if lease is None:
        yield None
        return
    with lease:
        stop.guard(lease.is_lost)
        yield lease
