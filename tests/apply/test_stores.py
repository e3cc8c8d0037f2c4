"""Copy, sweep, delete and fetch on a real S3 server and in folders, with both layouts."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tierctl.model import LogSegmentData, RemoteLogSegmentMetadata
from tierctl.storage.layouts.aiven.layout import AivenSettings
from tierctl.storage.open_tier import TierSpec, open_tier
from tierctl.storage.remote_storage_manager import RemoteStorageManager
from tierctl.storage.stores.base import hashed_file

from tests.apply.commands import marking
from tests.apply.conftest import Ran
from tests.metadata.topics import segments_at
from tests.support.servers import S3Server
from tests.support.topic_settings import enabled

Tierctl = Callable[..., Ran]
Capture = Callable[[str], Path]

CONFIGS = "clicks.retention.bytes=2097152\nmetrics.retention.ms=172800000\n"
NOW = "2026-11-23T00:00:00Z"
"""A time after the capture; from 10:30 of this day on, retention.ms expires more segments of `metrics`."""
COMPRESSED = ("rsm.config.compression.enabled=true", "rsm.config.chunk.size=262144")
FIELDS = ("rsm.config.custom.metadata.fields.include=REMOTE_SIZE,OBJECT_PREFIX",)


@dataclass(frozen=True, slots=True)
class Place:
    """An empty tier: its URI, the layout of its objects, and the corresponding broker settings."""

    uri: str
    layout: str
    settings: tuple[str, ...] = ()

    @property
    def options(self) -> tuple[str, ...]:
        return ("--remote", self.uri, "--layout", self.layout)

    @property
    def set(self) -> tuple[str, ...]:
        return tuple(part for setting in self.settings for part in ("--override", setting))

    def open(self) -> RemoteStorageManager:
        settings = dict(setting.split("=", 1) for setting in self.settings)
        return open_tier(TierSpec(self.uri, layout=self.layout, aiven=AivenSettings.from_settings(settings)))


PLACES = {
    "s3, aiven": ("s3", "aiven", FIELDS),
    "folder, aiven zstd": ("file", "aiven", COMPRESSED),
}


@pytest.fixture(params=PLACES.values(), ids=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    scheme, layout, settings = request.param
    if scheme == "file":
        (tmp_path / "tier").mkdir()
        return Place((tmp_path / "tier").as_uri(), layout, settings)
    server: S3Server = request.getfixturevalue("s3_server")
    return Place(f"s3://{server.bucket()}/tier", layout, settings)


def files_of(root: Path, segment: RemoteLogSegmentMetadata) -> LogSegmentData:
    """Return the files of a segment of a captured tier."""
    folder = root / "kafka-tiered-storage" / f"{segment.topic}-{segment.partition}-{segment.topic_id}"
    stem = f"{segment.start_offset:020d}-{segment.segment_id}"
    transactions = folder / f"{stem}.txnindex"
    return LogSegmentData(
        log_segment=hashed_file(folder / f"{stem}.log"),
        offset_index=(folder / f"{stem}.index").read_bytes(),
        time_index=(folder / f"{stem}.timeindex").read_bytes(),
        transaction_index=transactions.read_bytes() if transactions.exists() else None,
        producer_snapshot_index=(folder / f"{stem}.snapshot").read_bytes(),
        leader_epoch_index=(folder / f"{stem}.leader_epoch_checkpoint").read_bytes(),
    )


def records(tierctl: Tierctl, *where: object) -> list[Any]:
    ran = tierctl("fetch", *where, "--binary", "sha256", "--isolation", "read_committed")
    assert ran.code == 0, ran.err
    keep = ("topic", "partition", "offset", "timestamp_ms", "key", "value")
    rows = (json.loads(line) for line in ran.out.splitlines())
    return sorted([*(row[name] for name in keep[:4]), *(str(row[name]) for name in keep[4:])] for row in rows)


def test_copies_are_what_the_broker_copied(
    tierctl: Tierctl, capture: Capture, place: Place, tmp_path: Path
) -> None:
    broker = capture("untiered-broker")
    metadata = tmp_path / "metadata"
    local = broker / "local"
    where = ("--metadata", metadata, *place.options, *place.set)
    copy = ("copy", *where, "--log-dir", local, *enabled(local))
    first = tierctl(*copy, "-o", "json", "--apply")
    assert first.code == 0, first.err
    assert [outcome["status"] for outcome in first.json["outcomes"]] == ["done"] * 14
    assert tierctl(*copy, "-o", "json", "--apply").json["outcomes"] == []

    segments = list(segments_at(metadata))
    tier = place.open()
    theirs = {(s.topic, s.partition, s.start_offset): s for s in segments_at(broker / "tiered-metadata")}
    assert len(theirs) == len(segments) == 14
    for segment in segments:
        like = theirs[segment.topic, segment.partition, segment.start_offset]
        if place.layout == "kafka":
            tier.verify_log_segment_data(segment, files_of(broker / "tiered-remote", like))
        with tier.fetch_log_segment(segment, 0) as stream:
            assert stream.read() == files_of(broker / "tiered-remote", like).log_segment.path.read_bytes()
    assert {o.key for o in tier.list_objects()} == {o.key for s in segments for o in tier.objects_of(s)}
    assert records(tierctl, "--metadata", metadata, *place.options) == records(
        tierctl, "--metadata", broker / "tiered-metadata", "--remote", broker / "tiered-remote"
    )


def test_sweep_and_delete_leave_what_the_broker_left(
    tierctl: Tierctl, capture: Capture, writable: Callable[[str], Path], place: Place, tmp_path: Path
) -> None:
    cluster = writable("tiered-cluster/before")
    tier = place.open()
    for segment in segments_at(cluster):
        tier.copy_log_segment_data(segment, files_of(capture("tiered-cluster") / "before-remote", segment))
    configs = tmp_path / "configs"
    configs.write_text(CONFIGS)
    where = ("--metadata", cluster, *place.options, "--state-dir", tmp_path / "state", "-o", "json")
    sweep = ("sweep", *where, "--log-dir", cluster, "--topic-configs", configs, "--now", NOW)
    swept = tierctl(*sweep, "--log-start-offset", "orders-1=1500", "--apply")
    assert (swept.code, len(swept.json["outcomes"])) == (0, 7), swept.err
    assert tierctl("delete", *where, *marking(cluster, "shortlived"), "--apply").code == 0
    deleted = tierctl("delete", *where, "--apply")
    assert deleted.code == 0, deleted.err
    left = {str(s.segment_id) for s in segments_at(capture("tiered-cluster") / "after")}
    assert {o.key.rsplit("/", 1)[1][21:43] for o in tier.list_objects()} == left
    assert {str(s.segment_id) for s in segments_at(cluster)} == left
    assert tierctl("delete", *where, "--apply").json["outcomes"] == []
