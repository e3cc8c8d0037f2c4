"""`python -m tests.bench`: run rows, print one table, write bench.json."""

import argparse
import signal
import sys
from pathlib import Path
from typing import Any

from tests.bench import report, rows, runner
from tests.bench.clusters import SCALE
from tests.bench.harness import ROWS, Row, selected


def main() -> int:
    """Run the selected rows; return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "rows", nargs="?", default="", help="beginnings of keys, joined by commas; default: all"
    )
    parser.add_argument("--list", action="store_true", help="print the keys and end")
    parser.add_argument("--rounds", type=int, help="default: what each row says")
    parser.add_argument("--json", type=Path, help="default: bench.json; needed with $TIERCTL_BENCH_SCALE")
    parser.add_argument("--readme", action="store_true", help="write bench.json and the README's tables anew")
    options = parser.parse_args()
    rows.load()
    chosen = selected(options.rows)
    if options.list:
        print("\n".join(f"{each.key:28} {each.work}; {each.shape}" for each in chosen))
        return 0
    if options.json is None and SCALE != 1:
        parser.error("with $TIERCTL_BENCH_SCALE figures go to --json FILE")
    # Folders of rows are deleted also if the run is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    results, failed = _run([] if options.readme else chosen, options.rounds, options.json)
    print(report.summary(results))
    print("".join(f"error: {each}\n" for each in failed), file=sys.stderr, end="")
    return int(bool(failed))


def _run(chosen: list[Row], rounds: int | None, path: Path | None) -> tuple[list[dict[str, Any]], list[str]]:
    """Run rows, writing after each; return the results, and the errors of the rows that failed."""
    results, failed = [], []
    _write(results, path)
    for row in chosen:
        print(f"{row.key}: {row.work}; {row.shape}", flush=True)
        try:
            results.append(runner.run_row(row, rounds).as_json())
            _write(results, path)
        except (RuntimeError, OSError, AssertionError) as e:
            failed.append(f"{row.key} failed: {e}")
    return results, failed


def _write(results: list[dict[str, Any]], path: Path | None) -> None:
    """Write results to `path`, otherwise to bench.json and the README."""
    limits = {key: each.limit for key, each in ROWS.items()}
    if path is not None:
        report.merge(results, limits, path)
    else:
        report.write_readme(report.merge(results, limits))


if __name__ == "__main__":
    sys.exit(main())
