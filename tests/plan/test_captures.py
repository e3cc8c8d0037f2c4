"""Plans compared with the actions of real brokers on the same data."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tierctl.locallog import read_log_dirs
from tierctl.model import (
    EpochEntry,
    RemoteLogSegmentMetadata,
    TopicConfig,
    TopicPartition,
)
from tierctl.plan.copy import plan_copy
from tierctl.plan.expiry import plan_retention
from tierctl.plan.steps import Plan
from tierctl.state.tier_state import TierState
from tierctl.wire.files.properties import read_topic_configs

from tests.read.tier import read_state
from tests.support.topic_settings import enabled_configs

Capture = Callable[..., Path]
Segments = dict[str, RemoteLogSegmentMetadata]

CLUSTER_CONFIGS = {
    "clicks": TopicConfig(retention_bytes=2097152),
    "metrics": TopicConfig(retention_ms=172800000),
}
UNCLEAN_CONFIGS = {topic: TopicConfig(retention_bytes=3145728) for topic in ("payouts", "wallets")}


def segments_of(state: TierState) -> Segments:
    return {s.segment_id: s for part in state for s in part.cache.list_remote_log_segments()}


def deleted_between(before: TierState, after: TierState) -> Segments:
    later = segments_of(after)
    return {key: s for key, s in segments_of(before).items() if key not in later}


def planned(plan: Plan) -> set[str]:
    ids = [str(step.segment_id) for step in plan.steps]
    assert len(ids) == len(set(ids))
    return set(ids)


@pytest.mark.parametrize(
    ("metadata", "log_dirs"),
    [
        ("tiered-cluster/before", ["tiered-cluster/before"]),
        ("tiered-cluster/after", ["tiered-cluster/after"]),
        (
            "unclean-leader/before/broker-1",
            ["unclean-leader/before/broker-1", "unclean-leader/before/broker-2"],
        ),
        ("unclean-leader/after/broker-1", ["unclean-leader/after/broker-2"]),
    ],
)
def test_what_a_broker_copied_is_not_copied_again(
    capture: Capture, metadata: str, log_dirs: list[str]
) -> None:
    def path(where: str) -> Path:
        name, _, rest = where.partition("/")
        return capture(name) / rest

    logs = read_log_dirs([path(d) for d in log_dirs])
    plan = plan_copy(read_state(path(metadata)), logs, enabled_configs(logs))
    assert plan.steps == ()


def test_sweeps_nothing_more_after_the_broker_did(capture: Capture) -> None:
    root = capture("tiered-cluster")
    state = read_state(root / "after")
    now_ms = max(s.event_timestamp_ms for s in segments_of(state).values()) + 60_000
    plan = plan_retention(state, read_log_dirs([root / "after"]), CLUSTER_CONFIGS, now_ms=now_ms)
    assert plan.steps == ()


LOSERS = {"vYb3dxNaR5eobyDFHg903A", "YKjh5jBvR9ebdjZhpxTgaA"}
"""The first leader's copies of [432, 575], which the second leader copied again from 432 on."""


@pytest.mark.parametrize("replicas", [(1,), (2,), (1, 2)])
def test_after_an_unclean_election_goes_what_the_brokers_deleted(
    capture: Capture, replicas: tuple[int, ...]
) -> None:
    root = capture("unclean-leader")
    before, after = read_state(root / "before/broker-1"), read_state(root / "after/broker-1")
    logs = read_log_dirs([root / f"before/broker-{broker}" for broker in replicas])
    now_ms = max(s.event_timestamp_ms for s in segments_of(before).values())
    # The brokers took two steps, with limits of 8 MiB and 3 MiB; the second limit alone has the same result:
    # it moves the log start to 1010, which makes epochs 0 and 2 unreferenced.
    plan = plan_retention(before, logs, UNCLEAN_CONFIGS, now_ms=now_ms, off_lineage=True)
    deleted = deleted_between(before, after)
    assert set(deleted) <= planned(plan)
    # The only difference: brokers forget a segment when another one replaces it in the offset map, and leave
    # its events and objects for ever. tierctl finds segments by id.
    assert planned(plan) - set(deleted) == LOSERS
    assert {
        s.details["new_log_start_offset"] for s in plan.steps if s.details["breach"] == "off_lineage"
    } == {1010}


def test_nothing_off_lineage_goes_unless_asked_for(capture: Capture) -> None:
    root = capture("unclean-leader")
    before, after = read_state(root / "before/broker-1"), read_state(root / "after/broker-1")
    logs = read_log_dirs([root / "before/broker-1"])
    now_ms = max(s.event_timestamp_ms for s in segments_of(before).values())
    assert plan_retention(before, logs, {}, now_ms=now_ms).steps == ()
    # Without a limit the log start does not move, and every epoch is still referenced.
    assert plan_retention(before, logs, {}, now_ms=now_ms, off_lineage=True).steps == ()
    plan = plan_retention(before, logs, UNCLEAN_CONFIGS, now_ms=now_ms)
    divergent = {
        key
        for key, s in deleted_between(before, after).items()
        if s.broker_id == 1 and s.end_offset >= 520 and max(s.segment_leader_epochs)[0] < 4
    }
    assert planned(plan) == set(deleted_between(before, after)) - divergent
    assert not planned(plan) & LOSERS


