"""`explain`: the next action that a broker takes for each segment of a partition, and the reason."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, partial
from itertools import groupby
from typing import Annotated, Any

import typer

from tierctl.checks.findings import Finding
from tierctl.checks.segments import check_failed_copies, check_local_retention
from tierctl.commands.copy.command import CopyRequest, explained_copy, with_end_command
from tierctl.commands.mutation import Mutation, any_not_understood, mutation
from tierctl.commands.request import CustomMetadataMaxBytes, Request, request_as
from tierctl.commands.sweep import explained_sweep
from tierctl.errors import ExitCode, NotFoundError, UsageError
from tierctl.model import SelectionRequest, TopicConfig, TopicIdPartition, TopicPartition, Uuid
from tierctl.model.progress import Progress, SilentProgress
from tierctl.model.settings import broker, topic
from tierctl.model.settings.scopes import SettingSource
from tierctl.model.settings.topic import SettingValue
from tierctl.model.times import TIME_FORMS, parse_time_ms
from tierctl.plan.breaches import why_cut
from tierctl.plan.decisions import ON_DISK, Decision, NextAction, needs_operator
from tierctl.plan.partition_deletes import plan_removal
from tierctl.plan.preconditions import segments_of_newest
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.plan.steps import Plan
from tierctl.report import columns as f
from tierctl.report.columns import JSON_ONLY, Columns, Field, Kind, Shown
from tierctl.report.results import TableResult
from tierctl.state.log_start import cut_epochs_of
from tierctl.state.tier_state import PartitionState, TierState

_FIND = "Which segments"
_NOT_DECIDED = "not_decided"


class Location(StrEnum):
    """Where a segment is."""

    LOCAL = "local"
    TIER = "tier"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainRequest(Request):
    """A request to explain the segments of one partition: `partition` names it, or has its number."""

    offset: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Only segments with this offset.", rich_help_panel=_FIND),
    ] = None
    segment_id: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Explain only the remote segment with this id.", rich_help_panel=_FIND
        ),
    ] = None
    time_ms: Annotated[
        int | None,
        typer.Option(
            "--time",
            metavar="TIME",
            parser=parse_time_ms,
            help="Explain only the first segment of the tier, and the first of the log, with a record of "
            "this "
            f"time or later; {TIME_FORMS}.",
            rich_help_panel=_FIND,
        ),
    ] = None
    custom_metadata_max_bytes: CustomMetadataMaxBytes = None

    def validate(self) -> None:
        """Raise UsageError if more than one segment is named."""
        if sum(each is not None for each in (self.offset, self.segment_id, self.time_ms)) > 1:
            raise UsageError("--offset, --segment-id and --time exclude each other", hint="give one of them")


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The next action of brokers for one segment, and the reason.

    `segment_id` and `state` are None for a segment of the log, and `end_offset` for its active one.
    `settings` are the settings that decide.
    """

    topic: Annotated[str, f.TOPIC]
    topic_id: Annotated[Uuid, f.TOPIC_ID]
    partition: Annotated[int, f.PARTITION]
    location: Annotated[Location, f.LOCATION, Shown(0)]
    segment_id: Annotated[Uuid | None, f.SEGMENT_ID, Shown(6)]
    start_offset: Annotated[int, f.START_OFFSET, Shown(0)]
    end_offset: Annotated[int | None, f.END_OFFSET, Shown(2)]
    segment_size_in_bytes: Annotated[int, f.SEGMENT_SIZE_IN_BYTES, Shown(3)]
    max_timestamp_ms: Annotated[int, f.MAX_TIMESTAMP_MS, Shown(5)]
    state: Annotated[str | None, f.STATE]
    next_action: Annotated[
        NextAction,
        Field(
            Kind.WORD,
            "what brokers do next with the segment: copy, delete, delete_local (from their disk) or none",
            "next",
        ),
        Shown(0),
    ]
    reason_kind: Annotated[ReasonKind, Field(Kind.WORD, "kind of the reason", "why")]
    reason: Annotated[str, f.REASON, Shown(0)]
    decided_by: Annotated[
        str,
        Field(Kind.SENTENCE, "the rule, and the settings that decide with their values and sources"),
        Shown(0),
    ]
    rule: Annotated[
        str,
        Field(Kind.SENTENCE, "the task of Kafka's RemoteLogManager, or the rule of tierctl, that decides"),
        JSON_ONLY,
    ]
    settings: Annotated[
        list[dict[str, Any]],
        Field(Kind.LIST, "settings that decide: objects with name, value and source"),
        JSON_ONLY,
    ]
    expires_at_ms: Annotated[
        int | None,
        Field(Kind.TIME, "time at which retention.ms deletes the segment", "expires"),
        Shown(4, in_table=False),
    ]
    facts: Annotated[
        list[dict[str, Any]], Field(Kind.LIST, "facts of the reason: objects with name and value"), JSON_ONLY
    ]
    decision: Reason
    """The reason with its facts, from which the fields above are made."""
    next_offset: int
    """The offset after the segment; of the active segment the end of the log."""

    @property
    def outcome(self) -> str:
        """The word by which the summary line counts the row: the next action, or that none was decided."""
        return _NOT_DECIDED if self.reason_kind is ReasonKind.NOT_UNDERSTOOD else self.next_action

    def holds(self, offset: int) -> bool:
        """Return whether the segment contains `offset`."""
        return self.start_offset <= offset < self.next_offset


