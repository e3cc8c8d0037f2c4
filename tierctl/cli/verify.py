"""`tierctl verify`: whether metadata, store and logs agree."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tierctl.apply.defaults import THREADS
from tierctl.cli import options
from tierctl.cli.context import Context
from tierctl.cli.mutation_options import HOW
from tierctl.cli.reading import note
from tierctl.cli.taking import takes
from tierctl.errors import ExitCode, TierctlError
from tierctl.model import LocalLog, TopicPartition

if TYPE_CHECKING:
    from tierctl.state.segments.ids import SegmentIds
    from tierctl.storage.base import RemoteStorageManager
    from tierctl.verify.leaders import LeaderSide
    from tierctl.verify.metadata import KnownTopics, WasDeleted
    from tierctl.verify.run import Lookers
    from tierctl.verify.segments import Finding

COLUMNS = (
    "severity",
    "kind",
    "topic",
    "topic_id",
    "partition",
    "segment_id",
    "start_offset",
    "end_offset",
    "key",
    "message",
    "hint",
)
TABLE_COLUMNS = tuple(name for name in COLUMNS if name not in {"topic_id", "hint"})

IsDeep = Annotated[
    bool,
    typer.Option(
        "--deep",
        help="Fetch every segment: check each batch's CRC, offsets, leader epochs and indexes, "
        "and compare with the logs.",
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
        help="Segments that --deep fetches, to a folder for temporary files (TMPDIR), at the same time.",
        show_default=True,
        rich_help_panel=HOW,
    ),
]


def register(app: typer.Typer) -> None:
    """Adds `verify`."""
    app.command("verify")(verify)


@takes(options.where, options.private_keys, options.selection, ..., options.rows, options.engine)
def verify(
    ctx: typer.Context,
    deep: IsDeep = False,
    threads: Threads = THREADS,
    now: options.Now = None,
) -> ExitCode:
    """Hold metadata, store and log directories against each other; report, never repair.

    Exit 0 when nothing is found but information, 3 with findings, 7 when something is corrupt. The metadata
    topic is read whole. Objects that are nobody's are looked for in all of --remote. What a cluster's leaders
    say goes before --log-dir. With --engine spark executors list the store's folders and look at segments;
    with --deep they must see --log-dir as well.
    """
    with Context.of(ctx) as context:
        run = _Run(context)
        _render(run.findings(deep=deep, threads=threads), ctx.params["output"])
        return run.exit_code


def _render(findings: "Iterator[Finding]", output: str) -> None:
    from tierctl.report import render
    from tierctl.verify.metadata import HINTS

    rows = (asdict(finding) | {"hint": HINTS[finding.kind]} for finding in findings)
    ordered = ({name: row[name] for name in COLUMNS} for row in rows)
    render(ordered, output, COLUMNS, table_columns=TABLE_COLUMNS)


@dataclass
class _Run:
    context: Context
    exit_code: ExitCode = ExitCode.OK
    _unread: "list[Finding]" = field(default_factory=list)

    def findings(self, *, deep: bool, threads: int) -> "Iterator[Finding]":
        """All of them; what they come to is in `exit_code`."""
        from tierctl.storage.spool import spool_folder
        from tierctl.verify.run import Deep, Verification

        context = self.context
        manager = context.metadata()
        remote = None if context.remote_uri is None else context.remote()
        if remote is None:
            note("without --remote no object is looked at")
        logs = self._logs()
        leaders = _leaders(context)
        with ExitStack() as held, _progress(context) as advance:
            folder = held.enter_context(spool_folder()) if deep and remote is not None else None
            verification = Verification(
                refresh=manager.refresh,
                was_deleted=_deletions(context),
                selection=context.selection,
                now_ms=context.now_ms,
                logs=logs,
                topics=_topics(logs) if context.log_dir else None,
                leaders=leaders,
                remote=remote,
                deep=None if folder is None else Deep(spool=folder, threads=threads),
                lookers=_lookers(context, remote, advance),
                advance=advance,
            )
            for finding in self._unread:
                yield self._noted(finding)
            for finding in verification.findings():
                yield self._noted(finding)

    def _noted(self, finding: "Finding") -> "Finding":
        from tierctl.verify.segments import CORRUPT_KINDS, Severity

        if finding.kind in CORRUPT_KINDS:
            self.exit_code = ExitCode.CORRUPT
        elif finding.severity is not Severity.INFO and self.exit_code is ExitCode.OK:
            self.exit_code = ExitCode.PARTIAL
        return finding

    def _logs(self) -> list[LocalLog]:
        """All logs of --log-dir, whether selected or not: they also tell which topics there are."""
        from tierctl.locallog import read_log_dirs

        if not self.context.log_dir:
            return []
        return read_log_dirs(list(self.context.log_dir), on_error=self._on_unreadable)

    def _on_unreadable(self, folder: Path, error: TierctlError) -> None:
        from tierctl.verify.segments import Finding, FindingKind, Severity

        place = TopicPartition.parse(folder.name)
        self._unread.append(
            Finding(
                kind=FindingKind.UNREADABLE_LOG,
                severity=Severity.ERROR,
                topic=place.topic,
                topic_id=None,
                partition=place.partition,
                key=str(folder),
                message=error.message,
            )
        )


def _leaders(context: Context) -> "LeaderSide | None":
    """The cluster the data are on; it is there when this returns."""
    from tierctl.verify.leaders import LeaderSide

    cluster = context.cluster()
    if cluster is None:
        return None
    # A cluster that can't be reached is told at once, not after the whole store was listed.
    cluster.cluster_id()
    return LeaderSide(cluster)


def _topics(logs: list[LocalLog]) -> "KnownTopics":
    from tierctl.plan.preconditions import CurrentTopics
    from tierctl.verify.metadata import KnownTopics

    return KnownTopics(CurrentTopics.of(logs).ids)


def _deletions(context: Context) -> "WasDeleted":
    """Whether a segment's deletion has finished; the metadata topic is read for it when first asked."""
    from functools import cache

    @cache
    def known() -> "SegmentIds":
        end_offsets = (topic := context.metadata_topic()).end_offsets()
        if context.is_on_spark:
            from tierctl.spark.executors.verify import deleted_ids

            return deleted_ids(context.executors(), context.metadata_location, end_offsets)
        from tierctl.metadata.deleted_segments import deleted_segment_ids

        return deleted_segment_ids(topic, end_offsets)

    return lambda segment_id: known().find(segment_id.bytes) >= 0


def _lookers(
    context: Context, remote: "RemoteStorageManager | None", advance: Callable[[int], None]
) -> "Lookers | None":
    """The executors, if there are any."""
    if not context.is_on_spark:
        return None
    from tierctl.spark.executors.verify import SparkLookers

    spec = None if remote is None else context.remote_spec(remote)
    return SparkLookers(executors=context.executors(), remote=remote, spec=spec, advance=advance)


@contextmanager
def _progress(context: Context) -> Iterator[Callable[[int], None]]:
    """A count of objects on a terminal's stderr; elsewhere nothing, and on Spark its tasks are shown."""
    import sys

    if context.is_on_spark or not sys.stderr.isatty():
        yield lambda _count: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.completed:.0f} objects listed"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("listing", total=None)
        yield lambda count: bar.advance(task, count)
