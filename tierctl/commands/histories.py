"""Decide about which user partitions a command may decide if the metadata topic lost its oldest events."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tierctl import locallog
from tierctl.commands.request import Request
from tierctl.commands.resources import Resources
from tierctl.errors import CorruptInputError, TierctlError
from tierctl.metadata import state_dir
from tierctl.metadata.parallel_fold import Kept
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.metadata.topic.base import translated
from tierctl.model import TopicIdPartition, Uuid
from tierctl.model.selection import counted

if TYPE_CHECKING:
    from tierctl.metadata.manager import RemoteLogMetadataManager
    from tierctl.model import LocalLog
    from tierctl.plan.steps import Skip
    from tierctl.state.tier_state import MissingEvents, Quarantined, TierState

_PROBLEMS_SHOWN_MAX = 20


@dataclass(slots=True)
class Histories:
    """The histories of the partitions that a request selects."""

    resources: Resources
    incomplete: dict[TopicIdPartition, str] = field(default_factory=dict)
    """Partitions for which missing events allow no decision, and the reasons."""
    unseen: list[MissingEvents] = field(default_factory=list)
    """Missing events of metadata partitions in which no later event names a user partition."""
    _unknown: dict[TopicIdPartition, str | None] = field(default_factory=dict)

    def examine(
        self,
        state: TierState,
        logs: Callable[[], Sequence[LocalLog]] = list,
        *,
        log_starts: Mapping[TopicIdPartition, int] | None = None,
        local_suffices: bool = True,
    ) -> None:
        """Call `examine_histories` with the sources of the request; set `incomplete` to the reasons."""
        if not state.missing:
            return
        from tierctl.plan.preconditions import why_history_unknown
        from tierctl.read.readable_log import EvidenceSources, examine_histories, unseen_partitions

        resources, request = self.resources, self.resources.request
        sources = EvidenceSources(
            selection=resources.selection,
            logs=logs,
            cluster=lambda: resources.cluster,
            topics=resources.selection.topics,
            remote=None if request.remote is None else lambda: resources.remote,
            log_starts=log_starts or {},
            local_suffices=local_suffices,
        )
        self.incomplete = examine_histories(state, sources, request.truncated_metadata)
        self.unseen = [] if request.log_dir else unseen_partitions(state, sources)
        self._unknown = {partition: why_history_unknown(state, partition) for partition in self.incomplete}

    def ignore_untiered(self, state: TierState, skips: Iterable[Skip]) -> None:
        """Remove the partitions without metadata that a copy skips for other reasons: they are not tiered."""
        skipped = {skip.topic_id_partition for skip in skips if self._is_reported(skip)}
        for partition in self.incomplete.keys() - skipped:
            if state.partition(partition) is None:
                del self.incomplete[partition]

    def unreported(self, skips: Iterable[Skip]) -> list[Skip]:
        """Return the skips except those about missing events, which `report` reports in more detail."""
        return [skip for skip in skips if not self._is_reported(skip)]

    def _is_reported(self, skip: Skip) -> bool:
        return self._unknown.get(skip.topic_id_partition) == skip.reason

    @property
    def unknown(self) -> int:
        """The number of user partitions with missing events; if none is known, of metadata partitions."""
        return len(self.incomplete) or len(self.unseen)

    def texts(self) -> list[str]:
        """Return what `report` reports of missing events, a bounded number of lines."""
        errors = _missing_errors(self.incomplete, self.unseen)
        texts, more = [error.message for error in errors], len(errors) - _PROBLEMS_SHOWN_MAX
        return texts if more <= 0 else [*texts[:_PROBLEMS_SHOWN_MAX], counted(more, "more such error")]

    def report(self, state: TierState) -> bool:
        """Report damaged records and missing events as problems; return whether there are any."""
        return report_unusable(self.resources, state.quarantined, self.incomplete, self.unseen)

    def report_missing(self) -> bool:
        """Report missing events as problems, where damaged records are findings; return whether any are."""
        return report_unusable(self.resources, (), self.incomplete, self.unseen)


def unusable_error(bad: Quarantined) -> CorruptInputError:
    """Return the error of a metadata record that can't be used, with its place and a hint."""
    error = bad.error.within(f"{METADATA_TOPIC}-{bad.metadata_partition}, offset {bad.metadata_offset}")
    error.hint = error.hint or "tierctl verify lists all records of the metadata topic that can't be used"
    return error


