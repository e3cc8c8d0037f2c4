"""Lower committed offsets in the files of stopped brokers."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from tierctl.apply.labels import effect
from tierctl.apply.outcome import Outcome, Status
from tierctl.errors import CorruptInputError, LockedError, SafetyRefusal
from tierctl.metadata.committed_file import read_committed, write_committed
from tierctl.plan.repair.offsets import FILE, FROM_OFFSET, TO_OFFSET
from tierctl.plan.steps import Step


def lower_offsets(steps: Sequence[Step]) -> list[Outcome]:
    """Write each file that the steps name once; a step whose committed offset has changed is dropped."""
    outcomes: list[Outcome] = []
    for file, group in groupby(steps, key=lambda step: str(step.details[FILE])):
        outcomes += _lower_in(Path(file), list(group))
    return outcomes


def _lower_in(path: Path, steps: Sequence[Step]) -> list[Outcome]:
    try:
        offsets = dict(read_committed(path).offsets)
        outcomes = []
        for step in steps:
            found, wanted = offsets.get(step.partition), step.details[TO_OFFSET]
            if found != step.details[FROM_OFFSET]:
                reason = f"the committed offset is {found} now, it was {step.details[FROM_OFFSET]}"
                outcomes.append(Outcome(step=step, status=Status.DROPPED, reason=reason))
                continue
            del offsets[step.partition]
            if wanted is not None:
                offsets[step.partition] = wanted
            outcomes.append(Outcome(step=step, status=Status.DONE))
        if any(outcome.status is Status.DONE for outcome in outcomes):
            with effect("repair.offsets.write"):
                write_committed(path, dict(sorted(offsets.items())))
    except (CorruptInputError, LockedError, SafetyRefusal) as e:
        return [Outcome(step=step, status=Status.FAILED, error=e) for step in steps]
    return outcomes
