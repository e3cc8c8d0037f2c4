"""Leader epochs that lost entries or are not understood, or log starts without a record: no delete."""

import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pytest
from tierctl.errors import ExitCode

from tests.cli.shell import Ran, tierctl
from tests.commands.ended import ended
from tests.commands.restore.test_not_understood import REFUSALS, refusing
from tests.commands.restore.unread import Change
from tests.support.cluster_metadata import make_log_dir

CUTS = [
    # The log of orders-0 starts at 0, and its entries are (0, 0), (2, 2000) and, after, (4, 3667).
    ("before", [(2, 2000)], (0, 1799)),
    ("after", [(2, 2000), (4, 3667)], (0, 1799)),
    ("after", [(4, 3667)], (0, 2999)),
    # Without the entry in the middle: only the segments of epoch 2 have its offsets.
    ("after", [(0, 0), (4, 3667)], (1800, 2999)),
    # Without the entries at the end: the local batches have epochs 2 and 4, but not where they began.
    ("after", [(0, 0)], (1800, 2999)),
    ("before", [(0, 0)], (1800, 2999)),
    # The first entry that is left begins above segments of its own epoch.
    ("after", [(2, 2600), (4, 3667)], (0, 1799)),
]


class Tier:
    """A tier with the log directory of its broker, of which the entries of orders-0 may be replaced."""

    def __init__(self, writable: Callable[[str], Path], stage: str) -> None:
        self.logs = writable(f"tiered-cluster/{stage}")
        self._remote = partial(writable, f"tiered-cluster/{stage}-remote")

    @cached_property
    def remote(self) -> Path:
        """The objects, which are copied for the tests that use them."""
        return self._remote()

    def cut(self, entries: Sequence[tuple[int, int]], logs: Path | None = None) -> None:
        lines = "".join(f"{epoch} {offset}\n" for epoch, offset in entries)
        file = (logs or self.logs) / "orders-0" / "leader-epoch-checkpoint"
        file.write_text(f"0\n{len(entries)}\n{lines}")

    @property
    def newest(self) -> Path:
        """The leader epochs in the tier's newest segment of orders-0."""
        [found] = self.remote.rglob("orders-0-*/*2400-*.leader_epoch_checkpoint")
        return found

    def run(self, command: str, *more: object) -> Ran:
        where = ("--metadata", self.logs, "--log-dir", self.logs)
        return tierctl(command, *where, *more, "-o", "jsonl")


def _spans(ran: Ran) -> list[tuple[str, int, int]]:
    return [(step["action"], step["start_offset"], step["end_offset"]) for step in ran.json["steps"]]


def _found(ran: Ran, kind: str) -> list[dict[str, Any]]:
    return [row for row in ran.rows if row["check"] == kind]


@pytest.fixture
def configs(tmp_path: Path) -> tuple[object, ...]:
    """Return the option with settings by which every segment of topic orders has expired."""
    file = tmp_path / "configs"
    file.write_text("orders.retention.ms=1\n")
    return ("--topic-configs", file)


@pytest.mark.parametrize("at", range(len(CUTS)))
def test_commands_of_a_partition_whose_checkpoint_was_cut(
    writable: Callable[[str], Path], tmp_path: Path, configs: tuple[object, ...], at: int
) -> None:
    """verify names the replica and finds nothing else; sweep and rebuild refuse this partition only."""
    stage, entries, lost = CUTS[at]
    tier = Tier(writable, stage)
    tier.cut(entries)
    ran = tier.run("verify", "--topic", "orders")
    [found] = _found(ran, "cut_epochs")
    assert (found["severity"], found["start_offset"], found["end_offset"]) == ("error", *lost)
    assert str(tier.logs) in found["found"]
    assert {row["check"] for row in ran.rows} == {"cut_epochs"}
    assert "rebuild --log-start tier" in ran.summary
    assert _found(tier.run("segments", "--check", "--topic", "orders"), "divergent_segment") == []
    _rebuild_publishes_nothing_above(tier, tmp_path / "new", entries)
    option = ("--off-lineage", "--unreferenced-epochs")[at % 2]
    more = ("--topic", "orders", *configs, option)
    planned = tier.run("sweep", *more)
    applied = tier.run("sweep", *more, "--remote", tier.remote, "--apply")
    for ran in (planned, applied):
        ended(ran, 4, f"skipped orders-0: {option}: refused")
        assert {step["partition"] for step in ran.rows} == {1, 2}
    assert {step["status"] for step in applied.rows} == {"done"}
    again = tier.run("segments", "--topic", "orders")
    assert {row["partition"] for row in again.rows} == {0}