EXPLANATIONS = Columns(
    Explanation,
    name="explanations",
    title="Next actions of brokers",
    commands="explain",
    noun="segment",
    word="outcome",
    word_texts={
        _NOT_DECIDED: "not decided (see the reason)",
        "copy": "to copy",
        "delete": "to delete",
        "delete_local": "to delete from the disk",
        "none": "to keep for now",
    },
    size="segment_size_in_bytes",
    terminal=(
        "location",
        "start_offset",
        "end_offset",
        "segment_size_in_bytes",
        "max_timestamp_ms",
        "next_action",
        "reason",
        "decided_by",
        "expires_at_ms",
        "segment_id",
    ),
    notes=("reason", "decided_by"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanations(TableResult):
    """The explanations of a partition's segments by start offset, those of the tier first."""

    table = EXPLANATIONS, "rows"

    rows: tuple[Explanation, ...]
    exit_code: ExitCode


def explain(request: ExplainRequest, progress: Progress | None = None) -> Explanations:
    """Explain the segments of one partition: those of the tier, and those of the log directories.

    The decisions are those of `copy`, `sweep` and `delete` for the same request. The exit code is PARTIAL if
    copies of the partition fail, or continue only after an operator acted, if brokers never delete one of
    its segments, or if nothing is decided about one for lack of an option; CORRUPT if something was not
    understood. Raises NotFoundError for an unknown partition and for a segment that does not exist, and the
    errors of the metadata and the cluster.
    """
    request.validate()
    asked = SelectionRequest.of(topics=request.topic, partitions=request.partition)
    if len(asked.topics) != 1 or len(request.partition) != 1:
        raise UsageError("explain takes one partition", hint="as explain orders-0")
    copying = replace(
        request_as(CopyRequest, request), custom_metadata_max_bytes=request.custom_metadata_max_bytes
    )
    with mutation(copying, progress or SilentProgress()) as run:
        deletes = explained_sweep(run)
        state = run.metadata.state
        copies = explained_copy(run, state, custom_metadata_max_bytes=copying.custom_metadata_max_bytes)
        removal = run.narrowed(plan_removal(state))
        if not request.log_dir:
            run.progress.note("without --log-dir only the segments of the tier are explained")
        rows = [
            *_remote_rows(run, state, (deletes, removal), _Settings(deletes.basis.configs, run, copying)),
            *_local_rows(run, copies, _Settings(copies.basis.configs, run, copying)),
        ]
        findings = [found for part in state for found in _failing(run, part, deletes.basis.log_starts)]
        stopped = _stopped(rows, run.resources.now_ms - request.copy_limit_ms)
        # One problem has one next step: what stops the copies also keeps segments on the disk.
        findings += [] if stopped else _not_freed(run, state, copies.basis.configs)
        warnings = [*(f"{found.subject}: {found.found}; {found.fix}" for found in findings), *stopped]
        warnings += _doubled(rows)
        for warning in warnings:
            run.progress.warn(warning)
        is_damaged = run.histories.report(state) or bool(run.unreadable)
    chosen = _chosen(sorted(rows, key=_order), request)
    is_damaged = is_damaged or any_not_understood((each.decision for each in chosen), request)
    is_left_open = any(each.outcome == _NOT_DECIDED for each in chosen)
    exit_code = ExitCode.PARTIAL if warnings or is_left_open else ExitCode.OK
    return Explanations(rows=chosen, exit_code=ExitCode.CORRUPT if is_damaged else exit_code)


def _stopped(rows: Iterable[Explanation], limit_ms: int) -> list[str]:
    """Return each reason why copies of the log's segments continue only after an operator acted."""
    local = (row for row in rows if row.location is Location.LOCAL)
    stopped = (row for row in local if needs_operator(row.decision, limit_ms))
    return list(dict.fromkeys(f"{TopicPartition(row.topic, row.partition)}: {row.reason}" for row in stopped))


def _doubled(rows: Iterable[Explanation]) -> Iterator[str]:
    """Yield for each partition its first segment that brokers keep for ever, and the number of the others."""
    doubled = [row for row in rows if row.reason_kind is ReasonKind.DOUBLED_SEGMENT]
    for _, found in groupby(doubled, key=lambda row: (row.topic_id, row.partition)):
        first, *others = found
        more = f"; {len(others):,} more" if others else ""
        where = TopicPartition(first.topic, first.partition)
        yield f"{where}: segment {first.segment_id}: {first.reason}{more}"


def _failing(
    run: Mutation, part: PartitionState, log_starts: Mapping[TopicIdPartition, int]
) -> Iterator[Finding]:
    """Yield the finding of `verify` that copies of a selected partition fail."""
    partition = part.topic_id_partition
    if partition in run.resources.selection:
        yield from check_failed_copies(partition, part.failed_copies, log_starts.get(partition))


def _not_freed(run: Mutation, state: TierState, configs: Mapping[str, TopicConfig]) -> Iterator[Finding]:
    """Yield the findings of `verify` that local retention does not free the disk of a selected partition."""
    for log in run.logs:
        part, config = state.partition(log.topic_id_partition), configs.get(log.topic_id_partition.topic)
        if part is not None and config is not None and log.topic_id_partition in run.resources.selection:
            yield from check_local_retention(
                part.cache, [log], config, run.resources.now_ms, run.request.copy_limit_ms
            )


@dataclass(frozen=True, slots=True)
class _Settings:
    """The settings in force: of topics by name, and of the broker of `run`."""

    configs: Mapping[str, TopicConfig]
    run: Mutation
    copying: CopyRequest

    def of(self, reason: Reason, of_topic: str) -> tuple[SettingValue, ...]:
        """Return the settings that decide `reason` for a topic, each with its value and source."""
        config = self.configs.get(of_topic, TopicConfig())
        names = lag_settings(config) if reason.kind is ReasonKind.COPY_LAG else reason.settings
        found = [config.setting(name) if name in topic.TABLE else self._of_broker(name) for name in names]
        if reason.kind in {*ON_DISK, ReasonKind.COPY_LAG}:
            # On their disks brokers apply their defaults, by which tierctl deletes nothing.
            applied = {
                topic.RETENTION_MS.name: config.broker_retention_ms,
                topic.RETENTION_BYTES.name: config.broker_retention_bytes,
            }
            found = [
                replace(each, value=str(applied[each.name]), source=SettingSource.DEFAULT)
                if each.name in applied and each.name not in config.stated
                else each
                for each in found
            ]
        return tuple(found)

    def _of_broker(self, name: str) -> SettingValue:
        asked = self.copying.custom_metadata_max_bytes
        if asked is not None and name == broker.CUSTOM_METADATA_MAX_BYTES.name:
            return SettingValue(name=name, value=str(asked), source=SettingSource.OPTION)
        stated = self.run.resources.broker_settings
        origin = stated.origin(name)
        source = SettingSource.DEFAULT if origin is None else origin.source
        return SettingValue(
            name=name, value=broker.TABLE.rows[name].text(stated), source=source, origin=origin
        )


_LAG_CHAINS = (
    (topic.COPY_LAG_MS, topic.LOCAL_RETENTION_MS, topic.RETENTION_MS),
    (topic.COPY_LAG_BYTES, topic.LOCAL_RETENTION_BYTES, topic.RETENTION_BYTES),
)
_REFERRING = ("-1", "-2", None)
"""The value of each setting in a chain with which the next one decides: see `CopyLag.from_settings`."""


def lag_settings(config: TopicConfig) -> Iterator[str]:
    """Yield the names of the settings that decide the copy lag, up to those that have the limits."""
    for chain in _LAG_CHAINS:
        for setting, referring in zip(chain, _REFERRING, strict=True):
            yield setting.name
            if config.setting(setting.name).value != referring:
                break


def _remote_rows(
    run: Mutation, state: TierState, plans: Sequence[Plan], settings: _Settings
) -> Iterator[Explanation]:
    """Yield a row per selected remote segment; the last of `plans` that knows a segment decides."""
    decisions = {each.segment_id: each for plan in plans for each in plan.decisions(run.resources.now_ms)}
    for each in _deleted_by_replicas(run, state):
        known = decisions.get(each.segment_id)
        if known is None or known.action is not NextAction.DELETE:
            decisions[each.segment_id] = each
    for part in state:
        if part.topic_id_partition not in run.resources.selection:
            continue
        undecided = _undecided(plans, part.topic_id_partition)
        for segment in part.cache.list_remote_log_segments():
            decision = decisions.get(segment.segment_id) or Decision.kept(segment, undecided)
            yield _explanation(
                decision,
                settings,
                segment_size_in_bytes=segment.segment_size_in_bytes,
                max_timestamp_ms=segment.max_timestamp_ms,
                state=segment.state,
                next_offset=segment.end_offset + 1,
            )


def _deleted_by_replicas(run: Mutation, state: TierState) -> Iterator[Decision]:
    """Yield the segments that a replica deletes once it leads, because its leader epochs were cut."""
    for log in run.logs:
        part = state.partition(log.topic_id_partition)
        cut = None if part is None else cut_epochs_of(log, part.segments)
        if part is None or cut is None:
            continue
        for segment in cut.lost:
            reason = why_cut(cut, part.segments, segment, f"the replica in {log.directory.parent}")
            decision = Decision.kept(segment, reason)
            if decision.action is NextAction.DELETE:
                yield decision


def _undecided(plans: Sequence[Plan], partition: TopicIdPartition) -> Reason:
    """Return the reason for segments that no plan mentions, from the skips of the partition."""
    skips = [s for plan in reversed(plans) for s in plan.skipped if s.topic_id_partition == partition]
    return Reason.of("; ".join(skip.reason for skip in skips) or "nothing is known of the partition")


def _explanation(
    decision: Decision,
    settings: _Settings,
    *,
    segment_size_in_bytes: int,
    max_timestamp_ms: int,
    state: str | None,
    next_offset: int,
) -> Explanation:
    partition, reason = decision.partition, decision.reason
    deciding = settings.of(reason, partition.topic)
    stated = [f"{each.name}={each.value} ({each.source})" for each in deciding]
    return Explanation(
        topic=partition.topic,
        topic_id=partition.topic_id,
        partition=partition.partition,
        location=Location.LOCAL if decision.segment_id is None else Location.TIER,
        segment_id=decision.segment_id,
        start_offset=decision.start_offset,
        end_offset=decision.end_offset,
        segment_size_in_bytes=segment_size_in_bytes,
        max_timestamp_ms=max_timestamp_ms,
        state=state,
        next_action=decision.action,
        reason_kind=reason.kind,
        reason=reason.explained(
            max_timestamp_ms=max_timestamp_ms, segment_size_in_bytes=segment_size_in_bytes
        ),
        decided_by="; ".join([reason.rule, *stated]),
        rule=reason.rule,
        settings=[{"name": each.name, "value": each.value, "source": each.source} for each in deciding],
        expires_at_ms=reason.facts.get("expires_at_ms"),
        facts=[{"name": name, "value": value} for name, value in reason.facts.items()],
        decision=reason,
        next_offset=next_offset,
    )


def _local_rows(run: Mutation, plan: Plan, settings: _Settings) -> Iterator[Explanation]:
    """Yield a row per segment of the logs that `plan` copies or keeps."""
    segments = segments_of_newest(run.logs)
    ended = cache(partial(with_end_command, run))
    for decided in plan.decisions(run.resources.now_ms):
        is_open = decided.reason.kind is ReasonKind.OPEN_TRANSACTION
        decision = decided
        if is_open:
            reason = ended(decided.partition.topic_partition, decided.reason)
            decision = replace(decided, reason=reason)
        log, segment = segments[decision.partition, decision.start_offset]
        following = segment.next_base_offset
        yield _explanation(
            decision,
            settings,
            segment_size_in_bytes=segment.size_bytes,
            max_timestamp_ms=segment.max_timestamp_ms,
            state=None,
            next_offset=log.log_end_offset if following is None else following,
        )


def _order(row: Explanation) -> tuple[str, bool, int, int]:
    return (row.topic_id, row.location is Location.LOCAL, row.start_offset, row.max_timestamp_ms)


def _chosen(rows: Sequence[Explanation], request: ExplainRequest) -> tuple[Explanation, ...]:
    """Return the rows that the request chooses; NotFoundError if it names a segment that does not exist."""
    if request.segment_id is not None:
        return _found(
            [row for row in rows if row.segment_id == request.segment_id], f"id {request.segment_id}"
        )
    if request.offset is not None:
        holding = [row for row in rows if row.holds(request.offset)]
        return _found(holding, f"offset {request.offset}")
    if request.time_ms is not None:
        late = [row for row in rows if row.max_timestamp_ms >= request.time_ms]
        first = {(row.topic_id, row.location): row for row in reversed(late)}
        chosen = [row for row in late if first[row.topic_id, row.location] is row]
        return _found(chosen, "a record of that time or later")
    return tuple(rows)


def _found(rows: Sequence[Explanation], what: str) -> tuple[Explanation, ...]:
    if not rows:
        raise NotFoundError(f"no segment of the partition has {what}", hint="leave the option out to see all")
    return tuple(rows)
