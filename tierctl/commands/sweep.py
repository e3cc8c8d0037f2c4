"""`sweep`: decide which segments a broker's expiration task would delete, and delete them.

`Changes` are changed settings whose effect is calculated and not made: those of --what-if and --assume.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Annotated, Self

import typer

from tierctl.apply.run import Acts, DeleteSegments, RaiseLogStarts, Run, raise_log_starts
from tierctl.commands.change import Change, MutationResult, undecided_partitions
from tierctl.commands.histories import require_logs_of
from tierctl.commands.local_logs import missing_log_note
from tierctl.commands.mutation import Mutation
from tierctl.commands.request import DECIDE, TYPED_ONLY, MaxDeletes, MaxFraction, MutationRequest
from tierctl.commands.running_cluster import EpochsRead, SizeLimit, own_limit
from tierctl.errors import RemoteTierMissing, SafetyRefusal, TierctlError, UsageError
from tierctl.metadata.parallel_fold import Kept
from tierctl.model import (
    EpochEntry,
    IndexType,
    LocalLog,
    RemoteLogSegmentMetadata,
    Selection,
    TopicConfig,
    TopicIdPartition,
    TopicPartition,
    Uuid,
)
from tierctl.model.checked_values import natural_number, one_offset_each
from tierctl.model.conflicts import Conflict, topic_conflicts
from tierctl.model.events import is_legal_topic_name
from tierctl.model.progress import Advance, Progress, no_op
from tierctl.model.selection import admits_topic, counted, is_glob, names_text
from tierctl.model.settings import topic
from tierctl.model.settings.scopes import Setting, SettingSource, without_unit
from tierctl.model.settings.topic import SettingValue
from tierctl.plan.expiry import Digest, plan_retention
from tierctl.plan.preconditions import (
    CurrentTopics,
    check_limits,
    newest_replicas,
    why_never_tiered,
)
from tierctl.plan.reasons import AGE_NOT_STATED
from tierctl.plan.steps import Action, Plan, Step
from tierctl.plan.views import ClusterViews
from tierctl.read.readable_log import lineage_in_index
from tierctl.state.tier_state import PartitionState, TierState
from tierctl.storage.remote_storage_manager import RemoteStorageManager, index_bytes
from tierctl.wire.files.properties import unknown_topic_setting

OF_TIER: tuple[Setting[int], ...] = (topic.RETENTION_MS, topic.RETENTION_BYTES)
OF_TIER_AND_DISKS: tuple[Setting[int], ...] = (
    topic.RETENTION_MS,
    topic.LOCAL_RETENTION_MS,
    topic.RETENTION_BYTES,
    topic.LOCAL_RETENTION_BYTES,
)
_EXPECTED = "expected TOPIC.SETTING=VALUE, as 'orders.retention.ms=7d' or '*.retention.bytes=50G'"


@dataclass(frozen=True, slots=True)
class SettingChange:
    """One changed setting; `topic` is a name or a glob of names."""

    text: str
    topic: str
    setting: Setting[int]
    value: int

    @classmethod
    def parse(cls, text: str, option: str, settings: Collection[Setting[int]]) -> Self:
        """Return the change that `text` states; UsageError for one that can't be calculated, or not made."""
        rows = {row.name: row for row in settings}
        key, equals, value = (part.strip() for part in text.partition("="))
        name, setting = topic.split_key(key)
        if not equals or not value:
            raise UsageError(f"{option} {text}: the value is missing", hint=_EXPECTED)
        if setting is None:
            raise unknown_topic_setting(option, key)
        if setting not in rows:
            raise UsageError(
                f"{option} {text}: the effect of {setting} can't be calculated",
                hint=f"{option} takes {', '.join(rows)}",
            )
        if not is_glob(name) and not is_legal_topic_name(name):
            raise UsageError(f"{option} {text}: {name!r} is no topic name", hint=_EXPECTED)
        row = rows[setting]
        return cls(text, name, row, row.parse(without_unit(row.name, value, option), option))


