"""Keep the results of pytest-benchmark in bench.json, and write them into README.md and tierctl-speed(7).

`python -m tests.bench.figures RESULTS`; RESULTS is a file of `--benchmark-json`.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from tests.bench.metadata_log import Shape
from tests.bench.process import REPOSITORY
from tests.bench.rows import IN_README, RIVAL, ROWS, TIERCTL, Row

BENCH_JSON: Final = Path(__file__).with_name("bench.json")
README: Final = REPOSITORY / "README.md"
PAGE: Final = REPOSITORY / "tierctl" / "cli" / "docs" / "manual" / "speed.md"
BEGIN: Final = "<!-- The figures to the next mark are written by `make bench`. -->"
END: Final = "<!-- The end of the figures. -->"
_COLUMNS = ("work", "shape", "tierctl", "rival", "ratio", "memory", "required")


def merged(found: dict[str, Any], results: dict[str, Any]) -> dict[str, Any]:
    """Return the stored figures with those of each row of which every contestant was measured."""
    rows = {key: found["rows"][key] for key in ROWS if key in found["rows"]}
    commit = results["commit_info"]
    run = {"date": results["datetime"][:10], "commit": commit["id"][:10] + "+" * commit["dirty"]}
    measured: dict[str, dict[str, Any]] = {}
    for each in results["benchmarks"]:
        cost = {"seconds": float(f"{each['stats']['median']:.4g}"), **each["extra_info"]}
        measured.setdefault(each["group"], dict(run))[each["params"]["contestant"]] = cost
    rows |= {
        key: row for key, row in measured.items() if TIERCTL in row and (RIVAL in row or not ROWS[key].rival)
    }
    return {"machine": machine(results["machine_info"]), "rows": rows}


def machine(info: dict[str, Any]) -> dict[str, Any]:
    """Return the facts that a reader needs to compare figures, from those of pytest-benchmark."""
    java = subprocess.run("java -version 2>&1", shell=True, capture_output=True, text=True, check=False)
    return {
        "cpu": info["cpu"].get("brand_raw", "unknown"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 10**6,
        "system": f"{info['system']} {info['release']}",
        "python": info["python_version"],
        "java": java.stdout.splitlines()[0] if java.returncode == 0 else "none",
    }


def readme_section(found: dict[str, Any]) -> str:
    """Return the text between the marks of the README: lines of at most 120 columns."""
    rows = [_COLUMNS[:5], ["---"] * 5]
    for row in IN_README:
        work, shape, *cells = _cells(row, found)[:5]
        if isinstance(row.shape, Shape):
            shape = f"{row.shape.segments:,}; {row.shape.user_partitions:,}; {row.shape.metadata_partitions}"
        rows.append([work, shape, *cells])
    shapes = "A shape is a number of segments, of user partitions and of metadata partitions."
    head = f"{_machine(found)}\n{shapes} Times on Spark begin when it is ready."
    return "\n\n".join([BEGIN, head, "\n".join(f"| {' | '.join(row)} |" for row in rows), END])


def page(found: dict[str, Any], old: str) -> str:
    """Return the source of tierctl-speed(7): the text before its figures in `old`, and the figures."""
    items = []
    for row in (each for each in ROWS.values() if each.key in found["rows"]):
        work, *cells = _cells(row, found)
        texts = (f"{name} {cell}" for name, cell in zip(_COLUMNS[1:], cells, strict=True) if cell != "–")
        items.append(f"- **{work}**: {'; '.join(texts)}.")
    before = old.partition("\n## Figures\n")[0].rstrip()
    head = (
        f"{_machine(found)}\n"
        "The ratio is tierctl's speed relative to the rival's; memory is tierctl's peak and the rival's, "
        "on Spark the driver's, and the largest executor's with its Python workers. The time on Spark "
        f"is that after its session is ready, which takes {_ready(found)}."
    )
    return "\n\n".join([before, "## Figures", head, "\n".join(items)]) + "\n"


def _machine(found: dict[str, Any]) -> str:
    facts, dates = found["machine"], sorted(row["date"] for row in found["rows"].values())
    memory = f"{facts['memory_mb'] / 1000:.0f} GB, {facts['system']}, Python {facts['python']}"
    return f"Medians on {facts['cores']} cores ({facts['cpu']}), {memory}, {dates[0]} to {dates[-1]}."


def _cells(row: Row, found: dict[str, Any]) -> list[str]:
    costs = [found["rows"][row.key][each] for each in (TIERCTL, RIVAL) if each in found["rows"][row.key]]
    ours, *theirs = (
        cost["cpu_s"] / cost["events"] if row.is_per_event else cost["seconds"] - cost.get("ready_s", 0)
        for cost in costs
    )
    shown = _per_event if row.is_per_event else _seconds
    return [
        row.work,
        str(row.shape or "–"),
        shown(ours),
        f"{row.rival}: {shown(theirs[0])}" if theirs else "–",
        f"{theirs[0] / ours:.2f}×" if theirs else "–",
        " : ".join(map(_memory, (cost for cost in costs if "peak_mb" in cost))) or "–",
        row.required or "–",
    ]


def _ready(found: dict[str, Any]) -> str:
    """Return in which time Spark's session was ready, in the rows that say it."""
    times = [cost["ready_s"] for row in found["rows"].values() for cost in row.values() if "ready_s" in cost]
    return f"{min(times):.0f} to {max(times):.0f} s more" if times else "some seconds more"


def _memory(cost: dict[str, Any]) -> str:
    executors = f" and {cost['executor_mb']} MB in an executor" if "executor_mb" in cost else ""
    return f"{cost['peak_mb']} MB{executors}"


def _seconds(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.{1 if seconds < 100 else 0}f} s"


def _per_event(seconds: float) -> str:
    return f"{1e6 * seconds:.2f} µs per event"


def write(found: dict[str, Any]) -> None:
    """Write bench.json, a row a line, and its figures into the README and the manual."""
    rows = ",\n".join(f"{json.dumps(key)}: {json.dumps(row)}" for key, row in found["rows"].items())
    BENCH_JSON.write_text(f'{{"machine": {json.dumps(found["machine"])},\n"rows": {{\n{rows}\n}}}}\n')
    between = re.compile(re.escape(BEGIN) + ".*" + re.escape(END), re.DOTALL)
    README.write_text(between.sub(lambda _: readme_section(found), README.read_text()))
    PAGE.write_text(page(found, PAGE.read_text()))


if __name__ == "__main__":
    write(merged(json.loads(BENCH_JSON.read_text()), json.loads(Path(sys.argv[1]).read_text())))
