"""Make requests of other commands from the sources of one request."""

from dataclasses import fields
from typing import Any, TypeVar

from tierctl.commands.request import Request

R = TypeVar("R", bound=Request)


def request_as(kind: type[R], request: Request) -> R:
    """Return the request of class `kind` with what `request` names; its own fields have their defaults."""
    values: dict[str, Any] = {each.name: getattr(request, each.name) for each in fields(Request)}
    return kind(**values)
