"""kill -9 of runs on an S3 server: later runs reach the undisturbed result and leave no upload behind."""

import os
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tierctl.model import RemoteLogSegmentMetadata
from tierctl.storage.open_tier import TierSpec, open_tier
from tierctl.storage.stores.s3.client import s3_client

from tests.apply.commands import marking
from tests.apply.worlds import World
from tests.metadata.topics import manager_at
from tests.support.killing import SIGKILLED, Zygote
from tests.support.servers import S3Server
from tests.support.topic_settings import enabled

pytestmark = pytest.mark.slow


@dataclass(frozen=True, slots=True)
class Bucket:
    """A tier in a new bucket, its metadata, and the log that is copied to it."""

    name: str
    layout: str
    metadata: Path
    logs: Path
    forked: Zygote

    def run(self, command: str, *more: object, code: int = 0, **kill: Any) -> None:
        where = ("--metadata", self.metadata, "--remote", f"s3://{self.name}/tier", "--layout", self.layout)
        logs = () if command == "delete" else ("--log-dir", self.logs)
        configs = {"copy": enabled(self.logs), "sweep": ("--topic-configs", self.logs / "configs")}.get(
            command, ()
        )
        how = ("--wave-size", 2, "--threads", 2, "--apply")
        env = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        ran = self.forked(command, *where, *logs, *configs, *more, *how, env=env, **kill)
        assert ran.code == code, ran.err

    def segments(self) -> list[RemoteLogSegmentMetadata]:
        manager = manager_at(self.metadata)
        found = [s for part in manager.refresh() for s in part.cache.list_remote_log_segments()]
        manager.close()
        return found

    def check(self) -> None:
        """Check that each finished segment has its objects with all bytes, and that there are no orphans."""
        tier = open_tier(TierSpec(f"s3://{self.name}/tier", layout=self.layout))
        known = self.segments()
        for segment in known:
            if segment.state.name == "COPY_SEGMENT_FINISHED":
                log = self.logs / "bills-0" / f"{segment.start_offset:020d}.log"
                with tier.fetch_log_segment(segment, 0) as stream:
                    assert stream.read() == log.read_bytes()
        assert {o.key for o in tier.list_objects()} == {o.key for s in known for o in tier.objects_of(s)}
        tier.close()

    def end(self) -> tuple[Counter[tuple[object, ...]], Counter[tuple[str, str]]]:
        """Return segments and objects, without their ids."""
        tier = open_tier(TierSpec(f"s3://{self.name}/tier", layout=self.layout))
        objects = Counter(
            (o.key.rsplit("/", 1)[1][:20], o.key.rsplit(".", 1)[1]) for o in tier.list_objects()
        )
        tier.close()
        return Counter((s.start_offset, s.end_offset, s.state) for s in self.segments()), objects

    def uploads(self) -> list[Any]:
        s3 = s3_client()
        found = s3.list_multipart_uploads(Bucket=self.name).get("Uploads", [])
        s3.close()
        return found


@pytest.fixture
def bucket(beginning: World, s3_server: S3Server, forked: Zygote, tmp_path: Path) -> Callable[[str], Bucket]:
    def make(layout: str) -> Bucket:
        metadata = tmp_path / "metadata"
        shutil.copytree(beginning.metadata, metadata)
        return Bucket(s3_server.bucket(), layout, metadata, beginning.logs, forked)

    return make


@pytest.mark.parametrize(
    ("command", "layout", "kill"),
    [
        ("copy", "kafka", {"kills": [["copy.segment.store", "before", 2]]}),
        ("copy", "aiven", {"kills": [["copy.segment.store", "after", 1]]}),
        ("copy", "kafka", {"kills": [["copy.finished.publish", "before", 2]]}),
        ("copy", "kafka", {"parts": 3}),
        ("copy", "aiven", {"parts": 6}),
        ("copy", "kafka", {"objects": 2}),
        ("copy", "kafka", {"objects": 13}),
        ("copy", "aiven", {"objects": 6}),
        ("sweep", "kafka", {"kills": [["sweep.segment.delete", "before", 1]]}),
        ("delete", "aiven", {"kills": [["delete.segment.delete", "before", 3]]}),
    ],
)
def test_reruns_converge(
    bucket: Callable[[str], Bucket], command: str, layout: str, kill: dict[str, Any]
) -> None:
    killed = bucket(layout)
    if command != "copy":
        killed.run("copy")
    if command == "delete":
        killed.run("delete", *marking(killed.metadata, "bills"))
    before = killed.end()
    killed.run(command, code=SIGKILLED, **kill)
    killed.check()
    assert bool(killed.uploads()) == ("parts" in kill)
    killed.run(command)
    killed.check()
    segments, objects = killed.end()
    assert killed.uploads() == []
    assert {state for *_, state in segments} <= {"COPY_SEGMENT_FINISHED"}
    starts = sorted(int(str(start)) for start, *_ in segments)
    if command == "copy":
        assert starts == [0, 600, 1200]
    elif command == "sweep":
        assert starts == [1200]
        assert objects == Counter(
            {key: count for key, count in before[1].items() if key[0] == f"{1200:020d}"}
        )
    else:
        assert (starts, objects) == ([], Counter())
