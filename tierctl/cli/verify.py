"""`tierctl verify`: compare metadata, store and logs."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tierctl import commands
from tierctl.cli.app import Command, new_app
from tierctl.cli.display import Following, Printer, Rows, console_of, summarize
from tierctl.cli.options import (
    ENGINE,
    PRIVATE_KEYS,
    SELECTION,
    STATE,
    WHERE,
    with_options,
)
from tierctl.commands import completion
from tierctl.commands.verify.command import FINDINGS
from tierctl.errors import ExitCode
from tierctl.model.choices import Severity
from tierctl.report.plans import PLAN_ROWS, apply_command, plan_summary
from tierctl.report.render import SHOW

if TYPE_CHECKING:
    from tierctl.checks.findings import Finding
    from tierctl.commands.verify.command import Findings

Kinds = Annotated[
    list[str] | None,
    typer.Option(
        "--kind",
        metavar="KIND",
        help="Print only findings of this kind. The run and its exit code stay the same. Repeatable.",
        autocompletion=completion.finding_kinds,
        rich_help_panel=SHOW,
    ),
]


All = Annotated[
    bool,
    typer.Option(
        "--all",
        help="Print each finding at a terminal, too, where findings of the same kind and partition are "
        "otherwise one row.",
        rich_help_panel=SHOW,
    ),
]


app = new_app()


@app.command("verify", cls=Command)
@with_options(
    commands.VerifyRequest,
    WHERE,
    PRIVATE_KEYS,
    STATE,
    SELECTION,
    ...,
    "topic_configs",
    "kafka_version",
    "now_ms",
    "copy_limit_ms",
    Rows,
    ENGINE,
    "throttle_fetch",
    rows=(FINDINGS, *PLAN_ROWS),
)
def verify(
    ctx: typer.Context, request: commands.VerifyRequest, kind: Kinds = None, show_all: All = False
) -> ExitCode:
    """Compare metadata, store and logs; --plan-out plans repairs.

    Exit 0 if there are no findings except information, 3 with other findings, 7 if data is corrupt or the
    metadata topic has lost events that are needed. verify reads the whole metadata topic; a --state-dir that
    read the topic earlier supplies the events that the topic has lost since. verify searches all of --remote
    for objects that no metadata record names. If a cluster is given, what its leaders report takes precedence
    over --log-dir. With --engine spark, executors list the store's folders and examine segments; with --deep
    they must also be able to read --log-dir. For --plan-out they read the objects of unknown segments.

    If reading the whole tier costs too much, --sample 1% --budget 10GB reads a random part of it. The finding
    not_read names the part that was not read, and --state-dir stores which segments were read in the last 30
    days.

    With --plan-out, verify writes a plan of the repairs, and tierctl apply carries it out.
    tierctl-findings(7) states which findings are repaired and how; if a finding has no repair, the reason is
    printed. Give a cluster or the --log-dir of all replicas: the log decides which objects are needed.
    """
    printer = Printer.of(ctx, FINDINGS)
    kinds = commands.finding_kinds(kind or ())
    hidden: list[Any] = []
    with commands.verify(request, console_of(ctx)) as findings:
        grouped = partial(_grouped, show_all=show_all) if printer.may_group else None
        printer.show(_of_kinds(findings, kinds, hidden), grouped)
    text = f"{findings.examined}: {printer.text}"
    if findings.examined.reads is not None:
        text += f"; {findings.examined.reads.text}"
    if hidden:
        text += f", and {len(hidden)} of other kinds that are not printed"
    if findings.plan is not None:
        text += f"; {plan_summary(findings.plan.steps)}"
    summarize(ctx, text, following=_following(findings, request.plan_out, deep=request.deep))
    return findings.exit_code


def _of_kinds(findings: Iterable[Any], kinds: Collection[Any], hidden: list[Any]) -> Iterator[Any]:
    """Yield the findings of `kinds`, or all if `kinds` is empty; append the other findings to `hidden`."""
    for finding in findings:
        if kinds and finding.check not in kinds:
            hidden.append(finding)
        else:
            yield finding


def _grouped(findings: Iterable["Finding"], *, show_all: bool) -> Iterator["Finding"]:
    """Yield the findings by kind, the worst kinds first; only the last text of a kind has its hint.

    Unless `show_all`, one finding is yielded for all of the same kind and partition.
    """
    by_hint: dict[tuple[Any, str], list[Finding]] = {}
    for each in findings:
        by_hint.setdefault((each.check, each.fix), []).append(each)
    order = list(Severity)
    for found in sorted(by_hint.values(), key=lambda each: min(order.index(f.severity) for f in each)):
        rows = found if show_all else list(_merged(found))
        last = rows[-1].found
        yield from (each if each.found == last else replace(each, own_fix="") for each in rows)


def _merged(findings: Iterable["Finding"]) -> Iterator["Finding"]:
    """Yield one finding for each severity and subject, with the number of the others."""
    groups: dict[tuple[Any, str], list[Finding]] = {}
    for each in findings:
        groups.setdefault((each.severity, each.subject), []).append(each)
    for first, *others in groups.values():
        if not others:
            yield first
            continue
        ends = [each.end_offset for each in (first, *others) if each.end_offset is not None]
        found = f"{first.found}; {len(others)} more like this, see --all"
        yield replace(first, found=found, segment_id=None, end_offset=max(ends, default=None), key=None)


def _following(findings: "Findings", plan_out: Path | None, *, deep: bool) -> Following:
    """Return the commands that repair a finding, or without any the one that examines more."""
    if findings.plan is not None:
        return apply_command(plan_out) if findings.plan.steps else None
    if findings.repairs:
        return [f"tierctl {repair}" for repair in findings.repairs]
    is_clean = findings.exit_code is ExitCode.OK and findings.examined.objects
    deep = deep or findings.examined.reads is not None
    return "tierctl verify --deep" if is_clean and not deep else None
