"""A real broker and a tier in S3, in both layouts: sweep, delete, and use of the copies by the broker.

LocalTieredStorage can't read a bucket, so segments are copied from the log directory to S3, and from there to
the folder of the broker's tier.
"""

from pathlib import Path
from typing import Any

import pytest
from tierctl.storage.layouts.aiven.layout import AivenSettings
from tierctl.storage.open_tier import TierSpec, open_tier
from tierctl.storage.remote_storage_manager import RemoteStorageManager

from tests.live.commands import applied, assumed, await_recorded, metadata_settings, plan, rows
from tests.live.test_adopting import await_tier_alone, check_seeks, served
from tests.metadata.topics import manager_at
from tests.support.broker import Broker, Brokers
from tests.support.servers import S3Server

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.matrix]

LAYOUTS = ("kafka", "aiven")
ADOPTED = {layout: f"through-{layout}" for layout in LAYOUTS}
SWEPT, LEAKED = "swept", "leaked"
RETENTION_BYTES = 2_300_000
OVERRIDES = (
    "rlmm.config.remote.log.metadata.topic.num.partitions=5",
    "rsm.config.compression.enabled=true",
    "rsm.config.chunk.size=262144",
    "rsm.config.key.prefix=raw-",
)


@pytest.fixture
def broker(brokers: Brokers) -> Any:
    """Return a broker without tiering: two leader epochs, and per layout one topic with transactions."""
    made = brokers.own(
        tiered=False,
        replica_high_watermark_checkpoint_interval_ms="200",
        log_retention_check_interval_ms="600000",
    )
    for topic in (SWEPT, LEAKED, *ADOPTED.values()):
        made.create_topic(topic)
    for topic in (SWEPT, LEAKED):
        made.produce(topic, 4500 if topic == SWEPT else 2500)
    for seed in (1, 2):
        for topic in ADOPTED.values():
            for number in range(6):
                made.produce_transaction(topic, 250, commit=number % 3 != 1)
                made.produce(topic, 30, seed=number + seed)
        if seed == 1:
            made.restart()
    yield made
    made.stop()


class Tier:
    """A bucket, its metadata on disk, and the options that name both."""

    def __init__(self, layout: str, uri: str, folder: Path) -> None:
        self.metadata = folder / f"metadata-{layout}"
        self.remote = ("--remote", uri, "--layout", layout)
        self.more = tuple(part for override in OVERRIDES for part in ("--override", override))
        settings = dict(override.split("=", 1) for override in OVERRIDES)
        aiven = AivenSettings.from_settings(settings)
        self.store: RemoteStorageManager = open_tier(TierSpec(uri, layout=layout, aiven=aiven))

    @property
    def where(self) -> tuple[object, ...]:
        return ("--metadata", self.metadata, *self.remote, *self.more)

    def holds(self) -> dict[str, list[int]]:
        """Check where the segments of each topic start, and that every object belongs to a topic."""
        manager = manager_at(self.metadata)
        known = [s for part in manager.refresh() for s in part.cache.list_remote_log_segments()]
        manager.close()
        assert {s.state.name for s in known} == {"COPY_SEGMENT_FINISHED"}
        assert all(self.store.objects_of(s) for s in known)
        assert {o.key for o in self.store.list_objects()} == {
            o.key for s in known for o in self.store.objects_of(s)
        }
        return {
            topic: sorted(s.start_offset for s in known if s.topic == topic)
            for topic in {s.topic for s in known}
        }


def log_sizes(broker: Broker, topic: str) -> dict[int, int]:
    """Return the size of each local segment of the broker by its base offset; the last one is active."""
    files = sorted((broker.log_dir / f"{topic}-0").glob("*.log"))
    return {int(file.stem): file.stat().st_size for file in files}


def kept_by_size(sizes: dict[int, int], retention_bytes: int) -> list[int]:
    """Return the segments that retention.bytes keeps; the oldest are deleted first."""
    starts, excess = list(sizes), sum(sizes.values()) - retention_bytes
    while excess >= sizes[starts[0]]:
        excess -= sizes[starts.pop(0)]
    return starts[:-1]


def test_a_tier_in_s3(broker: Broker, s3_server: S3Server, tmp_path: Path) -> None:
    bucket = s3_server.bucket()
    tiers = {layout: Tier(layout, f"s3://{bucket}/{layout}", tmp_path) for layout in LAYOUTS}
    topics = (SWEPT, LEAKED, *ADOPTED.values())
    await_recorded(broker, {topic: end for (topic, _), end in broker.offsets("latest", *topics).items()})
    rolled = {topic: list(log_sizes(broker, topic))[:-1] for topic in topics}
    assert all(len(starts) >= 2 for starts in rolled.values())
    for tier in tiers.values():
        copy = ("copy", *tier.where, "--log-dir", broker.log_dir, *assumed(*topics), "--apply")
        assert {outcome["status"] for outcome in plan(*copy)["outcomes"]} == {"done"}
        assert tier.holds() == rolled
        assert plan(*copy)["steps"] == []

    left = kept_by_size(log_sizes(broker, SWEPT), RETENTION_BYTES)
    assert 0 < len(left) < len(rolled[SWEPT])
    live = ("--bootstrap-server", broker.bootstrap)
    # The broker applies retention to its own log later; sweep decides here.
    broker.alter_topic(SWEPT, retention_bytes=str(RETENTION_BYTES))
    leaked_id = broker.topic_id(LEAKED)
    broker.delete_topic(LEAKED)
    for layout, tier in tiers.items():
        swept = plan("sweep", *tier.where, *live, "--apply")
        assert {step["topic"] for step in swept["steps"]} == {SWEPT}
        assert "retention.bytes" in {step["breach"] for step in swept["steps"]} or layout != LAYOUTS[0]
        assert tier.holds() == {**rolled, SWEPT: left}
        found = rows("delete", *tier.where, *live, "--find")
        assert [(row["topic"], row["topic_id"]) for row in found] == [(LEAKED, leaked_id)]
        plan("delete", *tier.where, *live, "--find", "--mark", "--apply")
        plan("delete", *tier.where, *live, "--apply")
        assert tier.holds() == {
            topic: starts for topic, starts in {**rolled, SWEPT: left}.items() if topic != LEAKED
        }
    assert broker.offsets("earliest", SWEPT) == {(SWEPT, 0): left[0]}
    adopt(broker, tiers, tmp_path)


def adopt(broker: Broker, tiers: dict[str, Tier], tmp_path: Path) -> None:
    """Copy from S3 to the broker's own tier, one topic per layout; the broker then serves all records."""
    before = served(broker, ADOPTED.values())
    settings = metadata_settings(tmp_path, "rsm.config.key.prefix=raw-\n")
    ends: dict[str, int] = {}
    for layout, tier in tiers.items():
        source = ("--metadata", tier.metadata, "--from-remote", tier.remote[1], "--from-layout", layout)
        target = ("--to-metadata", f"kafka://{broker.bootstrap}", "--remote", broker.remote_dir.as_uri())
        made = ("--layout", "kafka", "--broker-config", settings, "--create-metadata-topic")
        done = applied("copy", *source, *target, *made, "--topic", ADOPTED[layout], "--apply")
        ends[ADOPTED[layout]] = max(outcome["end_offset"] for outcome in done["outcomes"])
    broker.restart(tiered=True, log_retention_check_interval_ms="1000")
    await_tier_alone(broker, ends)
    assert served(broker, ADOPTED.values()) == before
    for topic in ends:
        check_seeks(broker, topic)
