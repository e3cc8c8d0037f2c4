"""`status`: one screen about a tier: its topics, the copy lag, and problems that need an operator."""

import math
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tierctl.checks.findings import Finding, FindingKind, Needs
from tierctl.commands.change import decided_topics, measure_copy_lag
from tierctl.commands.copy.command import CopyRequest, explained_copy, with_end_command
from tierctl.commands.histories import whole_metadata
from tierctl.commands.mutation import Mutation, mutation
from tierctl.commands.request import WHERE, Request, request_as
from tierctl.commands.resources import require_own_tier
from tierctl.commands.verify.command import ReadLogs, VerifyRequest, finding_exit_code, verify
from tierctl.errors import ExitCode, combined_exit_code
from tierctl.metadata.parallel_fold import Kept
from tierctl.metadata.state_dir import last_successful_runs
from tierctl.model import (
    LocalLog,
    LocalSegment,
    RemoteLogSegmentState,
    TopicConfig,
    TopicIdPartition,
    Uuid,
)
from tierctl.model.choices import Severity
from tierctl.model.events import ZERO_UUID
from tierctl.model.progress import Progress, SilentProgress
from tierctl.model.selection import counted, names_text
from tierctl.model.settings.topic import REMOTE_STORAGE_ENABLE
from tierctl.plan.copy import NOT_ENABLED
from tierctl.plan.decisions import NextAction, stopped_copies, stops_by_kind
from tierctl.plan.preconditions import segments_of_newest
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.plan.steps import Plan
from tierctl.report import columns as f
from tierctl.report.columns import JSON_ONLY, Columns, Field, Kind, Shown
from tierctl.report.prometheus import Scope
from tierctl.report.results import TableResult
from tierctl.report.table import not_understood_text
from tierctl.state.tier_state import PartitionState, TierState, sizes_by_group

_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_TopicKey = tuple[str, Uuid]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusRequest(Request):
    """A request for the status of a tier."""

    state_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The state directory of other runs, for their last successes, for the segments that "
            "KIP-917's limit stopped, and for events that the metadata topic has lost. status reads the "
            "whole topic.",
            rich_help_panel=WHERE,
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStatus:
    """The segments of one topic id in the tier, and the rolled segments that are not copied yet.

    Offsets are the lowest and the highest of all partitions, and times the largest timestamps of the oldest
    and of the newest segment that have one; None without such a finished segment. The lag counts rolled
    segments that are not in the tier; None if no log directory has the topic, if copying is disabled, or if
    one of its partitions is left out. So do the segments that local retention deletes next from the newest
    replica's disk. `problems` counts the findings of verify that are more than information, and the
    partitions whose copies stopped.
    """

    topic: Annotated[str, f.TOPIC, Shown(0)]
    topic_id: Annotated[Uuid, f.TOPIC_ID, Shown(12)]
    partitions: Annotated[int, f.PARTITIONS, Shown(9)]
    segments: Annotated[int, f.SEGMENTS, Shown(2)]
    log_bytes: Annotated[int, f.LOG_BYTES, Shown(1)]
    first_offset_in_tier: Annotated[
        int | None, Field(Kind.NUMBER, "lowest offset of the topic in the tier", "first"), Shown(7)
    ]
    first_record_ms: Annotated[
        int | None,
        Field(Kind.TIME, "largest timestamp of the oldest segment in the tier", "oldest"),
        Shown(5),
    ]
    last_offset_in_tier: Annotated[
        int | None, Field(Kind.NUMBER, "highest offset of the topic in the tier", "last"), Shown(8)
    ]
    last_record_ms: Annotated[
        int | None,
        Field(Kind.TIME, "largest timestamp of the newest segment in the tier", "newest"),
        Shown(4),
    ]
    lag_segments: Annotated[
        int | None, Field(Kind.NUMBER, "rolled segments that are not in the tier yet", "behind"), Shown(0)
    ]
    lag_bytes: Annotated[int | None, Field(Kind.BYTES, "size of these segments", "behind_size"), Shown(6)]
    lag_since_ms: Annotated[
        int | None,
        Field(Kind.TIME, "time of the last write to the oldest of these segments", "behind_since"),
        Shown(3),
    ]
    local_delete_segments: Annotated[
        int | None,
        Field(Kind.NUMBER, "segments that brokers delete from their disks next", "to_free"),
        Shown(13),
    ]
    local_delete_bytes: Annotated[
        int | None, Field(Kind.BYTES, "size of these segments", "to_free_size"), Shown(13)
    ]
    failing_copies: Annotated[int, Field(Kind.NUMBER, "partitions whose copies fail", "failing"), Shown(10)]
    dangling_copies: Annotated[
        int, Field(Kind.NUMBER, "copies that were begun and never finished", "dangling"), Shown(10)
    ]
    stuck_deletes: Annotated[
        int, Field(Kind.NUMBER, "deletions that were begun and never finished", "stuck"), Shown(11)
    ]
    problems: Annotated[
        int,
        Field(
            Kind.NUMBER,
            "findings of verify that are more than information, and partitions with stopped copies",
        ),
        Shown(0),
    ]