@dataclass(frozen=True, slots=True)
class Changes:
    """All values of `option`; of two about the same setting of a topic, the later one counts."""

    option: str
    changes: tuple[SettingChange, ...]

    @classmethod
    def parse(cls, texts: Iterable[str], option: str, settings: Collection[Setting[int]]) -> Self:
        """Return the changes of `settings` that the values of an option state; see `SettingChange.parse`."""
        return cls(option, tuple(SettingChange.parse(text, option, settings) for text in texts))

    def require_topics(self, known: Collection[str]) -> None:
        """Raise UsageError for a change that applies to no topic in `known`."""
        for change in self.changes:
            if any(admits_topic([change.topic], name) for name in known):
                continue
            near = [] if is_glob(change.topic) else get_close_matches(change.topic, sorted(known), n=1)
            raise UsageError(
                f"{self.option} {change.text}: no selected topic has the name {change.topic}",
                hint=f'did you mean "{near[0]}"?' if near else f"topics: {names_text(sorted(known))}",
            )

    def of(self, name: str) -> dict[str, int]:
        """Return the changed settings of a topic."""
        return {
            change.setting.name: change.value for change in self.changes if admits_topic([change.topic], name)
        }

    def size_limit(self, name: str, retention_bytes: int) -> int:
        """Return the larger retention.bytes of a topic, before or after the change."""
        return max(retention_bytes, self.of(name).get(topic.RETENTION_BYTES.name, retention_bytes))

    def applied(self, configs: Mapping[str, TopicConfig], topics: Iterable[str]) -> dict[str, TopicConfig]:
        """Return `configs` with the changes of `topics`; UsageError for one that Kafka refuses."""
        changed = {name: self._applied(name, configs.get(name)) for name in sorted(topics) if self.of(name)}
        return {**configs, **changed}

    def _applied(self, name: str, config: TopicConfig | None) -> TopicConfig:
        values = self.of(name)
        before = config or TopicConfig()
        after = replace(
            before,
            retention_ms=values.get(topic.RETENTION_MS.name, before.retention_ms),
            retention_bytes=values.get(topic.RETENTION_BYTES.name, before.retention_bytes),
            stated={**before.stated, **{setting: _stated(setting, values[setting]) for setting in values}},
        )
        known = {conflict.kind for conflict in _refused(before)}
        for conflict in _refused(after):
            if conflict.kind not in known:
                raise UsageError(
                    f"{self.option}: Kafka refuses this change of topic {name}: {conflict.found}",
                    hint=conflict.kind.row.fix,
                )
        return after


def _stated(setting: str, value: int) -> SettingValue:
    return SettingValue(name=setting, value=str(value), source=SettingSource.OPTION)


def _refused(config: TopicConfig) -> list[Conflict]:
    """Return why Kafka would refuse the stated settings; conflicts with unstated settings are unknown."""
    stated = {name: each.value for name, each in config.stated.items()}
    tiered = {**stated, topic.REMOTE_STORAGE_ENABLE.name: "true"}
    return [
        conflict
        for conflict in topic_conflicts(tiered, config.kafka_version)
        if conflict.kind.row.is_refused and tiered.keys() >= set(conflict.names)
    ]


_Key = tuple[Uuid, int]
_FAILURES_SHOWN = 5
_READ_PER_TASK = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionInputs:
    """The facts from which a sweep decides: `configs` are the present settings, by topic.

    `is_now_given` states whether `now_ms` is --now instead of the clock. `current` maps each partition name
    to the partition that has it now; `asked` are the requested log starts.
    """

    state: TierState
    logs: Collection[LocalLog]
    configs: Mapping[str, TopicConfig]
    now_ms: int
    topics: CurrentTopics
    is_now_given: bool = False
    cluster: ClusterViews | None = None
    lineages: Mapping[_Key, Sequence[EpochEntry]] | None = None
    log_starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    current: Mapping[TopicPartition, TopicIdPartition] = field(default_factory=dict)
    asked: Mapping[TopicPartition, int] = field(default_factory=dict)

    def plan(
        self,
        configs: Mapping[str, TopicConfig],
        *,
        off_lineage: bool = False,
        unreferenced_epochs: bool = False,
        explained: Selection | None = None,
        digest: Digest | None = None,
        advance: Advance = no_op,
    ) -> Plan:
        """Return the plan of a sweep with these settings, as `plan_retention` does."""
        return plan_retention(
            self.state,
            self.logs,
            configs,
            now_ms=self.now_ms,
            log_start_offsets=self.log_starts,
            lineages=self.lineages,
            cluster=self.cluster,
            off_lineage=off_lineage,
            unreferenced_epochs=unreferenced_epochs,
            topics=self.topics,
            explained=explained,
            digest=digest,
            advance=advance,
            is_now_given=self.is_now_given,
        )


