"""Options that several commands take are declared once, as the parameters of a group.

def selection(topic: Topics = None, partition: Partitions = None) -> None: ...

@takes(options.where, options.selection, ..., options.rows)
def segments(ctx: typer.Context, check: Check = False) -> ExitCode: ...
"""

import functools
import inspect
from collections.abc import Callable
from inspect import Parameter, Signature
from types import EllipsisType
from typing import Any

_Command = Callable[..., Any]


def takes(*groups: Callable[..., None] | EllipsisType) -> Callable[[_Command], _Command]:
    """Give a command the options of `groups` beside its own; all of them are in `ctx.params`.

    In help they come in this order, the command's own where `...` stands, else last. What both declare is
    as the command has it. The command is called with what its own signature names.
    """

    def decorate(command: _Command) -> _Command:
        own = inspect.signature(command).parameters

        @functools.wraps(command)
        def called(**given: Any) -> Any:
            return command(**{name: given[name] for name in own})

        taken: dict[str, Parameter] = {}
        for group in groups if ... in groups else (*groups, ...):
            taken |= own if isinstance(group, EllipsisType) else inspect.signature(group).parameters
        taken |= own
        named = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in taken.values()]
        called.__signature__ = Signature(named)  # type: ignore[attr-defined]
        called.__annotations__ = {each.name: each.annotation for each in named}
        return called

    return decorate
