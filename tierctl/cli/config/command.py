"""`tierctl config`: the settings in force with their origins, and checks of the files that state them."""

from dataclasses import asdict
from typing import Annotated

import typer

from tierctl import commands
from tierctl.cli.app import Command, Group, new_app
from tierctl.cli.config.options import (
    choice_of_profile,
    files_to_check,
    in_force,
    options_in_force,
)
from tierctl.cli.display import Printer, Rows, console_of, summarize
from tierctl.cli.options import (
    with_options,
)
from tierctl.cli.settings.run import RunSettings
from tierctl.commands.insight.config import SETTING_PROBLEMS, SETTINGS
from tierctl.errors import ExitCode, UsageError

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="COMMAND",
        help="A command of tierctl with its options; default: all commands.",
        show_default=False,
    ),
]


app = new_app(
    name="config", cls=Group, help="Show the settings in force, and check the files that state them."
)


_FILES = (
    *("broker_config", "override", "command_config", "topic_configs", "kafka_version"),
    *("throttle_copy", "throttle_fetch"),
)
"""Files of settings, and the version of the brokers that read them."""


@app.command("show", cls=Command, context_settings={"allow_interspersed_args": False})
@with_options(commands.ConfigRequest, _FILES, ..., Rows, rows=(SETTINGS,))
def show(ctx: typer.Context, command: Words = None) -> ExitCode:
    """Print every setting in force and the origin of its value.

    The value of a tierctl option comes from the command line, else from the environment (TIERCTL_...), else
    from the profile in tierctl.toml, else it is the default. Broker, client and topic settings come from the
    files of --broker-config, --command-config and --topic-configs, else they have Kafka's default; --override
    takes precedence. With a COMMAND, show prints the settings of that command line. Secrets are hidden in
    every format.
    """
    settings: RunSettings = ctx.obj
    printer = Printer.of(ctx, SETTINGS)
    found, typed, request = in_force(ctx, command or [])
    of_options = [*choice_of_profile(ctx, settings), *options_in_force(found, typed, settings)]
    rows = commands.show_config(request, of_options, console_of(ctx))
    printer.show(asdict(row) for row in rows)
    files = (settings.profiles_file, request.broker_config, request.command_config, request.topic_configs)
    has_files = any(each is not None for each in files)
    printer.finish(following="tierctl config check" if has_files else None)
    return ExitCode.OK


@app.command("check", cls=Command)
@with_options(commands.ConfigRequest, _FILES, ..., Rows, rows=(SETTING_PROBLEMS,), needs_valid_settings=False)
def check(ctx: typer.Context, request: commands.ConfigRequest) -> ExitCode:
    """Check tierctl.toml and files of broker, client and topic settings; report every problem.

    The files are those that the options name, and those that a profile of tierctl.toml names. Exit 0 if there
    is no problem, 2 if a setting is wrong or a file can't be read, and 3 if there are only warnings. Problems
    are: unknown names, wrong types and values out of bounds, settings that exclude each other, duplicates,
    settings that --kafka-version does not have, and files with secrets that every user may read.
    """
    settings: RunSettings = ctx.obj
    printer = Printer.of(ctx, SETTING_PROBLEMS)
    files = files_to_check(ctx, settings)

    result = commands.check_config(request, files)
    if not result.files and not result.problems:
        raise UsageError(
            "nothing to check: there is no tierctl.toml, and no option names a file",
            hint="name files: --broker-config server.properties, --topic-configs topics.properties",
        )
    printer.show(result.table_rows()[1])
    summarize(ctx, f"read {', '.join(map(str, result.files)) or 'no file'}: {printer.tally.text}")
    return result.exit_code