def retention_inputs(
    run: Mutation, asked_log_starts: Sequence[str] = (), size_limit: SizeLimit = own_limit
) -> RetentionInputs:
    """Read what a sweep decides from, and resolve the selection; `size_limit` as for `RunningCluster.views`.

    `asked_log_starts` are the texts of --log-start-offset.
    Reports partitions without a readable lineage, and examines the histories of the selected partitions.
    """
    asked = dict(one_offset_each(map(_log_start, asked_log_starts), "--log-start-offset names"))
    state = run.metadata.refresh()
    logs = run.logs
    run.resolve_selection(part.topic_id_partition for part in state)
    require_logs_of(run.metadata, run.request)
    run.inspect_tier()
    views = _views(run, state, size_limit)
    topics = CurrentTopics.of(logs) if views is None else views.topics
    current = partitions_by_name(topics, state, logs)
    kept = {} if run.journal is None else run.journal.log_starts()
    log_starts = asked | kept_log_starts(kept, current, logs, asked)
    raised = {current[named]: start for named, start in log_starts.items() if named in current}
    run.histories.examine(state, lambda: logs, log_starts=raised)
    if run.cluster is not None:
        run.resources.note_unused(run.cluster.configs)
    return RetentionInputs(
        state=state,
        logs=logs,
        configs=_configs(run, state) if run.cluster is None else run.cluster.configs,
        now_ms=run.resources.now_ms,
        is_now_given=run.request.now_ms is not None,
        topics=topics,
        cluster=views,
        lineages=_lineages(run, state, logs) if views is None else None,
        log_starts=log_starts,
        current=current,
        asked=asked,
    )


def changed_configs(run: Mutation, inputs: RetentionInputs, changes: Changes) -> dict[str, TopicConfig]:
    """Return the settings with `changes` of the selected topics; raises as `Changes`."""
    topics = {part.topic_id_partition.topic for part in selected_parts(run.resources.selection, inputs.state)}
    changes.require_topics(topics)
    return changes.applied(inputs.configs, topics)


def explained_sweep(run: Mutation) -> Plan:
    """Return the plan of a sweep that also has the selected segments that stay."""
    inputs = retention_inputs(run)
    return run.narrowed(inputs.plan(inputs.configs, explained=run.resources.selection))


def summed_up(run: Mutation, inputs: RetentionInputs, digest: Digest) -> Plan:
    """Add the decisions about all selected segments to `digest`; return the plan of a sweep without them."""
    with ExitStack() as shown:
        show: Advance | None = None

        def advance(segments: int) -> None:
            # The bar is opened with the first result: opened earlier, it would hide the bars of reading.
            nonlocal show
            if show is None:
                show = shown.enter_context(run.progress.bar("deciding about segments", unit="segments"))
            show(segments)

        explained = run.resources.selection
        return run.narrowed(inputs.plan(inputs.configs, explained=explained, digest=digest, advance=advance))


def _configs(run: Mutation, state: TierState) -> dict[str, TopicConfig]:
    """Return the settings in --topic-configs; UsageError if the names of its topics look mistyped."""
    configs = run.resources.topic_configs()
    topics = {part.topic_id_partition.topic for part in selected_parts(run.resources.selection, state)}
    known = run.resources.known_topics(state) | {partition.topic for partition in run.unreadable}
    run.resources.check_topic_names(configs, known, topics - configs.keys())
    return configs


def note_unstated_age(run: Mutation, inputs: RetentionInputs) -> None:
    """Note which selected topics state no retention.ms in --topic-configs, as the reasons to keep do.

    Topics without any settings are skipped with a reason of their own, which says the same.
    """
    if run.request.topic_configs is None:
        return
    names = {part.topic_id_partition.topic for part in selected_parts(run.resources.selection, inputs.state)}
    unstated = [
        name
        for name in names & inputs.configs.keys()
        if not inputs.configs[name].is_age_stated and why_never_tiered(name, inputs.configs) is None
    ]
    if unstated:
        run.progress.note(f"{names_text(unstated)}: {AGE_NOT_STATED}")


def selected_parts(selection: Selection, state: TierState) -> list[PartitionState]:
    """Return the selected partitions that have segments, and whose topics are not marked as deleted."""
    return [
        part
        for part in state
        if part.topic_id_partition in selection and part.delete_state is None and part.segment_count
    ]


def _views(run: Mutation, state: TierState, size_limit: SizeLimit) -> ClusterViews | None:
    """Return the leaders' views of the partitions; None without a cluster."""
    if run.cluster is None:
        return None
    selected = [part.topic_id_partition for part in selected_parts(run.resources.selection, state)]

    def tier_epochs(partitions: Collection[_Key]) -> Iterator[EpochsRead]:
        return _read_lineages(run, list(state.map_parts(partial(newest_segments, partitions), partitions)))

    return run.cluster.views(state, selected, tier_epochs, size_limit)


