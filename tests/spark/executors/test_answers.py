"""The driver receives facts and answers instead of segments, and commands print the same on both engines."""

import time
from collections.abc import Callable, Sequence
from csv import DictReader
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tierctl.checks.deep import Candidates
from tierctl.checks.objects import Audit
from tierctl.commands.resources import Resources
from tierctl.commands.restore.inventory import TierSets
from tierctl.locallog import read_log_dirs
from tierctl.model import (
    ListedSet,
    ObjectSet,
    RemoteLogSegmentState,
    TopicConfig,
)
from tierctl.spark.executors.examined import SparkRunner
from tierctl.state.tier_state import TierState

from tests.cli.shell import Ran, tierctl
from tests.spark.executors.bulk import (
    DAMAGE,
    MISPLACED,
    TIERS,
    assert_same,
    no_segments,
    small_pieces,
    within,
)
from tests.spark.on_engines import SPARK
from tests.spark.worlds import NOW_MS as PAST_MS
from tests.spark.worlds import Capture
from tests.support.amounts import rest_in_matrix
from tests.support.fake_cluster import LoggedCluster
from tests.verify.cases import CASES, OTHER, update
from tests.verify.tiers import NOW_MS, Spoilt

__all__ = ["no_segments", "small_pieces"]

S = RemoteLogSegmentState

pytestmark = pytest.mark.usefixtures("spark", "small_pieces", "no_segments")


LOGS = ("--now", NOW_MS, "-o", "json", "--log-dir")


SOME = ("tiered-cluster/before", "unclean-leader/after/broker-1")
OTHERS = tuple(each for each in TIERS if each not in SOME)


@pytest.mark.parametrize(
    ("place", "more"),
    [
        (SOME[1], ()),
        (SOME[1], ("--deep",)),
        *(pytest.param(each, ("--deep",), marks=pytest.mark.matrix) for each in OTHERS),
    ],
)
def test_captures(place: str, more: tuple[str, ...], capture: Capture) -> None:
    remote, logs = (within(capture, each) for each in TIERS[place])
    key = capture("aiven-encrypted") / "keys" / "private.pem"
    keys = ("--aiven-private-key", f"key1={key}") if "encrypted" in place else ()
    tier = ("--remote", remote, *keys) if more else ()
    said = assert_same("verify", "--metadata", within(capture, place), *LOGS, logs, *tier, *more)
    assert said.code in {0, 3}


def require_same_report(page: Path, *where: object, code: int) -> str:
    """Check that both engines write the same page and print the same; return the page."""
    said, pages = list[Ran](), list[str]()
    for engine in ((), SPARK):
        said.append(tierctl("report", *where, "--html", page, *engine))
        pages.append(page.read_text())
    assert said[0] == said[1]
    assert said[0].code == code
    assert pages[0] == pages[1]
    return pages[0]


def test_reports(capture: Capture, tmp_path: Path) -> None:
    configs = tmp_path / "topics.properties"
    settings = ("remote.storage.enable=true", "retention.ms=86400000")
    configs.write_text("".join(f"{name}.{each}\n" for name in ("payouts", "wallets") for each in settings))
    logs = within(capture, TIERS[SOME[1]][1])
    where = ("--metadata", within(capture, SOME[1]), "--log-dir", logs, "--topic-configs", configs)
    page = require_same_report(tmp_path / "tier.html", *where, "--now", PAST_MS, code=3)
    assert "Next expiration" in page


