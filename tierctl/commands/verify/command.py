"""`verify`: compare metadata, store, log directories and leaders with each other; change nothing."""

from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from functools import cache
from itertools import chain
from pathlib import Path
from secrets import randbelow
from typing import Annotated

import typer

from tierctl.checks.cross_check import Deep, RemoteRunner, Verification
from tierctl.checks.deep import DeepReads, Sample
from tierctl.checks.findings import (
    FINDINGS,
    Finding,
    FindingKind,
    Needs,
    cut_logs,
    damaged_log_ends,
    unreadable_log,
)
from tierctl.checks.metadata import DeletedAmong, KnownTopics
from tierctl.checks.segments import ClusterCheck
from tierctl.commands.change import MutationResult, require_plan_file
from tierctl.commands.histories import Histories, whole_metadata
from tierctl.commands.local_logs import read_local_logs, with_raised_log_starts
from tierctl.commands.mutation import kept_for_the_next_run
from tierctl.commands.request import DECIDE, TYPED_ONLY, WHERE, PlanOut, Request, Threads
from tierctl.commands.resources import Resources, required
from tierctl.commands.verify.repairs import (
    Repair,
    RepairRequest,
    partition_text,
    unsafe_offsets,
)
from tierctl.errors import ExitCode, TierctlError, UsageError, combined_exit_code
from tierctl.metadata.daily_changes import deleted_of, deleted_segment_ids, deleted_segments
from tierctl.metadata.manager import RemoteLogMetadataManager
from tierctl.metadata.parallel_fold import Kept
from tierctl.metadata.state_dir import KEPT_MS, ReadingRun, read_segments, record_read_segments
from tierctl.model import (
    LocalLog,
    TopicConfig,
    TopicIdPartition,
    Uuid,
)
from tierctl.model.checked_values import absolute_path
from tierctl.model.choices import THREADS, Severity
from tierctl.model.progress import Progress, SilentProgress
from tierctl.model.selection import counted
from tierctl.model.settings.scopes import parse_size
from tierctl.model.times import DURATION_FORMS, parse_duration_ms
from tierctl.plan.steps import Plan, Skip
from tierctl.report import prometheus
from tierctl.report.prometheus import Labels, Meter, measure_tier
from tierctl.report.results import Stream, TableResult
from tierctl.report.table import parse_percent
from tierctl.state.table_arrays import SegmentIds
from tierctl.state.tier_state import TierState
from tierctl.storage.index_cache import spool_folder

_SEED_MAX = (1 << 32) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRequest(Request):
    """A request to compare the metadata with the tier, the logs and the cluster."""

    state_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The state directory of sweep, for the log start offsets that sweep raised. verify stores "
            "here which segments --deep and --sample read, and with --plan-out when each orphan was "
            "first seen.",
            rich_help_panel=WHERE,
        ),
    ] = None
    deep: Annotated[
        bool,
        typer.Option(
            help="Fetch every segment into a folder for temporary files (TMPDIR), check the CRC, offsets and "
            "leader epochs of each batch and the indexes, and compare the segment with the logs.",
            rich_help_panel=DECIDE,
        ),
    ] = False
    sample_percent: Annotated[
        float | None,
        typer.Option(
            "--sample",
            metavar="PERCENT",
            parser=parse_percent,
            help="Fetch a random sample of this percentage of the segments, such as 1%, and check it as "
            "--deep does. Segments that were not read in the last 30 days are preferred.",
            rich_help_panel=DECIDE,
        ),
    ] = None
    budget_bytes: Annotated[
        int | None,
        typer.Option(
            "--budget",
            metavar="BYTES",
            parser=parse_size,
            help="Fetch random segments up to this total size of their objects, such as 10GB. With --sample, "
            "the sample ends at this size.",
            rich_help_panel=DECIDE,
        ),
    ] = None
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            max=_SEED_MAX,
            help="Select the same segments as an earlier run of --sample or --budget, which printed this "
            "seed.",
            rich_help_panel=DECIDE,
        ),
    ] = None
    threads: Threads = THREADS
    plan_out: PlanOut = None
    all_log_dirs: Annotated[
        bool,
        typer.Option(
            help="With --plan-out: state that the --log-dir options name the log directories of all "
            "replicas. A topic id without a folder in any of them is then deleted, and its objects are "
            "orphans. apply needs this option again.",
            rich_help_panel=DECIDE,
        ),
        TYPED_ONLY,
    ] = False
    orphan_age_ms: Annotated[
        int | None,
        typer.Option(
            "--orphan-age",
            metavar="DURATION",
            parser=parse_duration_ms,
            help="With --plan-out: delete orphans (objects that belong to no segment) only if they are older "
            f"than this, at least 24h: {DURATION_FORMS}. Default: 7d.",
            rich_help_panel=DECIDE,
        ),
        TYPED_ONLY,
    ] = None

    def validate(self) -> None:
        """Implement `Request.validate`."""
        required("--metadata", self.metadata)
        planned = {"--all-log-dirs": self.all_log_dirs, "--orphan-age": self.orphan_age_ms is not None}
        for option, is_given in planned.items():
            if is_given and self.plan_out is None:
                raise UsageError(
                    f"{option} needs --plan-out",
                    hint=f"leave {option} out: it decides what a plan deletes, not what verify finds",
                )
        if self.reads_bytes or self.plan_out is not None:
            required("--remote", self.remote)

    @property
    def is_binding(self) -> bool:
        """Implement `Request.is_binding`."""
        return self.plan_out is not None

    @property
    def is_sample(self) -> bool:
        """Whether the bytes of only some segments are read; raise UsageError for a seed without a sample."""
        asks = self.sample_percent is not None or self.budget_bytes is not None
        if self.seed is not None and not asks:
            raise UsageError("--seed needs --sample or --budget", hint="add one, or leave --seed out")
        return asks

    @property
    def reads_bytes(self) -> bool:
        """Whether the bytes of segments are read; raises as `is_sample`."""
        return self.is_sample or self.deep


