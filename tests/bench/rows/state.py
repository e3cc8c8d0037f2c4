"""`--state-dir`: the first run, the next without new events, and the next with one per cent new ones."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.bench.clusters import WIDE, without_newest
from tests.bench.harness import Comparison, Required, Side, row
from tests.bench.metadata_log import metadata_log
from tests.bench.rows.segments import sizes

WORK = "`segments --sizes --state-dir`"
NEW = 0.01


CACHE_FILES = (
    "Four fifths of the run append to and sync a flat-file cache for each of 10,000 user partitions "
    "(StateDirectory._flush, extend_cache, write_durably)."
)


@row(
    "state-first",
    work=f"{WORK}, first run",
    shape=str(WIDE),
    required=Required(ratio=0.5),
    rounds=2,
    limit=CACHE_FILES,
)
def first_run(folder: Path) -> Iterator[Comparison]:
    """Run with a new state directory, compared with a run without one."""
    log, state = metadata_log(WIDE), folder / "state"
    ours = Side(
        "tierctl",
        lambda: sizes(log, "--state-dir", str(state)),
        prepare=lambda: shutil.rmtree(state, ignore_errors=True),
    )
    yield Comparison(ours, Side("without a state directory", lambda: sizes(log)))


@row(
    "state-next",
    work=f"{WORK}, no new events",
    shape=str(WIDE),
    required=Required(ratio=20, seconds=1.5, ratio_or_seconds=True),
    rounds=2,
    limit="1.1 s of the run are CPU time.",
)
def next_run(folder: Path) -> Iterator[Comparison]:
    """Run without new events, compared with the first run."""
    log, kept, new = metadata_log(WIDE), folder / "kept", folder / "new"
    sizes(log, "--state-dir", str(kept))
    first = Side(
        "first run",
        lambda: sizes(log, "--state-dir", str(new)),
        prepare=lambda: shutil.rmtree(new, ignore_errors=True),
    )
    yield Comparison(Side("tierctl", lambda: sizes(log, "--state-dir", str(kept))), first)


@row(
    "state-new",
    work=f"{WORK}, 1 % new events",
    shape=str(WIDE),
    required=Required(ratio=5),
    rounds=2,
    limit=(
        "New events are in all of the 50 metadata partitions and 10,000 user partitions: the folded state of "
        "each is loaded and stored as a whole, and the flat-file cache of each is appended to and synced"
    ),
)
def run_with_new_events(folder: Path) -> Iterator[Comparison]:
    """Run with few new events, compared with a run without a state directory."""
    log, kept, used = metadata_log(WIDE), folder / "kept", folder / "used"
    sizes(without_newest(log, NEW), "--state-dir", str(kept))

    def restore() -> None:
        shutil.rmtree(used, ignore_errors=True)
        shutil.copytree(kept, used)

    ours = Side("tierctl", lambda: sizes(log, "--state-dir", str(used)), prepare=restore)
    yield Comparison(ours, Side("without a state directory", lambda: sizes(log)))
