"""Options about the rows on stdout: their format, which columns and rows, their order, and times."""

from typing import Annotated

import typer

from tierctl.cli import completion
from tierctl.cli.options import SHOW, Output, OutputFormat
from tierctl.model.times import TimeForm


def _names(text: str) -> tuple[str, ...]:
    """Return the names of a comma-separated list."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


Columns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="NAME,...",
        autocompletion=completion.columns,
        parser=_names,
        help="Print these columns, in this order, in every format. Without this option a terminal shows as "
        "many columns as fit, the most important first.",
        rich_help_panel=SHOW,
    ),
]
Sort = Annotated[
    str | None,
    typer.Option(
        "--sort",
        metavar="[-]NAME,...",
        autocompletion=completion.columns,
        parser=_names,
        help="Sort the rows by these columns; - before a name sorts in descending order.",
        rich_help_panel=SHOW,
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        metavar="N",
        min=1,
        help="Print only the first N rows. The run and its exit code stay the same.",
        rich_help_panel=SHOW,
    ),
]
NoHeader = Annotated[
    bool, typer.Option("--no-header", help="Print tables and csv without a header.", rich_help_panel=SHOW)
]
Times = Annotated[
    TimeForm | None,
    typer.Option(
        "--times",
        help="Times in a table: ages, ISO 8601, or milliseconds since 1970. Default: relative at a terminal, "
        "otherwise ms. json, jsonl and csv have ms.",
        rich_help_panel=SHOW,
    ),
]


def rows(
    output: Output = OutputFormat.TABLE,
    columns: Columns = None,
    sort: Sort = None,
    limit: Limit = None,
    no_header: NoHeader = False,
    times: Times = None,
) -> None:
    """Group: how rows are printed."""


def records(
    columns: Columns = None,
    sort: Sort = None,
    limit: Limit = None,
    no_header: NoHeader = False,
    times: Times = None,
) -> None:
    """Group: how rows are printed, for commands that declare --output themselves."""
