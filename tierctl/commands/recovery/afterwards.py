"""Check after a rebuild that brokers serve the published segments, and print the operator's next steps."""

import time
from collections.abc import Sequence

from tierctl.apply.outcome import Outcome, Status
from tierctl.commands.mutation import Mutation
from tierctl.commands.running_cluster import RunningCluster
from tierctl.errors import MetadataError, TierctlError
from tierctl.model import TopicIdPartition
from tierctl.model.settings import topic
from tierctl.plan.steps import Action, Step

_WAIT_S = 60
_PAUSE_S = 0.5
_RESTART = (
    "the brokers' consumer skips events at offsets that it remembers of an older metadata topic: restart the "
    "brokers with copying still disabled, then run this command again"
)
RESTART_FIRST = "published; restart the brokers before copying is enabled again"


def conclude_rebuild(run: Mutation, outcomes: Sequence[Outcome]) -> str | None:
    """Check the published segments with their leaders, if the topic is on a cluster; print the next steps.

    Return what must be done first on a cluster.

    Raise the errors of `require_served`.
    """
    steps = [outcome.step for outcome in outcomes if outcome.status is Status.DONE]
    if not steps or len(steps) < len(outcomes):
        return None
    if run.cluster is None or not run.resources.is_on_cluster:
        if run.request.log_dir:
            run.progress.say(
                "start the brokers, then compare what they serve with the tier: tierctl restore --check "
                "--metadata kafka://..."
            )
        return None
    count = require_served(run.cluster, steps)
    topics = ", ".join(sorted({step.topic for step in steps}))
    run.progress.say(f"leaders serve the first published segment of each of {count} partitions")
    # Whether the topic was deleted under the brokers is not visible from outside: the check of the first
    # segments may pass although events in other metadata partitions are skipped.
    run.progress.say(
        "if the metadata topic was deleted while the brokers ran, they skip new events until they are "
        "restarted, and segments that they copy become unreadable once these are deleted locally"
    )
    run.progress.say(
        f"after that, set on {topics}: {topic.COPY_DISABLE.name}=false, and the previous "
        f"{topic.LOCAL_RETENTION_MS.name} and {topic.LOCAL_RETENTION_BYTES.name}"
    )
    return RESTART_FIRST


def _first_published(steps: Sequence[Step]) -> dict[TopicIdPartition, Step]:
    found: dict[TopicIdPartition, Step] = {}
    for step in steps:
        if step.action is Action.PUBLISH_SEGMENT:
            found.setdefault(step.topic_id_partition, step)
    return found


def require_served(cluster: RunningCluster, steps: Sequence[Step]) -> int:
    """Wait until each leader serves its first published segment; return the number of partitions.

    Brokers read the events with a delay. Raise MetadataError if a leader serves no record of the segment
    within a minute, and immediately if its log start is above the segment: then the leader deletes the
    segment.
    """
    deadline = time.monotonic() + _WAIT_S
    waiting = _first_published(steps)
    count = len(waiting)
    problem = ""
    while waiting:
        for partition, step in list(waiting.items()):
            log_start: int | None = None
            try:
                log_start = _log_start(cluster, partition)
                if log_start is not None and _serves(cluster, step, log_start):
                    del waiting[partition]
            except TierctlError as e:
                problem = e.message
            _require_not_above(step, log_start)
        if waiting and time.monotonic() > deadline:
            names = ", ".join(str(each.topic_partition) for each in waiting)
            raise MetadataError(
                f"the events are published, but the leaders of {names} do not serve them yet"
                f"{f' ({problem})' if problem else ''}",
                hint=_RESTART,
            )
        if waiting:
            time.sleep(_PAUSE_S)
    return count


def _log_start(cluster: RunningCluster, partition: TopicIdPartition) -> int | None:
    """Return the log start offset that the leader reports; None without a leader."""
    return next((log.log_start_offset for log in cluster.cluster.logs([partition])), None)


def _serves(cluster: RunningCluster, step: Step, log_start: int) -> bool:
    # The log may start within the segment, after a DeleteRecords.
    at = max(step.start_offset or 0, log_start)
    if at > (step.end_offset or 0):
        return False
    partition = step.topic_id_partition.topic_partition
    return cluster.cluster.batch_bytes(partition, at, at + 1, bytes_max=0) > 0


def _require_not_above(step: Step, log_start: int | None) -> None:
    """Raise MetadataError if the log starts above the segment: the log start rose after the publication."""
    if log_start is not None and log_start > (step.end_offset or 0):
        partition = step.topic_id_partition.topic_partition
        raise MetadataError(
            f"the log start of {partition} rose to {log_start}, above its first "
            f"published segment ({step.start_offset} to {step.end_offset}): its leader deletes that segment",
            hint="keep copying disabled, and look for deletions: 'Deleted remote log segment' and "
            "'Incremented log start offset' in the log of the leader, and DELETE_SEGMENT_STARTED in tierctl "
            "segments; retention or DeleteRecords may have done it, too",
        )
