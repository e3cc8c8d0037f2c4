"""A rebuild while brokers run: leaders that are down, raised a log start, or deleted segments."""

from types import SimpleNamespace
from typing import Any

import pytest
from tierctl.apply.run_context import Status
from tierctl.commands.restore import to_metadata
from tierctl.commands.restore.inventory import DecidingLogs
from tierctl.commands.restore.to_metadata import plan_rebuild, require_lasting_events, require_publishable
from tierctl.errors import AuthenticationError, MetadataError, NotFoundError, SafetyRefusal
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.plan.partition_choice import PartitionInputs
from tierctl.state.tier_state import TierState

from tests.plan.rebuild.sets import PARTITION, object_set

STEPS = plan_rebuild(
    TierState(), [PartitionInputs(partition=PARTITION, sets=[object_set(1, 0, 99, ((0, 0),))])]
).plan.steps


@pytest.mark.parametrize("has_leader", [True, False])
def test_a_partition_without_a_leader_is_not_decided_by_the_tier_alone(has_leader: bool) -> None:
    log: Any = SimpleNamespace(log_start_offset=0)
    logs = {PARTITION.key: log} if has_leader else {}
    cluster = SimpleNamespace(leader_logs=lambda _partitions: logs)
    run: Any = SimpleNamespace(cluster=cluster)
    found = DecidingLogs.of(run, [PARTITION], [])
    assert found.leaders == ({PARTITION: log} if has_leader else {})
    assert list(found.missing) == ([] if has_leader else [PARTITION])


LOG_STARTS: dict[str, tuple[int | None, int, str | None]] = {
    "served": (0, 1, None),
    "served from within the segment": (99, 1, None),
    "not served yet": (0, 0, "do not serve them yet"),
    "deleted by the leader": (3960, 1, "the log start of orders-3 rose to 3960, above its first published"),
    "without a leader": (None, 1, "do not serve them yet"),
}


@pytest.mark.parametrize("case", LOG_STARTS)
def test_the_check_passes_only_if_the_leader_serves_records(
    monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    log_start, batch_bytes, expected = LOG_STARTS[case]
    monkeypatch.setattr(to_metadata, "_WAIT_S", 0)
    monkeypatch.setattr(to_metadata, "_PAUSE_S", 0)
    cluster = SimpleNamespace(
        logs=lambda _partitions: [] if log_start is None else [SimpleNamespace(log_start_offset=log_start)],
        leaders=SimpleNamespace(batch_bytes=lambda *_args, **_limit: batch_bytes),
    )
    running: Any = SimpleNamespace(cluster=cluster)
    if expected is None:
        to_metadata.require_served(running, STEPS)
    else:
        with pytest.raises(MetadataError, match=expected):
            to_metadata.require_served(running, STEPS)


def test_a_rebuild_beside_brokers_ends_with_the_order_to_restart_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their consumers may skip the events of a topic that was deleted under them."""
    monkeypatch.setattr(to_metadata, "require_served", lambda _cluster, _steps: 1)
    said: list[str] = []
    run: Any = SimpleNamespace(
        cluster=SimpleNamespace(),
        resources=SimpleNamespace(is_on_cluster=True),
        progress=SimpleNamespace(say=said.append),
    )
    outcomes: Any = [SimpleNamespace(status=Status.DONE, step=step) for step in STEPS]
    found = to_metadata.conclude_rebuild(run, outcomes)
    assert found == "published; restart the brokers before copying is enabled again"
    assert any("after that, set on orders" in line for line in said)
    assert to_metadata.conclude_rebuild(run, []) is None


FENCES: dict[str, tuple[bool, int | None, str | None]] = {
    "as planned": (True, 50, None),
    "copying enabled since": (False, 50, "brokers copy segments of orders"),
    "log start raised since": (True, 3960, "the log start of orders-3 rose from 50 to 3960"),
    "leader lost since": (True, None, "orders-3 has no leader"),
}


@pytest.mark.parametrize("case", FENCES)
def test_before_each_wave_the_leaders_are_asked_again(case: str) -> None:
    is_copy_disabled, log_start, expected = FENCES[case]
    log = SimpleNamespace(log_start_offset=log_start)
    config = SimpleNamespace(is_copy_disabled=is_copy_disabled)
    cluster: Any = SimpleNamespace(
        cluster=SimpleNamespace(topic_configs=lambda names: dict.fromkeys(names, config)),
        leader_logs=lambda _partitions: {} if log_start is None else {PARTITION.key: log},
    )
    require_publishable(cluster, (), {})
    if expected is None:
        require_publishable(cluster, {PARTITION}, {PARTITION: 50})
    else:
        with pytest.raises(SafetyRefusal, match=expected):
            require_publishable(cluster, {PARTITION}, {PARTITION: 50})


UNLIMITED = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
METADATA_SETTINGS: dict[str, tuple[object, type[Exception] | None, str]] = {
    "made by brokers": (UNLIMITED, None, ""),
    "made by auto-creation": ({}, SafetyRefusal, r"retention.ms=604800000.*\(partitions: 1\)"),
    "limited by size": (UNLIMITED | {"retention.bytes": "9"}, SafetyRefusal, "retention.bytes=9"),
    "compacted": (UNLIMITED | {"cleanup.policy": "compact"}, SafetyRefusal, "cleanup.policy=compact"),
    "settings that may not be read": (AuthenticationError("denied"), AuthenticationError, "denied"),
    "on another cluster": (NotFoundError("no such topic"), None, "were not checked"),
}


@pytest.mark.parametrize("case", METADATA_SETTINGS)
def test_a_metadata_topic_that_loses_events_is_refused(case: str) -> None:
    settings, error, message = METADATA_SETTINGS[case]
    said: list[str] = []
    progress: Any = SimpleNamespace(warn=said.append)
    cluster: Any = SimpleNamespace(
        cluster=SimpleNamespace(topic_settings=lambda _names: {METADATA_TOPIC: settings}),
        topic=SimpleNamespace(partition_count=1),
    )
    if error is None:
        require_lasting_events(cluster, progress)
        assert message in " ".join(said)
        assert len(said) == bool(message)
    else:
        with pytest.raises(error, match=message):
            require_lasting_events(cluster, progress)