def open_deep_reads(request: VerifyRequest, now_ms: int) -> DeepReads:
    """Return which segments to read; raise CorruptInputError if the record of earlier reads is damaged."""
    earlier = {} if request.state_dir is None else read_segments(request.state_dir)
    recent = {
        key: {each: run for each, run in runs.items() if now_ms - KEPT_MS < run.at_ms <= now_ms}
        for key, runs in earlier.items()
    }
    sample = None
    if request.is_sample:
        seed = randbelow(_SEED_MAX + 1) if request.seed is None else request.seed
        sample = Sample(
            percent=100.0 if request.sample_percent is None else request.sample_percent,
            seed=seed,
            budget_bytes=request.budget_bytes,
            # A run that is repeated with its seed reads the same segments again.
            was_read={
                key: frozenset(each for each, run in runs.items() if run.seed != seed)
                for key, runs in recent.items()
            },
        )
    was_read = {key: frozenset(runs) for key, runs in recent.items()}
    return DeepReads(sample=sample, was_read=None if request.state_dir is None else was_read)


@contextmanager
def reads_recorded(
    reads: DeepReads, request: VerifyRequest, progress: Progress, now_ms: int
) -> Iterator[None]:
    """Store in the state directory which segments the block has read, also if it ends early."""
    try:
        yield
    finally:
        if request.state_dir is not None and reads.done.ids:
            seed = None if reads.sample is None else reads.sample.seed
            otherwise = "the segments that this run read count as not read"
            with kept_for_the_next_run(request.state_dir, progress, otherwise):
                record_read_segments(request.state_dir, reads.done.ids, ReadingRun(now_ms, seed))


_UNREPAIRED_MAX = 1000
_OF_INDEXES = frozenset({FindingKind.MISSING_OBJECT, FindingKind.CORRUPT_INDEX, FindingKind.EPOCHS_DIFFER})
"""Kinds of findings that may concern an index; a missing or damaged index is derived from the log again."""


@dataclass(slots=True)
class _Collected:
    """The facts about the findings that a repair plan needs."""

    orphans_of: dict[str, None] = field(default_factory=dict)
    indexes_of: dict[str, None] = field(default_factory=dict)
    offset_files: dict[str, None] = field(default_factory=dict)
    unrepaired: list[tuple[FindingKind, Skip]] = field(default_factory=list)
    more: int = 0
    """Number of findings without a repair that are above the limit of `unrepaired` or name no partition."""

    def add(self, finding: Finding) -> None:
        """Collect the facts about `finding` that the plan needs."""
        partition = _partition_of(finding)
        if finding.check is FindingKind.UNSAFE_COMMITTED_OFFSET and finding.key is not None:
            self.offset_files[finding.key] = None
        elif finding.check in _OF_INDEXES and partition is not None and finding.segment_id is not None:
            self.indexes_of[f"{partition_text(partition.key)}:{finding.segment_id}"] = None
        elif finding.check is FindingKind.ORPHAN and partition is not None and finding.segment_id is not None:
            self.orphans_of[partition_text(partition.key)] = None
        elif finding.check in {FindingKind.ORPHAN, *_OF_INDEXES} or finding.check.row.repair is None:
            self._add_unrepaired(finding, partition)

    def _add_unrepaired(self, finding: Finding, partition: TopicIdPartition | None) -> None:
        if finding.severity is Severity.INFO:
            return
        if partition is None or len(self.unrepaired) == _UNREPAIRED_MAX:
            self.more += 1
            return
        reason = f"{finding.check}: no repair can be planned; {finding.fix}"
        self.unrepaired.append((finding.check, Skip.of(partition, reason, finding.segment_id)))