def _rebuild_publishes_nothing_above(tier: Tier, new: Path, entries: Sequence[tuple[int, int]]) -> None:
    """Without --log-start it refuses; with `tier` it publishes from the log start on, or refuses."""
    where = ("--remote", tier.remote, "--log-dir", tier.logs, "--topic", "orders", "--partition", "0")
    rebuild = ("rebuild", "--metadata", new, *where, "-o", "json")
    ran = tierctl(*rebuild)
    assert (ran.json["steps"], "--apply would refuse this" in ran.err) == ([], True), ran.err
    steps = tierctl(*rebuild, "--log-start", "tier").json["steps"]
    if entries[0] != (0, 0):
        assert [step["action"] for step in steps] == ["write_checkpoints"] + ["publish_segment"] * 5
        assert [step["start_offset"] for step in steps[1:]] == [0, 600, 1200, 1800, 2400]


@pytest.mark.parametrize("stale", [False, True])
def test_explain_predicts_what_a_broker_deletes_that_leads_with_the_cut_checkpoint(
    writable: Callable[[str], Path], tmp_path: Path, stale: bool
) -> None:
    """Also where only another replica than the newest one was cut."""
    tier = Tier(writable, "after")
    more: tuple[object, ...] = ()
    if stale:
        more = ("--log-dir", shutil.copytree(tier.logs, tmp_path / "a-follower"))
    tier.cut([(4, 3667)], tmp_path / "a-follower" if stale else None)
    where = tmp_path / "a-follower" if stale else tier.logs
    rows = tier.run("explain", "orders", 0, *more).rows
    deleted = {row["end_offset"]: row["reason"] for row in rows if row["next_action"] == "delete"}
    assert deleted.keys() == {599, 1199, 1799, 2399, 2999}
    assert all("once it leads with the cut leader epochs" in reason for reason in deleted.values())
    assert all(str(where) in reason for reason in deleted.values()) or not stale
    [found] = _found(tier.run("verify", "--topic", "orders", *more), "cut_epochs")
    assert str(where) in found["found"]


def test_doctor_names_the_replica(writable: Callable[[str], Path], tmp_path: Path) -> None:
    tier = Tier(writable, "after")
    follower = shutil.copytree(tier.logs, tmp_path / "a-follower")
    tier.cut([(4, 3667)], follower)
    rows = tier.run("doctor", "--log-dir", follower).rows
    found = {row["subject"]: row["severity"] for row in rows if row["check"] == "leader_epochs"}
    assert found == {str(tier.logs): "ok", str(follower / "orders-0"): "error"}


def test_a_checkpoint_that_lost_the_beginning_of_its_only_epoch(
    writable: Callable[[str], Path], tmp_path: Path
) -> None:
    """The tier has the offsets, and rebuild puts the entry back: they were taken for lost, as a gap."""
    tier = Tier(writable, "after")
    (tier.logs / "clicks-0" / "leader-epoch-checkpoint").write_text("0\n2\n2 4800\n4 5500\n")
    follower = shutil.copytree(tier.logs, tmp_path / "a-follower")
    for command in (("verify",), ("verify", "--log-dir", follower), ("segments", "--check")):
        found = [row for row in tier.run(*command, "--topic", "clicks").rows if row["partition"] == 0]
        assert {row["check"] for row in found} == {"cut_epochs"}
        assert {(row["start_offset"], row["end_offset"]) for row in found} == {(3200, 4799)}
    [row] = _found(tier.run("doctor", "--topic", "clicks"), "leader_epochs")
    assert (row["severity"], row["subject"]) == ("error", str(tier.logs / "clicks-0"))
    assert "they begin with epoch 2 at offset 4800, the log starts at 3200, and 2 segments" in row["found"]
    where = ("--metadata", tmp_path / "new", "--remote", tier.remote, "--log-dir", tier.logs)
    named = ("--topic", "clicks", "--partition", "0", "--log-start", "tier", "-o", "json")
    steps = tierctl("rebuild", *where, *named).json["steps"]
    assert (steps[0]["action"], steps[0]["start_offset"]) == ("write_checkpoints", 3200)


def test_an_entry_that_begins_within_the_first_segment_proves_no_loss(
    writable: Callable[[str], Path],
) -> None:
    """DeleteRecords to offset 3500 cut the checkpoint less than a minute before the broker was killed."""
    tier = Tier(writable, "after")
    (tier.logs / "clicks-0" / "leader-epoch-checkpoint").write_text("0\n2\n2 3500\n4 5500\n")
    assert _found(tier.run("verify", "--topic", "clicks"), "cut_epochs") == []
    [row] = _found(tier.run("doctor", "--topic", "clicks"), "leader_epochs")
    assert row["severity"] == "ok"