def test_a_deposed_leaders_log_decides_nothing(capture: Capture) -> None:
    """Broker 1 before it came back knows epoch 2, and the tier has epochs 4 and 5."""
    root = capture("unclean-leader")
    before = read_state(root / "before/broker-1")
    [log] = [
        log for log in read_log_dirs([root / "before/broker-1"]) if log.topic_partition.topic == "wallets"
    ]
    deposed = replace_epochs(log, (0, 0), (2, 900))
    now_ms = max(s.event_timestamp_ms for s in segments_of(before).values())
    for plan in (
        plan_retention(before, [deposed], UNCLEAN_CONFIGS, now_ms=now_ms, off_lineage=True),
        plan_copy(before, [deposed], enabled_configs([deposed])),
    ):
        assert not [step for step in plan.steps if step.topic == "wallets"]
        assert any("the log is behind" in skip.reason for skip in plan.skipped if skip.topic == "wallets")


def replace_epochs(log: Any, *epochs: tuple[int, int]) -> Any:
    return replace(log, leader_epochs=tuple(EpochEntry(*entry) for entry in epochs))


@pytest.mark.parametrize(
    ("name", "settings"),
    [("finite-metadata", "topics-next.properties"), ("delete-across-epoch", "topics.properties")],
)
def test_a_missing_checkpoint_of_log_starts_deletes_nothing_more(
    capture: Capture, tmp_path: Path, name: str, settings: str
) -> None:
    """Without log-start-offset-checkpoint, the local log begins above almost all remote segments."""
    root = capture(name)
    state, configs = read_state(root / "before"), read_topic_configs(root / settings)
    now_ms = int((root / "now_ms").read_text())
    shutil.copytree(
        root / "before", tmp_path / "logs", ignore=shutil.ignore_patterns("__remote*", "log-start-*")
    )
    with_checkpoint = plan_retention(state, read_log_dirs([root / "before"]), configs, now_ms=now_ms)
    without = plan_retention(state, read_log_dirs([tmp_path / "logs"]), configs, now_ms=now_ms)
    assert planned(without) <= planned(with_checkpoint)
    by_size = {s.segment_id for s in with_checkpoint.steps if s.details["breach"] == "retention.bytes"}
    assert by_size <= planned(without)
    assert by_size


def _lines(file: Path) -> dict[str, str]:
    """Parse lines of `topic-partition start end segment-id epochs`; return them by segment id."""
    return {line.split()[3]: line.split()[0] for line in file.read_text().splitlines()}


def test_retention_across_an_epoch_deletes_what_the_broker_deleted(capture: Capture) -> None:
    """DeleteRecords, retention.bytes and retention.ms moved the log start past the ends of epochs.

    tests/cli/test_explain.py has topic "both", of which brokers delete more than the limit.
    """
    root = capture("delete-across-epoch")
    state, logs = read_state(root / "before"), read_log_dirs([root / "before"])
    configs = read_topic_configs(root / "topics.properties")
    now_ms = int((root / "now_ms").read_text())
    plan = plan_retention(state, logs, configs, now_ms=now_ms)
    others = {str(step.segment_id) for step in plan.steps if step.topic != "both"}
    assert others == _lines(root / "deleted.txt").keys()


@pytest.mark.parametrize("partition", ["ledger-0", "ledger-2", "ledger-4"])
def test_a_sweep_killed_between_the_log_start_and_the_deletes_goes_on(
    capture: Capture, partition: str
) -> None:
    """The log start was raised and the checkpoint cut, but no segment was deleted: as in `before`."""
    root = capture("delete-across-epoch")
    state = read_state(root / "before")
    named = TopicPartition.parse(partition)
    logs = [log for log in read_log_dirs([root / "before"]) if log.topic_partition == named]
    plan = plan_retention(state, logs, {}, now_ms=int((root / "now_ms").read_text()))
    wanted = {key for key, where in _lines(root / "deleted.txt").items() if where == partition}
    assert planned(plan) == wanted


def test_what_waits_for_the_copy_lag_is_what_kafka_4_4_left(capture: Capture) -> None:
    """14 topics with every combination of remote.copy.lag.ms and .bytes, local retention and copy.disable."""
    root = capture("copy-lag", version="4.4.0")
    logs = read_log_dirs([root / "local"])
    configs = read_topic_configs(root / "topics.properties")
    plan = plan_copy(TierState(), logs, configs, now_ms=int((root / "looked_at_ms").read_text()))
    own = {
        log.topic_partition.topic: [
            s.start_offset for s in plan.steps if s.topic == log.topic_partition.topic
        ]
        for log in logs
    }
    by_broker = {}
    for line in (root / "copied.txt").read_text().splitlines():
        topic, count, offsets = line.split()
        by_broker[topic] = [int(offset) for offset in offsets.split(",")] if int(count) else []
    assert own == by_broker