def _log_start(text: str) -> tuple[TopicPartition, int]:
    partition, equals, offset = text.partition("=")
    number = natural_number(offset)
    if not equals or number is None:
        raise UsageError(
            f"--log-start-offset {text}: expected TOPIC-PARTITION=OFFSET", hint="as orders-1=1500"
        )
    return TopicPartition.parse(partition), number


def partitions_by_name(
    topics: CurrentTopics, state: TierState, logs: Collection[LocalLog]
) -> dict[TopicPartition, TopicIdPartition]:
    """Return the partitions that alone may have their name now."""
    return {name: meant[0] for name, meant in topics.named(state, logs).items() if len(meant) == 1}


def kept_log_starts(
    kept: Mapping[_Key, int],
    current: Mapping[TopicPartition, TopicIdPartition],
    logs: Collection[LocalLog],
    asked: Mapping[TopicPartition, int] = MappingProxyType({}),
) -> dict[TopicPartition, int]:
    """Return the log starts `kept` that earlier sweeps raised, up to the end of each newest log."""
    ends = {key: log.high_watermark for key, log in newest_replicas(logs).items()}
    starts = {named: kept.get(partition.key, 0) for named, partition in current.items()}
    return {
        named: max(start, asked.get(named, 0))
        for named, start in starts.items()
        if 0 < start <= ends.get(current[named].key, start)
    }


def _lineages(
    run: Mutation, state: TierState, logs: Collection[LocalLog]
) -> dict[_Key, tuple[EpochEntry, ...]]:
    """Return lineages from the tier for selected partitions without a log; unreadable ones are left out."""
    known = {log.topic_id_partition.key for log in logs}
    wanted = {part.topic_id_partition.key for part in selected_parts(run.resources.selection, state)} - known
    newest = list(state.map_parts(partial(newest_segments, wanted), wanted))
    missing = [p for p, last in newest if last is not None and p.topic_partition not in run.unreadable]
    if run.request.log_dir and missing:
        run.progress.note(missing_log_note(missing))
    found: dict[_Key, tuple[EpochEntry, ...]] = {}
    failures: dict[_Key, str] = {}
    for partition, read in _read_lineages(run, newest):
        if isinstance(read, TierctlError):
            hint = f"; {read.hint}" if read.hint else ""
            failures[partition.key] = f"no lineage of {partition}: {read.message}{hint}"
        else:
            found[partition.key] = read
    in_order = (part.topic_id_partition.key for part in state) if failures else ()
    for key in islice(filter(failures.__contains__, in_order), _FAILURES_SHOWN):
        run.progress.warn(failures[key])
    if len(failures) > _FAILURES_SHOWN:
        more = len(failures) - _FAILURES_SHOWN
        run.progress.warn(f"no lineage of {counted(more, 'more partition')}; skipped in the plan")
    return found


def newest_segments(
    partitions: Collection[_Key], state: TierState
) -> Iterator[tuple[TopicIdPartition, RemoteLogSegmentMetadata | None]]:
    """Yield the most recent finished segment of each of `partitions` that `state` has."""
    for part in state.by_metadata_partition():
        if part.topic_id_partition.key in partitions:
            yield part.topic_id_partition, part.segments.newest()


def _read_lineages(
    run: Mutation, newest: Sequence[tuple[TopicIdPartition, RemoteLogSegmentMetadata | None]]
) -> Iterator[EpochsRead]:
    """Yield the leader epochs that the newest segment of each user partition has in the tier, or the error.

    The threads of the run read them. Raises RemoteTierMissing if the tier itself is not there.
    """
    groups = [newest[at : at + _READ_PER_TASK] for at in range(0, len(newest), _READ_PER_TASK)]
    bar = run.progress.bar("reading leader epochs", unit="files", total=len(newest))
    with bar as advance, ThreadPoolExecutor(run.request.threads) as pool:
        read = partial(stored_lineage, lambda: run.remote)
        results = pool.map(lambda group: [read(segment) for _, segment in group], groups)
        for group, answers in zip(groups, results, strict=True):
            advance(len(group))
            yield from zip((partition for partition, _ in group), answers, strict=True)


