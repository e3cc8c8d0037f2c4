"""`delete` of deleted topics: recreated names, evidence of the deletion, and repeated runs."""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Self

import pytest
from tierctl.apply.run import segment_update
from tierctl.apply.run_context import Status, new_segment_id
from tierctl.cli.changes import with_default_interval
from tierctl.commands.delete import DeleteRequest, delete_repeatedly
from tierctl.commands.resources import Resources
from tierctl.errors import ExitCode
from tierctl.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, Uuid
from tierctl.model.settings.scopes import LATEST, KafkaVersion

from tests.apply import runs
from tests.apply.commands import OTHER_ID, delete, files, marking
from tests.apply.faults import Meddling
from tests.apply.runs import NOW_MS, opened, statuses
from tests.apply.test_faults import mark
from tests.apply.worlds import World
from tests.cli.shell import tierctl
from tests.support.fake_cluster import FakeCluster, topic_facts
from tests.verify.tiers import Spoilt

_S = RemoteLogSegmentState


def recreated(world: World) -> None:
    """Add another topic with the same name, with the metadata and objects of one segment."""
    with opened(world) as manager:
        manager.refresh()
        own = next(iter(world.segments()))
        segment = replace(own, topic_id=OTHER_ID, state=_S.COPY_SEGMENT_STARTED)
        manager.publish([segment])
        context: Any = type("Broker", (), {"broker_id": 7, "clock_ms": staticmethod(lambda: NOW_MS)})
        manager.publish([segment_update(segment, _S.COPY_SEGMENT_FINISHED, context)])
    Spoilt(world.metadata, world.remote).copy_objects(own, segment)


def test_a_name_with_two_topics_is_not_marked(tiered: World) -> None:
    recreated(tiered)
    first = next(part.topic_id_partition.topic_id for part in tiered.state())
    before = files(tiered)
    refused = tierctl(*delete(tiered, "--mark", "--topic", "bills", "--apply"))
    assert refused.code == 4
    assert OTHER_ID in refused.err
    assert first in refused.err
    assert files(tiered) == before


def test_a_recreated_topic_is_untouched(tiered: World) -> None:
    recreated(tiered)
    old = next(
        p.topic_id_partition.topic_id for p in tiered.state() if p.topic_id_partition.topic_id != OTHER_ID
    )
    live = {key: data for key, data in tiered.objects().items() if OTHER_ID in key}
    mark = ("--mark", "--topic-id", old, "--i-know-it-is-deleted", old)
    assert tierctl(*delete(tiered, *mark, "--apply")).code == 0
    ran = tierctl(*delete(tiered, "--apply")).ok()
    assert {step["topic_id"] for step in ran.json["steps"]} == {old}
    assert tiered.objects() == live
    assert [segment.topic_id for segment in tiered.segments()] == [OTHER_ID]
    # Only one topic has the name now.
    again = tierctl(*delete(tiered, "--mark", "--topic", "bills", "--i-know-it-is-deleted", OTHER_ID))
    assert again.json["steps"][0]["topic_id"] == OTHER_ID


def _without_topic(world: World, folder: Path) -> Path:
    """Return a copy of the log directory after its broker deleted the topic bills."""
    shutil.copytree(world.logs, folder, ignore=shutil.ignore_patterns("bills-*"))
    (folder / "kept-0").mkdir(parents=True)
    (folder / "kept-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {OTHER_ID}\n")
    return folder


def test_marking_needs_evidence(tiered: World, tmp_path: Path) -> None:
    """Without a cluster, evidence is a log directory of each replica, or --i-know-it-is-deleted."""
    topic_id = next(iter(tiered.state())).topic_id_partition.topic_id
    gone, unmounted = (_without_topic(tiered, tmp_path / name) for name in ("gone", "unmounted"))
    (unmounted / "bills-0").symlink_to(tmp_path / "disk" / "bills-0")
    before = files(tiered)
    word = ("--i-know-it-is-deleted", topic_id)
    for more, code, said in (
        (("--log-dir", gone), 4, "no cluster was asked"),
        (("--all-log-dirs",), 2, "no --log-dir is given"),
        (("--log-dir", gone, "--log-dir", tiered.logs, "--all-log-dirs"), 4, "still has the folder bills-0"),
        (("--log-dir", gone, "--log-dir", tmp_path / "none", "--all-log-dirs"), 10, "no such folder"),
        (("--log-dir", unmounted, "--all-log-dirs"), 4, "unmounted/bills-0 can't be read"),
        (("--i-know-it-is-deleted", OTHER_ID, *word), 2, "no topic with this id is to be marked"),
        (("--i-know-it-is-deleted", "bills"), 2, "not a Kafka id"),
    ):
        for apply in ((), ("--apply",)):
            ran = tierctl(*delete(tiered, "--mark", "--topic", "bills", *more, *apply))
            assert (ran.code, said in ran.err) == (code, True), (more, ran.err)
    assert tierctl(*delete(tiered, *word)).code == 2, "without --mark"
    assert files(tiered) == before
    for more in (word, ("--log-dir", tiered.logs, *word), ("--log-dir", gone, "--all-log-dirs")):
        ran = tierctl(*delete(tiered, "--mark", "--topic", "bills", *more))
        assert (ran.code, len(ran.json["steps"])) == (0, 1), ran.err
    tierctl(
        *delete(tiered, "--mark", "--topic", "bills", "--log-dir", gone, "--all-log-dirs", "--apply")
    ).ok()
    assert next(iter(tiered.state())).delete_state == "DELETE_PARTITION_MARKED"
    # The topic is marked already, so no evidence is needed.
    assert tierctl(*delete(tiered, "--mark", "--topic", "bills")).code == 0


