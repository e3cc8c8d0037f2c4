"""One line per reason, regardless of the number of skipped partitions."""

import pytest
from tierctl.commands.mutation import skip_lines
from tierctl.model import TopicIdPartition, Uuid
from tierctl.plan.steps import Skip

ID = Uuid.from_bytes(bytes(15) + b"\x01")
OTHER = Uuid.from_bytes(bytes(15) + b"\x02")


def skip(
    topic: str, number: int, reason: str = "off", *, topic_id: Uuid = ID, segment: Uuid | None = None
) -> Skip:
    return Skip.of(TopicIdPartition(topic_id, topic, number), reason, segment)


@pytest.mark.parametrize(
    ("skips", "lines"),
    [
        ([], []),
        ([skip("a", 0)], ["skipped a-0: off"]),
        ([skip("a", n) for n in range(40)], ["skipped 40 partitions of 1 topic (a-[0-39]): off"]),
        (
            [skip("a", 0), skip("a", 2), skip("b", 7), skip("a", 1, "behind")],
            ["skipped 3 partitions of 2 topics (a-[0, 2], b-7): off", "skipped a-1: behind"],
        ),
        (
            [skip(f"t{n}", 0) for n in range(9)],
            ["skipped 9 partitions of 9 topics (t0-0, t1-0, t2-0, t3-0, t4-0 and 4 more): off"],
        ),
        (
            [skip("a", 0), skip("a", 0, topic_id=OTHER)],
            ["skipped 2 partitions of 2 topics (a-0, a-0): off"],
        ),
        (
            [skip("a", 0, segment=ID), skip("a", 0, segment=OTHER)],
            [f"skipped a-0 segment {ID}: off", f"skipped a-0 segment {OTHER}: off"],
        ),
    ],
)
def test_skip_lines(skips: list[Skip], lines: list[str]) -> None:
    assert list(skip_lines(skips)) == lines