def test_retention_waits_for_the_repair(writable: Callable[[str], Path], configs: tuple[object, ...]) -> None:
    """The oldest segments that the cut checkpoint knows are not the oldest ones of the log."""
    tier = Tier(writable, "after")
    tier.cut([(4, 3667)])
    more = ("--topic", "orders", *configs)
    ran = ended(
        tier.run("sweep", *more), 0, "skipped orders-0: no segment at or above the log start is deleted"
    )
    assert {step["partition"] for step in ran.rows} == {1, 2}
    # DeleteRecords, which an operator asks for, may delete what lies wholly below the new log start.
    asked = tier.run("sweep", *more, "--log-start-offset", "orders-0=3667")
    assert {step["end_offset"] for step in asked.rows if step["partition"] == 0} >= {599, 1799, 2999}


def test_entries_that_delete_records_cut_refuse_nothing(writable: Callable[[str], Path]) -> None:
    """DeleteRecords and retention cut the entries up to the log start."""
    logs = writable("delete-across-epoch/before")
    where = ("--metadata", logs, "--log-dir", logs, "-o", "jsonl")
    plain, asked = (tierctl("sweep", *where, *more) for more in ((), ("--off-lineage",)))
    assert (plain.code, asked.code) == (0, 0)
    assert asked.rows == plain.rows != []
    assert _found(tierctl("verify", *where), "cut_epochs") == []


@pytest.mark.parametrize(
    ("entries", "options"),
    [
        ("2 2000", ()),
        ("2 2000", ("--off-lineage",)),
        ("2 2000", ("--unreferenced-epochs",)),
        ("2 2100", ("--off-lineage",)),
        ("3 2400", ("--unreferenced-epochs",)),
    ],
)
def test_without_a_log_an_index_of_a_cut_checkpoint_states_no_log_start(
    writable: Callable[[str], Path], entries: str, options: tuple[str, ...]
) -> None:
    """The newest leader-epoch index may be a copy of a checkpoint that had lost its first entries."""
    tier = Tier(writable, "before")
    tier.newest.write_text(f"0\n1\n{entries}\n")
    where = ("--metadata", tier.logs, "--remote", tier.remote, "--topic", "orders", "--partition", "0")
    ran = tierctl("sweep", *where, *options, "-o", "json")
    assert [step for step in ran.json["steps"] if step["action"] != "keep"] == [], ran.out


SPANS = [(start, start + 599) for start in range(0, 3000, 600)]


@pytest.mark.parametrize(
    ("entries", "spans"), [("2 2000", SPANS), ("2 2100", SPANS), ("2 1800", []), ("0 0", SPANS[:4])]
)
def test_without_a_log_no_set_is_left_out_for_what_an_index_lacks(
    writable: Callable[[str], Path], tmp_path: Path, entries: str, spans: list[tuple[int, int]]
) -> None:
    """Neither does the log begin where the index does, nor is a set discarded that alone has its offsets."""
    tier = Tier(writable, "before")
    tier.newest.write_text(f"0\n1\n{entries}\n")
    where = ("--remote", tier.remote, "--topic", "orders", "--partition", "0", "-o", "json")
    ran = tierctl("rebuild", "--metadata", tmp_path / "new", *where)
    assert _spans(ran) == [("publish_segment", *span) for span in spans], ran.err
    assert len(spans) != 4 or tier.newest.name[21:43] in ran.err
    make_log_dir(tmp_path, 1, cluster_id="other")
    into = ("--log-dir", tmp_path, "--as", "new", "--as-id", "AAAAAAAAAAAAAAAAAAAAAQ")
    restore = tierctl("restore", "log", *where, *into)
    if len(spans) == 4:
        assert (_spans(restore), "--until orders-0=2400 restores" in restore.err) == ([], True)
        restore = tierctl("restore", "log", *where, *into, "--until", "orders-0=2400")
    if spans:
        assert _spans(restore) == [("materialise_partition", 0, spans[-1][1])]
    else:
        assert restore.code == 10


WHOLE = ["0 0", "4 520", "5 1220", "6 1550"]