STATUS = Columns(
    TopicStatus,
    name="status",
    title="Status by topic",
    commands="status",
    noun="topic",
    size="log_bytes",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Problems of one kind that need an operator: how many, the first one, and the command for a repair.

    `check` is a kind of findings of `verify`, or the reason why copies stop: CUSTOM_METADATA for KIP-917's
    limit, OPEN_TRANSACTION.
    """

    severity: Annotated[Severity, f.SEVERITY, Shown(0)]
    check: Annotated[FindingKind | ReasonKind, f.CHECK, Shown(0)]
    subject: Annotated[str, f.SUBJECT, Shown(0)]
    findings: Annotated[int, Field(Kind.NUMBER, "findings of this kind"), Shown(0)]
    found: Annotated[str, f.FOUND, Shown(0)]
    why: Annotated[str | None, f.WHY, JSON_ONLY] = None
    fix: Annotated[str, f.FIX, Shown(0)]
    is_command: bool
    """Whether `fix` is a command line of tierctl."""


STATUS_PROBLEMS = Columns(
    Problem,
    name="status-problems",
    title="Problems that an operator must act on",
    commands="status --show problems",
    noun="problem",
    word="severity",
    number="findings",
    below=("found", "fix"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRun:
    """The last successful run of a command."""

    command: Annotated[str, f.COMMAND, Shown(0)]
    ended_ms: Annotated[
        int, Field(Kind.TIME, "time when the last successful run ended", "last_success"), Shown(0)
    ]


LAST_RUNS = Columns(
    LastRun,
    name="last-runs",
    title="Last successful runs",
    commands="status --show runs",
    noun="command",
)
STATUS_ROWS = (STATUS, STATUS_PROBLEMS, LAST_RUNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Status(TableResult):
    """The status of a tier; the exit code is that of `verify`."""

    table = STATUS, "topics"

    topics: tuple[TopicStatus, ...]
    problems: tuple[Problem, ...]
    problems_text: str
    runs: tuple[LastRun, ...]
    waiting_longest: TopicIdPartition | None
    """The partition whose oldest segment waits longest for its copy; None if none is known to wait."""
    exit_code: ExitCode

    @property
    def next_commands(self) -> list[str]:
        """The commands that repair or show the problems, or explain the copy lag, the best one first."""
        waiting, explained = self.waiting_longest, list[str]()
        if waiting is not None:
            explained = [f"tierctl explain {shlex.quote(str(waiting.topic_partition))}"]
        if not self.problems:
            return explained
        if all(each.check is not ReasonKind.OPEN_TRANSACTION for each in self.problems):
            explained = []
        return [each.fix for each in self.problems if each.is_command] + explained + ["tierctl verify"]


def status(request: StatusRequest, progress: Progress | None = None) -> Status:
    """Return the status of the selected topics, of the tier's metadata, and of tierctl's last runs.

    Problems are the findings of `verify` that need no objects of the tier and are more than information,
    archived objects in the listing of a tier on S3, and segments of the log directories that KIP-917's limit
    keeps from the tier, or a transaction for longer than the request's limit. The copy lag has the segments
    that `copy` would copy now, and those that wait for a limit. The state is that of `whole_metadata`. Raise
    NotFoundError if the selection does not exist, the errors of the metadata and the cluster, and those of
    `require_own_tier` for a tier that the request names.
    """
    copying, lacks_events = request_as(CopyRequest, request), False
    stopped: dict[TopicIdPartition, Reason] = {}
    reader = partial(whole_metadata, kept=Kept.FACTS)
    with mutation(copying, progress or SilentProgress(), reader=reader, needs_untiered=False) as run:
        state = run.metadata.refresh()
        run.resolve_selection(part.topic_id_partition for part in state)
        if request.remote is not None:
            require_own_tier(copying, run.remote, run.metadata, run.progress, may_be_new=True)
        topics = TopicSums(run, state)
        if not request.log_dir:
            run.progress.note(
                "without --log-dir the copy lag is unknown, and also whether KIP-917's limit stops copies"
            )
        else:
            plan = _add_copies(request, run, state, topics)
            lacks_events = run.histories.report_missing()
            stopped = stopped_copies(plan.kept, run.resources.now_ms - request.copy_limit_ms)
        stops = list(_stop_problems(run, stopped))
        findings = _findings(request, run)
    # One problem has one next step: what stops the copies also keeps segments on the disk.
    causes = {partition.key for partition in stopped}
    findings = [
        each
        for each in findings
        if each.check is not FindingKind.LOCAL_NOT_FREED or (each.topic_id, each.partition) not in causes
    ]
    topics.add_findings(findings)
    topics.add_stopped(stopped)
    runs = last_successful_runs(request.state_dir) if request.state_dir else {}
    return Status(
        topics=topics.rows(),
        problems=(*_problems(findings), *stops),
        problems_text=problems_text(
            request, len(findings), len(stopped), run.histories.unknown, checks_objects=False
        ),
        runs=tuple(LastRun(command=name, ended_ms=at_ms) for name, at_ms in sorted(runs.items())),
        waiting_longest=topics.waiting_longest,
        exit_code=combined_exit_code(
            [
                *map(finding_exit_code, findings),
                *(ExitCode.PARTIAL for _ in stopped),
                ExitCode.CORRUPT if lacks_events else ExitCode.OK,
            ],
            is_partly_done=True,
        ),
    )


def problems_text(
    request: Request, findings: int, stopped: int, not_understood: int, *, checks_objects: bool
) -> str:
    """Return the numbers of findings, stopped partitions and those not understood, and what was checked."""
    logs = ["logs"] if request.log_dir else []
    checked = ", ".join(["metadata", *logs, *(["objects"] if checks_objects else [])])
    text = f"{counted(findings + stopped, 'problem')} in {checked}"
    text += f", with stopped copies of {counted(stopped, 'partition')}" if stopped else ""
    return f"{text}; {not_understood_text(not_understood)}" if not_understood else text


def _note_unknown_settings(plan: Plan, run: Mutation) -> None:
    """Report the topics in log directories whose copy lag is unknown because no file states their settings.

    A cluster states the settings of all its topics, so it leaves none unknown.
    """
    configs = plan.basis.configs
    reasons = {**{skip.topic: skip.reason for skip in plan.skipped}, **run.untiered}
    unknown = {
        name
        for name, reason in reasons.items()
        if reason == NOT_ENABLED and configs.get(name, TopicConfig()).remote_storage_enable is None
    }
    if unknown:
        run.progress.note(
            f"the copy lag is unknown for {names_text(unknown)}: no settings state "
            f"{REMOTE_STORAGE_ENABLE.name} for these topics; give settings with --topic-configs"
        )


def _findings(request: StatusRequest, run: Mutation) -> list[Finding]:
    """Return the findings of `verify` that are more than information.

    Only archived objects are findings: a store without archive classes is not listed.
    """
    remote = request.remote if (request.remote or "").startswith("s3:") else None
    asked = replace(request_as(VerifyRequest, request), remote=remote)
    with verify(asked, metadata=run.metadata, logs=ReadLogs(run.logs, run.unread.errors)) as found:
        return [
            finding
            for finding in found
            if finding.severity is not Severity.INFO
            and (finding.check.row.needs is Needs.METADATA or finding.check is FindingKind.ARCHIVED_OBJECT)
        ]


def _problems(findings: Iterable[Finding]) -> Iterable[Problem]:
    """Yield one problem for each kind of finding, about the first of the worst ones."""
    by_kind: dict[FindingKind, list[Finding]] = defaultdict(list)
    for finding in findings:
        by_kind[finding.check].append(finding)
    for kind, found in by_kind.items():
        first = min(found, key=lambda each: list(Severity).index(each.severity))
        yield Problem(
            check=kind,
            severity=first.severity,
            subject=first.subject,
            findings=len(found),
            found=first.found,
            why=first.why,
            fix=first.fix if first.command is None else f"tierctl {first.command}",
            is_command=first.command is not None,
        )


def _stop_problems(run: Mutation, stopped: Mapping[TopicIdPartition, Reason]) -> Iterator[Problem]:
    """Yield one problem for each kind of reason in `stopped`, about its first partition."""
    for kind, found in stops_by_kind(stopped).items():
        partition, reason = next(iter(found.items()))
        if kind is ReasonKind.CUSTOM_METADATA:
            limit = max(each.facts["size_bytes"] for each in found.values())
            fix = f"tierctl copy --custom-metadata-max-bytes {limit}"
        else:
            ended = with_end_command(run, partition.topic_partition, reason)
            end = ended.facts["end_command"]
            fix = f"end the transaction in its producer, or, if nothing runs there any more: {end}"
        yield Problem(
            check=kind,
            severity=Severity.WARNING,
            subject=str(partition.topic_partition),
            findings=len(found),
            found=str(reason),
            fix=fix,
            is_command=kind is ReasonKind.CUSTOM_METADATA,
        )


@dataclass(slots=True)
class _Topic:
    """The sums of one topic id."""

    parts: list[PartitionState] = field(default_factory=list)
    segments: int = 0
    log_bytes: int = 0
    offsets: list[int] = field(default_factory=list)
    times_ms: list[int] = field(default_factory=list)
    pending: list[LocalSegment] | None = None
    freed: list[LocalSegment] = field(default_factory=list)
    found: Counter[FindingKind | ReasonKind] = field(default_factory=Counter)

    def row(self, topic: str, topic_id: Uuid) -> TopicStatus:
        """Return the sums as a row."""
        pending, is_unknown = self.pending, self.pending is None and not self.freed
        return TopicStatus(
            topic=topic,
            topic_id=topic_id,
            partitions=len(self.parts),
            segments=self.segments,
            log_bytes=self.log_bytes,
            first_offset_in_tier=min(self.offsets, default=None),
            first_record_ms=min(self.times_ms, default=None),
            last_offset_in_tier=max(self.offsets, default=None),
            last_record_ms=max(self.times_ms, default=None),
            lag_segments=None if pending is None else len(pending),
            lag_bytes=None if pending is None else sum(s.size_bytes for s in pending),
            lag_since_ms=min((s.written_ms for s in pending or ()), default=None),
            local_delete_segments=None if is_unknown else len(self.freed),
            local_delete_bytes=None if is_unknown else sum(s.size_bytes for s in self.freed),
            failing_copies=self.found[FindingKind.FAILING_COPIES],
            dangling_copies=self.found[FindingKind.DANGLING_COPY],
            stuck_deletes=self.found[FindingKind.STUCK_DELETE],
            problems=self.found.total(),
        )


class TopicSums:
    """The sums of the selected topic ids that have segments in the tier, or failing copies, with findings.

    `add_lag` adds the topics in log directories whose settings enable tiering.
    """

    def __init__(self, run: Mutation, state: TierState) -> None:
        self._topics: dict[_TopicKey, _Topic] = defaultdict(_Topic)
        self.waiting_longest: TopicIdPartition | None = None
        self._run, self._now_ms = run, run.resources.now_ms
        for part in state.by_metadata_partition():
            partition = part.topic_id_partition
            if partition not in run.resources.selection or not (part.segment_count or part.failed_copies):
                continue
            topic = self._topics[partition.topic, partition.topic_id]
            topic.parts.append(part)
            segments = part.segments
            offsets, times_ms = segments.finished_range(), segments.finished_times_ms()
            topic.offsets += offsets or ()
            topic.times_ms += times_ms or ()
        topics = self._topics.values()
        members = [(number, part) for number, topic in enumerate(topics) for part in topic.parts]
        sizes = sizes_by_group(state, members, len(topics))
        for number, topic in enumerate(topics):
            topic.segments, topic.log_bytes = sizes.of(number, _FINISHED)

    def add_lag(self, plan: Plan, logs: Sequence[LocalLog]) -> None:
        """Add the segments of `logs` that `plan` copies, that wait, and that brokers delete from disks.

        A topic whose settings enable tiering is added even if the tier and the plan have nothing of it.
        """
        for partition in (log.topic_id_partition for log in logs):
            if plan.basis.configs.get(partition.topic, TopicConfig()).remote_storage_enable:
                self._topics.setdefault((partition.topic, partition.topic_id), _Topic())
        segments, decisions = segments_of_newest(logs), list(plan.decisions(self._now_ms))
        pending = {(each.partition, each.start_offset) for each in decisions if each.is_copy_lag}
        partitions = {each.partition for each in plan.kept}
        decided = decided_topics(self._run, plan, partitions)
        freed = decided_topics(self._run, plan, partitions, also=frozenset({ReasonKind.COPY_DISABLED}))
        for key in decided:
            self._topics[key].pending = []
        oldest_ms = math.inf
        for partition, offset in sorted(pending, key=lambda each: (str(each[0]), each[1])):
            _log, segment = segments.get((partition, offset), (None, None))
            found = self._topics[partition.topic, partition.topic_id].pending
            if segment is None:
                continue
            if found is not None:
                found.append(segment)
            if segment.written_ms < oldest_ms:
                oldest_ms, self.waiting_longest = segment.written_ms, partition
        for each in decisions:
            key = each.partition.topic, each.partition.topic_id
            if each.action is NextAction.DELETE_LOCAL and key in freed:
                self._topics[key].freed.append(segments[each.partition, each.start_offset][1])

    def add_findings(self, findings: Iterable[Finding]) -> None:
        """Count `findings` for their topics."""
        # Findings about logs whose topic id can't be read have the name only.
        ids = dict(list(self._topics))
        for finding in findings:
            name = finding.topic or ""
            topic = self._topics.get((name, finding.topic_id or ids.get(name, ZERO_UUID)))
            if topic is not None:
                topic.found[finding.check] += 1

    def add_stopped(self, stopped: Mapping[TopicIdPartition, Reason]) -> None:
        """Count the stopped partitions for their topics."""
        for partition, reason in stopped.items():
            self._topics[partition.topic, partition.topic_id].found[reason.kind] += 1

    def with_known_lag(self) -> set[str]:
        """Return the names of the topics whose copy lag is known."""
        return {name for (name, _), topic in self._topics.items() if topic.pending is not None}

    def rows(self) -> tuple[TopicStatus, ...]:
        """Return the row of each topic id, by topic name."""
        return tuple(each.row(*key) for key, each in sorted(self._topics.items()))


def _add_copies(request: StatusRequest, run: Mutation, state: TierState, topics: TopicSums) -> Plan:
    """Add what `copy` and local retention would do to `topics`, and measure it; return the plan."""
    plan = explained_copy(run, state)
    topics.add_lag(plan, run.logs)
    if run.resources.cluster is None:
        _note_unknown_settings(plan, run)
    if request.meter is not None:
        scope = Scope.of(run.resources.selection_request)
        measure_copy_lag(request.meter, plan, topics.with_known_lag(), scope, now_ms=run.resources.now_ms)
    return plan