def test_a_marked_topic_of_which_a_log_directory_has_a_folder_is_not_deleted(
    tiered: World, tmp_path: Path
) -> None:
    """Its mark may be a mistake, which --i-know-it-is-deleted allows."""
    tierctl(*delete(tiered, *marking(tiered.metadata, "bills"), "--log-dir", tiered.logs, "--apply")).ok()
    gone, unmounted = (_without_topic(tiered, tmp_path / name) for name in ("gone", "unmounted"))
    (unmounted / "bills-0").symlink_to(tmp_path / "disk" / "bills-0")
    (_without_topic(tiered, tmp_path / "bad") / "meta.properties").write_bytes(b"cluster.id=\\u00")
    before = files(tiered)
    for folder, said in (
        (tiered.logs, "still has the folder bills-0"),
        (unmounted, "unmounted/bills-0 can't be read"),
        (tmp_path / "bad", "bad can't be read: meta.properties"),
    ):
        ran = tierctl(*delete(tiered, "--log-dir", gone, "--log-dir", folder, "--apply"))
        assert (ran.code, said in ran.err, "delete the topic first" in ran.err) == (4, True, True), ran.err
    assert files(tiered) == before
    tierctl(*delete(tiered, "--log-dir", gone, "--apply")).ok()
    assert tiered.segments() == []


@pytest.mark.parametrize(
    ("more", "code"),
    [
        (("--mark",), 2),
        (("--mark", "--topic", "nobody"), 10),
        (("--mark", "--topic-id", OTHER_ID), 10),
        (("--mark", "--topic", "bills", "--interval", "5ms", "--apply"), 2),
        (("--interval", "5ms"), 2),
    ],
)
def test_delete_refuses(more: tuple[str, ...], code: int, tiered: World) -> None:
    assert tierctl(*delete(tiered, *more)).code == code


def test_segments_that_appear_while_their_partition_goes(tiered: World) -> None:
    """A broker is still copying: the new segment is deleted, too, before DELETE_PARTITION_FINISHED."""
    mark(tiered)
    late = replace(next(iter(tiered.segments())), segment_id=new_segment_id(), state=_S.COPY_SEGMENT_STARTED)
    published: list[Uuid] = []
    with opened(tiered) as manager:

        def meddle(metadata: RemoteLogSegmentMetadata) -> None:
            if not published:
                published.append(late.segment_id)
                manager.publish([late])

        outcomes = runs.run_with("delete", tiered, manager, lambda inner: Meddling(inner, meddle))
    assert set(statuses(outcomes)) == {Status.DONE}
    assert tiered.segments() == []
    assert next(iter(tiered.state())).delete_state == "DELETE_PARTITION_FINISHED"


def test_a_segment_left_by_a_finished_deletion(tiered: World) -> None:
    """If a copy finishes after DELETE_PARTITION_FINISHED, the next run deletes it and finishes again."""
    late = replace(next(iter(tiered.segments())), segment_id=new_segment_id(), state=_S.COPY_SEGMENT_STARTED)
    mark(tiered)
    with opened(tiered) as manager:
        for leftovers in ([], [late]):
            manager.publish(leftovers)
            outcomes = runs.run_with("delete", tiered, manager)
            assert set(statuses(outcomes)) == {Status.DONE}
            assert tiered.segments() == []
        assert runs.plan_of("delete", tiered, manager).steps == ()


class _Cluster(FakeCluster):
    """A cluster that has one of the two topics `bills`."""

    def unknown_topic_ids(self, ids: Collection[Uuid], *, by_any: bool = False) -> frozenset[Uuid]:
        del by_any
        return frozenset(ids) - {facts.topic_id for facts in self.facts.values()}

    def cluster_id(self) -> str:
        return "own"

    def kafka_version(self) -> KafkaVersion:
        return LATEST


