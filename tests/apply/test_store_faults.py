"""Faults between tierctl and an S3 server: a second run finishes the work."""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tierctl.errors import ExitCode
from tierctl.model import RemoteLogSegmentMetadata, RemoteLogSegmentState
from tierctl.storage.open_tier import TierSpec, open_tier
from tierctl.storage.stores.s3 import client

from tests.apply.conftest import Ran
from tests.apply.worlds import LOG, World
from tests.metadata.topics import manager_at
from tests.support.faulty_proxy import HANG_S, KINDS, Fault, FaultyProxy, Kind
from tests.support.servers import S3Server
from tests.support.topic_settings import enabled

Tierctl = Callable[..., Ran]
_S = RemoteLogSegmentState

WRITES: tuple[Kind, ...] = tuple(kind for kind in KINDS if kind not in {"truncated", "errors inside"})
FAILED = {ExitCode.PARTIAL, ExitCode.RETRYABLE, ExitCode.NOT_FOUND, ExitCode.AUTHENTICATION}
DELETING, LISTING = ("POST", "delete"), ("GET", "list-type")
RETRIES = ("--override", "remote.log.manager.task.retry.backoff.ms=1", "--attempts", "2")


@dataclass
class Away:
    """A small log, and an empty tier behind a proxy."""

    proxy: FaultyProxy
    uri: str
    metadata: Path
    logs: Path
    folder: Path

    def segments(self) -> list[RemoteLogSegmentMetadata]:
        manager = manager_at(self.metadata)
        found = [s for part in manager.refresh() for s in part.cache.list_remote_log_segments()]
        manager.close()
        return found

    def copy(self, layout: str) -> tuple[object, ...]:
        where = ("--metadata", self.metadata, "--remote", self.uri, "--layout", layout)
        return (
            "copy",
            *where,
            "--log-dir",
            self.logs,
            *enabled(self.logs),
            *RETRIES,
            "--threads",
            1,
            "--apply",
        )

    def sweep(self, layout: str) -> tuple[object, ...]:
        where = ("--metadata", self.metadata, "--remote", self.uri, "--layout", layout)
        more = ("--log-dir", self.logs, "--topic-configs", self.logs / "configs", *RETRIES, "--threads", 1)
        return ("sweep", *where, *more, "--apply")

    def check(self, layout: str) -> None:
        """Check that every finished segment is complete and readable, and that no object is an orphan."""
        self.proxy.faults = []
        tier = open_tier(TierSpec(self.uri, layout=layout))
        known = self.segments()
        for segment in known:
            if segment.state is _S.COPY_SEGMENT_FINISHED:
                with tier.fetch_log_segment(segment, 0) as stream:
                    log = self.logs / LOG / f"{segment.start_offset:020d}.log"
                    assert stream.read() == log.read_bytes()
        keys = {o.key for o in tier.list_objects()}
        assert keys == {o.key for s in known for o in tier.objects_of(s)}
        tier.close()


@pytest.fixture
def away(
    beginning: World, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Away]:
    shutil.copytree(beginning.metadata, tmp_path / "metadata")
    bucket = s3_server.bucket()
    with FaultyProxy(s3_server.port) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        monkeypatch.setattr(client, "READ_TIMEOUT_S", HANG_S * 3 / 4)
        monkeypatch.setattr(client, "CLIENT_ATTEMPTS", 1)
        monkeypatch.setattr(client, "WAIT_MAX_S", 0)
        yield Away(proxy, f"s3://{bucket}/tier", tmp_path / "metadata", beginning.logs, tmp_path)


