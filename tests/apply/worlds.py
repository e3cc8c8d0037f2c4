"""Small worlds cut from real captures, and the invariants that hold after any kill."""

import hashlib
import json
import os
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tierctl.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, RemotePartitionDeleteState
from tierctl.state.tier_state import TierState
from tierctl.storage.open_tier import TierSpec, open_tier
from tierctl.wire.metadata.schema import json_fields

from tests.metadata.topics import segments_at, state_at, topic_in

LINKED_FROM_BYTES = 1 << 18
KAFKAS = {"log", "index", "timeindex", "snapshot", "leader_epoch_checkpoint"}
AIVENS = {"log", "indexes", "rsm-manifest"}
"""Suffixes of a segment's objects in the layout of Aiven's plugin."""
OF_AN_ATTEMPT = ("segment_id", "broker_id", "event_timestamp_ms")


@dataclass(frozen=True, slots=True)
class World:
    """A tier: its metadata folder, its objects, and the log directory from which it is copied."""

    metadata: Path
    remote: Path
    logs: Path
    state_dir: Path

    @property
    def where(self) -> tuple[object, ...]:
        """Return the options that name this world."""
        return ("--metadata", self.metadata.as_uri(), "--remote", self.remote.as_uri())

    def clone(self, target: Path) -> "World":
        """Return a copy that a test may change."""
        parts = {}
        for name in ("metadata", "remote", "logs", "state_dir"):
            source = getattr(self, name)
            parts[name] = target / name
            if source.is_dir():
                shutil.copytree(source, parts[name], copy_function=_copy_or_link)
        return World(**parts)

    def state(self) -> TierState:
        """Return the state of the metadata."""
        return state_at(self.metadata)

    def segments(self) -> list[RemoteLogSegmentMetadata]:
        """Return every segment that is not deleted, in any state."""
        return segments_at(self.metadata)

    def objects(self) -> dict[str, bytes]:
        """Return the tier's files except the identity object."""
        files = (path for path in self.remote.rglob("[!.]*") if path.is_file())
        return {path.relative_to(self.remote).as_posix(): path.read_bytes() for path in files}

    def facts(self) -> Counter[tuple[object, ...]]:
        """Return the finished segments and deleted partitions that a broker sees, without ids and times."""
        state = self.state()
        finished = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
        facts: Counter[tuple[object, ...]] = Counter()
        for part in state:
            tip = part.topic_id_partition
            for segment in part.cache.list_remote_log_segments():
                if segment.state is finished:
                    facts[(tip, segment.start_offset, segment.end_offset, segment.segment_leader_epochs)] += 1
            if part.delete_state is not None:
                facts[(tip, part.delete_state)] += 1
        return facts


def _copy_or_link(source: str, target: str) -> None:
    """Copy a file, or link it: logs and objects of a tier are never changed in place."""
    if Path(source).stat().st_size > LINKED_FROM_BYTES:
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def check_durable(world: World) -> None:
    """Check that each finished segment has its objects, and that each object has its segment."""
    known = {segment.segment_id for segment in world.segments()}
    orphans = [key for key in world.objects() if key.rsplit("/", 1)[1][21:43] not in known]
    assert not orphans, f"nobody knows {orphans} any more"
    remote = open_tier(TierSpec(world.remote.as_uri()))
    for segment in world.segments():
        if segment.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
            suffixes = {obj.key.rsplit(".", 1)[1] for obj in remote.objects_of(segment)}
            wanted = AIVENS if "rsm-manifest" in suffixes else KAFKAS
            assert wanted <= suffixes, f"{segment.segment_id} is FINISHED, but has only {suffixes}"


def check_deleted(world: World) -> None:
    """Check that a partition whose deletion is FINISHED has no segment left."""
    for part in world.state():
        if part.delete_state is RemotePartitionDeleteState.DELETE_PARTITION_FINISHED:
            assert not list(part.cache.list_remote_log_segments())


LOG = "bills-0"
NEWER = ("00000000000000002400", "00000000000000003000", "00000000000000003500")
RETENTION = "bills.retention.bytes=1500000\n"
DAY_MS = 24 * 3600 * 1000


def copy_world(target: Path, capture: Path) -> World:
    """Make a log of three rolled segments and an active one, an empty tier, and two metadata partitions."""
    world = World(target / "metadata", target / "remote", target / "logs", target / "state_dir")
    topic_in(world.metadata, writable=True, partition_count=2).close()
    shutil.copytree(capture / "local" / LOG, world.logs / LOG)
    for path in (world.logs / LOG).iterdir():
        if path.name.startswith(NEWER) and path.name != f"{NEWER[0]}.snapshot":
            path.unlink()
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        (world.logs / name).write_text("0\n1\nbills 0 2400\n")
    return world


def objects_of(remote: Path) -> dict[tuple[str, str, str], str]:
    """Return checksums by folder, start offset and kind, because ids differ from attempt to attempt."""
    found = {}
    for path in remote.rglob("[!.]*"):
        if path.is_file():
            folder = path.parent.relative_to(remote).as_posix()
            place = (folder, path.name[:20], path.name[20 + 1 + 22 :])
            found[place] = hashlib.sha256(_lasting(path)).hexdigest()
    return found


def _lasting(path: Path) -> bytes:
    """Return the content that every attempt stores alike: manifests contain ids and times."""
    data = path.read_bytes()
    if path.suffix == ".rsm-manifest":
        manifest = json.loads(data)
        metadata = manifest["remoteLogSegmentMetadata"]
        del metadata["eventTimestampMs"], metadata["remoteLogSegmentId"]["id"]
        data = json.dumps(manifest).encode()
    return data


def segments_of(metadata: Path) -> list[dict[str, Any]]:
    """Return the metadata of each segment, without ids, writer and time."""
    found = [
        {name: value for name, value in json_fields(segment).items() if name not in OF_AN_ATTEMPT}
        for segment in segments_at(metadata)
    ]
    return sorted(found, key=lambda facts: (facts["topic"], facts["partition"], facts["start_offset"]))
