"""A test that ends its process fails by name, and the others run on: the session comes to an end."""

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from xdist.remote import Producer

from tests.support.scheduling import ByServers

CRASHES = {"exit": "os._exit(7)", "fault": "os.kill(os.getpid(), signal.SIGSEGV)"}
HEAD = "import os, signal\n"
PASSING = "def test_{}(): pass\n"


@pytest.mark.parametrize("tests_of_others", [1, 3])
def test_a_crash_fails_one_test_and_ends_no_session(tmp_path: Path, tests_of_others: int) -> None:
    """Files with one test matter, since a process runs a test only when it knows the next."""
    for number in range(4):
        text = "".join(PASSING.format(test) for test in range(tests_of_others))
        (tmp_path / f"test_other_{number}.py").write_text(text)
    for name, crash in CRASHES.items():
        text = f"{HEAD}{PASSING.format('before')}def test_crash(): {crash}\n{PASSING.format('after')}"
        (tmp_path / f"test_{name}.py").write_text(text)
    options = ["-q", "-n", "2", "-c", "/dev/null", "--rootdir", ".", "-p", "no:cacheprovider"]
    session = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.support.scheduling", *options],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[2])},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert session.returncode == 1, session.stdout + session.stderr
    for name in CRASHES:
        assert f"FAILED test_{name}.py::test_crash" in session.stdout
    assert f"2 failed, {4 * tests_of_others + 4} passed" in session.stdout


@dataclass(eq=False)
class Process:
    """A process of pytest-xdist, as far as the scheduler knows it."""

    sent: list[int] = field(default_factory=list)
    shutting_down: bool = False
    gateway: Any = field(default_factory=lambda: SimpleNamespace(id="gw0"))

    def send_runtest_some(self, tests: list[int]) -> None:
        self.sent += tests

    def shutdown(self) -> None:
        self.shutting_down = True


def test_a_replacement_gets_two_tests_or_an_end(tmp_path: Path) -> None:
    """Of four files with one test, two processes get two each; one process ends, and another replaces it."""
    files = [f"test_{number}.py" for number in range(4)]
    for file in files:
        (tmp_path / file).touch()
    option = SimpleNamespace(tx=["2*popen"], loadscopereorder=False)
    config = SimpleNamespace(rootpath=tmp_path, option=option, getvalue=lambda name: getattr(option, name))
    scheduler = ByServers(cast("pytest.Config", config), Producer("", enabled=False))
    first, second, third, fourth = (Process() for _ in range(4))

    def add(process: Any) -> None:
        scheduler.add_node(process)
        scheduler.add_node_collection(process, [f"{file}::test" for file in files])

    add(first)
    add(second)
    scheduler.schedule()
    assert sorted(first.sent + second.sent) == [0, 1, 2, 3]
    crashed = scheduler.remove_node(cast("Any", first))
    assert crashed == f"{files[first.sent[0]]}::test"
    scheduler.add_node(cast("Any", third))  # it has not collected yet when another ends
    assert scheduler.remove_node(cast("Any", second)) == f"{files[second.sent[0]]}::test"
    scheduler.add_node_collection(cast("Any", third), [f"{file}::test" for file in files])
    scheduler.schedule()
    assert sorted(third.sent) == sorted([first.sent[1], second.sent[1]])
    add(fourth)
    scheduler.schedule()
    assert fourth.shutting_down
    assert not fourth.sent
