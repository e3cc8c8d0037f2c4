"""`tierctl backup-config`: save the topics of a running cluster for the day on which it is lost."""

import typer

from tierctl import commands
from tierctl.cli.app import Command, new_app
from tierctl.cli.display import Printer, Rows, console_of
from tierctl.cli.options import with_options
from tierctl.commands.restore.backup_config import SAVED_TOPICS
from tierctl.errors import ExitCode
from tierctl.model.local import NOT_COVERED

app = new_app()


_WHERE = ("metadata", "bootstrap_server", "command_config", "broker_config", "topic")
"""The cluster and the topics that are saved."""


@app.command("backup-config", cls=Command)
@with_options(commands.BackupConfigRequest, _WHERE, ..., Rows, rows=(SAVED_TOPICS,))
def backup_config(ctx: typer.Context, request: commands.BackupConfigRequest) -> ExitCode:
    """Save what a tier lacks: the topic ids and settings of a running cluster.

    The YAML file has each topic's name, id, number of partitions, and the settings of the topic itself. With
    this file and the objects of the tier, the topics can be restored in a new cluster; once the cluster is
    lost, no other source has this data. Run the command from cron, and keep the file outside the cluster.
    Internal topics are left out. ACLs, quotas, users, delegation tokens, offsets of consumer groups and
    broker settings are not saved: back them up by other means.
    """
    printer = Printer.of(ctx, SAVED_TOPICS)
    console = console_of(ctx)
    result = commands.backup_config(request, console)
    _, shown = result.table_rows()
    printer.show(shown)
    console.say(f"written to {request.output_file}; not covered: {', '.join(NOT_COVERED)}")
    printer.finish()
    return ExitCode.OK
