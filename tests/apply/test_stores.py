"""Copy, sweep, delete and fetch on a real S3 server, and on stores that lack something."""

import json
import pickle
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tierctl.errors import ExitCode, StoreRefused
from tierctl.model import RemoteLogSegmentState
from tierctl.storage.layouts.aiven.layout import AivenSettings
from tierctl.storage.open_tier import TierSpec, open_tier
from tierctl.storage.remote_storage_manager import RemoteStorageManager

from tests.apply.commands import marking
from tests.apply.sites import Site
from tests.apply.worlds import World
from tests.cli.shell import tierctl
from tests.metadata.topics import segments_at
from tests.storage.segments import files_of
from tests.support.lacking_store import BUCKET, Lack, LackingStore
from tests.support.servers import S3Server

Capture = Callable[[str], Path]

CONFIGS = "clicks.retention.bytes=2097152\nmetrics.retention.ms=172800000\n"
NOW = "2026-11-23T00:00:00Z"
"""A time after the capture; from 10:30 of this day on, retention.ms expires more segments of `metrics`."""
COMPRESSED = ("rsm.config.compression.enabled=true", "rsm.config.chunk.size=262144")


@dataclass(frozen=True, slots=True)
class Place:
    """An empty tier: its URI, the layout of its objects, and the corresponding broker settings."""

    uri: str
    layout: str
    settings: tuple[str, ...] = ()

    @property
    def options(self) -> tuple[str, ...]:
        return ("--remote", self.uri, "--layout", self.layout)

    def open(self) -> RemoteStorageManager:
        settings = dict(setting.split("=", 1) for setting in self.settings)
        return open_tier(TierSpec(self.uri, layout=self.layout, aiven=AivenSettings.from_settings(settings)))


def test_sweep_and_delete_leave_what_the_broker_left(
    s3_server: S3Server, capture: Capture, writable: Callable[[str], Path], tmp_path: Path
) -> None:
    cluster = writable("tiered-cluster/before")
    place = Place(f"s3://{s3_server.bucket()}/tier", "aiven", COMPRESSED)
    tier = place.open()
    source = open_tier(TierSpec((capture("tiered-cluster") / "before-remote").as_uri()))
    for segment in segments_at(cluster):
        tier.copy_log_segment_data(segment, files_of(source, segment, tmp_path / "files"))
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


Open = Callable[..., AbstractContextManager["Lacking"]]

WITHOUT_CHECKSUMS = {
    "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
    "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
}
SHORT = "remote.log.manager.task.retry.backoff.ms=1"


@dataclass(frozen=True, slots=True)
class Lacking:
    """A log, and an empty tier in a store that lacks something."""

    store: LackingStore
    site: Site

    def command(self, name: str, *more: str) -> tuple[object, ...]:
        return self.site.command(name, "--layout", "kafka", *more)

    def copy(self, *more: str) -> tuple[object, ...]:
        return self.command("copy", "--override", SHORT, *more, "--apply")

    def sweep(self, *more: str) -> tuple[object, ...]:
        return self.command("sweep", "--override", SHORT, *more, "--apply")

    def states(self) -> list[RemoteLogSegmentState]:
        return [segment.state for segment in segments_at(self.site.metadata)]

    @property
    def keys(self) -> set[str]:
        return {key for key in self.store.objects if ".tierctl-" not in key}


FINISHED = [RemoteLogSegmentState.COPY_SEGMENT_FINISHED] * 3


