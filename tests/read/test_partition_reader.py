"""Records read from captured tiers and logs, compared with consumers and a brute-force decoder."""

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from tierctl.commands.fetch import find_range
from tierctl.errors import NotFoundError
from tierctl.model import EpochEntry, IsolationLevel, RemoteLogSegmentState, TopicPartition
from tierctl.read.partition_reader import PartitionReader, tiered_partitions
from tierctl.read.segment import UncachedIndexes
from tierctl.state.tier_state import TierState

from tests.read import brute
from tests.read.tier import Tier, as_answers, metadata_values, state_of
from tests.support.fake_cluster import cluster_log

Capture = Callable[[str], Path]
_S = RemoteLogSegmentState

TIERED = [
    (stage, topic, partition)
    for stage, topics in (
        ("before", {"orders": 3, "clicks": 2, "metrics": 1, "payments": 1, "shortlived": 2}),
        ("after", {"orders": 3, "clicks": 2, "metrics": 1, "payments": 1}),
    )
    for topic, partitions in topics.items()
    for partition in range(partitions)
]


def leader_logs(tier: Tier, topic: str, partition: int) -> list[Path]:
    """Return the .log objects of a partition's readable segments."""
    segments = tier.segments(topic, partition)
    return [tier.object(s, ".log") for s in segments if s.state is _S.COPY_SEGMENT_FINISHED]


@pytest.mark.parametrize(("stage", "topic", "partition"), TIERED)
def test_the_local_log_goes_on_where_the_tier_ends(
    capture: Capture, stage: str, topic: str, partition: int
) -> None:
    """Without it, the records of the remote segments are read."""
    root = capture("tiered-cluster")
    local = sorted((root / stage / f"{topic}-{partition}").glob("*.log"))
    for logs, files in (((), []), ((root / stage,), local)):
        tier = Tier.of(root / stage, root / f"{stage}-remote", *logs)
        view = tier.view(topic, partition)
        everything = brute.visible(brute.decode_files(leader_logs(tier, topic, partition) + files))
        found = list(tier.reader(topic, partition).read())
        assert [(r.offset, r.timestamp_ms, r.leader_epoch, r.key, r.value, r.headers) for r in found] == [
            (r.offset, r.timestamp_ms, r.epoch, r.key, r.value, r.headers)
            for r in everything
            if view.log_start_offset <= r.offset < view.end_offset
        ]
        assert found
        assert tier.problems == []


OFFSETS = {
    "earliest": lambda view: view.log_start_offset,
    "earliest-local": lambda view: view.local_start_offset,
    "latest-tiered": lambda view: view.latest_tiered_offset,
    "latest": lambda view: view.end_offset,
}


@pytest.mark.parametrize("name", OFFSETS)
@pytest.mark.parametrize("stage", ["before", "after"])
def test_named_offsets_are_those_brokers_answer(capture: Capture, stage: str, name: str) -> None:
    root = capture("tiered-cluster")
    tier = Tier.of(root / stage, root / f"{stage}-remote", root / stage)
    for line in (root / "answers" / f"{stage}-offsets-{name}.txt").read_text().splitlines():
        topic, partition, offset = line.rsplit(":", 2)
        assert OFFSETS[name](tier.view(topic, int(partition))) == int(offset), line


def unclean(capture: Capture, stage: str) -> Tier:
    root = capture("unclean-leader") / stage
    return Tier.of(root / "broker-1", root / "remote", root / "broker-1", root / "broker-2")


UNCLEAN = [
    ("before", "3-before", "wallets"),
    ("before", "3-before", "payouts"),
    ("after", "5-after", "wallets"),
    ("after", "5-after", "payouts"),
]


