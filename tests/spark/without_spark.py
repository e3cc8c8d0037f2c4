"""Run commands with `--engine local` in a process that can't import PySpark; the names go to stdout.

Run as `python -m tests.spark.without_spark FOLDER NAME...`: FOLDER gets the captures and the working folders,
each NAME is one of `LOCAL`. The process ends with an error at the first run that fails or asks for PySpark.
"""

import sys
from functools import cache, partial
from pathlib import Path
from typing import Any

from tests.cli.shell import Ran, tierctl
from tests.spark import scenes
from tests.support.captures import unpack

_PACKAGES = ("pyspark", "py4j")


class NoSpark:
    """A finder by which an import of PySpark fails; `asked` has the names of the imports."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> None:
        """Raise ModuleNotFoundError for PySpark, and leave all other modules to the other finders."""
        if name.partition(".")[0] in _PACKAGES:
            self.asked.append(name)
            raise ModuleNotFoundError(name)


def succeeds(*words: object) -> scenes.Scene:
    """Return a test case that runs a command without the option --engine; {root} is that of a capture."""

    def scene(_run: scenes.Run, capture: scenes.Capture, folder: Path) -> Ran:
        del folder
        ran = tierctl(*(str(word).format(root=capture("tiered-cluster")) for word in words))
        assert ran.code == 0, ran.err
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
    finder = NoSpark()
    sys.meta_path.insert(0, finder)  # type: ignore[arg-type]
    capture = cache(partial(_unpacked, target))
    for name in names:
        folder = target / name.replace(" ", "-")
        folder.mkdir()
        LOCAL[name](partial(_local, finder), capture, folder)
        print(name, flush=True)


def _local(finder: NoSpark, *words: object, cwd: Path | None = None) -> Ran:
    ran = tierctl(*words, "--engine", "local", cwd=cwd)
    loaded = [name for name in sys.modules if name.partition(".")[0] in _PACKAGES]
    assert not finder.asked + loaded, f"{words[0]} asks for {finder.asked + loaded}"
    return ran


def _unpacked(target: Path, name: str) -> Path:
    return unpack(name, target / f"capture-{name}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
