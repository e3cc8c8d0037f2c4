"""The command that a run suggests at its end, with the places that the command line of the run names."""

import shlex
from collections.abc import Iterator

import click

from tierctl.cli import options
from tierctl.cli.help.node import Node, settings_key
from tierctl.cli.mutation_options import FROM_TIER
from tierctl.cli.settings.run import RunSettings

_PROGRAM = "tierctl"
_CHOOSE_PROFILE = ("config_file", "profile")
_PANELS = (options.WHERE, FROM_TIER)
_TARGET = "to_"
"""Begins the keys of options of copy about its target, which other commands have without it."""


def with_places(command: str | None, ctx: click.Context) -> str | None:
    """Return `command`, a command line of tierctl, with the places that the command line of `ctx` has.

    The places are the options in `_PANELS` that `command` accepts and does not name itself, and the profile.
    Values of the environment and of the profile are not added, because they apply to the next run, too. Any
    other text, as "the same command with --apply", is returned unchanged.
    """
    words = shlex.split(command or "")
    known = ctx.obj.known if isinstance(ctx.obj, RunSettings) else None
    if command is None or known is None or words[:1] != [_PROGRAM]:
        return command
    accepted = {settings_key(each.names): max(each.names, key=len) for each in _named(known, words).options}
    given: dict[str, str] = {}
    for key, values in _typed(ctx):
        name = accepted.get(key) or accepted.get(key.removeprefix(_TARGET))
        if name is not None and name not in words:
            given[name] = " ".join(f"{name} {shlex.quote(value)}" for value in values)
    return " ".join([command, *(given[name] for name in accepted.values() if name in given)])


def _named(root: Node, words: list[str]) -> Node:
    """Return the command that the words of a command line name."""
    node = root
    for word in words[1:]:
        child = node.child(word)
        if child is None:
            break
        node = child
    return node


def _typed(ctx: click.Context) -> Iterator[tuple[str, list[str]]]:
    """Yield the key and the values of each option about places that the command line has."""
    for part in (ctx.find_root(), ctx):
        for param in part.command.params:
            name = param.name or ""
            is_place = getattr(param, "panel", None) in _PANELS or name in _CHOOSE_PROFILE
            if is_place and options.is_typed(part, name):
                # The values of options with a callback are in the settings of the run.
                value = part.params.get(name, getattr(ctx.obj, name, None))
                values = value if isinstance(value, list | tuple) else [value]
                yield settings_key(param.opts), [str(each) for each in values]