def test_the_next_command_and_why_a_saved_mark_is_dropped(
    tiered: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recreated(tiered)
    deleted = next(each.topic_id for each in tiered.segments() if each.topic_id != OTHER_ID)
    with_new, with_old = ({"bills": topic_facts("bills", each, [1])} for each in (OTHER_ID, deleted))
    cluster = _Cluster(facts=with_new, tiering=())
    monkeypatch.setattr(Resources, "cluster", cluster)
    find = ("delete", *tiered.where, "--bootstrap-server", "x:9092", "--find")
    assert "; next: tierctl delete --find --mark --metadata" in tierctl(*find).summary
    plan = tmp_path / "plan.json"
    tierctl(*find, "--mark", "--plan-out", plan).ok()
    apply = ("apply", plan, *tiered.where, "--bootstrap-server", "x:9092", "--apply")
    cluster.facts = with_old
    ran = tierctl(*apply)
    assert ran.code == ExitCode.REFUSED
    assert "skipped bills-0: delete does not decide it now: the cluster has the topic again, or" in ran.err
    cluster.facts, cluster.clock_ms = with_new, 0
    ran = tierctl(*apply)
    assert (ran.code, "s ahead of the controller's" in ran.err) == (ExitCode.REFUSED, True)
    cluster.clock_ms = None
    tierctl(*apply).ok()
    found = tierctl(*find)
    assert "DELETE_PARTITION_MARKED" in found.out
    assert "; next: tierctl delete --metadata" in found.summary


class _EndingLease:
    """A lease as one in an object store: nobody renews it after its run."""

    def __init__(self) -> None:
        self._has_ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._has_ended = True

    def is_lost(self) -> bool:
        return self._has_ended


def test_the_end_of_a_runs_lease_does_not_end_the_remover(
    tiered: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tierctl.commands.mutation.open_lease", lambda *_, **__: _EndingLease())
    metadata, remote = tiered.metadata.as_uri(), tiered.remote.as_uri()
    request = DeleteRequest(metadata=metadata, remote=remote, apply=True, interval=1)
    assert [result.exit_code for result in islice(delete_repeatedly(request), 3)] == [0, 0, 0]


class _LapsedLease(_EndingLease):
    """A lease that expired before the first step, as while the machine slept, and was renewed then."""

    def is_lost(self) -> bool:
        is_renewed, self._has_ended = self._has_ended, True
        return not is_renewed


def test_a_run_that_stopped_without_its_lease_says_so(tiered: World, monkeypatch: pytest.MonkeyPatch) -> None:
    mark(tiered)
    monkeypatch.setattr("tierctl.commands.mutation.open_lease", lambda *_, **__: _LapsedLease())
    ran = tierctl(*delete(tiered, "--apply"))
    assert (ran.code, "the lease of the tier may have expired" in ran.err) == (ExitCode.LOCKED, True)
    assert {outcome["status"] for outcome in ran.json["outcomes"]} == {"pending"}


def test_the_remover_repeats_until_it_is_told_to_stop(tiered: World, tmp_path: Path) -> None:
    mark(tiered)
    command = [*map(str, delete(tiered, "--interval", "50ms", "--apply"))]
    out = tmp_path / "out"
    with out.open("wb") as stream:
        remover = subprocess.Popen([sys.executable, "-m", "tierctl", *command], stdout=stream, stderr=stream)
        try:
            deadline = time.monotonic() + 60
            while out.read_bytes().count(b'"outcomes": []') < 2 and time.monotonic() < deadline:
                time.sleep(0.05)
            remover.send_signal(signal.SIGTERM)
            assert remover.wait(60) == 128 + signal.SIGTERM
        finally:
            # Without the limit, the run would never end.
            remover.kill()
            remover.wait()
    assert tiered.segments() == []


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--interval"], ["--interval=1h"]),
        (["--interval", "--apply"], ["--interval=1h", "--apply"]),
        (["--interval", "50ms", "--apply"], ["--interval", "50ms", "--apply"]),
        (["--interval=50ms"], ["--interval=50ms"]),
        (["--interval", "PT5M"], ["--interval", "PT5M"]),
        (["--interval", "PT0.5S"], ["--interval", "PT0.5S"]),
        (["--interval", "P7D", "--apply"], ["--interval", "P7D", "--apply"]),
        (["--interval", "--topic", "T1"], ["--interval=1h", "--topic", "T1"]),
        (["--apply"], ["--apply"]),
    ],
)
def test_interval_may_stand_without_a_value(args: list[str], expected: list[str]) -> None:
    assert with_default_interval(args) == expected
