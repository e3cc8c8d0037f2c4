"""The check for dead code, and the scheduler after a test that ends its process."""

import subprocess
import sys
from pathlib import Path

from tests.lint.dead_code import dead_code


def test_unused_code_and_needless_exceptions_are_reported(tmp_path: Path) -> None:
    source = "def used():\n    pass\n\n\ndef unused():\n    pass\n\n\ndef kept():\n    pass\n\n\nused()\n"
    (tmp_path / "module.py").write_text(source)
    found = dead_code([tmp_path], frozenset({"kept", "used"}))
    assert [line.rpartition(": ")[2] for line in found] == [
        "unused function unused",
        "remove it from ALLOWED",
    ]
    assert "used is used now" in found[1]


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
    # To load all plugins takes longer than the tests.
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[2])}
    session = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "xdist", "-p", "tests.support.scheduling", *options],
        cwd=tmp_path,
        env={**env, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert session.returncode == 1, session.stdout + session.stderr
    for name in CRASHES:
        assert f"FAILED test_{name}.py::test_crash" in session.stdout
    assert "2 failed, 8 passed" in session.stdout
