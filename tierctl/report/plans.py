"""Plans and outcomes on stdout: one object in JSON, otherwise rows.

The further keys of a step are its details, which follow from its action.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Final, NotRequired, TypedDict

from tierctl.errors import UsageError
from tierctl.model.selection import counted
from tierctl.report import columns as f
from tierctl.report.columns import Columns, Field, Kind, Shown
from tierctl.report.render import OutputFormat, Printed, View, render, render_object
from tierctl.report.table import Tally

if TYPE_CHECKING:
    from tierctl.plan.saved import SavedPlan
    from tierctl.plan.steps import Plan, Step


class StepRow(TypedDict):
    """A step of a plan; each action has its own details."""

    action: Annotated[str, f.ACTION, Shown(1)]
    reason: Annotated[str, f.REASON, Shown(1)]
    topic: Annotated[str, f.TOPIC, Shown(0)]
    topic_id: Annotated[str, f.TOPIC_ID]
    partition: Annotated[int, f.PARTITION, Shown(0)]
    segment_id: Annotated[str | None, f.SEGMENT_ID, Shown(5)]
    start_offset: Annotated[int | None, f.START_OFFSET, Shown(0)]
    end_offset: Annotated[int | None, f.END_OFFSET, Shown(2)]
    state: NotRequired[Annotated[str, f.STATE]]
    segment_size_in_bytes: NotRequired[Annotated[int, f.SEGMENT_SIZE_IN_BYTES, Shown(3, in_table=False)]]
    max_timestamp_ms: NotRequired[Annotated[int, f.MAX_TIMESTAMP_MS, Shown(4, in_table=False)]]
    segment_leader_epochs: NotRequired[Annotated[list[tuple[int, int]], f.SEGMENT_LEADER_EPOCHS]]
    metadata_partition: NotRequired[Annotated[int | None, f.METADATA_PARTITION]]
    lineage_epoch: NotRequired[
        Annotated[
            int, Field(Kind.NUMBER, "latest leader epoch of the lineage from which the step was decided")
        ]
    ]
    written_ms: NotRequired[
        Annotated[int, Field(Kind.TIME, "time at which the log segment was last written", "written")]
    ]
    log: NotRequired[Annotated[str, Field(Kind.NAME, "file of the log segment that is copied")]]
    leader_epoch_checkpoint: NotRequired[
        Annotated[
            list[tuple[int, int]],
            Field(Kind.PAIRS, "[leader epoch, start offset] of the log, of a copy up to its end"),
        ]
    ]
    txn_index_empty: NotRequired[Annotated[bool | None, f.TXN_INDEX_EMPTY]]
    source_segment_id: NotRequired[
        Annotated[str, Field(Kind.TEXT, "id of the segment in the tier that is copied from")]
    ]
    breach: NotRequired[Annotated[str, Field(Kind.WORD, "the limit for which the segment is deleted")]]
    follows: NotRequired[
        Annotated[str, Field(Kind.TEXT, "id of the segment that must be deleted before this one")]
    ]
    new_log_start_offset: NotRequired[Annotated[int, f.NEW_LOG_START_OFFSET]]
    delete_marked_offset: NotRequired[
        Annotated[int | None, Field(Kind.NUMBER, "metadata offset of DELETE_PARTITION_MARKED")]
    ]
    segments: NotRequired[Annotated[int, f.SEGMENTS]]
    states: NotRequired[
        Annotated[str, Field(Kind.WORD, "states that are published, in order, commas between")]
    ]
    custom_metadata: NotRequired[Annotated[str | None, f.CUSTOM_METADATA]]
    log_dir: NotRequired[Annotated[str, Field(Kind.NAME, "log directory in which files are written")]]
    raised_log_start_offset: NotRequired[
        Annotated[int, Field(Kind.NUMBER, "log start offset that is put back")]
    ]
    as_topic: NotRequired[
        Annotated[str, Field(Kind.NAME, "name of the topic that the records are restored as")]
    ]
    as_topic_id: NotRequired[
        Annotated[str, Field(Kind.TEXT, "id of the topic that the records are restored as")]
    ]
    room_bytes: NotRequired[
        Annotated[int, Field(Kind.BYTES, "bytes that the files of the log need on the disk", "room")]
    ]
    segment_parts: NotRequired[
        Annotated[
            list[dict[str, Any]],
            Field(Kind.LIST, "segments: objects with segment_id, and the start_offset and end_offset taken"),
        ]
    ]


STEPS = Columns(
    StepRow,
    name="steps",
    title="Steps of a plan",
    commands="copy, sweep, delete, rebuild, restore, apply (jsonl and csv; json prints a plan)",
    noun="step",
    word="action",
    size="segment_size_in_bytes",
    terminal=(
        "action",
        "topic",
        "partition",
        "start_offset",
        "end_offset",
        "segment_size_in_bytes",
        "max_timestamp_ms",
        "segment_id",
        "reason",
    ),
    table=("action", "topic", "partition", "start_offset", "end_offset", "segment_id", "reason"),
    notes=("reason",),
    is_open=True,
)


class OutcomeRow(StepRow):
    """A step of a plan, and how it ended."""

    status: Annotated[str, f.STATUS, Shown(0)]
    error: Annotated[str | None, f.ERROR, Shown(1)]
    why: Annotated[str | None, f.WHY, Shown(2)]


OUTCOMES = Columns(
    OutcomeRow,
    name="outcomes",
    title="Outcomes of a plan's steps",
    commands="copy, sweep, delete, rebuild, restore, apply, with --apply (jsonl and csv; json prints a plan)",
    noun="step",
    word="status",
    size="segment_size_in_bytes",
    terminal=(
        "status",
        "action",
        "topic",
        "partition",
        "start_offset",
        "end_offset",
        "segment_size_in_bytes",
        "segment_id",
        "error",
        "why",
    ),
    table=(
        "status",
        "action",
        "topic",
        "partition",
        "start_offset",
        "end_offset",
        "segment_id",
        "error",
        "why",
    ),
    notes=("error", "why"),
    is_open=True,
)

PLAN_ROWS: Final = (STEPS, OUTCOMES)
"""The kinds of rows of a command that makes plans."""
_FIXED = 8
"""The number of columns that every step has."""
_WRITE_LOGS = {"materialise_partition", "restore_partition"}
"""Actions after which the operator starts brokers, as the run says, before anything can be checked."""
_OUTCOME = ("status", "error", "why")


def show_plan(saved: SavedPlan, output: OutputFormat, view: View) -> Printed:
    """Print the plan: as one object in JSON, otherwise one row per step."""
    if output == OutputFormat.JSON:
        render_object(saved.to_json(), output)
        return Printed(rows=len(saved.plan.steps))
    rows = [step.to_json() for step in saved.plan.steps]
    return render(rows, output, STEPS, view, names=_columns(rows))


def show_outcomes(
    saved: SavedPlan,
    outcomes: Sequence[Mapping[str, Any]],
    output: OutputFormat,
    view: View,
    *,
    conclusion: str | None = None,
) -> Printed:
    """Print the outcome of each step: beside the plan in JSON, otherwise one row per outcome."""
    if output == OutputFormat.JSON:
        more = {} if conclusion is None else {"conclusion": conclusion}
        render_object(saved.to_json() | {"outcomes": list(outcomes)} | more, output)
        return Printed(rows=len(outcomes))
    return render(outcomes, output, OUTCOMES, view, names=[*_columns(outcomes), *_OUTCOME])


def check_view(output: OutputFormat, view: View) -> None:
    """Raise UsageError for a view in which a plan can't be printed; called before anything is changed."""
    view.check(OUTCOMES)
    if output == OutputFormat.JSON and not view.is_plain:
        raise UsageError(
            "--columns, --sort, --limit and --no-header are for rows, and with --output json a plan is one "
            "object",
            hint="use --output jsonl",
        )