@pytest.mark.parametrize(("stage", "answer", "topic"), UNCLEAN)
def test_after_an_unclean_election_scan_and_seeks_are_what_a_consumer_read(
    capture: Capture, stage: str, answer: str, topic: str
) -> None:
    tier = unclean(capture, stage)
    expected = brute.answers(capture("unclean-leader") / "answers" / f"{answer}-{topic}-0.jsonl")
    view, reader = tier.view(topic), tier.reader(topic)
    assert as_answers(reader.read()) == expected
    borders = {start for segment in tier.segments(topic) for _, start in segment.segment_leader_epochs}
    borders |= {segment.end_offset for segment in tier.segments(topic)}
    borders |= {entry.start_offset for log in tier.logs for entry in log.leader_epochs}
    offsets = {border + step for border in borders for step in (-1, 0, 1)}
    offsets = {o for o in offsets if view.log_start_offset <= o < view.end_offset}
    assert len(offsets) > 10

    for offset in sorted(offsets):
        wanted = [answer for answer in expected if offset <= answer[0] < offset + 30]
        assert as_answers(reader.read(offset, offset + 30)) == wanted, offset
    assert tier.problems == []


@pytest.mark.parametrize("topic", ["wallets", "payouts"])
@pytest.mark.parametrize(("answer", "epoch"), [("1-a-alone", 2), ("2-b-unclean", 4), ("3-before", 5)])
def test_without_a_log_the_newest_segment_knows_the_lineage(
    capture: Capture, topic: str, answer: str, epoch: int
) -> None:
    """The metadata log is cut where the tier had the same segments as in that stage."""
    root = capture("unclean-leader")
    tiered = (root / "answers" / f"{answer}-offsets-latest-tiered.txt").read_text().splitlines()
    last = next(int(line.rsplit(":", 1)[1]) for line in tiered if line.startswith(topic))
    expected = [a for a in brute.answers(root / "answers" / f"{answer}-{topic}-0.jsonl") if a[0] <= last]
    values = metadata_values(root / "before" / "broker-1")

    tier = Tier(TierState(), root / "before" / "remote")
    for value in values:
        state_of([value], tier.state)
        if not any(p.topic_id_partition.topic == topic for p in tier.state):
            continue
        view = tier.view(topic)
        latest = view.lineage.latest
        if latest is not None and latest.epoch == epoch and view.end_offset == last + 1:
            assert as_answers(tier.reader(topic).read()) == expected
            return
    pytest.fail(f"the tier never got to {last} in epoch {epoch}")


TRANSACTIONAL = [
    ("tiered-cluster", ("before", "before-remote", "before"), "payments"),
    ("tiered-cluster", ("after", "after-remote", "after"), "payments"),
    ("untiered-broker", ("tiered-metadata", "tiered-remote", "local"), "ledger"),
]


@pytest.mark.parametrize(("name", "folders", "topic"), TRANSACTIONAL)
def test_read_committed_leaves_out_what_was_aborted(
    capture: Capture, name: str, folders: tuple[str, str, str], topic: str
) -> None:
    """Also after a seek into an aborted transaction, whose marker may be in a later segment.

    The tier alone ends where it does not know the outcome.
    """
    metadata, remote, local = (capture(name) / folder for folder in folders)
    for logs, files in (((), []), ((local,), sorted((local / f"{topic}-0").glob("*.log")))):
        tier = Tier.of(metadata, remote, *logs)
        everything = brute.decode_files(leader_logs(tier, topic, 0) + files)
        expected = [r.answer for r in brute.committed(everything)]
        reader = tier.reader(topic, isolation=IsolationLevel.READ_COMMITTED)
        assert as_answers(reader.read()) == expected
        assert tier.problems == []
    assert len(expected) < len(brute.visible(everything))
    starts = [s.start_offset for s in tier.segments(topic)]
    offsets = {*range(0, reader.end_offset, 97), *(o + step for o in starts for step in (-7, -1, 0, 1, 7))}
    for offset in sorted(o for o in offsets if 0 <= o < reader.end_offset):
        wanted = [answer for answer in expected if offset <= answer[0] < offset + 40]
        assert as_answers(reader.read(offset, offset + 40)) == wanted, offset