@pytest.mark.parametrize(
    ("place", "sources"),
    [
        ("tiered-cluster/before", "brokers"),
        ("unclean-leader/after/broker-1", "logs"),
    ],
)
def test_changed_settings(
    place: str, sources: str, capture: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote, logs = (within(capture, each) for each in TIERS[place])
    configs = tmp_path / "topics.properties"
    configs.write_text("".join(f"{name}.retention.bytes=2097152\n" for name in BESIDE[place]))
    where: list[object] = ["--metadata", within(capture, place), "--remote", remote]
    if sources == "brokers":
        cluster = LoggedCluster(read_log_dirs([logs]), BESIDE[place], forgets=False)
        monkeypatch.setattr(Resources, "cluster", cluster)
        where += ["--bootstrap-server", "broker1:9092"]
    else:
        where += ["--topic-configs", configs, "--log-dir", logs]
    change = ("--what-if", "*.retention.ms=2d", "--what-if", "*.retention.bytes=1M")
    said = assert_same("report", *change, "--price-per-gb-month", 1, *where, "--now", PAST_MS, "-o", "json")
    assert {row["topic"] for row in said.json} > BESIDE[place].keys()


def test_reports_of_spoilt_tiers(writable: Callable[[str], Path], tmp_path: Path) -> None:
    tier = Spoilt(writable("tiered-cluster/before"), writable("tiered-cluster/before-remote"))
    for name in ("partition marked", "copy dangling", "metadata unreadable"):
        CASES[name].spoil(tier)
    require_same_report(tmp_path / "tier.html", "--metadata", tier.metadata, "--now", NOW_MS, code=7)


@pytest.mark.parametrize(
    ("spoils", "command", "count"),
    [
        (DAMAGE, "status", 5),
        (DAMAGE, "verify --deep", 12),
        pytest.param(DAMAGE, "verify --topic clicks", 7, marks=pytest.mark.matrix),
        (MISPLACED, "verify --budget 8MB --seed 5", 6),
    ],
)
def test_spoilt(spoils: tuple[str, ...], command: str, count: int, writable: Callable[[str], Path]) -> None:
    tier = Spoilt(writable("tiered-cluster/before"), writable("tiered-cluster/before-remote"))
    for name in spoils:
        CASES[name].spoil(tier)
    command, *more = command.split()
    where = ("--remote", tier.remote, *more) if more else ()
    said = assert_same(command, "--metadata", tier.metadata, *LOGS, tier.metadata, *where)
    assert (said.code, len(said.json)) == (7 if spoils is DAMAGE else 3, count)


def test_a_tier_of_aiven_that_lost_objects(capture: Capture, writable: Callable[[str], Path]) -> None:
    """One segment lacks an object, and one of another topic has none."""
    bucket = writable("aiven-plain/bucket")
    first, *_, last = sorted({each.parent for each in bucket.rglob("*.rsm-manifest")})
    min(first.glob("*.rsm-manifest")).unlink()
    for each in sorted(last.iterdir())[:3]:
        each.unlink()
    metadata = within(capture, "aiven-plain/broker-logs")
    said = assert_same("verify", "--metadata", metadata, "--remote", bucket, "--now", NOW_MS, "-o", "json")
    found = {each["topic"]: each["found"] for each in said.json if each["check"] == "missing_object"}
    assert len(said.json) == 2
    assert "manifest" in found["audit"]
    assert "none of the segment's objects" in found["sensors"]


def test_what_is_copied_or_deleted_while_the_store_is_listed(
    writable: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metadata are read again after the listing, as without Spark."""
    tier = Spoilt(writable("tiered-cluster/before"), writable("tiered-cluster/before-remote"))
    now_ms = time.time_ns() // 1_000_000
    oldest = tier.segments("clicks")[0]
    again = replace(
        oldest,
        segment_id=OTHER,
        state=S.COPY_SEGMENT_STARTED,
        event_timestamp_ms=now_ms,
        custom_metadata=None,
    )
    tier.object(again, ".log").write_bytes(b"half")
    tier.object(oldest, ".log").unlink()
    place = ("--metadata", tier.metadata, "--remote", tier.remote, "-o", "json")

    def kinds(*engine: str) -> set[str]:
        return {each["check"] for each in tierctl("verify", *place, *engine).json}

    assert kinds() == {"missing_object", "orphan"}
    audit = SparkRunner.audit

    def slowly(self: SparkRunner, state: TierState, candidates: Candidates | None) -> Audit:
        found = audit(self, state, candidates)
        tier.append(again, update(oldest, S.DELETE_SEGMENT_STARTED, at_ms=now_ms))
        return found

    monkeypatch.setattr(SparkRunner, "audit", slowly)
    assert kinds(*SPARK) == {"stuck_delete", "dangling_copy"}


def test_the_tier_is_recognised_by_segments_elsewhere(capture: Capture) -> None:
    where = ("--metadata", within(capture, "tiered-cluster/after"), "-o", "json", "--remote")
    assert assert_same("status", *where, within(capture, "aiven-plain/bucket")).code == 5


@pytest.mark.parametrize(("inputs", "place"), [("logs", SOME[0]), ("tier", SOME[1])])
def test_plans_of_sweep(inputs: str, place: str, capture: Capture, tmp_path: Path) -> None:
    configs = tmp_path / "topics.properties"
    configs.write_text("clicks.retention.bytes=2097152\nmetrics.retention.ms=172800000\n")
    remote, logs = (within(capture, each) for each in TIERS[place])
    where = ("--remote", remote) if inputs == "tier" else ("--log-dir", logs)
    more = ("--topic-configs", configs) if "tiered" in place else ()
    said = assert_same(
        *("sweep", "--metadata", within(capture, place), *where, *more),
        *("--now", PAST_MS, "-o", "csv"),
    )
    assert not more or len(said.lines) > 1


BESIDE = {
    "tiered-cluster/before": {
        "clicks": TopicConfig(retention_bytes=2097152, remote_storage_enable=True),
        "metrics": TopicConfig(retention_ms=172800000, remote_storage_enable=True),
        "orders": TopicConfig(retention_bytes=1 << 40, remote_storage_enable=True),
    },
    "unclean-leader/after/broker-1": {"payouts": TopicConfig(retention_bytes=2000000)},
}


@pytest.mark.parametrize(("place", "forgets"), [*zip(BESIDE, (True, False), strict=True)])
def test_plans_of_sweep_beside_brokers(
    place: str, forgets: bool, capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote, logs = (within(capture, each) for each in TIERS[place])
    cluster = LoggedCluster(read_log_dirs([logs]), BESIDE[place], forgets=forgets)
    monkeypatch.setattr(Resources, "cluster", cluster)
    where = ("--metadata", within(capture, place), "--remote", remote, "--bootstrap-server", "broker1:9092")
    said = assert_same("sweep", *where, "--now", PAST_MS, "-o", "csv")
    assert len(said.lines) > 1
    half = len(cluster.measured) // 2
    assert half or forgets
    assert sorted(cluster.measured[:half]) == sorted(cluster.measured[half:])


def test_plans_of_delete_beside_damage(writable: Callable[[str], Path]) -> None:
    tier = Spoilt(writable("tiered-cluster/before"), writable("tiered-cluster/before-remote"))
    for name in ("partition marked", "metadata unreadable"):
        CASES[name].spoil(tier)
    said = assert_same("delete", "--metadata", tier.metadata, "--remote", tier.remote, "-o", "csv")
    assert said.code == 7
    assert "delete_partition" in said.out


@pytest.mark.parametrize("with_logs", rest_in_matrix([True, False]))
def test_plans_of_rebuild(
    with_logs: bool, capture: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sets of a partition with all of its metadata are compared where its segments are."""
    before, remote = (within(capture, f"tiered-cluster/{name}") for name in ("before", "before-remote"))
    new = Spoilt(tmp_path / "new", remote)
    where = ("--metadata", new.metadata, "--remote", remote)
    assert tierctl("rebuild", *where, "--topic", "orders", "--apply").code == 0
    first, second, *_ = Spoilt(before, remote).segments("clicks")
    for each in (first, second):
        new.append(replace(each, state=S.COPY_SEGMENT_STARTED), update(each, S.COPY_SEGMENT_FINISHED))
    derived, compared = TierSets.derived, list[set[str]]()

    def noting(self: TierSets, listed: Sequence[ListedSet], **more: Any) -> list[ObjectSet]:
        compared.append({each.partition.topic for each in listed})
        return derived(self, listed, **more)

    monkeypatch.setattr(TierSets, "derived", noting)
    said = assert_same("rebuild", *where, *(("--log-dir", before) if with_logs else ()), "-o", "csv")
    assert said.code == 0
    lost = {step["segment_id"] for step in DictReader(said.lines) if step["topic"] == "clicks"}
    assert lost
    assert not lost & {first.segment_id, second.segment_id}
    assert compared[0] - compared[1] == ({"orders"} if with_logs else set())
