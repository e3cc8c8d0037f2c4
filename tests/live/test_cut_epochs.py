"""The leader-epoch checkpoint of a tiered partition lost its first entries: nothing is deleted for it.

A broker that starts with it deletes the segments that `explain` names; after `rebuild` it serves all records.
"""

from pathlib import Path
from typing import Any

import pytest
from tierctl.wire.files.checkpoints import read_leader_epoch_checkpoint, write_leader_epoch_checkpoint

from tests.cli.shell import Ran
from tests.live.commands import plan, tierctl
from tests.live.history import Cluster, check_everything, tier
from tests.live.test_rebuild import offline
from tests.support.broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.matrix]


def checkpoint(broker: Broker) -> Path:
    return broker.log_dir / "plain-0" / "leader-epoch-checkpoint"


def in_tier(broker: Broker) -> list[int]:
    """Return the start offsets of the tiered segments of plain-0."""
    return sorted(
        int(log.name[:20]) for log in broker.remote_dir.glob("kafka-tiered-storage/plain-0-*/*.log")
    )


def cut_epochs(broker: Broker) -> None:
    """Keep only the last entry, as a defect of Kafka in a follower and an operator's hand do."""
    entries = read_leader_epoch_checkpoint(checkpoint(broker).read_bytes())
    assert len(entries) >= 3
    checkpoint(broker).write_bytes(write_leader_epoch_checkpoint(entries[-1:]))


def asked(broker: Broker, *words: object) -> Ran:
    where = ("--metadata", broker.log_dir, "--log-dir", broker.log_dir, "--output", "jsonl")
    return tierctl(*words, *where)


def of_plain(ran: Ran) -> list[dict[str, Any]]:
    found = ran.rows
    return [row for row in found if row["topic"] == "plain" and row["partition"] == 0]


def predicted(broker: Broker) -> list[int]:
    """Return the start offsets of the segments that the broker would delete, says `explain`."""
    deleted = [
        row for row in of_plain(asked(broker, "explain", "plain", 0)) if row["next_action"] == "delete"
    ]
    assert all("once it leads with the cut leader epochs" in row["reason"] for row in deleted)
    return sorted(row["start_offset"] for row in deleted)


def test_a_broker_deletes_what_explain_predicts(twin: Broker) -> None:
    assert predicted(twin) == []
    cut_epochs(twin)
    lost, whole = predicted(twin), in_tier(twin)
    assert lost
    twin.start()
    twin.wait_for("the deletes", lambda: in_tier(twin) == [at for at in whole if at not in lost])
    twin.await_idle()
    assert in_tier(twin) == [at for at in whole if at not in lost]


def test_a_repaired_checkpoint_loses_nothing(cluster: Cluster, twin: Broker) -> None:
    before, whole = tier(twin), checkpoint(twin).read_bytes()
    cut_epochs(twin)
    refused = tierctl(*offline(twin, "--apply"))
    assert (refused.code, "plain-0: " in refused.err) == (4, True), refused.err
    done = plan(*offline(twin, "--log-start", "tier", "--apply"))
    assert [(o["status"], o["action"]) for o in done["outcomes"]] == [("done", "write_checkpoints")]
    assert checkpoint(twin).read_bytes() == whole
    assert plan(*offline(twin))["steps"] == []
    assert predicted(twin) == []
    twin.start()
    check_everything(twin, cluster, before)