def with_repairs(
    findings: Iterator[Finding],
    request: Request,
    progress: Progress,
    keep: Callable[[MutationResult], None],
) -> Iterator[Finding]:
    """Yield all findings, then plan their repairs with `request` and pass the planned result to `keep`."""
    collected = _Collected()
    with Resources(request=request, progress=progress) as resources:
        if resources.is_on_spark:
            # Both parts of the run use this session: not every driver can start a second one.
            _ = resources.spark
        for finding in findings:
            collected.add(finding)
            yield finding
        if collected.more:
            progress.say(f"{collected.more} more findings without a repair: see their hints")
        with Repair.opened(_repair_request(collected, request), progress) as repair:
            keep(repair.finish(repair.decided()))


def _repair_request(collected: _Collected, request: Request) -> RepairRequest:
    shared = {each.name for each in fields(RepairRequest)} & {each.name for each in fields(request)}
    values = {name: getattr(request, name) for name in shared} | {
        "orphans_of": tuple(collected.orphans_of),
        "indexes_of": tuple(collected.indexes_of),
        "offset_files": tuple(map(absolute_path, collected.offset_files)),
        "unrepaired": tuple(collected.unrepaired),
        "meter": None,
    }
    return RepairRequest(**values)


def _partition_of(finding: Finding) -> TopicIdPartition | None:
    if finding.topic_id is None or finding.partition is None:
        return None
    return TopicIdPartition(finding.topic_id, finding.topic or "", finding.partition)


@dataclass(slots=True, kw_only=True)
class Examined:
    """The numbers of compared segments, objects and logs; final once all findings are consumed."""

    segments: int = 0
    topics: int = 0
    objects: int = 0
    """Objects that were found in the store; 0 if no tier was named."""
    is_narrowed: bool = False
    """Whether objects of the whole tier were listed to compare a part of it."""
    log_dirs: int = 0
    reads: DeepReads | None = None
    """The segments whose bytes were read; None without `deep`."""

    def add_objects(self, count: int) -> None:
        """Count objects that were found in the store."""
        self.objects += count

    def __str__(self) -> str:
        """Return `43 segments of 3 topics, 215 objects, 2 log directories`."""
        text = f"{counted(self.segments, 'segment')} of {counted(self.topics, 'topic')}"
        if self.objects:
            text += f", {counted(self.objects, 'object')}{' listed' if self.is_narrowed else ''}"
        return f"{text}, {counted(self.log_dirs, 'log directory/log directories')}" if self.log_dirs else text


class Findings(Stream[Finding], TableResult):
    """The findings, the numbers of compared objects, and the commands that repair findings."""

    table = FINDINGS, None

    def __init__(
        self,
        items: Generator[Finding, None, ExitCode],
        examined: Examined,
        repairs: list[str],
        planned: list[MutationResult],
    ) -> None:
        super().__init__(items)
        self.examined = examined
        self.repairs = repairs
        """Commands of tierctl that plan the repair of a finding, without repetitions."""
        self._planned = planned

    @property
    def plan(self) -> Plan | None:
        """The plan that was written to `plan_out`; None without one, and before all items are consumed."""
        return self._planned[0].plan if self._planned else None


@dataclass(frozen=True, slots=True)
class ReadLogs:
    """The logs that were read, and the errors of the folders, of logs or log directories, that were not."""

    logs: Sequence[LocalLog]
    errors: Mapping[Path, TierctlError]


