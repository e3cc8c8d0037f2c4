"""The demo passes, prints what it announces, and leaves a folder; make installs for it only what it needs."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.shell import environment
from tests.demo.__main__ import NEXT, STEPS, main

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.matrix
@pytest.mark.slow
def test_the_demo_passes_and_shows_every_step(tmp_path: Path) -> None:
    folder = tmp_path / "it's a demo"
    done = subprocess.run(
        [sys.executable, "-m", "tests.demo", folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    for step in STEPS:
        assert f"$ {step.command}" in done.stdout
    assert done.stdout.count("done    copy_segment") == 5
    assert "... and 9 more lines" in done.stdout
    assert "done    delete_segment  bills" in done.stdout
    assert "done    delete_partition  bills" in done.stdout
    assert str(folder) in done.stdout
    check_next(done.stdout, tmp_path)


def check_next(shown: str, elsewhere: Path) -> None:
    """Run the three commands to try next in a shell, in another folder."""
    _, *commands = shown.partition(" Three commands to try next:\n")[2].split("\n   /")
    assert len(commands) == len(NEXT) == 3
    for command in commands:
        ran = subprocess.run(
            ["bash", "-c", f"/{command}"], cwd=elsewhere, env=environment(), capture_output=True, check=False
        )
        # A transaction of the captured broker is open since then: explain names the command that ends it.
        expected = 3 if " explain " in command else 0
        assert ran.returncode == expected, f"/{command}{ran.stderr.decode()}"


def test_the_demo_deletes_no_folder_of_others(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(FileExistsError, match="the demo did not make it"):
        main(tmp_path)
    assert (tmp_path / "mine").exists()


def test_demo_and_test_install_what_they_need_in_either_order(tmp_path: Path) -> None:
    """`make --dry-run` prints the recipes; files with the names of the marks stand for finished ones."""

    def recipe(target: str, *words: str) -> str:
        made = ["make", "--dry-run", *words, target]
        return subprocess.run(made, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    demo, test = recipe("demo"), recipe("test", "PYTHON=python3")
    assert "install --disable-pip-version-check -e .\n" in demo
    assert ("[dev]" in demo, "-e '.[dev]'" in test) == (False, True)
    assert 'test -n "python3' in demo
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").touch()
    (tmp_path / ".venv" / ".installed-demo").touch()
    assert "pip install" not in recipe("demo")
    test = recipe("test")
    assert "-e '.[dev]'" in test
    assert "touch .venv/.installed-demo .venv/.installed" in test
    (tmp_path / ".venv" / ".installed").touch()
    assert "pip install" not in recipe("demo") + recipe("test")
