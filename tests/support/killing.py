"""Kill tierctl around its side effects, by SIGKILL in a forked process."""

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tierctl.apply.run_context import LABELS

from tests.cli.shell import Ran
from tests.support.amounts import TRIES_ALL

SIGKILLED = -9
"""The exit code of a run that was killed."""
_OF_NEW_IDS = {"restore.objects.copy", "restore.old_folder.rename"}
RESTORE_LABELS = [label for label in LABELS if label.startswith("restore.") and label not in _OF_NEW_IDS]
"""The side effects of `restore into`."""


class Zygote:
    """The process whose forks run command lines, for tests that kill them or run many.

    `prefix` are the words before its own command line, which may restrict it and its forks.
    """

    def __init__(self, folder: Path, prefix: Sequence[str] = ()) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            [*prefix, sys.executable, str(Path(__file__).with_name("zygote.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )

    def __call__(self, *args: object, kills: list[list[Any]] | None = None, files: int | None = None) -> Ran:
        out, err = self._folder / "out", self._folder / "err"
        job = {"argv": [str(arg) for arg in args], "out": str(out), "err": str(err)}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps({**job, "kills": kills or [], "files": files}), file=self._process.stdin, flush=True)
        ended = json.loads(self._process.stdout.readline())
        return Ran.of(ended["status"], out.read_text(), err.read_text())

    def close(self) -> None:
        self._process.communicate()


def met(ran: Ran) -> dict[tuple[str, str], int]:
    """Return how often an undisturbed run began ("before") and finished ("after") each side effect.

    Changes of files are counted under "file", all and by operation and name.
    """
    return {(label, moment): count for label, moment, count in json.loads(ran.err.splitlines()[-1])}


def moments(counts: Mapping[tuple[str, str], int], labels: Iterable[str]) -> Iterator[list[Any]]:
    """Return every begin and end of the side effects `labels` in an undisturbed run, for `kills`.

    `counts` are those of `met`. Of a side effect that the run repeats, the time in the middle is returned;
    with `TRIES_ALL`, all of them.
    """
    for label in labels:
        for moment in ("before", "after"):
            count = counts.get((label, moment), 0)
            assert count, f"{label} is never met"
            times = range(1, count + 1) if TRIES_ALL else ((count + 1) // 2,)
            yield from ([label, moment, nth] for nth in times)


@pytest.fixture(scope="session")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """Return a function that runs a command line in a forked process, which a test may kill."""
    zygote = Zygote(tmp_path_factory.mktemp("zygote"))
    yield zygote
    zygote.close()
