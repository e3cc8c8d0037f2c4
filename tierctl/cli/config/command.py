"""`tierctl config show`: the settings in force with their origins."""

from dataclasses import asdict
from typing import Annotated

import typer

from tierctl import commands
from tierctl.cli.app import Command, Group, new_app
from tierctl.cli.config.options import (
    choice_of_profile,
    in_force,
    options_in_force,
)
from tierctl.cli.display import Printer, Rows, console_of
from tierctl.cli.options import (
    with_options,
)
from tierctl.cli.settings.run import RunSettings
from tierctl.commands.insight.config import SETTINGS
from tierctl.errors import ExitCode

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="COMMAND",
        help="A command of tierctl with its options; default: all commands.",
        show_default=False,
    ),
]


app = new_app(name="config", cls=Group)


@app.callback()
def config() -> None:
    """Show the settings in force and their origins."""


_WHERE = (
    *("broker_config", "override", "command_config", "topic_configs", "kafka_version"),
    *("throttle_copy", "throttle_fetch", "metadata", "bootstrap_server", "topic"),
)
"""Files of settings, the version of the brokers that read them, and the topics of a cluster."""


@app.command("show", cls=Command, context_settings={"allow_interspersed_args": False})
@with_options(commands.ConfigRequest, _WHERE, ..., Rows, rows=(SETTINGS,), needs_valid_settings=False)
def show(ctx: typer.Context, command: Words = None) -> ExitCode:
    """Print every setting in force and the origin of its value.

    The value of a tierctl option comes from the command line, else from the environment (TIERCTL_...), else
    from the profile in tierctl.toml, else it is the default. Broker, client and topic settings come from the
    files of --broker-config, --command-config and --topic-configs, else they have Kafka's default; --override
    takes precedence. With --topic and a cluster, show prints the settings that these topics have there. With
    a COMMAND, show prints the settings of that command line. Secrets are hidden in every format.

    Exit 0 if an option accepts each value. Exit 3 if all refuse a value of the profile or the environment:
    "refused: " and the reason stand in place of the value.
    """
    settings: RunSettings = ctx.obj
    settings.require_valid()
    printer = Printer.of(ctx, SETTINGS)
    found, typed, request = in_force(ctx, command or [])
    of_options = [*choice_of_profile(ctx, settings), *options_in_force(found, typed, settings)]
    rows = commands.show_config(request, of_options, console_of(ctx))
    printer.show(asdict(row) for row in rows)
    files = (settings.profiles_file, request.broker_config, request.command_config, request.topic_configs)
    accepted = {each.key for each in of_options if not each.is_refused}
    is_refused = any(each.is_refused and each.key not in accepted for each in of_options)
    has_files = any(each is not None for each in files)
    printer.finish(following="tierctl doctor" if has_files or is_refused else None)
    return ExitCode.PARTIAL if is_refused else ExitCode.OK
