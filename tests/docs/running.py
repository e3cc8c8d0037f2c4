"""Run the command lines of a document in their order, in one folder, with real data for their names."""

import re
import shlex
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.cli.shell import Ran, environment, tierctl_of_users
from tests.docs.documents import Command, Document

_VARIES = (
    (re.compile(r"\b[\w-]{22}\b(?!\w)"), "ID"),
    (re.compile(r"\(\d+\.\d s\)"), "(SECONDS)"),
    (re.compile(r" +"), " "),
)
_OTHER_CODES = {
    "--detailed-exitcode": 9,
    "tierctl doctor": 3,
    "tierctl restore check": 3,
    "tierctl delete --mark --topic-id ID": 4,
    "tierctl copy --quiet": 4,
    "tierctl rebuild --metadata kafka:": 4,
}
"""Expected exit codes other than 0, by a part of the command line.

doctor has warnings about captured data; restore check finds that the broker of these tests has tiered no
segment; delete --mark refuses a topic of which the captured log directory has a folder;
copy has no topic to copy, because a broker without tiered storage lets no topic enable it; rebuild refuses
topics whose copying is not disabled.
"""
_SHELL = ("printf", "echo")


def run_all(commands: Iterable[Command], names: Mapping[str, object], folder: Path) -> None:
    """Run commands; fail if an exit code or the output differs from the document.

    `names` has the values that replace names in a command line, such as `s3://archive`.
    """
    # The environment of Python that tierctl-spark(7) sends to executors.
    (folder / "env.tar.gz").touch()
    for command in commands:
        program, *words = shlex.split(replaced(command.line, names))
        if program == "tierctl":
            check(command, tierctl_of_users(*words, cwd=folder, env=environment(HOME=str(folder))), names)
        else:
            assert program in _SHELL, f"{command.document}: no test runs {command.line!r}"
            line = replaced(command.line, names)
            subprocess.run(["bash", "-c", line], cwd=folder, check=True, env=environment())


def write_profile(document: Document, names: Mapping[str, object], folder: Path) -> None:
    """Write the profile that `document` shows to tierctl.toml in `folder`, with the values of `names`."""
    (profile,) = document.blocks("toml")
    (folder / "tierctl.toml").write_text(replaced(profile, names))


def check(command: Command, ran: Ran, names: Mapping[str, object]) -> None:
    """Fail if the run differs from what the document shows of it."""
    where = f"{command.document}: {command.line}\n{ran.err}"
    if any(line.startswith("error: ") for line in command.shown):
        assert ran.code not in {0, 1}, where
    else:
        assert ran.code in {0, *(code for word, code in _OTHER_CODES.items() if word in command.line)}, where
    printed = [_unvaried(line, names) for line in [*ran.out.splitlines(), *ran.raw_err.splitlines()]]
    for line in command.shown:
        assert _unvaried(line, {}) in printed, f"{where}\nnot printed: {line}\n" + "\n".join(printed)


def replaced(line: str, names: Mapping[str, object]) -> str:
    """Return a line with real values for its names."""
    for name in sorted(names, key=len, reverse=True):
        line = line.replace(name, str(names[name]))
    return line


def _unvaried(line: str, names: Mapping[str, object]) -> str:
    """Return a line of output without the parts that vary between runs, and with the document's names."""
    for name, real in names.items():
        line = line.replace(str(real), name)
    for pattern, text in _VARIES:
        line = pattern.sub(text, line)
    return line.strip()
