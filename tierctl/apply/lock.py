"""Who may change things: one tierctl at a time, and no broker beside it."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tierctl.files import broker_kept_out, exclusive


@contextmanager
def fenced(*, state_dir: Path | None, log_dirs: Sequence[Path] = ()) -> Iterator[None]:
    """Hold the state directory's lock and keep brokers from starting on `log_dirs` meanwhile.

    The metadata folder is fenced by whoever opens it for writing. Raises LockedError when another
    tierctl holds the state directory, SafetyRefusal when a broker runs on one of `log_dirs`.
    """
    with ExitStack() as held:
        if state_dir is not None:
            state_dir.mkdir(parents=True, exist_ok=True)
            held.enter_context(exclusive(state_dir))
        for folder in dict.fromkeys(log_dir.resolve() for log_dir in log_dirs):
            held.enter_context(broker_kept_out(folder))
        yield
