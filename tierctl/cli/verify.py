"""`tierctl verify`: compare metadata, store and logs."""

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tierctl import commands
from tierctl.apply.defaults import THREADS
from tierctl.cli import completion, options, output_options
from tierctl.cli.app import Command, new_app
from tierctl.cli.display import Printer, console_of, summarize
from tierctl.cli.mutation_options import HOW
from tierctl.cli.options import request_of, with_options
from tierctl.cli.settings.keys import TYPED_ONLY
from tierctl.errors import ExitCode
from tierctl.model.settings.sizes import parse_size
from tierctl.model.times import DURATION_FORMS, parse_duration_ms
from tierctl.report import tables
from tierctl.report.plans import apply_command, plan_summary
from tierctl.report.units import parse_percent

if TYPE_CHECKING:
    from tierctl.commands.verify import Findings

IsDeep = Annotated[
    bool,
    typer.Option(
        "--deep",
        help="Fetch every segment, check the CRC, offsets and leader epochs of each batch and the indexes, "
        "and compare the segment with the logs.",
        rich_help_panel=options.DECIDE,
    ),
]
SamplePercent = Annotated[
    float | None,
    typer.Option(
        "--sample",
        metavar="PERCENT",
        parser=parse_percent,
        help="Fetch a random sample of this percentage of the segments, such as 1%, and check it as --deep "
        "does. Segments that were not read in the last 30 days are preferred.",
        rich_help_panel=options.DECIDE,
    ),
]
BudgetBytes = Annotated[
    int | None,
    typer.Option(
        "--budget",
        metavar="BYTES",
        parser=parse_size,
        help="Fetch random segments up to this total size of their objects, such as 10GB. With --sample, "
        "the sample ends at this size.",
        rich_help_panel=options.DECIDE,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="N",
        min=0,
        max=(1 << 32) - 1,
        help="Select the same segments as an earlier run of --sample or --budget, which printed this seed.",
        rich_help_panel=options.DECIDE,
    ),
]
Threads = Annotated[
    int,
    typer.Option(
        "--threads",
        metavar="N",
        min=1,
        max=256,
        help="Number of segments that --deep fetches at the same time, into a folder for temporary files "
        "(TMPDIR).",
        rich_help_panel=HOW,
    ),
]
Kinds = Annotated[
    list[str] | None,
    typer.Option(
        "--kind",
        metavar="KIND",
        help="Print only findings of this kind. The run and its exit code stay the same. Repeatable.",
        autocompletion=completion.finding_kinds,
        rich_help_panel=options.SHOW,
    ),
]

StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        metavar="DIR",
        help="The state directory of sweep, for the log start offsets that sweep raised. verify stores here "
        "which segments --deep and --sample read, and with --plan-out when each orphan was first seen.",
        rich_help_panel=options.WHERE,
    ),
]

PlanOut = Annotated[
    Path | None,
    typer.Option(
        "--plan-out",
        metavar="FILE",
        help="Write the plan of the repairs as JSON, for 'tierctl apply'.",
        rich_help_panel=options.APPLY,
    ),
]
AllLogDirs = Annotated[
    bool,
    typer.Option(
        "--all-log-dirs",
        help="With --plan-out: state that the --log-dir options name the log directories of all replicas. A "
        "topic id without a folder in any of them is then deleted, and its objects are orphans. apply "
        "needs this option again.",
        rich_help_panel=options.DECIDE,
    ),
    TYPED_ONLY,
]
OrphanAge = Annotated[
    int | None,
    typer.Option(
        "--orphan-age",
        metavar="DURATION",
        parser=parse_duration_ms,
        help="With --plan-out: delete orphans (objects that belong to no segment) only if they are older "
        f"than this, at least 24h: {DURATION_FORMS}. Default: 7d.",
        rich_help_panel=options.DECIDE,
    ),
    TYPED_ONLY,
]


app = new_app()


@app.command("verify", cls=Command)
@with_options(
    options.where,
    options.private_keys,
    options.state,
    options.selection,
    ...,
    output_options.rows,
    options.engine,
    options.reading_throttle,
)
def verify(
    ctx: typer.Context,
    deep: IsDeep = False,
    sample_percent: SamplePercent = None,
    budget_bytes: BudgetBytes = None,
    seed: Seed = None,
    threads: Threads = THREADS,
    state_dir: StateDir = None,
    plan_out: PlanOut = None,
    orphan_age_ms: OrphanAge = None,
    all_log_dirs: AllLogDirs = False,
    kind: Kinds = None,
    topic_configs: options.TopicConfigs = None,
    kafka_version: options.KafkaVersionOption = None,
    now_ms: options.Now = None,
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
    printer = Printer.of(ctx, tables.FINDINGS)
    kinds = commands.finding_kinds(kind or ())
    hidden: list[Any] = []
    with commands.verify(request_of(commands.VerifyRequest, ctx), console_of(ctx)) as findings:
        printer.show(map(commands.finding_row, _of_kinds(findings, kinds, hidden)))
    text = f"{findings.examined}: {printer.tally.text}"
    if findings.examined.reads is not None:
        text += f"; {findings.examined.reads.text}"
    if hidden:
        text += f", and {len(hidden)} of other kinds that are not printed"
    if findings.plan is not None:
        text += f"; {plan_summary(findings.plan.steps, plan_out)[0]}"
    summarize(ctx, text, following=_following(findings, plan_out, deep=deep))
    return findings.exit_code


def _of_kinds(findings: Iterable[Any], kinds: Collection[Any], hidden: list[Any]) -> Iterator[Any]:
    """Yield the findings of `kinds`, or all if `kinds` is empty; append the other findings to `hidden`."""
    for finding in findings:
        if kinds and finding.kind not in kinds:
            hidden.append(finding)
        else:
            yield finding


def _following(findings: "Findings", plan_out: Path | None, *, deep: bool) -> str | None:
    """Return the command that repairs a finding, or without any the one that examines more."""
    if findings.plan is not None:
        return apply_command(plan_out) if findings.plan.steps else None
    if findings.repairs:
        return f"tierctl {findings.repairs[0]}"
    is_clean = findings.exit_code is ExitCode.OK and findings.examined.objects
    deep = deep or findings.examined.reads is not None
    return "tierctl verify --deep" if is_clean and not deep else None