@pytest.mark.parametrize(
    ("topic", "lacking"),
    [("payouts", {1}), ("wallets", {1, 3}), ("payouts", {3}), ("wallets", {2, 3}), ("payouts", {0, 1, 2})],
)
def test_rebuild_gives_up_no_set_for_epochs_that_the_log_lost(
    writable: Callable[[str], Path], tmp_path: Path, topic: str, lacking: set[int]
) -> None:
    """Neither are sets of the lost epochs off the lineage, nor does the log begin above them."""
    logs = writable("unclean-leader/before/broker-2")
    remote = writable("unclean-leader/before/remote")
    file = logs / f"{topic}-0" / "leader-epoch-checkpoint"
    assert file.read_text().splitlines()[2:] == WHOLE
    where = ("--remote", remote, "--log-dir", logs, "--topic", topic, "--partition", 0)
    rebuild = ("rebuild", "--metadata", tmp_path / "new", *where, "-o", "json")
    wanted = _spans(tierctl(*rebuild))
    entries = [entry for number, entry in enumerate(WHOLE) if number not in lacking]
    file.write_text("\n".join(["0", str(len(entries)), *entries, ""]))
    ran = tierctl(*rebuild)
    if lacking == {3}:
        # The tier has none of its records, and the batches of the local log have it.
        assert _spans(ran) == wanted
        return
    assert ran.json["steps"] == []
    assert "--apply would refuse this" in ran.err
    assert any(word in ran.err for word in ("the leader epochs were cut", "but the leader epochs begin at"))


def test_rebuild_publishes_the_whole_log_without_a_record_of_its_start(
    writable: Callable[[str], Path], tmp_path: Path
) -> None:
    """The local log of orders-0 begins at 3000, its leader epochs at 0."""
    logs, remote = writable("tiered-cluster/after"), writable("tiered-cluster/after-remote")
    (logs / "log-start-offset-checkpoint").write_text("0\n0\n")
    where = ("--remote", remote, "--log-dir", logs, "--topic", "orders", "--partition", 0)
    rebuild = ("rebuild", "--metadata", tmp_path / "new", *where, "-o", "json")
    assert [start for _, start, _ in _spans(tierctl(*rebuild))] == [0, 600, 1200, 1800, 2400]
    # Leader epochs that begin above the oldest segments may have been cut: the operator decides.
    (logs / "orders-0" / "leader-epoch-checkpoint").write_text("0\n2\n2 2000\n4 3667\n")
    ran = tierctl(*rebuild)
    assert "orders-0: the log start is 2000, and complete segments from 0 on" in ran.err
    assert _spans(ran) == []


MUTATIONS: dict[str, Change | None] = {
    "version": lambda data: b"7" + data[1:],
    "empty": lambda _: b"",
    "no entries": lambda _: b"0\n0\n",
    "text": lambda _: b"0\n1\nx y\n",
    "negative": lambda _: b"0\n1\n-3 -7\n",
    "missing": None,
}
TABLE = [("tier", name) for name in (*MUTATIONS, *REFUSALS)]
TABLE += [("log", name) for name in ("version", "empty", "text", "missing")]


@pytest.mark.parametrize(("where", "name"), TABLE)
def test_nothing_follows_from_leader_epochs_that_are_not_understood(
    writable: Callable[[str], Path], configs: tuple[object, ...], where: str, name: str
) -> None:
    """The options of sweep and the commands that explain its decisions take turns."""
    tier = Tier(writable, "before")
    file = tier.newest if where == "tier" else tier.logs / "orders-0" / "leader-epoch-checkpoint"
    change = MUTATIONS.get(name)
    if change:
        file.write_bytes(change(file.read_bytes()))
    elif name not in REFUSALS:
        file.unlink()
    more = ("--log-dir", tier.logs) if where == "log" else ()
    # The batches of the log say that its file was cut: what it lacks is known, and nothing is unread.
    is_cut = where == "log" and name in {"empty", "no entries", "missing"}
    of = ("--metadata", tier.logs, "--remote", tier.remote, *more, *configs, "--output", "json")
    turn = TABLE.index((where, name))
    option = ((), ("--off-lineage",), ("--unreferenced-epochs",))[turn % 3]
    shows = (("explain", "orders", "0"), ("report",), ("report", "--what-if", "orders.retention.ms=7d"))
    with refusing(tier.newest.name, REFUSALS[name]) if name in REFUSALS else nullcontext():
        ran = tierctl("sweep", *of, "--topic", "orders", *option)
        shown = tierctl(*shows[turn % 3], *of)
    assert "orders-0" in ran.err
    steps = {(step["action"], step["partition"]) for step in ran.json["steps"]}
    assert steps == {("delete_segment", 1), ("delete_segment", 2)}, ran.err
    code = (ExitCode.REFUSED if option else ExitCode.OK) if is_cut else ExitCode.CORRUPT
    assert ran.code == code, ran.err
    assert (shown.code == ExitCode.CORRUPT) is not is_cut, shown
