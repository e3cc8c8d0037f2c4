"""What commands refuse, drop and report: other writers, limits, void plans and damaged metadata."""

import shutil
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tierctl.apply.run_context import observe
from tierctl.metadata.state_dir import Journal
from tierctl.model import TopicPartition
from tierctl.wire.files.checkpoints import read_offset_checkpoint, write_offset_checkpoint

from tests.apply.commands import apply, copy, delete, files, sweep
from tests.apply.runs import opened
from tests.apply.worlds import LOG, World
from tests.cli.shell import tierctl
from tests.support.broker_lock import running_broker
from tests.support.faults import observed
from tests.verify.tiers import Spoilt


@pytest.mark.parametrize("command", [copy, sweep, delete], ids=["copy", "sweep", "delete"])
def test_the_second_of_two_may_only_look(command: Any, tiered: World) -> None:
    with opened(tiered):
        before = files(tiered)
        assert tierctl(*command(tiered, "--apply")).code == 6
        assert tierctl(*command(tiered)).code == 0, "looking needs no lock"
        assert files(tiered) == before, "without --apply nothing changes"


def test_a_copy_reads_a_running_brokers_log(empty: World) -> None:
    """Reading the log needs no fence, because the run writes to a metadata topic that no broker uses."""
    with running_broker(empty.logs):
        ran = tierctl(*copy(empty, "--apply"))
    assert (ran.code, [o["status"] for o in ran.json["outcomes"]]) == (0, ["done"] * 3), ran.err


def test_a_running_broker_that_may_tier(empty: World, tmp_path: Path) -> None:
    (empty.logs / "__remote_log_metadata-3").mkdir()
    kept = tmp_path / "plan"
    with running_broker(empty.logs):
        before = files(empty)
        planned = tierctl(*copy(empty, "--plan-out", kept))
        assert (planned.code, "--apply would refuse this" in planned.err) == (0, True)
        for command in (copy(empty), apply(empty, kept)):
            ran = tierctl(*command, "--apply")
            assert (ran.code, "may tier these partitions itself" in ran.err) == (4, True)
            assert files(empty) == before
        ran = tierctl(*copy(empty, "--apply", "--allow-live-brokers"))
        assert (ran.code, "bills copy every segment of this plan again" in ran.err) == (0, True), ran.err
    assert "may tier" not in tierctl(*copy(empty)).err, "no broker runs any more"


def test_a_broker_that_may_tier_and_starts_during_the_copy(empty: World) -> None:
    (empty.logs / "__remote_log_metadata-3").mkdir()
    with ExitStack() as started:

        def start(label: str, moment: str) -> None:
            if (label, moment) == ("copy.segment.store", "before"):
                observe(None)
                started.enter_context(running_broker(empty.logs))

        observe(start)
        ran = tierctl(*copy(empty, "--apply", "--wave-size", 1, "--threads", 1))
    assert [outcome["status"] for outcome in ran.json["outcomes"]] == ["done", "done", "failed"]
    assert (ran.code, "may tier these partitions itself" in ran.json["outcomes"][2]["error"]) == (3, True)


def test_a_sweep_is_not_decided_from_a_running_brokers_log(tiered: World) -> None:
    with running_broker(tiered.logs):
        before = files(tiered)
        ran = tierctl(*sweep(tiered, "--apply"))
        assert (ran.code, "a broker is running" in ran.err, "log start" in ran.err) == (4, True, True)
        assert files(tiered) == before
        assert tierctl(*sweep(tiered, "--apply", "--allow-live-brokers")).code == 0


@pytest.mark.parametrize("command", [copy, sweep, delete], ids=["copy", "sweep", "delete"])
def test_metadata_of_a_running_broker_are_never_written(command: Any, tiered: World) -> None:
    with running_broker(tiered.metadata):
        before = files(tiered)
        for flags in ((), ("--allow-live-brokers",)):
            ran = tierctl(*command(tiered, "--apply", *flags))
            assert (ran.code, "no option overrides" in ran.err) == (4, True)
        assert files(tiered) == before


@pytest.mark.parametrize("limit", [("--max-deletes", 1), ("--max-deletes", 0)])
def test_limits_stop_a_sweep_before_its_first_delete(limit: tuple[object, ...], tiered: World) -> None:
    before = files(tiered)
    shown = tierctl(*sweep(tiered, *limit))
    assert (shown.code, len(shown.json["steps"])) == (0, 2)
    assert "--max-deletes" in shown.err
    refused = tierctl(*sweep(tiered, *limit, "--apply"))
    assert refused.code == 8
    assert files(tiered) == before


@pytest.mark.parametrize("is_own", [True, False], ids=["of the partition", "of others"])
def test_damaged_metadata_decide_no_deletes_of_their_partitions(is_own: bool, tiered: World) -> None:
    mine = next(iter(tiered.state())).metadata_partition
    damaged = mine if is_own else 1 - mine
    Spoilt(tiered.metadata, tiered.remote).append_raw(damaged, b"\x01\x63\x00nonsense")
    for more, command in product(((), ("--apply",)), (sweep, delete)):
        ran = tierctl(*command(tiered, *more))
        assert (ran.code, f"__remote_log_metadata-{damaged}, offset" in ran.err) == (7, True), ran.err
        assert len(ran.json["steps"]) == (2 if command is sweep and not is_own else 0)
        assert {outcome["status"] for outcome in ran.json.get("outcomes", ())} <= {"done"}
    assert len(tiered.segments()) == (3 if is_own else 1)