def stored_lineage(
    remote: Callable[[], RemoteStorageManager], newest: RemoteLogSegmentMetadata | None
) -> tuple[EpochEntry, ...] | TierctlError:
    """Return the leader epochs that are stored in the tier with a partition's newest segment, or the error.

    They are none without a segment. `remote` returns the tier, or raises the error that a request names none.
    Raise RemoteTierMissing if the tier itself is not there.
    """
    if newest is None:
        return ()
    try:
        return lineage_in_index(newest, index_bytes(remote(), newest, IndexType.LEADER_EPOCH)).entries
    except RemoteTierMissing:
        raise
    except TierctlError as e:
        return e


_ASSUMED_HINT = "change the settings of the topics first, and leave --assume out"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest(MutationRequest):
    """A request to delete the segments that a broker's expiration task would delete."""

    log_start_offset: Annotated[
        Sequence[str],
        typer.Option(
            metavar="TOPIC-PARTITION=OFFSET",
            help="Raise the log start offset of a partition to OFFSET, as DeleteRecords does. Repeatable.",
            rich_help_panel=DECIDE,
        ),
        TYPED_ONLY,
    ] = ()
    off_lineage: Annotated[
        bool,
        typer.Option(
            help="Also delete segments that diverged from the current lineage, once the log start offset has "
            "passed their leader epochs.",
            rich_help_panel=DECIDE,
        ),
        TYPED_ONLY,
    ] = False
    unreferenced_epochs: Annotated[
        bool,
        typer.Option(
            help="Also delete segments above the log start offset whose leader epochs are all older than the "
            "earliest epoch of the log. Such segments below the log start offset are deleted without "
            "this option.",
            rich_help_panel=DECIDE,
        ),
        TYPED_ONLY,
    ] = False
    max_deletes: MaxDeletes = None
    max_fraction: MaxFraction = None
    assume: Annotated[
        Sequence[str],
        typer.Option(
            metavar="TOPIC.SETTING=VALUE",
            help="Plan as if a topic, or each topic that matches a glob, had this retention.ms or "
            "retention.bytes. Times such as 1h, sizes such as 50G, or numbers as in Kafka. Repeatable. "
            "Such a plan can't be saved, and --apply refuses it.",
            rich_help_panel=DECIDE,
        ),
        TYPED_ONLY,
    ] = ()

    @property
    def assumed(self) -> Changes:
        """The changes of settings that `assume` states; raises as `Changes.parse`."""
        return Changes.parse(self.assume, "--assume", OF_TIER)

    def validate(self) -> None:
        """Implement `MutationRequest.validate`."""
        if self.assumed.changes and (self.apply or self.plan_out is not None):
            raise UsageError(
                f"--assume only shows a plan: {'--apply' if self.apply else '--plan-out'} excludes it",
                hint=_ASSUMED_HINT,
            )
        if self.metadata is not None and not (self.has_cluster or self.log_dir or self.remote):
            raise UsageError(
                "--remote and --log-dir are missing: the leader epochs of the logs are unknown",
                hint="name the tier, the log directories, or the cluster with --bootstrap-server",
            )


def sweep(request: SweepRequest, progress: Progress | None = None) -> MutationResult:
    """Plan the deletes of every selected partition, and with `apply` carry them out.

    Each partition's plan has the oldest segments of its lineage, up to the first segment that no rule
    deletes; deletes that were begun are resumed. With `assume` the plan is that of other settings, and is
    never carried out. Source: Kafka's RLMExpirationTask. Raises LimitExceeded and SafetyRefusal before the
    first delete, LockedError, and the errors of the tier and the metadata.
    """
    with Sweep.opened(request, progress) as change:
        return change.finish(change.decided())


def _log_starts_of(run: Mutation) -> RaiseLogStarts | None:
    """Return what stores raised log starts: the cluster and the state directory; None if there is neither."""
    if run.cluster is None and run.journal is None:
        return None

    def raise_all(starts: Mapping[TopicIdPartition, int]) -> None:
        # Raise the log start on the cluster before the journal, so that the journal is never ahead of what
        # consumers see.
        if run.cluster is not None:
            run.cluster.raise_log_starts(starts)
        if run.journal is not None:
            run.journal.raise_log_starts(starts)

    return raise_all


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSegments:
    """The act of DELETE_SEGMENT of a sweep; `log_starts` are raised in addition to those in the steps."""

    log_starts: Mapping[TopicIdPartition, int]
    raise_log_starts: RaiseLogStarts | None

    def __call__(self, run: Run, steps: Sequence[Step]) -> None:
        """Implement `Act`."""
        if run.may_begin():
            raise_log_starts(self.log_starts, self.raise_log_starts, run.context)
        DeleteSegments(raise_log_starts=self.raise_log_starts)(run, steps)