class TestCopy:
    @pytest.mark.parametrize(
        ("layout", "fault"),
        [
            *(("kafka", (kind, "PUT", ".log", 2)) for kind in WRITES),
            *(("aiven", (kind, "PUT", ".rsm-manifest", 1)) for kind in ("reset before", "hang", "403")),
            ("kafka", ("503", "PUT", ".log", 0)),
            ("kafka", ("timeout", "PUT", ".log", 3)),
            ("kafka", ("reset after", "PUT", ".snapshot", 0)),
            ("aiven", ("reset before", "PUT", ".log", 0)),
        ],
    )
    def test_writes(
        self, away: Away, tierctl: Tierctl, layout: str, fault: tuple[Kind, str, str, int]
    ) -> None:
        away.proxy.faults = [Fault(*fault)]
        first = tierctl(*away.copy(layout))
        assert first.code in FAILED | {0}, first.err
        away.check(layout)
        second = tierctl(*away.copy(layout))
        assert second.code == 0, second.err
        finished = [s for s in away.segments() if s.state is _S.COPY_SEGMENT_FINISHED]
        assert len({s.start_offset for s in finished}) == len(finished) == 3
        away.check(layout)

    def test_an_answer_that_is_lost_costs_no_second_copy(self, away: Away, tierctl: Tierctl) -> None:
        away.proxy.faults = [Fault("reset after", "PUT", ".log", 1)]
        assert tierctl(*away.copy("kafka")).code == 0
        assert [s.state for s in away.segments()] == [_S.COPY_SEGMENT_FINISHED] * 3

    @pytest.mark.parametrize(
        ("path", "wave_size", "expected"),
        [(".log", 1, {"failed": 1, "dropped": 17}), ("bills-1", 6, {"done": 15, "failed": 1, "dropped": 2})],
    )
    def test_rights(
        self, away: Away, tierctl: Tierctl, path: str, wave_size: int, expected: dict[str, int]
    ) -> None:
        """A wave of which everything is refused is the last one; one that only in part is refused is not."""
        several = replace(away, logs=away.folder / "logs")
        for number in range(6):
            shutil.copytree(away.logs / LOG, several.logs / f"bills-{number}")
        for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
            lines = (f"bills {number} 2400\n" for number in range(6))
            (several.logs / name).write_text(f"0\n6\n{''.join(lines)}")
        away.proxy.faults = [Fault("403", "PUT", path, 0)]
        ran = tierctl(*several.copy("kafka"), "--wave-size", wave_size, "-o", "json")
        assert ran.code == (ExitCode.PARTIAL if "done" in expected else ExitCode.AUTHENTICATION), ran.err
        assert Counter(row["status"] for row in json.loads(ran.out)["outcomes"]) == expected
        away.check("kafka")

    @pytest.mark.parametrize("kind", ["reset before", "403", "404"])
    def test_verification(self, away: Away, tierctl: Tierctl, kind: Kind) -> None:
        away.proxy.faults = [Fault(kind, "GET", "start-after", 0)]
        first = tierctl(*away.copy("kafka"))
        assert first.code in FAILED, first.err
        assert not any(s.state is _S.COPY_SEGMENT_FINISHED for s in away.segments())
        away.check("kafka")
        assert tierctl(*away.copy("kafka")).code == 0
        away.check("kafka")


@pytest.mark.parametrize(
    ("layout", "fault"),
    [
        *(("kafka", (kind, *DELETING, 1)) for kind in KINDS if kind not in {"500", "409", "412"}),
        ("aiven", ("errors inside", *DELETING, 1)),
        ("aiven", ("reset after", *DELETING, 2)),
        ("kafka", ("404", *DELETING, 0)),
        # The requests that list objects before and after a deletion.
        ("kafka", ("404", *LISTING, 0)),
        ("kafka", ("truncated", *LISTING, 1)),
        ("aiven", ("503", *LISTING, 4)),
    ],
)
def test_sweeps(away: Away, tierctl: Tierctl, layout: str, fault: tuple[Kind, str, str, int]) -> None:
    assert tierctl(*away.copy(layout)).code == 0
    before = {s.segment_id for s in away.segments()}
    # Fail twice in a row, so that the retry fails, too.
    away.proxy.faults = [Fault(*fault), Fault(*fault[:3], fault[3] + bool(fault[3]))]
    first = tierctl(*away.sweep(layout))
    assert first.code in FAILED | {0}, first.err
    away.check(layout)
    second = tierctl(*away.sweep(layout))
    assert second.code == 0, second.err
    left = away.segments()
    assert {s.segment_id for s in left} < before
    assert all(s.state is _S.COPY_SEGMENT_FINISHED for s in left)
    away.check(layout)


@pytest.mark.parametrize("kind", ["truncated", "reset before", "503"])
def test_reading_goes_on(away: Away, tierctl: Tierctl, kind: Kind) -> None:
    assert tierctl(*away.copy("kafka")).code == 0
    fetch = ("fetch", "--metadata", away.metadata, "--remote", away.uri, "--layout", "kafka")
    whole = tierctl(*fetch)
    assert whole.code == 0
    away.proxy.faults = [Fault(kind, "GET", ".log", 1)]
    assert tierctl(*fetch).out == whole.out


def test_a_listing_that_breaks_is_an_error(away: Away, tierctl: Tierctl) -> None:
    assert tierctl(*away.copy("kafka")).code == 0
    away.proxy.faults = [Fault("truncated", "GET", "list-type", 0)]
    hasty = away.folder / "server.properties"
    hasty.write_text("remote.log.manager.task.retry.backoff.ms=1\n")
    where = ("--metadata", away.metadata, "--remote", away.uri, "--layout", "kafka", "--broker-config", hasty)
    ran = tierctl("verify", *where)
    assert ran.code == 5, ran.err
