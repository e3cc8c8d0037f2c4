"""The command tree as data: what help, completions and man pages are made from.

`make docs` writes it to commands.json, so that help and completion need neither click nor the commands.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMMANDS_FILE = Path(__file__).with_name("commands.json")
_FILES = frozenset({"FILE", "DIR", "URI"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option or argument of a command; `choices` is empty if any value is allowed.

    `stored` is the kind of `StoredNames` that shells complete, or empty. An option that `is_typed_only` has
    neither an environment variable nor a key in tierctl.toml.
    """

    names: tuple[str, ...]
    metavar: str
    help: str
    panel: str
    choices: tuple[str, ...]
    stored: str
    is_repeatable: bool
    is_required: bool
    default: str | None
    is_typed_only: bool = False

    @property
    def is_flag(self) -> bool:
        """Whether the option has no value."""
        return not self.metavar

    @property
    def takes_file(self) -> bool:
        """Whether the value is a path."""
        return self.metavar in _FILES

    @property
    def explained(self) -> str:
        """The help, followed by the default value."""
        return self.help if self.default is None else f"{self.help} Default: {self.default}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A command line and a description of what it does."""

    text: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The program, a group or a command; `path` are the words after `tierctl`.

    `group` is the title under which the help of the program lists the command.
    """

    path: tuple[str, ...]
    help: str
    options: tuple[Option, ...]
    arguments: tuple[Option, ...]
    children: tuple["Node", ...]
    examples: tuple["Example", ...] = ()
    group: str = "Commands"

    @property
    def summary(self) -> str:
        """The first line of the help, without its full stop."""
        return self.help.partition("\n")[0].removesuffix(".")

    @property
    def usage(self) -> str:
        """The text after the command's name on its usage line: [OPTIONS] and the arguments."""
        rest = "COMMAND [ARGS]..." if self.children else " ".join(map(_usage, self.arguments))
        return f"[OPTIONS] {rest}".strip()

    @property
    def groups(self) -> dict[str, list["Node"]]:
        """The groups and commands below this node by the title under which its help lists them."""
        found: dict[str, list[Node]] = {}
        for child in self.children:
            found.setdefault(child.group, []).append(child)
        return found

    @property
    def panels(self) -> list[str]:
        """The titles of the groups of options, general ones last."""
        found = dict.fromkeys(option.panel for option in self.options)
        return sorted(found, key=lambda panel: panel in {"Options", "Everywhere"})

    @property
    def option_keys(self) -> set[str]:
        """The keys of the options of this command, or of all commands below this group."""
        if self.children:
            return set().union(*(child.option_keys for child in self.children))
        return {settings_key(option.names) for option in self.options}

    @property
    def typed_only_keys(self) -> set[str]:
        """The keys of those options that only the command line gives."""
        options = (option for node in self.walk() if not node.children for option in node.options)
        return {settings_key(option.names) for option in options if option.is_typed_only}

    def named(self, words: Sequence[str]) -> tuple["Node", Sequence[str]]:
        """Return the group or command below this node that the first words name, and the other words."""
        child = self.child(words[0]) if words else None
        return (self, words) if child is None else child.named(words[1:])

    def child(self, word: str) -> "Node | None":
        """Return the group or command of that name below this node, or None."""
        return next((each for each in self.children if each.path[-1] == word), None)

    def walk(self) -> Iterator["Node"]:
        """Yield this node, and every group and command below it."""
        yield self
        for child in self.children:
            yield from child.walk()


def settings_key(names: Iterable[str]) -> str:
    """Return the key in tierctl.toml, and after TIERCTL_ in the environment, of an option: log_dir."""
    return next(name for name in names if name.startswith("--")).removeprefix("--").replace("-", "_")


def load_commands() -> Node:
    """Return the tree from commands.json.

    Raises FileNotFoundError if `make docs` never ran.
    """
    # The loader also reads from the zip file that Spark gets; importlib.resources is slow to import.
    loader: Any = sys.modules[__name__].__loader__
    return _node(json.loads(loader.get_data(str(COMMANDS_FILE))))


def _usage(argument: Option) -> str:
    if argument.is_repeatable:
        return f"[{argument.metavar}]..."
    return argument.metavar if argument.is_required else f"[{argument.metavar}]"


def _node(fields: dict[str, Any]) -> Node:
    return Node(
        path=tuple(fields["path"]),
        help=fields["help"],
        options=tuple(map(_option, fields["options"])),
        arguments=tuple(map(_option, fields["arguments"])),
        children=tuple(map(_node, fields["children"])),
        examples=tuple(Example(**each) for each in fields["examples"]),
        group=fields["group"],
    )


def _option(fields: dict[str, Any]) -> Option:
    return Option(**fields | {"names": tuple(fields["names"]), "choices": tuple(fields["choices"])})