def verify(
    request: VerifyRequest,
    progress: Progress | None = None,
    *,
    metadata: RemoteLogMetadataManager | None = None,
    logs: ReadLogs | None = None,
) -> Findings:
    """Return the findings of the selected partitions, and of objects that no metadata record names.

    Without a tier, no object is examined; without log directories and cluster, the metadata decide alone.
    The exit code is CORRUPT if a finding means damaged bytes, or if the plan of repairs leaves something that
    is not understood; PARTIAL if a finding is more than information.
    With `plan_out` the repairs are planned and saved once all findings are consumed. A caller that has the
    whole metadata topic open, or has read the selected logs, passes them, so that they are not read again.
    Raise the errors of `require_plan_file`. Iteration raises NotFoundError for an unknown selection, and the
    errors of metadata, tier and cluster.
    """
    request.validate()
    require_plan_file(request.plan_out)
    examined, repairs, planned = Examined(), list[str](), list[MutationResult]()
    found = _findings(request, progress or SilentProgress(), examined, metadata, logs)
    if request.plan_out is not None:
        found = with_repairs(found, request, progress or SilentProgress(), planned.append)
    if request.meter is not None and not (request.topic or request.partition or request.topic_id):
        found = _measured(found, request, request.meter)
    return Findings(_counted(found, repairs, planned), examined, repairs, planned)


def _measured(findings: Iterator[Finding], request: VerifyRequest, meter: Meter) -> Iterator[Finding]:
    """Yield the findings; after the last one, set the gauge of their numbers by kind and severity.

    The numbers of earlier runs stay for the kinds that this run did not look for in the whole tier.
    """
    examined = {Needs.METADATA}
    if request.remote is not None:
        examined |= {Needs.OBJECTS, Needs.BYTES} if request.deep else {Needs.OBJECTS}
    others = {(str(kind),) for kind in FindingKind if kind.row.needs not in examined}
    counts = Counter[Labels]()
    for finding in findings:
        counts[str(finding.check), str(finding.severity)] += 1
        yield finding
    meter.set(prometheus.FINDINGS, counts, lambda labels: labels[:1] in others)


def _counted(
    findings: Iterator[Finding], repairs: list[str], planned: Sequence[MutationResult]
) -> Generator[Finding, None, ExitCode]:
    """Yield the findings, and add their repairs to `repairs`; return the exit code of all of them.

    It is CORRUPT, too, if the repairs that were `planned` leave something that is not understood.
    """
    seen: set[ExitCode] = set()
    kinds: set[FindingKind] = set()
    for finding in findings:
        if finding.command and finding.severity is not Severity.INFO and finding.check not in kinds:
            repairs.append(finding.command)
            kinds.add(finding.check)
        seen.add(finding_exit_code(finding))
        yield finding
    seen |= {ExitCode(each.exit_code) for each in planned if each.exit_code == ExitCode.CORRUPT}
    return combined_exit_code(seen, is_partly_done=True)


def finding_exit_code(finding: Finding) -> ExitCode:
    """Return CORRUPT for damaged bytes or records, OK for information, otherwise PARTIAL."""
    if finding.check.row.is_corruption:
        return ExitCode.CORRUPT
    return ExitCode.OK if finding.severity is Severity.INFO else ExitCode.PARTIAL


def _findings(
    request: VerifyRequest,
    progress: Progress,
    examined: Examined,
    read: RemoteLogMetadataManager | None,
    read_logs: ReadLogs | None,
) -> Iterator[Finding]:
    with ExitStack() as opened:
        resources = opened.enter_context(Resources(request=request, progress=progress))
        metadata = whole_metadata(resources, kept=Kept.FACTS) if read is None else read
        state = metadata.refresh() if read is None else read.state
        selection = resources.select_among(state)
        resources.inspect_tier(metadata)
        remote = None if request.remote is None else resources.remote
        if remote is None:
            progress.note("without --remote no object is examined")
        found = _read_logs(resources) if read_logs is None else read_logs
        unreadable = [unreadable_log(folder, error) for folder, error in found.errors.items()]
        logs = with_raised_log_starts(found.logs, request.state_dir)
        cluster = _cluster(resources)
        histories = Histories(resources)
        histories.examine(state, lambda: logs)
        _count_known(examined, state, resources)
        if request.meter is not None:
            measure_tier(request.meter, state)
        deep = None
        if request.reads_bytes and remote is not None:
            reads = examined.reads = open_deep_reads(request, resources.now_ms)
            opened.enter_context(reads_recorded(reads, request, progress, resources.now_ms))
            deep = Deep(spool=opened.enter_context(spool_folder()), threads=request.threads, reads=reads)
        states = chain([state], iter(metadata.refresh, None))
        verification = Verification(
            refresh=lambda: next(states),
            deleted_among=_deleted_among(resources),
            deleted_of=deleted_of(lambda: deleted_segments(resources.metadata_topic())),
            selection=selection,
            now_ms=resources.now_ms,
            copy_limit_ms=request.copy_limit_ms,
            logs=logs,
            topics=_known_topics(resources, unreadable),
            configs=_configs(resources, state, {each.topic for each in unreadable if each.topic}, cluster),
            cluster=cluster,
            remote=remote,
            deep=deep,
            runner=_spark_runner(resources, examined),
            advance=examined.add_objects,
            progress=progress,
            incomplete=histories.incomplete,
            unseen=histories.unseen,
        )
        yield from unreadable
        selected = [log for log in logs if log.topic_id_partition in selection]
        yield from damaged_log_ends(selected)
        yield from cut_logs(selected)
        if not resources.selection_request.narrows:
            yield from unsafe_offsets(request, progress)
        yield from verification.findings()


