"""`tierctl submit`: options, and the spark-submit line as text for a shell."""

import shlex
from collections.abc import Sequence

import typer

from tierctl import commands
from tierctl.cli.app import Command, named_command, new_app, parsed, unknown_command
from tierctl.cli.config.options import check_names, choosing_profile, parsed_for_later
from tierctl.cli.display import console_of
from tierctl.cli.options import (
    NoCheck,
    is_typed,
    request_of,
    with_options,
)
from tierctl.cli.settings.run import RunSettings
from tierctl.errors import ExitCode, UsageError
from tierctl.model.choices import ONLY_SPARK, EngineName

_RESOURCES = "Resources"
_HINT = "after --, as in: tierctl submit --master yarn -- sweep --metadata ..."


app = new_app()


@app.command("submit", cls=Command, context_settings={"allow_interspersed_args": False})
@with_options(commands.SubmitRequest, ...)
def submit(ctx: typer.Context, request: commands.SubmitRequest, no_check: NoCheck = False) -> int:
    """Print, or run, the spark-submit command line that runs a command.

    The command runs with --engine spark.

    The command line names tierctl, the Python interpreter and the resources, and never contains a credential.
    Paths in the command, the environment and tierctl.toml are those of the machine on which the driver runs.
    Without --run, the profile and the names of topics, settings, tiers and files in the command are checked,
    unless --no-check is given. If the metadata topic can't be read here, topics and tiers are not checked,
    and a note says so.

    The command lines for a standalone cluster and for YARN are tested on small clusters. Those for Kubernetes
    are tested up to the point where spark-submit connects to the cluster.
    """
    words, is_mutating = _checked(ctx, request.command or [], is_printed=not request.run, check=not no_check)
    request = request_of(commands.SubmitRequest, ctx, command=words, is_mutating=is_mutating)
    line = commands.submit(request, console_of(ctx))
    typer.echo(_shell_text(line.words, line.words.index(line.script)))
    return ExitCode.OK


def _checked(
    ctx: typer.Context, words: Sequence[str], *, is_printed: bool, check: bool
) -> tuple[list[str], bool]:
    """Return the command with `--engine spark`, and whether it may change a tier.

    Raise UsageError for a command without the option `--engine`, and for wrong options of the command. If the
    line `is_printed`, also call `check_names`; `check` is whether names are checked.
    """
    command, arguments = named_command(words)
    path = words[: len(words) - len(arguments)]
    names = {option.name for option in command.options} if isinstance(command, Command) else ()
    if words and not isinstance(command, Command):
        raise unknown_command(words, _HINT)
    what = " ".join(path)
    if "engine" not in names and what not in ONLY_SPARK:
        raise UsageError(f"{what}: this command can't run on Spark" if what else "no command", hint=_HINT)
    if "engine" in names and not any(word.partition("=")[0] == "--engine" for word in arguments):
        arguments = ["--engine", "spark", *arguments]
    settings: RunSettings = ctx.obj
    chosen = choosing_profile(arguments, file=settings.config_file, profile=settings.profile)
    arguments = [*chosen, *arguments]
    if is_printed and check:
        given = parsed_for_later(ctx, path, command, arguments)
    else:
        given = parsed(ctx, path, command, arguments)
    params = given.params
    if params.get("engine", EngineName.SPARK) != EngineName.SPARK:
        raise UsageError("submit can't be used with --engine local", hint="run the command itself")
    if any(is_typed(given, name) for name in ("master", "spark_conf")):
        raise UsageError(
            "--master and --spark-conf must be before the command", hint="tierctl submit --master ..."
        )
    if is_printed:
        check_names(given, params, path[0], console_of(ctx), is_asked=check)
    return [*path, *arguments], "apply" in names


def _shell_text(words: Sequence[str], script_at: int) -> str:
    """Return the command line as text for a shell: each option of spark-submit on its own line."""
    lines: list[list[str]] = [[words[0]]]
    for at, word in enumerate(words[1:], 1):
        if at == script_at or (at < script_at and word.startswith("--")):
            lines.append([])
        lines[-1].append(word)
    return " \\\n  ".join(map(shlex.join, lines))
