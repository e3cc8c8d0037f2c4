"""The metadata of a topic that was compacted once are lost and rebuilt: the broker serves all records."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.live.commands import tierctl
from tests.support.broker import Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

RECORDS, END = 3301, 3901


@pytest.mark.matrix
def test_a_consumer_reads_every_record(brokers: Brokers, capture: Callable[..., Path]) -> None:
    broker = brokers.own(start=False)
    world = capture("formerly-compacted")
    shutil.copytree(world / "logs", broker.log_dir)
    shutil.copytree(world / "remote", broker.remote_dir)
    broker.node_id = 1
    objects = sorted(path.name for path in broker.remote_dir.rglob("*") if path.is_file())
    ran = tierctl(
        *("rebuild", "--metadata", broker.log_dir, "--remote", broker.remote_dir, "--log-dir"),
        *(broker.log_dir, "--config", world / "server.properties", "--apply"),
    )
    assert ran.code == 0, ran.err
    try:
        broker.start()
        broker.await_idle()
        offsets = [record[0] for record in broker.records("mid")]
        assert len(offsets) == RECORDS
        assert (offsets[0], offsets[-1]) == (0, END - 1)
        after = sorted(path.name for path in broker.remote_dir.rglob("*") if path.is_file())
        assert set(objects) <= set(after)
    finally:
        broker.stop()
