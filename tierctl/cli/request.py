"""Build the request of a use case from the options of a command line."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

import typer

from tierctl.cli.options import typed_option
from tierctl.cli.settings.run import RunSettings
from tierctl.errors import UsageError
from tierctl.model.engine import EngineName

R = TypeVar("R")


def request_of(kind: type[R], ctx: typer.Context, **more: object) -> R:
    """Return the request of class `kind` whose fields have the values of the options of the same names.

    Options that were not given leave a field at its default; fields in `more` have the values given there.
    Raise UsageError for options of Spark that are typed without `--engine spark`.
    """
    given: Mapping[str, Any] = ctx.params
    if given.get("engine") is EngineName.LOCAL:
        # A profile may have them for other runs, so only typed options are an error.
        option = typed_option(ctx, ("master", "spark_conf"))
        if option:
            raise UsageError(
                f"{option} needs --engine spark", hint=f"add --engine spark, or leave {option} out"
            )
    of_run = {"verbose": getattr(ctx.obj, "verbosity", 0) > 1, "meter": getattr(ctx.obj, "meter", None)}
    if isinstance(ctx.obj, RunSettings):
        of_run |= {"on_topics": ctx.obj.topics.update, "throttle": ctx.obj.throttle}
    values = dict(given) | of_run | more
    if isinstance(ctx.obj, RunSettings) and given.get("apply") is not False:
        # A run that only plans changes nothing in the state directory.
        ctx.obj.state_dir = values.get("state_dir")
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(
        **{
            name: tuple(value) if isinstance(value, list) else value
            for name, value in values.items()
            if name in names and value is not None
        }
    )
