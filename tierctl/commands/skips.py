"""Messages about what a plan leaves out: one line for each reason, however many partitions have it."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

from tierctl.commands.request import Request
from tierctl.model import TopicIdPartition, Uuid
from tierctl.model.progress import Progress
from tierctl.model.selection import names_text, ranges_text
from tierctl.plan.rebuild.partition import is_not_understood
from tierctl.plan.steps import Skip


def report_skips(skips: Collection[Skip], refused: Collection[Skip], progress: Progress) -> bool:
    """Report what a plan leaves out, and as warnings the partitions for which an option is `refused`.

    Return whether something was left out because it is not understood.
    """
    for line in skip_lines(skip for skip in skips if skip not in refused):
        progress.say(line)
    for line in skip_lines(refused):
        progress.warn(line)
    return any(is_not_understood(skip.reason) for skip in (*skips, *refused))


def any_not_understood(reasons: Iterable[str], request: Request) -> bool:
    """Return whether one of `reasons` is that something was not understood.

    Without --remote the leader epochs in the tier are not read, which is no such reason.
    """
    return request.remote is not None and any(map(is_not_understood, reasons))


def skip_lines(skips: Iterable[Skip]) -> Iterator[str]:
    """Yield one line per reason, in the order of their first skips; skips of segments have a line each.

    Partitions with the same reason are listed by topic, a bounded number of them.
    """
    partitions: dict[str, list[TopicIdPartition]] = defaultdict(list)
    segments: list[str] = []
    for skip in skips:
        if skip.segment_id is None:
            partitions[skip.reason].append(skip.topic_id_partition)
        else:
            partition = _partitions_text([skip.topic_id_partition])
            segments.append(f"skipped {partition} segment {skip.segment_id}: {skip.reason}")
    for reason, skipped in partitions.items():
        yield f"skipped {_partitions_text(skipped)}: {reason}"
    yield from segments


def _partitions_text(partitions: Collection[TopicIdPartition]) -> str:
    numbers: dict[tuple[str, Uuid], list[int]] = defaultdict(list)
    for partition in partitions:
        numbers[partition.topic, partition.topic_id].append(partition.partition)
    if len(partitions) == 1:
        return _topic_text(next(iter(numbers.items())))
    topics = "1 topic" if len(numbers) == 1 else f"{len(numbers)} topics"
    return f"{len(partitions)} partitions of {topics} ({names_text(list(map(_topic_text, numbers.items())))})"


def _topic_text(item: tuple[tuple[str, Uuid], list[int]]) -> str:
    (topic, _), numbers = item
    return f"{topic}-{numbers[0]}" if len(numbers) == 1 else f"{topic}-[{ranges_text(numbers)}]"