def test_the_log_start_moves_before_anything_is_deleted(tiered: World) -> None:
    met: list[str] = []
    with observed(lambda label, moment: met.append(label) if moment == "before" else None):
        ran = tierctl(
            *sweep(tiered, "--state-dir", tiered.state_dir, "--log-start-offset", "bills-0=1300", "--apply")
        )
    assert ran.code == 0, ran.err
    assert met[0] == "sweep.log_start.write"
    kept = (tiered.state_dir / "log-start-offset-checkpoint").read_text().splitlines()[2:]
    assert [line.split()[1:] for line in kept] == [["0", "1300"]]
    # A lower log start offset has no effect.
    tierctl(*sweep(tiered, "--state-dir", tiered.state_dir, "--log-start-offset", "bills-0=5", "--apply"))
    again = (tiered.state_dir / "log-start-offset-checkpoint").read_text().splitlines()[2:]
    assert again == kept


def test_a_log_start_that_is_raised_without_a_step_is_a_change(tiered: World) -> None:
    """An operator sees it before and afterwards; once it is raised there is nothing left to do."""
    file = tiered.state_dir / "log-start-offset-checkpoint"
    (tiered.logs / "configs").write_text("bills.retention.ms=-1\n")
    asked = ("--state-dir", tiered.state_dir, "--log-start-offset", "bills-0=300", "--detailed-exitcode")
    for more, code, text in (
        ((), 9, "a plan, nothing changed: 1 log start offset to raise"),
        (("--apply",), 0, "sweep: 1 log start offset raised"),
        ((), 0, "nothing to do"),
        (("--apply",), 0, "nothing to do"),
    ):
        assert file.exists() == (text == "nothing to do")
        ran = tierctl(*sweep(tiered, *asked, *more))
        assert (ran.code, ran.json["steps"], text in ran.summary) == (code, [], True), ran
        note = "the plan raises the log start offset of bills-0 to 300"
        assert (note in ran.err) == (text != "nothing to do")


@pytest.mark.parametrize("why", ["not tiered", "unreadable"])
@pytest.mark.parametrize("apply", [False, True])
def test_the_log_start_of_a_partition_that_is_not_decided_stays(why: str, apply: bool, tiered: World) -> None:
    if why == "not tiered":
        (tiered.logs / "configs").write_text("bills.remote.storage.enable=false\n")
    else:
        (tiered.logs / LOG / "leader-epoch-checkpoint").write_text("nonsense")
    asked = ("--state-dir", tiered.state_dir, "--log-start-offset", "bills-0=1200", "--detailed-exitcode")
    ran = tierctl(*sweep(tiered, *asked, *(["--apply"] if apply else [])))
    assert (ran.code, ran.json["steps"]) == (0 if why == "not tiered" else 7, []), ran
    assert "the log start offset of bills-0 is not raised to 1200: nothing is decided" in ran.err
    assert ("unreadable" in ran.err) is (why == "unreadable")
    assert not (tiered.state_dir / "log-start-offset-checkpoint").exists()


def test_the_newest_replica_says_whether_its_log_has_a_raised_log_start(
    tiered: World, tmp_path: Path
) -> None:
    """The other replica lags behind the log start that a sweep raised; their order does not matter."""
    lagging = tmp_path / "a-lagging-replica"
    shutil.copytree(tiered.logs, lagging)
    watermarks = lagging / "replication-offset-checkpoint"
    kept = read_offset_checkpoint(watermarks.read_bytes())
    watermarks.write_bytes(write_offset_checkpoint({**kept, TopicPartition("bills", 0): 600}))
    (partition,) = (each.topic_id_partition for each in tiered.state())
    tiered.state_dir.mkdir(exist_ok=True)
    Journal(tiered.state_dir).raise_log_starts({partition: 1300})
    found = []
    for logs in ((tiered.logs, lagging), (lagging, tiered.logs)):
        named = (f"--log-dir={each}" for each in logs)
        where = (*tiered.where, *named, "--state-dir", tiered.state_dir, "--topic", "bills")
        ran = tierctl("sweep", *where, "-o", "json")
        assert "note: bills-0 has 2 replicas in the log directories: the newest is used" in ran.err
        found.append(ran.json["steps"])
    assert found[0] == found[1]
    assert "below the log start offset 1300" in {step["reason"] for step in found[0]}


@pytest.mark.parametrize(
    "text", ["bills-0", "bills=5", "bills-0=-1", "bills-0=x", "nobody-0=5", "bills-0=99999"]
)
def test_log_starts_that_make_no_sense(text: str, tiered: World) -> None:
    assert tierctl(*sweep(tiered, "--log-start-offset", text)).code == 2
