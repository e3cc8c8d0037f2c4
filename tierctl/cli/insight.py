"""The commands that ask about a tier: `status`, `explain`, `segments`, `verify`, `report` and `doctor`."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tierctl import commands
from tierctl.cli.app import command
from tierctl.cli.config import own_settings
from tierctl.cli.display import (
    Following,
    Printer,
    Rows,
    TablesPrinter,
    console_of,
    print_result,
    summarize,
)
from tierctl.cli.options import (
    ENGINE,
    PRIVATE_KEYS,
    SELECTION,
    STATE,
    TIER,
    WHERE,
    Fields,
    is_typed,
    request_of,
    typed_option,
)
from tierctl.commands import completion
from tierctl.errors import ExitCode, UsageError
from tierctl.model.checked_values import natural_number
from tierctl.model.choices import Severity
from tierctl.model.events import PARTITION_MAX
from tierctl.model.selection import counted, named_partition
from tierctl.model.times import DURATION_FORMS, parse_duration_s
from tierctl.report.plans import PLAN_ROWS, apply_command, plan_summary
from tierctl.report.render import SHOW, OutputFormat
from tierctl.report.table import bytes_text

if TYPE_CHECKING:
    from tierctl.checks.findings import Finding
    from tierctl.commands.verify.command import Findings

_DECIDED: Final = ("topic_configs", "kafka_version", "now_ms", "copy_limit_ms")
"""What decides about segments, beside the metadata and the logs."""

_CLEAR = "\x1b[H\x1b[2J"


class _StatusTable(StrEnum):
    """The tables of `status`."""

    TOPICS = "topics"
    PROBLEMS = "problems"
    RUNS = "runs"


_StatusShow = Annotated[
    _StatusTable | None,
    typer.Option(
        "--show",
        help="Print only these rows: topics, problems that need an operator, or the last successful runs in "
        "--state-dir. Default: tables of all three; json, jsonl and csv print the topics.",
        rich_help_panel=SHOW,
    ),
]
_Watch = Annotated[
    float | None,
    typer.Option(
        "--watch",
        metavar="DURATION",
        parser=parse_duration_s,
        min=0.1,
        max=30 * 86_400,  # No operator waits longer, and a sleep of centuries is an error.
        help=f"Repeat the output at this interval until interrupted: {DURATION_FORMS}.",
        rich_help_panel=SHOW,
    ),
]


@command("status", WHERE, STATE, SELECTION, ..., *_DECIDED, Rows, ENGINE, rows=lambda: commands.STATUS_ROWS)
def status(
    ctx: typer.Context, request: commands.StatusRequest, show: _StatusShow = None, watch: _Watch = None
) -> ExitCode:
    """Show the state of a tier: its topics, the copy lag, problems and the last runs.

    Exit 0 if the tier is healthy, and 3 if an operator must act: on findings of verify that are more than
    information, on copies that KIP-917's limit stopped, which --state-dir records, or on a transaction that
    keeps segments from the tier for longer than --copy-limit. status does not examine
    the objects of the tier, as verify does; of a tier on S3 it lists them, to show archived ones. To show the
    copy lag and stopped copies, status needs --log-dir and settings that enable the topics. The copy lag is
    what copy would copy now, and what waits for a transaction or a limit.
    """
    if show is _StatusTable.RUNS and request.state_dir is None:
        raise UsageError(
            "--show runs needs --state-dir, in which the last successful runs are stored",
            hint="give it here, as TIERCTL_STATE_DIR, or in a profile of tierctl.toml",
        )
    while True:
        printer = TablesPrinter.of(ctx, dict(zip(_StatusTable, commands.STATUS_ROWS, strict=True)), show)
        found = commands.status(request, console_of(ctx))
        if watch is not None and sys.stdout.isatty():
            sys.stdout.write(_CLEAR)
        printer.show(dict(zip(_StatusTable, (found.topics, found.problems, found.runs), strict=True)))
        also = None if show in {_StatusTable.PROBLEMS, _StatusTable.RUNS} else found.problems_text
        printer.finish(also=also, following=found.next_commands)
        if watch is None:
            return found.exit_code
        sys.stdout.flush()
        time.sleep(watch)
        ctx.obj.started_s = time.monotonic()  # Each line that ends a repetition has its own time.


_TopicName = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC[-PARTITION]",
        help="The partition, as orders-0; or the name of its topic, if PARTITION is given.",
        autocompletion=completion.topics,
        show_default=False,
    ),
]


def _partition_number(text: str) -> int:
    number = natural_number(text, PARTITION_MAX)
    if number is None:
        raise UsageError(
            f"PARTITION: expected the number of a partition, found {text!r}",
            hint="name one partition, as orders-0 or orders 0; run explain once for each",
        )
    return number


_PartitionNumber = Annotated[
    int | None,
    typer.Argument(
        metavar="PARTITION",
        parser=_partition_number,
        help="Number of the partition.",
        show_default=False,
    ),
]


@command(
    "explain",
    WHERE,
    PRIVATE_KEYS,
    STATE,
    "topic_id",
    ...,
    *_DECIDED,
    Rows,
    ENGINE,
    rows=lambda: (commands.EXPLANATIONS,),
)
def explain(
    ctx: typer.Context,
    request: commands.ExplainRequest,
    topic_name: _TopicName,
    partition_number: _PartitionNumber = None,
) -> int:
    """Explain what brokers do next with each segment of a partition, and why.

    A segment of the log is copied or waits: until it is rolled, a transaction ends, more replicas have it, or
    the copy lag has passed; or because an earlier run with this --state-dir found that its custom metadata
    exceeds KIP-917's limit. A segment of the tier is deleted, expires at a stated time, waits until an older
    segment is deleted, or is not subject to retention: it is off the lineage, or its topic was deleted. The
    decisions are those of copy, sweep and delete with the same options. For each reason, json also has
    Kafka's rule and the settings that decide, with their values and origins. Exit 3 if copies of the
    partition fail: explain then states how many, since when, and which broker's log has the error. Exit 3
    also if KIP-917's limit stops its copies, or if a transaction keeps segments from the tier for longer than
    --copy-limit: explain then prints the command that ends it; if local retention does not free the disk of a
    replica; and if brokers never delete a segment of the tier, because it was copied again from the same
    offset.
    """
    request = replace(request, **named_partition(topic_name, partition_number))
    return print_result(ctx, commands.explain, request)


@command("segments", *TIER, ..., "now_ms", "copy_limit_ms", Rows, ENGINE, rows=lambda: commands.SEGMENT_ROWS)
def segments(ctx: typer.Context, request: commands.SegmentsRequest) -> ExitCode:
    """List remote segments, find one segment, sum up sizes, or check offsets.

    The list is sorted by topic, partition, start offset and time of the last event. If a metadata record is
    unreadable, or the retention of the metadata topic deleted the oldest events of a partition, a message on
    stderr says so and the exit code is 7. With --engine spark, executors read the metadata topic; for --all,
    this process reads it once more.
    """
    printer = Printer.of(ctx, request.columns)
    result = commands.segments(request, console_of(ctx))
    printer.show(result.rows)
    printer.finish(following="tierctl verify" if request.check and result.rows else None)
    return result.exit_code


_AllFindings = Annotated[
    bool,
    typer.Option(
        "--all",
        help="Print each finding at a terminal, too, where findings of the same kind and partition are "
        "otherwise one row.",
        rich_help_panel=SHOW,
    ),
]


@command(
    "verify",
    *TIER,
    ...,
    *_DECIDED,
    Rows,
    ENGINE,
    "throttle_fetch",
    rows=lambda: (commands.FINDINGS, *PLAN_ROWS),
)
def verify(
    ctx: typer.Context,
    request: commands.VerifyRequest,
    kind: Annotated[
        list[commands.FindingKind] | None,
        typer.Option(
            "--kind",
            metavar="KIND",
            help="Print only findings of this kind. The run and its exit code stay the same. Repeatable.",
            rich_help_panel=SHOW,
        ),
    ] = None,
    show_all: _AllFindings = False,
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
    printer = Printer.of(ctx)
    hidden: list[Any] = []
    with commands.verify(request, console_of(ctx)) as findings:
        grouped = partial(_grouped, show_all=show_all) if printer.may_group else None
        printer.show(_of_kinds(findings, kind or (), hidden), grouped)
    text = f"{findings.examined}: {_kinds_text(printer, kind or (), hidden)}"
    if findings.examined.reads is not None:
        text += f"; {findings.examined.reads.text}"
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


def _kinds_text(printer: Printer, kinds: Collection[Any], hidden: Collection[Finding]) -> str:
    """Return what was printed, and how many problems and how much information of other kinds were not."""
    text = printer.text
    if kinds and not printer.tally.rows:
        info = printer.tally.apart
        text = (f"{info} info" if info else f"no findings of kind {', '.join(kinds)}") + printer.cut_text
    info = sum(each.severity is Severity.INFO for each in hidden)
    problems = [counted(len(hidden) - info, "problem")] if len(hidden) > info else []
    others = " and ".join([*problems, *([f"{info} info"] if info else [])])
    return f"{text}; {others} of other kinds" if others else text


def _grouped(findings: Iterable[Finding], *, show_all: bool) -> Iterator[Finding]:
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


def _merged(findings: Iterable[Finding]) -> Iterator[Finding]:
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


def _following(findings: Findings, plan_out: Path | None, *, deep: bool) -> Following:
    """Return the commands that repair a finding, or without any the one that examines more."""
    if findings.plan is not None:
        return apply_command(plan_out) if findings.plan.steps else None
    if findings.repairs:
        return [f"tierctl {repair}" for repair in findings.repairs]
    is_clean = findings.exit_code is ExitCode.OK and findings.examined.objects
    deep = deep or findings.examined.reads is not None
    return "tierctl verify --deep" if is_clean and not deep else None


class _ReportTable(StrEnum):
    """The tables of `report`."""

    SIZES = "sizes"
    GROWTH = "growth"
    EXPIRATIONS = "expirations"
    CHANGES = "changes"
    GROUPS = "groups"


_OF_TIER = (_ReportTable.SIZES, _ReportTable.GROWTH, _ReportTable.EXPIRATIONS)
_OF_CHANGES = (_ReportTable.CHANGES, _ReportTable.GROUPS)
_CHANGE_OPTIONS = ("price_per_gb_month", "price_per_1000_requests", "warehouse")


def _changes() -> Fields:
    """Return the options of a change that --what-if states."""
    return Fields(commands.WhatIfRequest, ("what_if", *_CHANGE_OPTIONS))


_ReportShow = Annotated[
    _ReportTable | None,
    typer.Option(
        "--show",
        help="Print only these rows: sizes by topic and age, growth by day, or the next 1000 segments that "
        "expire; with --what-if, the changes by topic, or the consumer groups that would lose records. "
        "Default: tables of all of them; json, jsonl and csv print the sizes, or the changes.",
        rich_help_panel=SHOW,
    ),
]


@command(
    "report",
    *TIER,
    ...,
    _changes,
    *_DECIDED,
    Rows,
    ENGINE,
    rows=lambda: (*commands.REPORT_ROWS, *commands.CHANGE_ROWS),
)
def report(ctx: typer.Context, request: commands.ReportRequest, show: _ReportShow = None) -> ExitCode:
    """Report sizes by age, growth by day and the next expirations.

    They are printed as tables, or with --html as one page.

    The page of --html also shows the segments of each partition in the tier beside those of its log, by
    offset and by time, with their states, their lineage and the findings of verify, and the copy lag of each
    topic. The decisions are those of copy, sweep and delete, as in explain. With --remote, report lists all
    objects of the tier, as verify does. Exit 0 if there are no findings of verify except information, 3 with
    other findings, or if copies continue only after an operator acted, as status says it, and 7 if data is
    corrupt; the page is written in every case.

    With --what-if, the command calculates a change of retention instead. For each topic it prints the bytes,
    segments, objects, requests and costs now, right after the change, and in 90 days at the observed growth;
    on a cluster also the consumer groups that would lose records; with --log-dir the disks of the brokers.
    Unknown values are left empty. tierctl-what-if(7) has the formulas. Exit 3 if a value could not be
    decided.
    """
    is_change = bool(ctx.params["what_if"])
    _check(ctx, request.html, show, is_change=is_change)
    if is_change:
        return _print_what_if(ctx, show)
    printer = TablesPrinter.of(ctx, dict(zip(_OF_TIER, commands.REPORT_ROWS, strict=True)), show)
    made = commands.report(request, console_of(ctx))
    following = None if made.exit_code is ExitCode.OK else "tierctl verify"
    if made.page is not None:
        partitions = counted(made.partitions, "partition")
        text = (
            f"{partitions}, {made.examined}: {made.problems_text}; {made.page}, {bytes_text(made.page_bytes)}"
        )
        summarize(ctx, text, following=following)
        return made.exit_code
    printer.show(dict(zip(_OF_TIER, (made.sizes, made.growth, made.expirations), strict=True)))
    if show is None:
        summarize(ctx, made.summary + printer.cut_text, following=following)
    else:
        unknown = made.unknown if show is _ReportTable.EXPIRATIONS else []
        printer.finish(also="; ".join(unknown) or None, following=following)
    return made.exit_code


def _check(ctx: typer.Context, html: Path | None, show: _ReportTable | None, *, is_change: bool) -> None:
    """Raise UsageError for options that exclude each other, or that need --what-if."""
    if html is not None and show is not None:
        raise UsageError(
            "--html and --show exclude each other", hint="leave --show out: the page contains all tables"
        )
    given = typed_option(ctx, ("columns", "sort", "limit", "no_header", "times"))
    if html is not None and given is not None:
        raise UsageError(
            f"--html and {given} exclude each other", hint=f"leave {given} out: it is about rows"
        )
    if is_change:
        if html is not None:
            raise UsageError("--html and --what-if exclude each other", hint="run the command twice")
        if show in _OF_TIER:
            raise UsageError(
                f"--show {show} and --what-if exclude each other", hint="expected changes or groups"
            )
        return
    given = typed_option(ctx, _CHANGE_OPTIONS)
    if given or (show is not None and show not in _OF_TIER):
        raise UsageError(
            f"{given or f'--show {show}'} needs --what-if", hint="as --what-if 'orders.retention.ms=7d'"
        )


def _print_what_if(ctx: typer.Context, show: _ReportTable | None) -> ExitCode:
    """Print the results of the changes that the command line states; return the exit code."""
    printer = TablesPrinter.of(ctx, dict(zip(_OF_CHANGES, commands.CHANGE_ROWS, strict=True)), show)
    # A profile names the warehouse for `pipeline run`: it is read here only if the command line asks for it.
    warehouse = {} if is_typed(ctx, "warehouse") else {"warehouse": None}
    request = request_of(commands.WhatIfRequest, ctx, **warehouse)
    found = commands.what_if(request, console_of(ctx))
    printer.show(dict(zip(_OF_CHANGES, (found.topics, found.groups), strict=True)))
    total = found.topics[-1]
    amounts = ((total.now_bytes, "now"), (total.changed_bytes, "changed"), (total.later_bytes, "in 90 days"))
    known = [f"{bytes_text(size)} {when}" for size, when in amounts if size is not None]
    unknown = [f"not known {when}" for size, when in amounts if size is None]
    text = f"{counted(len(found.topics) - 1, 'topic')}: {', '.join(known + unknown)}"
    if found.groups:
        groups = counted(len({each.group for each in found.groups}), "consumer group")
        text += f"; {groups} would lose records"
    summarize(ctx, text + printer.cut_text)
    return found.exit_code


_AllChecks = Annotated[
    bool,
    typer.Option(
        "--all",
        help="Also list the checks that were not made because they do not apply here or no option names what "
        "they need.",
        rich_help_panel=SHOW,
    ),
]


@command(
    "doctor",
    WHERE,
    PRIVATE_KEYS,
    "topic",
    "state_dir",
    ...,
    "topic_configs",
    "kafka_version",
    ENGINE,
    Rows,
    rows=lambda: (commands.CHECKS,),
    needs_valid_settings=False,
)
def doctor(ctx: typer.Context, request: commands.DoctorRequest, show_all: _AllChecks = False) -> ExitCode:
    """Find conditions that would make tiering fail.

    For each check, doctor prints what it found, why it matters, and how to fix it, the worst problems first,
    then what is ok.
    The checks cover tierctl.toml and the files of broker,
    client and topic settings that its profiles or the options name, contradictory settings of brokers and
    topics, the metadata topic, Kafka releases with known bugs, clocks, permissions, the features and
    lifecycle rules of the store, the state directory, and readable files with secrets. doctor checks only
    what the options name; other checks are counted and never count as ok: --all lists them, and --output json
    always has them. It changes nothing, except with --probe-writes.

    The problems of files of settings are: unknown names, wrong types and values out of bounds, settings that
    exclude each other, duplicates, and settings that --kafka-version does not have. A wrong tierctl.toml, or
    a variable TIERCTL_... that names no option, does not end doctor: it is a problem of its own, and the
    checks that need no value of it are made. A value in the environment that an option of doctor refuses ends
    it with exit code 2, as on the command line.

    With --engine spark, doctor starts Spark and checks each executor: its versions of Python and of
    libraries, its disk space, and whether it reaches the cluster, the metadata topic and the store with its
    own credentials. Executors also read the metadata topic.

    Exit 0 if every check that was made is ok. Exit 3 if a problem or a warning needs an operator, or if a
    requested check could not be made. If no check could be made, the exit code is that of the first error.
    """
    printer = Printer.of(ctx)
    request = replace(request, own_settings=own_settings(ctx))
    diagnosis = commands.doctor(request, console_of(ctx))
    is_table = printer.output is OutputFormat.TABLE and not show_all
    shown = [each for each in diagnosis.results if not (is_table and each.is_left_out)]
    printer.show(shown)
    hidden = len(diagnosis.results) - len(shown)
    left = f"{counted(hidden, 'check')} not made (--all lists them and why)"
    printer.finish(also=left if hidden else None)
    return diagnosis.exit_code
