"""Fixtures that run tierctl over small parts of real captures, in this process or in a forked one."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tierctl.apply.outcome import Status
from tierctl.cli.main import run as run_main
from tierctl.metadata.manager import TopicBasedRemoteLogMetadataManager
from tierctl.model import MetadataEvent

from tests.apply.runs import run_on, statuses
from tests.apply.sites import Site
from tests.apply.worlds import RETENTION, World, copy_world
from tests.cli.shell import Ran
from tests.support.servers import S3Server


@pytest.fixture(autouse=True)
def no_power_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace fsync by a no-op: these tests cut no power. Other tests check that fsync is called."""
    monkeypatch.setattr("os.fsync", lambda _fd: None)


@pytest.fixture
def tierctl(capfd: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Return a function that runs a command line in this process: `tierctl("copy", "--log-dir", dir)`."""

    def run(*args: object) -> Ran:
        capfd.readouterr()
        code = run_main([str(arg) for arg in args])
        captured = capfd.readouterr()
        return Ran.of(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="module")
def beginning(capture: Callable[[str], Path], module_folder: Path) -> World:
    world = copy_world(module_folder / "empty", capture("untiered-broker"))
    (world.logs / "configs").write_text(RETENTION)
    return world


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URI of a tier: a folder, or a bucket."""
    if request.param == "folder":
        return (tmp_path / "tiers").as_uri()
    server: S3Server = request.getfixturevalue("s3_server")
    return f"s3://{server.bucket()}"


@pytest.fixture
def site(beginning: World, place: str, tmp_path: Path) -> Site:
    """Return metadata without events, and the URI of a tier that does not exist yet."""
    shutil.copytree(beginning.metadata, tmp_path / "metadata")
    shutil.copytree(beginning.logs, tmp_path / "logs")
    return Site(tmp_path / "metadata", tmp_path / "logs", f"{place}/tier")


@pytest.fixture(scope="module")
def copied(beginning: World, module_folder: Path) -> World:
    world = beginning.clone(module_folder / "tiered")
    assert set(statuses(run_on("copy", world))) == {Status.DONE}
    return world


@pytest.fixture
def empty(beginning: World, tmp_path: Path) -> World:
    return beginning.clone(tmp_path / "empty")


@pytest.fixture
def tiered(copied: World, tmp_path: Path) -> World:
    return copied.clone(tmp_path / "tiered")


Watch = Callable[[int, str, str], None]
"""Receives the number of a publication, "before" or "after", and the state in its events."""


@pytest.fixture
def publications(monkeypatch: pytest.MonkeyPatch) -> Callable[[Watch], None]:
    """Calls a function around each publication; it may raise."""

    def install(watch: Watch) -> None:
        original, count = TopicBasedRemoteLogMetadataManager.publish, [0]

        def watched(self: Any, events: Sequence[MetadataEvent], **more: Any) -> None:
            count[0] += 1
            watch(count[0], "before", str(events[0].state))
            original(self, events, **more)
            watch(count[0], "after", str(events[0].state))

        monkeypatch.setattr(TopicBasedRemoteLogMetadataManager, "publish", watched)

    return install


class Zygote:
    """The process whose forks run the commands that tests kill."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("zygote.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )

    def __call__(
        self,
        *args: object,
        kills: list[list[Any]] | None = None,
        files: int | None = None,
        parts: int | None = None,
        objects: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Ran:
        how = {"kills": kills or [], "files": files, "parts": parts, "objects": objects}
        job = self._job(args, "", **how, env=dict(env or {}))
        return self._ran(job, self._answer(job))

    def race(self, commands: Sequence[tuple[Sequence[object], int | None]]) -> list[Ran]:
        """Run several command lines at the same time, and kill some of them at a change of a file.

        Each is (arguments, number of the file change at which the process is killed, or None). A command that
        finds the tier or its metadata locked tries again until it gets the lock.
        """
        jobs = [
            self._job(args, str(at), kills=[], files=nth, parts=None, objects=None, env={}, waits=True)
            for at, (args, nth) in enumerate(commands)
        ]
        return [self._ran(job, ended) for job, ended in zip(jobs, self._answer(jobs), strict=True)]

    def _job(self, args: Sequence[object], name: str, **more: Any) -> dict[str, Any]:
        out, err = self._folder / f"out{name}", self._folder / f"err{name}"
        return {"argv": [str(arg) for arg in args], "out": str(out), "err": str(err), **more}

    def _answer(self, asked: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def _ran(self, job: dict[str, Any], ended: dict[str, int]) -> Ran:
        return Ran.of(ended["status"], Path(job["out"]).read_text(), Path(job["err"]).read_text())

    def close(self) -> None:
        self._process.communicate()


def met(ran: Ran) -> dict[tuple[str, str], int]:
    """Return how often an undisturbed run began ("before") and finished ("after") each side effect."""
    return {(label, moment): count for label, moment, count in json.loads(ran.err.splitlines()[-1])}


def moments(ran: Ran, labels: Iterable[str]) -> Iterator[list[Any]]:
    """Return every begin and end of the side effects `labels` in an undisturbed run, for `kills`."""
    counts = met(ran)
    for label in labels:
        for moment in ("before", "after"):
            assert counts.get((label, moment)), f"{label} is never met"
            yield from ([label, moment, nth + 1] for nth in range(counts[label, moment]))


@pytest.fixture(scope="session")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """Return a function that runs a command line in a forked process, which a test may kill."""
    zygote = Zygote(tmp_path_factory.mktemp("zygote"))
    yield zygote
    zygote.close()