def _count_known(examined: Examined, state: TierState, resources: Resources) -> None:
    parts = [part for part in state if part.topic_id_partition in resources.selection]
    examined.segments = sum(part.segment_count for part in parts)
    examined.topics = len({part.topic_id_partition.topic_id for part in parts if part.segment_count})
    examined.log_dirs = len(resources.request.log_dir)
    examined.is_narrowed = resources.selection_request.narrows


def _configs(
    resources: Resources, state: TierState, unreadable: set[str], cluster: ClusterCheck | None
) -> dict[str, TopicConfig]:
    """Return the settings in --topic-configs; UsageError if the names of its topics look mistyped.

    `unreadable` are topics of log directories whose logs can't be read. With a cluster the settings there
    count, and those in the file that are others are noted.
    """
    configs = resources.topic_configs()
    selected = {p.topic_id_partition.topic for p in state if p.topic_id_partition in resources.selection}
    if cluster is not None:
        resources.note_unused(cluster.configs(selected & configs.keys()))
    elif configs:
        known = resources.known_topics(state) | unreadable
        resources.check_topic_names(configs, known, selected - configs.keys())
    return configs


def _known_topics(resources: Resources, unreadable: Sequence[Finding]) -> KnownTopics | None:
    """Return the topics of the log directories; None without log directories."""
    if not resources.request.log_dir:
        return None
    return KnownTopics.of(resources.partitions_in_logs, {f.topic for f in unreadable if f.topic})


def _read_logs(resources: Resources) -> ReadLogs:
    """Read the logs of the log directories that may be selected."""
    errors: dict[Path, TierctlError] = {}
    select = resources.selection_request.may_select
    logs = read_local_logs(
        resources.request.log_dir, resources.progress, select=select, on_error=errors.__setitem__
    )
    return ReadLogs(logs, errors)


def _cluster(resources: Resources) -> ClusterCheck | None:
    """Return the cluster, which has answered once; None without one."""
    cluster = resources.cluster
    if cluster is None:
        return None
    # An unreachable cluster is reported at once, not after the whole store has been listed.
    cluster.cluster_id()
    return ClusterCheck(cluster)


def _deleted_among(resources: Resources) -> DeletedAmong:
    """Return the search for deleted segments; the metadata topic is read when the first id is searched."""

    @cache
    def deleted() -> SegmentIds:
        topic = resources.metadata_topic()
        return deleted_segment_ids(topic, topic.end_offsets())

    def among(ids: Collection[Uuid]) -> Collection[Uuid]:
        if not ids:
            return ()
        if not resources.is_on_spark:
            return {each for each in ids if deleted().find(each.bytes) >= 0}
        from tierctl.spark.fold import deleted_among

        end_offsets, wanted = resources.metadata_topic().end_offsets(), SegmentIds.of(ids)
        found = deleted_among(resources.executors, resources.metadata_location, end_offsets, wanted)
        return {each for each in ids if found.find(each.bytes) >= 0}

    return among


def _spark_runner(resources: Resources, examined: Examined) -> RemoteRunner | None:
    """Return the executors that list the store and examine segments; None without a tier or executors."""
    if not resources.is_on_spark or resources.request.remote is None:
        return None
    from tierctl.spark.executors.examined import SparkRunner

    remote, executors = resources.remote, resources.executors
    spec = resources.tier_spec().resolved(remote).shared(lambda: executors.slots)
    return SparkRunner(executors=executors, remote=remote, spec=spec, advance=examined.add_objects)
