"""A test that ends its process fails by name, and the others run on: the session comes to an end."""

import subprocess
import sys
from pathlib import Path

CRASHES = {"exit": "os._exit(7)", "fault": "os.kill(os.getpid(), signal.SIGSEGV)"}
HEAD = "import os, signal\n"
PASSING = "def test_{}(): pass\n"


def test_a_crash_fails_one_test_and_ends_no_session(tmp_path: Path) -> None:
    """The other files have one test each, since a process runs a test only when it knows the next."""
    for number in range(4):
        (tmp_path / f"test_other_{number}.py").write_text(PASSING.format(number))
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
    assert "2 failed, 8 passed" in session.stdout
