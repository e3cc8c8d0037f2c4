"""Run a command line of a text: one row for each program."""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.bench.rows import ROWS
from tests.cli.shell import environment, tierctl_of_users
from tests.docs.documents import Command
from tests.docs.lines import node_of, option_of
from tests.docs.running import check, replaced
from tests.simulation.__main__ import options_of

ROOT: Final = Path(__file__).parents[2]
PLACEHOLDERS: Final = {
    "COMMAND": "copy",
    "COMMAND...": "status",
    "FILE": "file.json",
    "ID": "u6uHqOrgTh-HLODx2Wo0EA",
    "KEY": "k",
    "PLAN": "plan.json",
}
"""The values of the names in capitals that lines of tierctl have."""
_TEST_FILE: Final = "tests/model/test_kafka_version.py"
_PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def is_mention(line: str) -> bool:
    """Return whether a line of tierctl only names a command or group, or the program."""
    words = line.split()[1:]
    return not node_of(words)[1]


def require_names(line: str) -> None:
    """Fail if a command, an option or a choice that a line of tierctl names does not exist."""
    node, words = node_of(shlex.split(line)[1:])
    choices: tuple[str, ...] = ()
    for word in words:
        if word == "--":
            break
        if word.startswith("-"):
            option = option_of(node, word.partition("=")[0])
            assert option is not None or word == "--help", f"{line}: no option {word} of {node.path}"
            choices = option.choices if option is not None else ()
        else:
            assert not node.children, f"{line}: {word} is no command"
            assert not choices or word in choices, f"{line}: {word} is none of {choices}"
            choices = ()


def run_tierctl(line: str, names: Mapping[str, object], folder: Path, env: Mapping[str, str]) -> None:
    """Run a line of tierctl with the profile in `folder`; fail if its exit code is not the expected one."""
    words = shlex.split(_filled(replaced(line, names)))[1:]
    ran = tierctl_of_users(*words, cwd=folder, env=env)
    check(Command("text", line, ()), ran, {})
    assert ran.out or ran.raw_err, line


def _filled(line: str) -> str:
    return " ".join(PLACEHOLDERS.get(word, word) for word in line.split(" "))


def _make(line: str) -> None:
    """Let make print the recipe, which fails without the target; the rows of `make bench` must exist."""
    words = shlex.split(line)
    # tests/demo/test_demo.py lets make look for a Python, which takes a second.
    done = _run(["make", "--dry-run", f"PYTHON={sys.executable}", *words[1:]])
    assert done.stdout, line
    for word in words[2:]:
        name, _, value = word.partition("=")
        assert name == "ROWS", line
        assert all(any(row in key for key in ROWS) for row in value.split(" or ")), line


def _pip(line: str) -> None:
    """Require that the package and its extras exist. tests/cli/test_docs.py installs it by pip."""
    found = re.fullmatch(
        r"(?:pip|pipx) install (?:--prefix /usr/local )?'?(\.|tierctl)(?:\[([a-z0-9,]+)\])?'?", line
    )
    assert found, f"no test runs {line!r}"
    assert {found[1]} <= {".", _PROJECT["name"]}
    extras = set(found[2].split(",")) if found[2] else set()
    assert extras <= set(_PROJECT["optional-dependencies"]), line


def _man(line: str) -> None:
    """Show the page with man from the clone's folder, or only find its file where man is not installed."""
    page = shlex.split(line)[-1]
    (file,) = [ROOT / page] if "-l" in line else (ROOT / "man").glob(f"{page}.[17]")
    if shutil.which("man") is None:
        assert file.is_file(), line
    else:
        assert _run(["man", "-l", file]).stdout, line


def _python(line: str) -> None:
    """Read the options of the simulator, which tests/simulation runs."""
    found = re.fullmatch(r"python -m tests\.simulation (.*)", line)
    assert found, f"no test runs {line!r}"
    assert options_of(shlex.split(found[1])).seeds, line


def _pytest(line: str) -> None:
    """Let pytest choose the tests, without running them."""
    words = ["--collect-only", *shlex.split(line.replace("FILE", _TEST_FILE))[1:]]
    _run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words])


def _run(words: list[object] | list[str]) -> subprocess.CompletedProcess[bytes]:
    """Run a program in the clone's folder with an empty stdin; fail if it fails."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=ROOT,
        env=environment(MANWIDTH="80"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout!r}\n{done.stderr!r}"
    return done


PROGRAMS: Final[dict[str, Callable[[str], None]]] = {
    "make": _make,
    "man": _man,
    "pip": _pip,
    "pipx": _pip,
    "pytest": _pytest,
    "python": _python,
}
"""The function that runs a line of each program, except tierctl."""
