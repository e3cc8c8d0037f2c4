"""Sets that are not understood: which records they have is unknown, so nothing is decided without them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeGuard

from tierctl.model import ObjectSet, Uuid
from tierctl.model.tier import LARGEST_OFFSET
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.plan.rebuild.choice import Choice
from tierctl.plan.rebuild.ends import LocalOffsets, SetKey
from tierctl.plan.rebuild.lineage import agrees
from tierctl.state.cut_epochs import is_uncovered
from tierctl.state.lineage import Lineage

_SHOWN_MAX = 3
_BESIDE = "it is not given up beside sets that are not understood: {reason}{unsound}"
_SEALED = (
    "its manifest has other leader epochs than the log, and its leader-epoch index is encrypted: "
    "--aiven-private-key lets them be compared"
)
_NEEDED = (
    "{sets}: whether the log needs them is unknown, and no log start or end is derived from their absence; "
    "make them readable, or set their objects aside outside of the tier"
)


def is_not_understood(reason: str | None) -> TypeGuard[Reason]:
    """Return whether `reason` is that something could not be interpreted or read."""
    return isinstance(reason, Reason) and reason.kind is ReasonKind.NOT_UNDERSTOOD


def reason_of(each: ObjectSet) -> Reason:
    """Return why nothing is decided about a set that is not understood."""
    detail = f"{each.why_not_understood}; it may be the only copy, so nothing is published about it"
    return Reason(ReasonKind.NOT_UNDERSTOOD, detail=detail)


def without_sealed(sets: Sequence[ObjectSet], lineage: Lineage) -> tuple[list[ObjectSet], list[ObjectSet]]:
    """Return the sets without those whose key is missing and whose manifest contradicts the lineage.

    These come second, as not understood: their manifest alone is no proof that they are off the lineage.
    """
    other = [s for s in sets if s.is_sealed and s.segment is not None and not agrees(s.segment, lineage)]
    kept = [each for each in sets if each not in other]
    return kept, [replace(each, segment=None, why_not_understood=_SEALED) for each in other]


def beside(reason: str, unsound: Mapping[Uuid, str]) -> Reason:
    """Return why a set that would be given up for `reason` is not, beside one that is not understood.

    `unsound` has, by segment id, why the bytes of segments that may serve its offsets are not sound.
    """
    shown = [f"; segment {key}: {why}" for key, why in list(unsound.items())[:_SHOWN_MAX]]
    return Reason(ReasonKind.NOT_UNDERSTOOD, detail=_BESIDE.format(reason=reason, unsound="".join(shown)))


def with_all_sets(
    choice: Choice, unclear: Sequence[ObjectSet], own: Sequence[ObjectSet], unsound: Mapping[Uuid, str]
) -> Choice:
    """Return `choice`, made among the sets `own`, with the `unclear` sets of the partition; they are left.

    No set is discarded beside them, or beside `unsound` segments: which sets serve its offsets, and which
    lineage is the log's, may be known from the unclear sets alone, and it may be the only sound copy.
    """
    if not unclear and not unsound:
        return choice
    sets = {_key(each): each for each in own}
    kept = tuple(
        (each, beside(reason, unsound))
        for segment, reason in choice.discarded
        if (each := sets.get((segment.segment_id, segment.start_offset))) is not None
    )
    left = (*choice.left, *kept, *((each, reason_of(each)) for each in unclear))
    return replace(choice, discarded=(), left=left)


def without(sets: Iterable[ObjectSet], others: Iterable[ObjectSet]) -> list[ObjectSet]:
    """Return the `sets` that are not among `others`."""
    keys = {_key(each) for each in others}
    return [each for each in sets if _key(each) not in keys]


def needless_halves(
    choice: Choice,
    unclear: Sequence[ObjectSet],
    own: Sequence[ObjectSet],
    *,
    start_offset: int,
    local: LocalOffsets | None,
) -> list[ObjectSet]:
    """Return those of the `unclear` sets that lack an object, and that no reader needs, as incomplete sets.

    Their logs are whole, and the chain and the `local` log serve all offsets that these have, or they end
    below the log start of a local log. `own` are the other sets. Offsets beyond the end of the local log are
    not this log's.
    """
    log_end = LARGEST_OFFSET if local is None else local.end
    spans = [*_spans(choice, own), *([] if local is None else [(local.start, local.end - 1)])]
    return [
        replace(each, why_not_understood=None, why_incomplete=each.why_not_understood)
        for each in unclear
        if (end := each.log_end) is not None
        and (
            (
                each.listed.start_offset < log_end
                and not is_uncovered(each.listed.start_offset, min(end.offset + 1, log_end), spans)
            )
            or (local is not None and end.offset < start_offset)
        )
    ]


def why_needed(
    choice: Choice,
    unclear: Sequence[ObjectSet],
    own: Sequence[ObjectSet],
    *,
    start_offset: int,
    local: LocalOffsets | None,
) -> Reason | None:
    """Return why the partition can't be decided without the `unclear` sets; None if it can.

    `own` are the other sets. The log begins at `start_offset`, which is known only with a `local` log.
    """
    spans = _spans(choice, own)
    needed = [each for each in unclear if _is_needed(each.listed.start_offset, spans, start_offset, local)]
    if not needed:
        return None
    texts = list(_texts(needed[:_SHOWN_MAX]))
    if len(needed) > _SHOWN_MAX:
        texts.append(f"and {len(needed) - _SHOWN_MAX} more sets")
    detail = _NEEDED.format(sets="; ".join(texts))
    if choice.hole is not None:
        detail += f"; no set has offsets {choice.hole.first} to {choice.hole.last} that is understood"
    return Reason(ReasonKind.NOT_UNDERSTOOD, detail=detail)


def joined(needed: Reason | None, other: str | None) -> str | None:
    """Return both reasons to refuse a partition as one, which is that of sets that are not understood."""
    if needed is None or other is None:
        return needed or other
    return Reason(ReasonKind.NOT_UNDERSTOOD, detail=f"{needed.facts['detail']}; {other}")


def why_end_unknown(choice: Choice) -> Reason | None:
    """Return which set that is not understood may have records where a new log would continue the chain."""
    last = choice.chain[-1].start_offset if choice.chain else -1
    above = [each for each, _ in choice.left if each.why_not_understood and each.listed.start_offset >= last]
    if not above:
        return None
    return Reason(
        ReasonKind.NOT_UNDERSTOOD, detail=_NEEDED.format(sets="; ".join(_texts(above[:_SHOWN_MAX])))
    )


def _is_needed(
    start: int, spans: Sequence[tuple[int, int]], log_start: int, local: LocalOffsets | None
) -> bool:
    """Return whether the log may need the records of an unclear set that begins at `start`.

    Its end is unknown.
    """
    if local is not None and not spans:
        return max(start, log_start) < local.start
    if not spans:
        return True
    first, end = spans[0][0], spans[-1][1]
    if start < first:
        return local is None or log_start < first
    if start > end:
        # Without a local log only a restore decides where the log ends.
        return local is not None and not local.start <= start < local.end
    return not any(a <= start <= b for a, b in spans)


def _key(each: ObjectSet) -> SetKey:
    return each.listed.segment_id, each.listed.start_offset


def _spans(choice: Choice, own: Sequence[ObjectSet]) -> list[tuple[int, int]]:
    """Return the offsets of the records in each segment of the chain; both inclusive."""
    ends = {_key(each): each.segment.end_offset for each in own if each.segment}
    # The choice may raise an end to the next segment's start, over the offsets of an unclear set.
    return [
        (s.start_offset, min(s.end_offset, ends.get((s.segment_id, s.start_offset), s.end_offset)))
        for s in choice.chain
    ]


def _texts(sets: Sequence[ObjectSet]) -> Iterator[str]:
    for each in sets:
        listed = each.listed
        yield f"segment {listed.segment_id} from offset {listed.start_offset}: {each.why_not_understood}"