class Sweep(Change[SweepRequest]):
    """One run of `sweep`."""

    command = "sweep"
    request_type = SweepRequest
    saved = ("log_start_offset", "off_lineage", "unreferenced_epochs", "assume")
    logs_decide = True
    kept = Kept.FACTS

    def decide(self) -> Plan:
        """Implement `Change.decide`."""
        request = self.request
        assumed = request.assumed
        inputs = retention_inputs(self.run, request.log_start_offset, assumed.size_limit)
        if assumed.changes:
            inputs = replace(inputs, configs=changed_configs(self.run, inputs, assumed))
        self._inputs = inputs
        note_unstated_age(self.run, inputs)
        plan = inputs.plan(
            inputs.configs,
            off_lineage=request.off_lineage,
            unreferenced_epochs=request.unreferenced_epochs,
        )
        self._asked = {inputs.current[named]: offset for named, offset in inputs.asked.items()}
        for partition in self._asked:
            # A saved plan names its topics by id: another topic may have the name by now.
            if partition not in self.run.resources.selection:
                raise SafetyRefusal(
                    f"--log-start-offset {partition.topic_partition}: {partition} is not selected",
                    hint="select its topic; for a plan of a topic that was created again since, plan again",
                )
        narrowed = self.run.narrowed(plan)
        self._raised = self._decided_log_starts(narrowed)
        return narrowed

    def _decided_log_starts(self, plan: Plan) -> dict[TopicIdPartition, int]:
        """Return the asked log starts above the present ones, of partitions about which `plan` decides."""
        run, inputs = self.run, self._inputs
        kept = {} if run.journal is None else run.journal.log_starts()
        starts = {key: log.log_start_offset for key, log in newest_replicas(inputs.logs).items()}
        if inputs.cluster is not None:
            starts = {key: view.log.log_start_offset for key, view in inputs.cluster.views.items()}
        decided = {part.topic_id_partition for part in selected_parts(run.resources.selection, inputs.state)}
        decided -= undecided_partitions(plan)
        raised = {}
        for partition, offset in self._asked.items():
            if offset <= max(kept.get(partition.key, 0), starts.get(partition.key, 0)):
                continue
            if partition in decided and partition.topic_partition not in run.unreadable:
                raised[partition] = offset
            else:
                run.progress.warn(
                    f"the log start offset of {partition.topic_partition} is not raised to {offset}: nothing "
                    "is decided about this partition"
                )
        return raised

    def log_starts(self) -> Mapping[TopicIdPartition, int]:
        """Implement `Change.log_starts`: the asked ones, if there is a place that keeps them."""
        return {} if self.is_void or _log_starts_of(self.run) is None else self._raised

    def announce(self) -> None:
        """Implement `Change.announce`."""
        for partition, offset in self.log_starts().items():
            self.run.progress.note(
                f"the plan raises the log start offset of {partition.topic_partition} to {offset}"
            )

    def topics_changed_by(self, plan: Plan) -> dict[str, str]:
        """Implement `Change.topics_changed_by`: log starts are raised without steps, too."""
        raised: dict[str, str] = {partition.topic_id: partition.topic for partition in self._asked}
        return super().topics_changed_by(plan) | raised

    def check(self, plan: Plan) -> None:
        """Implement `Change.check`: settings are in force, no broker does this work, and the limits hold."""
        run, request, inputs = self.run, self.request, self._inputs
        if request.assume:
            raise SafetyRefusal(
                f"settings of --assume are not in force: {names_text(request.assume)}", hint=_ASSUMED_HINT
            )
        parts = [part.topic_id_partition for part in selected_parts(run.resources.selection, inputs.state)]
        examined = [partition for partition in parts if inputs.topics.why_not_current(partition) is None]
        run.check_plan_fence(plan, examined, self.log_starts())
        note = check_limits(
            plan, inputs.state, max_deletes=request.max_deletes, max_fraction=request.max_fraction
        )
        if note is not None:
            run.progress.note(note)

    def acts(self) -> Acts:
        """Implement `Change.acts`."""
        keep = _log_starts_of(self.run)
        if self._asked and keep is None:
            self.run.progress.say(
                "the raised log start offsets are not stored: give --state-dir, or the same options in each "
                "run"
            )
        return {Action.DELETE_SEGMENT: SweepSegments(log_starts=self.log_starts(), raise_log_starts=keep)}