@pytest.mark.parametrize("log_dirs", [[], ["broker-2"]], ids=["tier", "log that ends below"])
def test_a_leaders_log_may_begin_above_the_end_of_the_tier(
    writable: Callable[[str], Path], log_dirs: list[str]
) -> None:
    """Then there is no record to read, as at the end of a log; no other partition is concerned."""
    root = writable("unclean-leader/before")
    cut(root / "broker-2" / "wallets-0", 1444)
    tier = Tier.of(root / "broker-1", root / "remote", *(root / each for each in log_dirs))
    for isolation, log_start in product(IsolationLevel, [0, 1000, 1443, 1444, 1445, 1500]):
        reader = tier.reader("wallets", isolation=isolation, log_start_offset=log_start)
        assert [record.offset for record in reader.read()] == list(range(log_start, 1444)), isolation
        assert reader.span() == (log_start, max(log_start, 1444))
    assert tier.problems == []


@pytest.mark.parametrize("offset", [-1, 1551, 10**12])
def test_an_offset_outside_the_log_is_not_found(capture: Capture, offset: int) -> None:
    with pytest.raises(NotFoundError, match="out of range") as e:
        unclean(capture, "before").reader("wallets").read(offset)
    assert "0 up to 1549" in (e.value.hint or "")


def test_the_end_of_the_log_is_in_range_and_has_no_records(capture: Capture) -> None:
    assert list(unclean(capture, "before").reader("wallets").read(1550)) == []


def test_what_was_tiered_is_readable_whatever_the_high_watermark_says(
    writable: Callable[[str], Path], capture: Capture
) -> None:
    """Without its checkpoint, the high watermark begins at the log start."""
    root = capture("tiered-cluster")
    log_dir = writable("tiered-cluster/before")
    (log_dir / "replication-offset-checkpoint").unlink()
    for isolation in IsolationLevel:
        tier = Tier.of(root / "before", root / "before-remote", log_dir)
        reader = tier.reader("clicks", isolation=isolation)
        assert [r.offset for r in reader.read()] == list(range(2400, 4800))
        assert tier.problems == []


def test_a_log_that_never_held_a_record_leaves_the_answer_to_the_tier(
    writable: Callable[[str], Path], capture: Capture
) -> None:
    """A broker whose disk was replaced by an empty one."""
    root = capture("tiered-cluster")
    log_dir = writable("tiered-cluster/before")
    folder = log_dir / "clicks-0"
    for file in folder.iterdir():
        if file.name != "partition.metadata":
            file.unlink()
    (folder / "00000000000000000000.log").touch()
    (folder / "leader-epoch-checkpoint").write_text("0\n0\n")
    tier = Tier.of(root / "before", root / "before-remote", log_dir)
    assert [r.offset for r in tier.reader("clicks").read()] == list(range(2400, 4800))
    assert tier.problems == []


def cut(folder: Path, end: int) -> None:
    """Cut a partition's log at the border of two segments, as that of a replica that lags behind."""
    for file in folder.glob("0*"):
        if int(file.name.partition(".")[0]) >= end + (file.suffix == ".snapshot"):
            file.unlink()


@pytest.mark.parametrize("end", [144, 576, 1154, 1300])
def test_a_replica_that_lags_behind_the_tier_hides_nothing_silently(
    writable: Callable[[str], Path], capture: Capture, end: int
) -> None:
    """What was not read is told, if it was asked for."""
    root = capture("unclean-leader") / "before"
    log_dir = writable("unclean-leader/before/broker-2")
    cut(log_dir / "wallets-0", end)
    untold = ({"until_offset": end}, {"start_offset": 5, "until_offset": 9})
    for asked in ({}, {"start_offset": end}, {"until_offset": end + 1}, *untold):
        tier = Tier.of(root / "broker-2", root / "remote", log_dir)
        reader = tier.reader("wallets")
        found = [record.offset for record in reader.read(**asked)]
        assert found == list(range(asked.get("start_offset", 0), min(asked.get("until_offset", end), end)))
        told = [each.message for each in tier.problems]
        assert len(told) == (asked not in untold), asked
        assert all(f"offsets {end} to 1443" in each and f"ends at offset {end}" in each for each in told)
    reader = tier.reader("wallets")
    for _ in range(2):
        assert reader.offset_for_time(1 << 60) is None
    assert [type(each) for each in tier.problems] == [NotFoundError], "once"


