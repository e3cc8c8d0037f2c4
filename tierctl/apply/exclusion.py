"""No broker beside us on the log directories, and no other tierctl on the tier.

Where metadata are in a folder their writer keeps other runs out, too.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tierctl.apply.stop import Stop
from tierctl.files import broker_kept_out
from tierctl.storage.base import RemoteStorageManager
from tierctl.storage.lease.folder import FolderLease
from tierctl.storage.lease.object import Lease, lease_of


@contextmanager
def fenced(log_dirs: Sequence[Path]) -> Iterator[None]:
    """Keep brokers from running on `log_dirs` meanwhile; SafetyRefusal when one does already."""
    with ExitStack() as held:
        for folder in dict.fromkeys(log_dir.resolve() for log_dir in log_dirs):
            held.enter_context(broker_kept_out(folder))
        yield


@contextmanager
def leased(remote: RemoteStorageManager, stop: Stop) -> Iterator[Lease | FolderLease | None]:
    """Be the only tierctl that changes this tier, where its store can tell; LockedError else.

    Once that is not certain any more, `stop` is asked before the next side effect.
    """
    lease = lease_of(remote)
    if lease is None:
        yield None
        return
    with lease:
        stop.guard(lease.is_lost)
        yield lease
