"""Segments in no leader's lineage are deleted on request, after all other segments."""

from typing import Any

import pytest
from tierctl.model import RemoteLogSegmentMetadata, TopicPartition

from tests.plan.retention.test_sweep import numbers, sweep
from tests.plan.tier import local_log, segment, tier


def _diverged() -> list[RemoteLogSegmentMetadata]:
    """Return epochs 0 and 2 of the first leader, and epoch 4 of the second from 150 on (unclean election)."""
    return [
        segment(1, 0, 99),
        segment(2, 100, 199),
        segment(3, 200, 299, (0, 200), (2, 250)),
        segment(4, 100, 199, (0, 100), (4, 150)),
        segment(5, 200, 299, (4, 200)),
        segment(6, 300, 399, (4, 300), (5, 350)),
    ]


@pytest.mark.parametrize(
    ("log_start", "epochs", "arguments", "wanted"),
    [
        # The log still knows and references the epochs that diverged.
        (0, ((0, 0), (4, 150), (5, 350)), {"off_lineage": True}, []),
        (120, ((0, 120), (4, 150), (5, 350)), {"off_lineage": True}, [1]),
        # The log start passes these epochs now, in a lineage that knows them.
        (200, ((0, 0), (4, 150), (5, 350)), {}, [1, 4]),
        (200, ((0, 0), (4, 150), (5, 350)), {"unreferenced_epochs": True}, [1, 4]),
        (200, ((0, 0), (4, 150), (5, 350)), {"off_lineage": True}, [1, 4, 2, 3]),
        # The log no longer has the epochs, so diverged segments look like deleted ones. By default only those
        # wholly below the log start are deleted, as by brokers.
        (200, ((4, 200), (5, 350)), {}, [4, 1, 2]),
        (199, ((4, 199), (5, 350)), {}, [1]),
        (200, ((4, 200), (5, 350)), {"unreferenced_epochs": True}, [4, 1, 2, 3]),
        (200, ((4, 200), (5, 350)), {"off_lineage": True}, [4, 1, 2, 3]),
    ],
)
def test_segments_off_the_lineage(
    log_start: int, epochs: Any, arguments: dict[str, Any], wanted: list[int]
) -> None:
    log = local_log([400], 450, epochs=epochs, log_start_offset=log_start)
    assert numbers(sweep(tier(*_diverged()), logs=[log], **arguments)) == wanted


def test_off_lineage_deletes_wait_for_the_log_start() -> None:
    log = local_log([400], 450, epochs=((0, 0), (4, 150), (5, 350)))
    raised = {TopicPartition("orders", 0): 200}
    plan = sweep(tier(*_diverged()), logs=[log], log_start_offsets=raised, off_lineage=True)
    off = [step for step in plan.steps if step.details["breach"] == "off_lineage"]
    assert [step.details["new_log_start_offset"] for step in off] == [200, 200]
    assert [step.details["earliest_epoch"] for step in off] == [4, 4]
