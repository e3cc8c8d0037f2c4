"""Options that every command has, before and after its name: the profile, messages, and unattended runs."""

from pathlib import Path
from typing import Annotated

import typer

from tierctl.cli.unattended import (
    EVERYWHERE,
    LimitFactor,
    LockTimeout,
    LogFileOption,
    LogFormatOption,
    MetricsFile,
)
from tierctl.commands import completion
from tierctl.commands.shared_options import TYPED_ONLY

HELP_ALL = "tierctl.help_all"
"""The key in a context's `meta` that --help-all sets."""


def _set_profile(ctx: typer.Context, value: str | None) -> None:
    if value is not None:
        ctx.obj.profile = value


def _set_config_file(ctx: typer.Context, value: Path | None) -> None:
    if value is not None:
        ctx.obj.config_file = value


def _set_verbose(ctx: typer.Context, value: int) -> None:
    if not ctx.resilient_parsing:
        ctx.obj.verbosity = max(ctx.obj.verbosity, value)
    if value > 1:
        import logging

        logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")


def _set_quiet(ctx: typer.Context, value: bool) -> None:
    if value:
        ctx.obj.is_quiet = True


Profile = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="Use the settings of this profile in tierctl.toml.",
        autocompletion=completion.profiles,
        callback=_set_profile,
        is_eager=True,
        expose_value=False,
        rich_help_panel=EVERYWHERE,
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config-file",
        metavar="FILE",
        help="The tierctl.toml to read. Default: ./tierctl.toml, then ~/.config/tierctl/tierctl.toml.",
        callback=_set_config_file,
        is_eager=True,
        expose_value=False,
        rich_help_panel=EVERYWHERE,
    ),
]
Verbose = Annotated[
    int,
    typer.Option(
        "--verbose",
        "-v",
        help="Print more on stderr: what is opened, and the traceback of an error. -vv also prints the logs "
        "of Spark and of libraries.",
        callback=_set_verbose,
        is_eager=True,
        expose_value=False,
        count=True,
        rich_help_panel=EVERYWHERE,
    ),
]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        help="Print only errors on stderr: no notes, no progress, no summary.",
        callback=_set_quiet,
        is_eager=True,
        expose_value=False,
        rich_help_panel=EVERYWHERE,
    ),
]


def _print_all_help(ctx: typer.Context, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[HELP_ALL] = True
        ctx.get_help()
        raise typer.Exit


HelpAll = Annotated[
    bool,
    typer.Option(
        "--help-all",
        help="Show the help with all options.",
        callback=_print_all_help,
        is_eager=True,
        expose_value=False,
    ),
    TYPED_ONLY,
]


def everywhere(
    profile: Profile = None,
    config_file: ConfigFile = None,
    verbose: Verbose = 0,
    quiet: Quiet = False,
    metrics_file: MetricsFile = None,
    log_format: LogFormatOption = None,
    log_file: LogFileOption = None,
    lock_timeout: LockTimeout = None,
    limit_factor: LimitFactor = None,
) -> None:
    """Group: the options of every command."""


def help_of_all(help_all: HelpAll = False) -> None:
    """Group: the help of the options that a command shares with most others."""
