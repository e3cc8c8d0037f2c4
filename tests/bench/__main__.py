"""`python -m tests.bench`: run rows, print one table, write bench.json."""

import argparse
import sys
from pathlib import Path

from tests.bench import report, rows, runner
from tests.bench.harness import ROWS, selected


def main() -> int:
    """Run the selected rows; return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "rows", nargs="?", default="", help="beginnings of keys, joined by commas; default: all"
    )
    parser.add_argument("--list", action="store_true", help="print the keys and end")
    parser.add_argument("--rounds", type=int, help="default: what each row says")
    parser.add_argument("--json", type=Path, default=report.BENCH_JSON, help="default: %(default)s")
    options = parser.parse_args()
    rows.load()
    chosen = selected(options.rows)
    if options.list:
        print("\n".join(f"{each.key:28} {each.work}; {each.shape}" for each in chosen))
        return 0
    results, failed = [], []
    for row in chosen:
        print(f"{row.key}: {row.work}; {row.shape}", flush=True)
        try:
            results.append(runner.run_row(row, options.rounds).as_json())
        except (RuntimeError, OSError, AssertionError) as e:
            failed.append(f"{row.key} failed: {e}")
            print(f"  {failed[-1]}", file=sys.stderr, flush=True)
    report.merge(results, ROWS, options.json)
    print(report.table(results))
    print("\n".join(failed), file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
