"""No broker beside us on the log directories; other runs of tierctl are kept out by the metadata's writer."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tierctl.files import broker_kept_out


@contextmanager
def fenced(log_dirs: Sequence[Path]) -> Iterator[None]:
    """Keep brokers from running on `log_dirs` meanwhile; SafetyRefusal when one does already."""
    with ExitStack() as held:
        for folder in dict.fromkeys(log_dir.resolve() for log_dir in log_dirs):
            held.enter_context(broker_kept_out(folder))
        yield
