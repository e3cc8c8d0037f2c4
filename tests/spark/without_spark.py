"""Run commands with `--engine local` in a process that can't import PySpark; the names go to stdout.

Run as `python -m tests.spark.without_spark FOLDER NAME...`: FOLDER gets the captures and the working folders,
each NAME is one of `LOCAL`. The process ends with an error at the first run that fails.
"""

import sys
from functools import cache
from pathlib import Path
from typing import Any

from tests.cli.shell import Ran, tierctl
from tests.spark import scenes
from tests.support.captures import unpack


def succeeds(*words: object) -> scenes.Scene:
    """Return a test case that runs a command without the option --engine; {root} is that of a capture."""

    def scene(_run: scenes.Run, capture: scenes.Capture, _folder: Path) -> Ran:
        ran = tierctl(*(str(word).format(root=capture("tiered-cluster")) for word in words)).ok()
        assert ran.out.strip()
        return ran

    return scene


ONLY_LOCAL: dict[str, scenes.Scene] = {
    "config show": succeeds("config", "show"),
    "schedule": succeeds("schedule", "--cron", "segments", "--metadata={root}/before"),
}
"""The commands without the option --engine, except `submit`, which needs PySpark's spark-submit, and
`backup-config`, which needs a cluster."""
LOCAL = {**scenes.SCENES, **ONLY_LOCAL}


def main(target: Path, names: list[str]) -> None:
    """Run the test cases `names` of LOCAL."""
    # An import of a module whose entry is None fails.
    sys.modules |= dict.fromkeys(("pyspark", "py4j"))  # type: ignore[arg-type]
    capture = cache(lambda name: unpack(name, target / f"capture-{name}"))
    for name in names:
        folder = target / name.replace(" ", "-")
        folder.mkdir()
        LOCAL[name](_local, capture, folder)
        print(name, flush=True)


def _local(*words: object, **how: Any) -> Ran:
    return tierctl(*words, "--engine", "local", **how)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