def plan_summary(steps: Iterable[Step], raised: int = 0) -> str:
    """Return a summary of a plan, which raises so many log starts, for the last line of a run."""
    tally = Tally(STEPS)
    for _ in tally.of(step.to_json() for step in steps):
        pass
    parts = [tally.text] if tally.rows else []
    if raised:
        parts.append(f"{counted(raised, 'log start offset')} to raise")
    return f"a plan, nothing changed: {'; '.join(parts)}" if parts else "nothing to do"


def apply_command(file: object) -> str:
    """Return the command that carries out the plan in `file`, as a shell reads it."""
    return f"tierctl apply {quote(str(file))}"


def outcomes_summary(outcomes: Iterable[Mapping[str, Any]], raised: int = 0) -> tuple[str, str | None]:
    """Return the counts of outcomes for the line that ends a run, and the command that can be run next.

    The size is that of the steps that were done. The run `raised` so many log start offsets besides.
    The command deletes the topics that the run marked, or otherwise checks the result. It is None for written
    logs, which no command on files can check before their brokers have started.
    """
    tally, actions = Tally(OUTCOMES), set()
    unsized = {"segment_size_in_bytes": None}
    for row in tally.of(row if row["status"] == "done" else {**row, **unsized} for row in outcomes):
        actions.add(row["action"])
    also = f"{counted(raised, 'log start offset')} raised" if raised else ""
    if not tally.rows:
        return also or "nothing to do", None
    if actions & _WRITE_LOGS:
        return tally.text, None
    text = f"{tally.text}; {also}" if also else tally.text
    return text, "tierctl delete" if actions == {"mark_partition"} else "tierctl verify"


def skipped_text(plan: Plan) -> str:
    """Return how many partitions `plan` skips and has no step for, or an empty text if there are none.

    A plan of recovery also has the number of segments that it does not use.
    """
    skipped = {skip.topic_id_partition for skip in plan.skipped if skip.segment_id is None}
    skipped -= {step.topic_id_partition for step in plan.steps}
    unused = {
        (skip.topic_id_partition, skip.segment_id)
        for skip in plan.skipped
        if skip.segment_id is not None and plan.is_recovery
    }
    text = f"; {counted(len(skipped), 'partition')} skipped" if skipped else ""
    return text + (f"; {counted(len(unused), 'segment')} not used" if unused else "")


def _columns(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the fixed columns and then every further field of the rows, in order of appearance."""
    found = dict.fromkeys(STEPS.names[:_FIXED]) | {key: None for row in rows for key in row}
    return [name for name in found if name not in _OUTCOME]
