"""A test that ends its process fails by name, and the others run on: the session comes to an end."""

import subprocess
import sys
from pathlib import Path

import pytest

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