def _missing_errors(
    incomplete: Mapping[TopicIdPartition, str], unseen: Collection[MissingEvents]
) -> list[TierctlError]:
    if not (incomplete or unseen):
        return []
    from tierctl.read.readable_log import missing_events_error, unseen_error

    return [
        *(missing_events_error(*each) for each in incomplete.items()),
        *map(unseen_error, unseen),
    ]


def report_unusable(
    resources: Resources,
    quarantined: Iterable[Quarantined],
    incomplete: Mapping[TopicIdPartition, str],
    unseen: Collection[MissingEvents] = (),
) -> bool:
    """Report metadata records that can't be used, and missing events, as problems.

    For `incomplete` and `unseen` see `read.histories`. Return whether there are any problems.
    """
    problems = [*map(unusable_error, quarantined), *_missing_errors(incomplete, unseen)]
    shown = problems[:_PROBLEMS_SHOWN_MAX]
    for problem, following in pairwise([*shown, None]):
        assert problem is not None
        if following is not None and following.hint == problem.hint:
            # A hint that several errors in a row share is printed once, below the last of them.
            problem.hint = None
        resources.problems.report(problem)
    if len(problems) > _PROBLEMS_SHOWN_MAX:
        resources.progress.warn(counted(len(problems) - _PROBLEMS_SHOWN_MAX, "more such error"))
    return bool(problems)


def whole_metadata(resources: Resources, *, kept: Kept = Kept.SEGMENTS) -> RemoteLogMetadataManager:
    """Open the metadata and read the whole topic, which is needed to find the events that the fold dropped.

    `kept` is what executors return of the segments, unless the topic lost its oldest events. If it did, the
    state directory, which may know them, has precedence. A state directory that does not exist is made; the
    errors for another topic's are those of `require_own_state`.
    """
    metadata = opened_metadata(resources, kept, is_whole=True)
    if resources.request.state_dir is None:
        return metadata
    topic_id = metadata.identity().metadata_topic_id
    state_dir.require_own_state(resources.request.state_dir, topic_id)
    with translated(f"opening {resources.request.state_dir}"):
        state_dir.make_own_folder(resources.request.state_dir)
    if not metadata.refresh().missing:
        return metadata
    return resources.metadata()


def opened_metadata(resources: Resources, kept: Kept, **opening: Any) -> RemoteLogMetadataManager:
    """Open the metadata; keep all segments if events are missing, whatever is to be `kept`.

    Which partitions' histories are complete can be found only from the segments. `opening` are further
    arguments of `Resources.metadata`. For facts nothing is folded yet: what a command refuses without reading
    is refused before a session of Spark starts.
    """
    if kept is Kept.FACTS and not resources.is_on_spark:
        kept = Kept.SEGMENTS
    metadata = resources.metadata(kept=kept, **opening)
    has_lost = kept is Kept.FACTS and metadata.has_lost_events()
    if has_lost or (kept is Kept.SIZES and metadata.refresh().missing):
        return resources.metadata(**opening)
    return metadata


def require_logs_of(metadata: RemoteLogMetadataManager, request: Request) -> None:
    """Call `require_own_log_dirs` for the topics of `metadata`, unless a cluster has the logs.

    Topics that are marked as deleted have no logs. The log directories of a cluster that deleted all the
    other topics have the metadata topic.
    """
    if not request.log_dir or request.has_cluster:
        return
    topic_ids: set[Uuid | None] = {
        part.topic_id_partition.topic_id
        for part in metadata.state.partitions.values()
        if part.delete_state is None
    }
    if topic_ids:
        topic_ids.add(metadata.identity().metadata_topic_id)
        locallog.require_own_log_dirs(request.log_dir, topic_ids, "the metadata")


def read_selected(resources: Resources, *, sizes_only: bool = False) -> TierState:
    """Read the metadata, resolve the selection, and report damaged records and missing events as problems.

    With `sizes_only`, the caller reads no segments: executors may keep only the sizes of user partitions.
    """
    request = resources.request
    # Metrics and a state directory need the segments themselves.
    sizes_only = sizes_only and request.meter is None and request.state_dir is None
    metadata = opened_metadata(resources, Kept.SIZES if sizes_only else Kept.SEGMENTS)
    state = metadata.refresh()
    resources.select_among(state)
    require_logs_of(metadata, resources.request)
    resources.inspect_tier(metadata)
    histories = Histories(resources)
    histories.examine(state, resources.logs_if_given)
    histories.report(state)
    if request.meter is not None:
        from tierctl.report.prometheus import measure_tier

        measure_tier(request.meter, state)
    return state
