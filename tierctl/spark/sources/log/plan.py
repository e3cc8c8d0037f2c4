"""Plan the tasks of the data source `remote_log` on the driver, with the same code as `tierctl fetch`."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack

import pyarrow as pa

from tierctl.errors import TierctlError
from tierctl.kafka.cluster import Cluster
from tierctl.locallog import read_log_dirs
from tierctl.metadata import open_metadata
from tierctl.metadata.server_properties import broker_file, cluster_client
from tierctl.model import IsolationLevel
from tierctl.model.settings import broker
from tierctl.plan.tier_identity import check_tier
from tierctl.read.histories import EvidenceSources, examine_histories, missing_events_error
from tierctl.read.index_lookup import IndexFetcher, UncachedIndexes
from tierctl.read.leader_logs import leader_log_start, with_current_topic_ids
from tierctl.read.parallel.task import ReadTask, TimestampRange
from tierctl.read.parallel.task_planner import SPLIT_BYTES, plan_read_tasks
from tierctl.read.partition_reader import PartitionReader
from tierctl.read.partitions import ReadablePartition, illegal_name_error, readable_partitions
from tierctl.read.readable_log import ReadableLog
from tierctl.spark.sources.log.options import LogOptions, Mode
from tierctl.spark.sources.log.rows import PARTITION_COLUMNS, SCHEMA, LogTask, warn
from tierctl.spark.sources.predicates import Predicate, mask_of
from tierctl.spark.sources.pushed_window import Window
from tierctl.state.tier import TierState
from tierctl.storage.index_cache import RemoteIndexCache
from tierctl.storage.open import TierSpec, open_tier
from tierctl.verify.tier_contents import tier_contents

# Each task takes Spark's Python worker about 50 ms, which is the time of 25 MB.
_TASK_BYTES_MIN = 32 << 20
# More tasks than this only limit the work that a failed task has to repeat.
_TASKS = 32


def plan_tasks(
    options: LogOptions, predicates: tuple[Predicate, ...], columns: tuple[str, ...]
) -> list[LogTask]:
    """Return tasks that together read exactly the selected rows, ordered by topic, partition and offset.

    Reads the metadata once and, from the tier, the lineage of each partition and, for read_committed, its
    transaction indexes. Raises the errors of opening these, and those of `check_tier` for the tier of another
    metadata topic. In FAILFAST mode it also raises errors in the metadata, because segments may be missing.
    """
    with ExitStack() as opened:
        plan = _Plan(options, predicates, opened)
        reads = list(plan.tasks())
        # The number of concurrent tasks is unknown here, so the limit holds even if all of them run at once.
        spec = plan.spec.shared(lambda: max(len(reads), 1))
        of_rows = tuple(each for each in predicates if each.column not in PARTITION_COLUMNS)

        def task(read: ReadTask | None, problems: Sequence[TierctlError] = ()) -> LogTask:
            return LogTask(
                spec=spec,
                columns=columns,
                read=read,
                predicates=of_rows,
                mode=options.mode,
                problems=tuple(problems),
            )

        found = [task(read) for read in reads]
        return [*found, task(None, plan.problems)] if plan.problems else found


def _tier_spec(options: LogOptions) -> TierSpec:
    settings: dict[str, str] = dict(broker_file(options.broker_config)) if options.broker_config else {}
    if options.throttle_fetch is not None:
        settings[broker.FETCH_MAX_BYTES_PER_SECOND.name] = str(options.throttle_fetch)
    return TierSpec.from_settings(
        options.remote_uri, settings, layout=options.layout, private_keys=options.private_keys
    )


class _Plan:
    def __init__(self, options: LogOptions, predicates: Sequence[Predicate], opened: ExitStack) -> None:
        self._options = options
        self._predicates = predicates
        self._window = Window.of(predicates, "offset")
        self._opened = opened
        self.problems: list[TierctlError] = []
        spec = _tier_spec(options)
        self._remote = open_tier(spec)
        opened.callback(self._remote.close)
        self._fetcher = self._open_indexes()
        self.spec = spec.resolved(self._remote)

    def tasks(self) -> Iterator[ReadTask]:
        """Yield the tasks of every selected partition."""
        views = list(self._views())
        split_bytes = self._options.bytes_per_task or _split_bytes(views)
        for view, reader in views:
            yield from self._tasks_of(view, reader, split_bytes)

    def _views(self) -> Iterator[tuple[ReadableLog, PartitionReader]]:
        """Yield the log and the reader of every selected partition; report what makes the plan incomplete."""
        options = self._options
        state = self._state()
        for quarantined in state.quarantined:
            number, offset = quarantined.metadata_partition, quarantined.metadata_offset
            self._report_incomplete(
                quarantined.error.within(f"__remote_log_metadata-{number}, offset {offset}")
            )
        cluster = self._open_cluster()
        selection = options.selection
        by_name = bool(selection.topics) and not selection.topic_ids
        if by_name:
            selection = with_current_topic_ids(selection, cluster)
        logs = read_log_dirs(list(options.log_dirs)) if options.log_dirs else []
        logs = [log for log in logs if log.topic_id_partition in selection]
        sources = EvidenceSources(
            selection=selection,
            logs=lambda: logs,
            cluster=lambda: cluster,
            topics=selection.topics,
            remote=lambda: self._remote,
        )
        for partition, reason in examine_histories(state, sources, options.truncated_metadata).items():
            self._report_incomplete(missing_events_error(partition, reason))
        for readable in readable_partitions(state, logs, selection, by_name=by_name):
            if not self._is_selected(readable):
                continue
            refusal = illegal_name_error(readable.topic_id_partition)
            if refusal is None:
                start = leader_log_start(cluster, readable.topic_id_partition)
                view = self._view(readable, start)
                report = self._report_harmless
                yield view, PartitionReader(view, self._fetcher, report, isolation=options.isolation)
            else:
                self._report_incomplete(refusal)

    def _tasks_of(self, view: ReadableLog, reader: PartitionReader, split_bytes: int) -> Iterator[ReadTask]:
        options, window = self._options, self._window
        span = self._span(view, reader)
        if span is None:
            return
        is_committed = options.isolation is IsolationLevel.READ_COMMITTED
        yield from plan_read_tasks(
            view,
            *span,
            committed_only=(self._fetcher, self._report_harmless) if is_committed else None,
            times=TimestampRange(first_ms=window.first_ms, last_ms=window.last_ms, late_ms=options.late_ms),
            split_bytes=split_bytes,
        )

    def _span(self, view: ReadableLog, reader: PartitionReader) -> tuple[int, int] | None:
        """Return the offsets [start, end) to read, or None if there are none."""
        low, high = self._window.offsets
        start, end = max(view.log_start_offset, low), min(reader.end_offset, high + 1)
        if start >= end:
            return None
        if self._options.from_time_ms is not None:
            found = reader.offset_for_time(self._options.from_time_ms)
            if found is None:
                return None
            start = max(start, found.offset)
        if self._options.to_time_ms is not None:
            later = reader.offset_for_time(self._options.to_time_ms + 1, start)
            end = end if later is None else min(end, later.offset)
        return (start, end) if start < end else None

    def _is_selected(self, readable: ReadablePartition) -> bool:
        partition = readable.topic_id_partition
        conditions = [each for each in self._predicates if each.column in PARTITION_COLUMNS]
        mask = mask_of(conditions, lambda name: pa.array([getattr(partition, name)], SCHEMA.field(name).type))
        return mask is None or bool(mask.true_count)

    def _view(self, readable: ReadablePartition, log_start_offset: int | None) -> ReadableLog:
        return ReadableLog.of(
            readable.topic_id_partition,
            readable.cache,
            readable.logs,
            remote=self._remote,
            fetcher=self._fetcher,
            report=self._report_incomplete,
            log_start_offset=log_start_offset,
        )

    def _state(self) -> TierState:
        manager = open_metadata(self._options.metadata, state_dir=self._options.state_dir)
        self._opened.callback(manager.close)
        state = manager.refresh()
        note = check_tier(tier_contents(self._remote, state), manager.identity(), is_reading=True)
        if note is not None:
            warn(note)
        return state

    def _open_indexes(self) -> IndexFetcher:
        if self._options.state_dir is None:
            return UncachedIndexes(self._remote)
        return RemoteIndexCache(self._options.state_dir, self._remote)

    def _open_cluster(self) -> Cluster | None:
        options = self._options
        if options.bootstrap_server is None:
            return None
        cluster = Cluster(
            cluster_client(
                options.bootstrap_server,
                command_config=options.command_config,
                broker_config=options.broker_config,
            )
        )
        self._opened.callback(cluster.close)
        return cluster

    def _report_harmless(self, error: TierctlError) -> None:
        """Report an error that loses no record, such as an index that had to be rebuilt."""
        if self._options.mode is Mode.FAILFAST:
            warn(error.message)
        else:
            self.problems.append(error)

    def _report_incomplete(self, error: TierctlError) -> None:
        """Report an error because of which segments may be missing from the result."""
        if self._options.mode is Mode.FAILFAST:
            raise error
        self.problems.append(error)


def _split_bytes(views: Iterable[tuple[ReadableLog, PartitionReader]]) -> int:
    """Return the bytes that a task should read, so that there are about 32 tasks of 32 to 128 MiB.

    It ignores the conditions on offset and time, which may make the tasks fewer.
    """
    total = 0
    for view, _ in views:
        for segment_range in view.segment_ranges(view.log_start_offset):
            total += segment_range.segment.size_bytes
            if total >= _TASKS * SPLIT_BYTES:
                return SPLIT_BYTES
    return max(total // _TASKS, _TASK_BYTES_MIN)
