"""Answer the shells' requests for completion: scripts to install, and the words that fit a command line."""

import os
import sys
from collections.abc import Iterator, Sequence

from tierctl.cli.help.node import Node, load_commands
from tierctl.cli.help.shells import scripts
from tierctl.cli.help.stored_names import StoredNames, read_names
from tierctl.errors import ExitCode

_SCRIPTS = {"bash": "tierctl.bash", "zsh": "_tierctl", "fish": "tierctl.fish"}


def complete(instruction: str) -> int:
    """Carry out what _TIERCTL_COMPLETE asks for and return the exit code.

    `source_bash` (zsh, fish) prints the script for the shell; `complete_bash` prints the words that fit
    COMP_WORDS at COMP_CWORD, one per line.
    """
    action, _, shell = instruction.partition("_")
    root = load_commands()
    if action == "source" and shell in _SCRIPTS:
        sys.stdout.write(scripts(root)[_SCRIPTS[shell]])
    elif instruction == "complete_bash":
        words = os.environ.get("COMP_WORDS", "").split()
        position = os.environ.get("COMP_CWORD", "")
        at = int(position) if position.isdigit() else len(words)
        for word in fitting(root, words[1:at], words[at] if at < len(words) else ""):
            print(word)
    else:
        print(
            f"error: unknown completion request {instruction!r}: expected complete_bash, source_bash,"
            " source_zsh or source_fish",
            file=sys.stderr,
        )
        return ExitCode.USAGE
    return ExitCode.OK


def fitting(root: Node, before: Sequence[str], started: str) -> list[str]:
    """Return the words that begin with `started` and can follow the words `before`, in the help's order."""
    node = root
    for word in before:
        node = node.child(word) or node
    return [word for word in _candidates(node, before) if word.startswith(started)]


def _candidates(node: Node, before: Sequence[str]) -> Iterator[str]:
    last = next((option for option in node.options if before and before[-1] in option.names), None)
    if last is not None and not last.is_flag:
        yield from last.choices
        if last.stored:
            yield from read_names(StoredNames(last.stored), os.environ)
        return
    yield from (child.path[-1] for child in node.children)
    for argument in node.arguments:
        if argument.stored:
            yield from read_names(StoredNames(argument.stored), os.environ)
    for option in node.options:
        yield from (name for name in option.names if name.startswith("--"))
