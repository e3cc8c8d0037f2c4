"""Compares a saved plan with the plan that the same command decides from the current state."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tierctl.model import Uuid
from tierctl.plan.materialise import WITHOUT_KEYS
from tierctl.plan.recheck import recheck
from tierctl.plan.saved import SavedPlan
from tierctl.plan.steps import LOG_DIR, SOURCE_SEGMENT_ID, Action, Plan, Skip, Step
from tierctl.state.tier import TierState

_LOG_START = "new_log_start_offset"
_Key = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StillDecided:
    """The remaining part of a saved plan: `plan`, and whether it `is_void`.

    A plan is void if it had steps, none is left, and the work of at least one of them is not done.
    """

    plan: Plan
    is_void: bool


def still_decided(saved: SavedPlan, current: Plan, state: TierState) -> StillDecided:
    """Return the steps of `saved` that `current` has, too, with the facts of `current`.

    `current` is the plan that the same command decides now, from `state`, for the same partitions. Each other
    step becomes a skip with the reason. A copy also needs every earlier copy of its partition in `current`,
    so that the tier gets no hole. A step raises the log start no further than both plans say.
    """
    checked = recheck(saved.plan, state)
    dropped = {_key(each.step): each.reason for each in checked.dropped}
    now = {_key(step): step for step in current.steps}
    wanted: dict[_Key, Step] = {}
    for step in saved.plan.steps:
        key = _key(step)
        if key not in now:
            dropped.setdefault(key, _why_not_decided(saved, step, current))
        elif _LOG_START in now[key].details and _LOG_START not in step.details:
            offset = now[key].details[_LOG_START]
            dropped.setdefault(key, f"the log must start at {offset} first, which the plan does not say")
        elif key not in dropped:
            wanted[key] = _lower_log_start(now[key], step)
    for step in _after_a_missing_copy(current, wanted):
        dropped[_key(step)] = "an earlier segment of the partition must be copied first: make the plan again"
        del wanted[_key(step)]
    kept = replace(current, steps=tuple(wanted[key] for key in now if key in wanted))
    contiguous = recheck(kept, state)
    dropped |= {_key(each.step): each.reason for each in contiguous.dropped}
    skipped = [
        Skip.of(step.topic_id_partition, dropped[_key(step)], step.segment_id)
        for step in saved.plan.steps
        if _key(step) in dropped
    ]
    # A saved reason is a text; the same one that is decided now has its kind, such as "not understood".
    decided = {skip: skip for skip in current.skipped}
    left = [decided.get(skip, skip) for skip in saved.plan.skipped]
    plan = replace(contiguous.plan, skipped=(*left, *skipped))
    done = sum(each.is_done for each in checked.dropped)
    return StillDecided(plan=plan, is_void=not plan.steps and done < len(saved.plan.steps))


def _key(step: Step) -> _Key:
    """Return what a step does: its action, its partition, and its segment or, of a copy, its offsets."""
    source = step.details.get(SOURCE_SEGMENT_ID)
    segment: object = step.segment_id or (step.start_offset, step.end_offset, source)
    if LOG_DIR in step.details:
        segment = (segment, step.details[LOG_DIR], step.details.get(WITHOUT_KEYS))
    return (step.action, step.topic_id_partition, segment)


def _lower_log_start(current: Step, saved: Step) -> Step:
    """Return `current` with the lower of both log starts, if it raises the log start."""
    starts = [step.details[_LOG_START] for step in (current, saved) if _LOG_START in step.details]
    if _LOG_START not in current.details:
        return current
    return replace(current, details={**current.details, _LOG_START: min(starts)})


def _after_a_missing_copy(current: Plan, wanted: Mapping[_Key, Step]) -> Iterator[Step]:
    """Yield the wanted copies that follow, in `current`, a copy of their partition that is not wanted."""
    missing: set[tuple[Uuid, int]] = set()
    for step in current.steps:
        if step.action not in {Action.COPY_SEGMENT, Action.PUBLISH_SEGMENT}:
            continue
        if _key(step) not in wanted:
            missing.add(step.topic_id_partition.key)
        elif step.topic_id_partition.key in missing:
            yield step


def _why_not_decided(saved: SavedPlan, step: Step, current: Plan) -> str:
    """Return why `current` lacks `step`: a change since the plan, or else the skip of its partition."""
    partition = step.topic_id_partition
    own = [skip for skip in current.skipped if skip.topic_id_partition == partition]
    of_segment = [skip.reason for skip in own if skip.segment_id == step.segment_id is not None]
    reasons = of_segment or [
        *_changes(saved, step, current),
        *(skip.reason for skip in own if skip.segment_id is None),
    ]
    found = "; ".join(reasons) or "the state of the log and of the tier has changed"
    return f"{saved.plan.command} does not decide it now: {found}"


def _changes(saved: SavedPlan, step: Step, current: Plan) -> Iterator[str]:
    """Yield the settings of the step's topic, and its partition's log start, that changed since."""
    before: Mapping[str, Any] = saved.settings.get(step.topic, {})
    after = current.basis.settings_of({step.topic}).get(step.topic, {})
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield f"{name} was {before.get(name)} and is {after.get(name)}"
    partition = step.topic_id_partition
    started = saved.log_starts.get(str(partition))
    starts = current.basis.log_starts.get(partition)
    if started != starts:
        yield f"the log started at {started} and starts at {starts}"