@pytest.fixture
def lacking(beginning: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    @contextmanager
    def opened(*lacks: Lack) -> Iterator[Lacking]:
        site = Site(tmp_path / "metadata", tmp_path / "logs", f"s3://{BUCKET}/tier")
        shutil.copytree(beginning.metadata, site.metadata)
        shutil.copytree(beginning.logs, site.logs)
        with LackingStore(lacks) as store:
            store.found(monkeypatch)
            yield Lacking(store, site)

    return opened


def test_without_delete_objects_every_key_is_deleted_by_itself(lacking: Open) -> None:
    with lacking(Lack.DELETE_OBJECTS) as world:
        assert tierctl(*world.copy()).code == 0
        before = world.keys
        tierctl(*world.sweep()).ok()
        assert world.keys < before
        assert world.states() == FINISHED[: len(world.states())]
        assert len({key.split(".")[0] for key in world.keys}) == len(world.states()) < 3


@pytest.mark.parametrize("lack", [Lack.DELETES_FORBIDDEN, Lack.EACH_DELETE_FORBIDDEN])
def test_deletes_that_are_refused_are_told_and_not_repeated(lacking: Open, lack: Lack) -> None:
    with lacking() as world:
        assert tierctl(*world.copy()).code == 0
        world.store.lacks = {lack}
        ran = tierctl(*world.sweep())
        assert ran.code == ExitCode.AUTHENTICATION, ran.err
        assert "AccessDenied" in ran.out + ran.err
        # One of the segments, and one of the lease of each run.
        assert world.store.count(f"POST /{BUCKET}?delete") == 3


def test_without_conditions_only_no_lease_goes_on(lacking: Open) -> None:
    with lacking(Lack.CONDITIONS) as world:
        refused = tierctl(*world.copy())
        assert (refused.code, "--no-lease" in refused.err) == (ExitCode.REFUSED, True), refused.err
        assert (world.states(), world.store.objects) == ([], {})
        ran = tierctl(*world.copy("--no-lease")).ok()
        assert "nothing keeps another tierctl out" in ran.err
        assert world.states() == FINISHED
        assert "tier/.tierctl-identity" in world.store.objects
        tierctl(*world.sweep("--no-lease")).ok()
        assert len(world.states()) < 3


def test_without_checksums_the_settings_of_aws_are_followed(
    lacking: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lacking(Lack.CHECKSUMS_400) as world:
        ran = tierctl(*world.copy("--no-lease"))
        assert ran.code == ExitCode.PARTIAL, ran.err
        assert "AWS_REQUEST_CHECKSUM_CALCULATION=when_required" in ran.out + ran.err
        assert world.states() == []
        for name, value in WITHOUT_CHECKSUMS.items():
            monkeypatch.setenv(name, value)
        ran = tierctl(*world.copy()).ok()
        assert world.states() == FINISHED


@pytest.mark.parametrize(
    ("lack", "code"),
    [
        (Lack.WRITES, ExitCode.REFUSED),
        (Lack.WRITES_FORBIDDEN, ExitCode.AUTHENTICATION),
        (Lack.LISTINGS, ExitCode.PARTIAL),
    ],
)
def test_a_refusal_ends_the_run_at_once(lacking: Open, lack: Lack, code: ExitCode) -> None:
    with lacking(lack) as world:
        ran = tierctl(*world.copy())
        assert ran.code == code, ran.err
        assert "hint" in ran.err
        assert world.states() == []
        assert len(world.store.requests) < 12


def test_archived_objects_are_findings_until_they_are_restored(lacking: Open) -> None:
    with lacking() as world:
        status = world.command("status", "--output", "json")
        assert tierctl(*status).code == 0
        assert tierctl(*world.copy()).code == 0
        tierctl(*status).ok()
        world.store.archived = ".log"
        shown = tierctl(*status)
        assert shown.code == ExitCode.PARTIAL, shown.err
        assert json.loads(shown.out)[0]["problems"] == 3
        table = tierctl(*world.command("status"))
        assert "archived_object" in table.out + table.err
        assert "aws s3api restore-object" in table.out + table.err
        world.store.put({"tier/": b"", "tier/kafka-tiered-storage/bills-0-/": b""})
        sent = len(world.store.requests)
        ran = tierctl(*world.command("verify", "--deep", "--output", "json"))
        assert ran.code == ExitCode.PARTIAL, ran.err
        assert [each["check"] for each in json.loads(ran.out)] == ["archived_object"] * 3
        assert len(world.store.requests) - sent < 60
        fetched = tierctl(*world.command("fetch"))
        assert (fetched.code, "restore" in fetched.err) == (ExitCode.CORRUPT, True), fetched.err
        world.store.restored = True
        for key in ("tier/", "tier/kafka-tiered-storage/bills-0-/"):
            del world.store.objects[key]
        # Objects that are not archived have other findings in verify, which status leaves out.
        for command in (("status",), ("verify",), ("verify", "--deep"), ("fetch",)):
            tierctl(*world.command(*command)).ok()


def test_executors_use_the_checksum_settings_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = TierSpec(f"s3://{BUCKET}/tier", layout="kafka")
    with LackingStore({Lack.CHECKSUMS}) as store:
        store.found(monkeypatch)
        for name, value in WITHOUT_CHECKSUMS.items():
            monkeypatch.setenv(name, value)
        sent = pickle.dumps(spec.resolved(open_tier(spec)))
        for name in WITHOUT_CHECKSUMS:
            monkeypatch.delenv(name)
        open_tier(pickle.loads(sent)).store.put_all({"a": b"data"})
        assert store.objects["tier/a"].body == b"data"
        with pytest.raises(StoreRefused):
            open_tier(spec).store.put_all({"b": b"data"})
