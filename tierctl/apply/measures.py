"""Metrics about the results of a mutating run, and about the remaining work."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from tierctl.apply.run_context import Outcome, Status
from tierctl.model import TopicConfig
from tierctl.plan.copy import written_ms
from tierctl.plan.reasons import Reason
from tierctl.plan.steps import MATERIALISE, NEW_IDS, REBUILD, RESTORE, Action, Plan, Step
from tierctl.report import prometheus
from tierctl.report.prometheus import Family, Labels, Meter, Scope, measure_tier
from tierctl.state.tier_state import TierState

_COPY = (prometheus.COPY_REQUESTS, prometheus.COPY_ERRORS, prometheus.COPY_BYTES)
_DELETE = (prometheus.DELETE_REQUESTS, prometheus.DELETE_ERRORS, prometheus.DELETED_BYTES)
_NOT_LAGGING = {REBUILD, MATERIALISE, RESTORE, NEW_IDS}
_FAMILIES = {Action.COPY_SEGMENT: _COPY, Action.DELETE_SEGMENT: _DELETE}


def measure_mutation(
    meter: Meter,
    plan: Plan,
    outcomes: Sequence[Outcome] | None,
    state: TierState,
    scope: Scope,
    *,
    now_ms: int,
) -> None:
    """Measure the run of `plan`: the tier's state, the work done, and the steps that are not done.

    `outcomes` is None if the plan was not carried out.
    """
    measure_tier(meter, state)
    for outcome in outcomes or ():
        _count(meter, plan.command, outcome)
    if scope.is_partial or plan.command in _NOT_LAGGING:
        return
    done = {id(outcome.step) for outcome in outcomes or () if outcome.status is Status.DONE}
    left = [step for step in plan.steps if id(step) not in done]
    if plan.command == "copy":
        left_plan = replace(plan, steps=tuple(left))
        _copy_lag(meter, left_plan, {part.topic_id_partition.topic for part in state}, scope, now_ms)
        return
    known = {part.topic_id_partition.topic for part in state}
    # `delete` decides for deleted topics and `sweep` for all others: each sets only its own topics' values.
    is_delete = plan.command == "delete"
    topics = {part.topic_id_partition.topic for part in state if (part.delete_state is not None) == is_delete}
    topics = {topic for topic in topics if not scope.keeps((topic,))} | {step.topic for step in plan.steps}
    lag = [(step.topic, _size_bytes(step)) for step in left if step.action is Action.DELETE_SEGMENT]
    families = prometheus.DELETE_LAG_SEGMENTS, prometheus.DELETE_LAG_BYTES
    _set_lag(meter, families, lag, topics, lambda labels: labels[0] in known - topics)


def measure_copy_lag(meter: Meter, plan: Plan, topics: Iterable[str], scope: Scope, *, now_ms: int) -> None:
    """Set the copy lag of `topics`, and of those with steps in `plan`, which is not carried out."""
    if not scope.is_partial:
        _copy_lag(meter, plan, topics, scope, now_ms)


def _copy_lag(meter: Meter, plan: Plan, topics: Iterable[str], scope: Scope, now_ms: int) -> None:
    named = list(topics)
    lag = [
        (each.partition.topic, each.size_bytes or 0) for each in plan.decisions(now_ms) if each.is_copy_lag
    ]
    _set_lag(meter, (prometheus.COPY_LAG_SEGMENTS, prometheus.COPY_LAG_BYTES), lag, named, scope.keeps)
    ages_s: dict[Labels, float] = {(topic,): 0 for topic in named if not scope.keeps((topic,))}
    for topic, since_ms in _uncopied(plan):
        ages_s[topic,] = max(ages_s.get((topic,), 0), (now_ms - since_ms) / 1000)
    meter.set(prometheus.COPY_LAG_AGE, ages_s, scope.keeps)


def _uncopied(plan: Plan) -> Iterator[tuple[str, int]]:
    """Yield the topic of segments that should be in the tier, and the time since when.

    That is the last write to a segment, because old records may be written today, or the end of the topic's
    copy lag, which counts from the largest timestamp. A segment that still waits for this lag should not be
    in the tier yet; one that waits for anything else should. A segment of another tier has its timestamp
    only.
    """
    for step in plan.steps:
        if step.action is Action.COPY_SEGMENT:
            lag_ms = plan.basis.configs.get(step.topic, TopicConfig()).copy_lag.ms or 0
            last_write_ms = written_ms(step)
            newest_ms = min(step.details["max_timestamp_ms"], last_write_ms)
            yield step.topic, max(last_write_ms, newest_ms + lag_ms)
    for skip in plan.skipped:
        oldest_ms = Reason.of(skip.reason).facts.get("oldest_ms")
        if oldest_ms is not None:
            yield skip.topic, oldest_ms


def _set_lag(
    meter: Meter,
    families: tuple[Family, Family],
    lag: Iterable[tuple[str, int]],
    topics: Iterable[str],
    keeps: Callable[[Labels], bool],
) -> None:
    """Set the gauges of segments and of bytes, of `topics` and of those in `lag`; `keeps` as in `Gauges`.

    `lag` has the topic and the size of each segment.
    """
    counts: dict[Labels, float] = {(topic,): 0 for topic in topics if not keeps((topic,))}
    sizes_bytes = dict(counts)
    for topic, size_bytes in lag:
        counts[topic,] = counts.get((topic,), 0) + 1
        sizes_bytes[topic,] = sizes_bytes.get((topic,), 0) + size_bytes
    for family, values in zip(families, (counts, sizes_bytes), strict=True):
        meter.set(family, values, keeps)


def _count(meter: Meter, command: str, outcome: Outcome) -> None:
    step, is_failed = outcome.step, outcome.status is Status.FAILED
    if is_failed:
        meter.count(prometheus.ERRORS, command, type(outcome.error).__name__)
    # A done step with a reason was done by another program: it is not counted.
    is_own = is_failed or (outcome.status is Status.DONE and outcome.reason is None)
    if step.action not in _FAMILIES or not is_own:
        return
    requests, errors, size = _FAMILIES[step.action]
    meter.count(requests, step.topic)
    meter.count(errors, step.topic, by=int(is_failed))
    meter.count(size, step.topic, by=0 if is_failed else _size_bytes(step))


def _size_bytes(step: Step) -> int:
    return int(step.details.get("segment_size_in_bytes", 0))