@pytest.mark.parametrize("number", [2, 4])
def test_a_seek_by_time_tells_of_the_offsets_that_may_have_an_earlier_record(
    capture: Capture, number: int
) -> None:
    """A segment in the middle, or the last one, was deleted."""
    root = capture("tiered-cluster")
    tier = Tier.of(root / "after", root / "after-remote", *([] if number == 2 else [root / "after"]))
    segments = tier.segments("orders")
    before, gone = segments[number - 1], segments[number]
    assert number == 2 or gone is segments[-1]
    tier.move(gone, _S.DELETE_SEGMENT_STARTED, _S.DELETE_SEGMENT_FINISHED)
    log, reader = tier.view("orders"), tier.reader("orders")
    first, end = gone.start_offset, gone.end_offset + 1
    following = segments[number + 1].end_offset if number == 2 else log.end_offset
    told = set()
    for time_ms in sorted({each.max_timestamp_ms + more for each in segments for more in (0, 1)}):
        found = reader.offset_for_time(time_ms)
        assert tier.problems == []
        is_told = before.max_timestamp_ms < time_ms and found is not None and found.offset <= following
        for until, upto in ((None, end), (first + 2, first + 2), (first, first)):
            tier.problems.clear()
            find_range(log, reader, from_time_ms=time_ms, until_offset=until)
            expected = [f"offsets {first} to {upto - 1} "] if is_told and upto > first else []
            assert [text for each in tier.problems for text in expected if text in each.message] == expected
            assert len(tier.problems) == len(expected)
            told |= {*expected}
        tier.problems.clear()
    assert len(told) == 2
    reader.offset_for_time(before.max_timestamp_ms + 1, read_in=(first + 3, first + 5))
    assert [each.message.split(" of ")[0] for each in tier.problems] == [
        f"offsets {first + 3} to {first + 4}"
    ]


def test_a_leader_that_was_elected_below_the_end_of_the_tier_has_all_its_records(
    writable: Callable[[str], Path], capture: Capture
) -> None:
    """Its epoch begins at its log end: what former leaders copied above is not part of its log."""
    root = capture("unclean-leader") / "before"
    log_dir = writable("unclean-leader/before/broker-2")
    cut(log_dir / "wallets-0", 576)
    (log_dir / "wallets-0" / "leader-epoch-checkpoint").write_text("0\n3\n0 0\n4 520\n7 576\n")
    tier = Tier.of(root / "broker-2", root / "remote", log_dir)
    assert [record.offset for record in tier.reader("wallets").read()] == list(range(576))

    # Beside a running leader, and without its log, its epochs say the same.
    tier = Tier.of(root / "broker-2", root / "remote")
    epochs = tuple(EpochEntry(epoch, start) for epoch, start in ((0, 0), (4, 520), (7, 576)))
    leader = cluster_log(tier.partition("wallets").topic_id_partition, leader_epochs=epochs)
    view = tier.view("wallets", leader=leader)
    assert (view.log_start_offset, view.latest_tiered_offset, view.end_offset) == (0, 575, 576)
    found = PartitionReader(view, UncachedIndexes(view.remote), tier.problems.append).read()
    assert [record.offset for record in found] == list(range(576))
    assert tier.problems == []


def test_a_follower_that_was_built_from_the_tier_begins_at_its_log_start(
    writable: Callable[[str], Path], capture: Capture
) -> None:
    """TierStateMachine gives it the leader epochs of the index, also those below the log start."""
    log_dir = writable("tiered-cluster/before")
    (log_dir / "orders-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    starts = log_dir / "log-start-offset-checkpoint"
    starts.write_text("0\n1\norders 0 1500\n")
    tier = Tier.of(log_dir, capture("tiered-cluster") / "before-remote", log_dir)
    [log] = [each for each in tier.logs if each.topic_partition == TopicPartition("orders", 0)]
    assert log.is_log_start_doubtful
    part = tier.partition("orders")
    [found] = [
        each
        for each in tiered_partitions(tier.state, tier.logs, {part.topic_id_partition})
        if each.topic_id_partition == part.topic_id_partition
    ]
    assert [each.log_start_offset for each in found.logs] == [1500]
