"""Run seeds of the simulator: `python -m tests.simulation --seeds 0..500`."""

import argparse
import gc
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

HASH_SEED = "0"
MEMORY = Path("/dev/shm")


def main() -> int:
    """Run the seeds; print each failure with the command that repeats it. Return 1 if there was one."""
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        # The order of sets decides the order of calls, so a seed is only repeatable with a fixed hash seed.
        os.environ["PYTHONHASHSEED"] = HASH_SEED
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    options = options_of(sys.argv[1:])
    first, last = options.seeds
    report = print if options.trace or options.history else None
    failed = []
    began = time.monotonic()
    from tests.simulation.simulation import SimulationError, simulate

    # A seed creates few reference cycles, and searching all imported objects for them takes long.
    gc.freeze()
    gc.set_threshold(50_000)
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        for seed in range(first, last):
            try:
                simulate(seed, Path(folder), report=report, always=options.history)
            except SimulationError as e:
                failed.append(seed)
                print(f"{e}\n  repeat: python -m tests.simulation --trace --seeds {seed}", flush=True)
                if options.trace:
                    raise
            count = seed - first + 1
            if options.progress and count % options.progress == 0:
                spent_s = time.monotonic() - began
                print(f"{count} seeds, {len(failed)} failed, {spent_s:.0f} s", flush=True)
    if options.history:
        return 1 if failed else 0
    spent_s = time.monotonic() - began
    print(f"{last - first} seeds from {first} on, {len(failed)} failed {failed[:20]}, {spent_s:.1f} s")
    return 1 if failed else 0


def options_of(words: Sequence[str]) -> argparse.Namespace:
    """Return the options of a command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=_range, default=(0, 500), help="N, or FIRST..LAST (exclusive)")
    parser.add_argument("--trace", action="store_true", help="print what happened in a seed that fails")
    parser.add_argument("--history", action="store_true", help="print what happened in every seed, no times")
    parser.add_argument("--progress", type=int, default=0, help="print a line after this many seeds")
    return parser.parse_args(words)


def _range(text: str) -> tuple[int, int]:
    first, dots, last = text.partition("..")
    return (int(first), int(last)) if dots else (int(first), int(first) + 1)


if __name__ == "__main__":
    sys.exit(main())
