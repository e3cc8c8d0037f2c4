"""`remote_log` plans on executors what one would read, of the tier of the metadata and within its limits."""

import json
import pickle
import random
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.commands import FetchRequest
from tierctl.commands.resources import Resources
from tierctl.errors import NotFoundError, RemoteTierMissing, SafetyRefusal, TierctlError, UsageError
from tierctl.metadata.parallel_fold import PartitionFold
from tierctl.metadata.state_dir import record_successful_run
from tierctl.model import TopicIdPartition, Uuid
from tierctl.model.progress import SilentProgress
from tierctl.spark.executors.task import shared_tier, take_transfers
from tierctl.spark.sources import log_plan
from tierctl.spark.sources.load_options import LogOptions
from tierctl.spark.sources.log_plan import NameCheck, Share
from tierctl.spark.sources.metadata_splits import Predicate
from tierctl.spark.sources.remote_log import RemoteLogReader, rows_of
from tierctl.storage.throttle import Direction, Limit
from tierctl.wire import primitives
from tierctl.wire.batches.batch_head import CompressionType, compress

from tests.hostile.worlds import World, batch_of, record_bytes
from tests.read.made import day, made_tier
from tests.spark.sources.log.loads import Options, Row, rows, tasks_of
from tests.spark.sources.test_remote_log import aiven, tiered, unclean
from tests.spark.worlds import Capture

HOURS = TopicIdPartition(Uuid("AAAAAAAAAAAAAAAAAAAAAQ"), "hours", 3)
DAYS = TopicIdPartition(Uuid("AAAAAAAAAAAAAAAAAAAAAg"), "days", 0)
HOURS_AGAIN = TopicIdPartition(Uuid("AAAAAAAAAAAAAAAAAAAAAw"), "hours", 3)


@pytest.fixture
def grouped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan as for a large topic: groups of one metadata partition with events."""
    monkeypatch.setattr(log_plan, "_GROUP_EVENTS_MIN", 1)
    monkeypatch.setattr(log_plan, "_TASKS", 1_000_000)
    monkeypatch.setattr(log_plan, "_TASK_BYTES_MIN", log_plan.SPLIT_BYTES)


@pytest.fixture
def tier(tmp_path: Path) -> Options:
    """Return a tier of two topics, whose events are in two metadata partitions."""
    for number, partition in enumerate((HOURS, DAYS)):
        options = made_tier(tmp_path, partition, day(random.Random(number))[:4])
    return options


def by_partition(found: list[Row]) -> dict[tuple[str, str, int], list[Row]]:
    """Return the rows of each user partition, in their order."""
    parts: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
    for row in found:
        parts[row["topic"], row["topic_id"], row["partition"]].append(row)
    return parts


CAPTURES: dict[str, Callable[[Capture], Options]] = {
    "tiered": lambda capture: tiered(capture("tiered-cluster"), "before"),
    "unclean": lambda capture: unclean(capture("unclean-leader"), "after"),
    "aiven": lambda capture: aiven(capture("aiven-plain")) | {"topic": "sensors,audit"},
}


@pytest.mark.parametrize(
    ("name", "isolation"),
    [
        ("tiered", "read_committed"),
        ("unclean", "read_committed"),
        ("aiven", "read_uncommitted"),
    ],
)
def test_all_groups_and_shares_read_each_record_once(
    name: str, isolation: str, capture: Capture, request: pytest.FixtureRequest
) -> None:
    options = CAPTURES[name](capture) | {"isolation_level": isolation}
    assert len({task.work for task in tasks_of(options)}) == 1
    expected = by_partition(rows(options))

    request.getfixturevalue("grouped")
    for bytes_per_task in ("1000000000", "50000"):
        given = options | {"bytes_per_task": bytes_per_task}
        shares = [task.work for task in tasks_of(given) if isinstance(task.work, Share)]
        assert len({share.metadata_partitions for share in shares}) > 1
        assert (max(share.count for share in shares) > 1) is (bytes_per_task != "1000000000")
        assert by_partition(rows(given)) == expected


@pytest.mark.parametrize("state_dir", [False, True])
def test_the_driver_folds_only_with_a_state_directory(
    tier: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, state_dir: bool
) -> None:
    folds = []
    fold = PartitionFold.fold
    monkeypatch.setattr(PartitionFold, "fold", lambda *given: (folds.append(given), fold(*given))[1])
    options = tier | ({"state_dir": str(tmp_path / "state")} if state_dir else {})
    tasks = tasks_of(options)
    assert bool(folds) is state_dir
    found = [row for task in tasks for batch in rows_of(task) for row in batch.to_pylist()]
    assert by_partition(found) == by_partition(rows(tier))
    assert len(found) == 2 * 4 * 180
    if state_dir:
        folds.clear()
        assert rows(options) == found
        assert folds == []


def test_a_broker_s_cache_of_indexes_is_not_that_of_a_state_directory(tier: Options, tmp_path: Path) -> None:
    """The cache, which deletes what is unfinished or damaged, was opened before the folder was judged."""
    broker = tmp_path / "broker"
    left = broker / "remote-log-index-cache" / "readme.tmp"
    left.parent.mkdir(parents=True)
    for file in (broker / "meta.properties", left):
        file.write_text("version=1\nnode.id=1\n")
    request = FetchRequest(remote=tier["remote"], state_dir=broker)
    for use in (
        lambda: tasks_of(tier | {"state_dir": str(broker)}),
        lambda: Resources(request=request, progress=SilentProgress()).__enter__().indexes,
        lambda: record_successful_run(broker, "restore log", 1),
    ):
        with pytest.raises(UsageError, match="is a broker's log directory"):
            use()
        assert sorted(broker.rglob("*")) == [broker / "meta.properties", left.parent, left]


@pytest.mark.usefixtures("grouped")
def test_only_metadata_partitions_with_selected_events_are_folded(tier: Options) -> None:
    everywhere = rows(tier)
    of_hours = [row for row in everywhere if row["topic"] == "hours"]
    conditions = (Predicate("topic_id", "=", str(HOURS.topic_id)), Predicate("partition", "=", 3))
    options = {"topic_id": str(HOURS.topic_id), "partition": "3"}
    for given, predicates in ((tier, conditions), (tier | options, ())):
        (task,) = tasks_of(given, *predicates)
        assert isinstance(task.work, Share)
        assert len(task.work.metadata_partitions) == 1
        assert rows(given, *predicates) == of_hours
    assert rows(tier, Predicate("topic", "=", "hours")) == of_hours


def error_of(options: Options) -> tuple[type[TierctlError], str, str | None]:
    with pytest.raises(TierctlError) as e:
        rows(options)
    return type(e.value), e.value.message, e.value.hint


def test_names_are_checked_over_all_groups(
    tier: Options, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    known = tier | {"topic": "hours"}
    unknown = {
        "no such partition": tier | {"topic": "weeks"},
        'topic "hours" has no partition 4': known | {"partition": "4"},
    }
    errors, found = [error_of(each) for each in unknown.values()], rows(known)
    for (kind, message, _), text in zip(errors, unknown, strict=True):
        assert kind is NotFoundError
        assert message.startswith(text)
    assert errors[1][2] == 'known partitions of topic "hours": 3'
    request.getfixturevalue("grouped")
    assert [error_of(each) for each in unknown.values()] == errors
    assert rows(known) == found
    assert isinstance(tasks_of(known)[0].work, NameCheck)

    made_tier(tmp_path, HOURS_AGAIN, day(random.Random(5))[:1])
    several = error_of(known)
    assert several[0] is UsageError
    assert str(HOURS_AGAIN.topic_id) in several[1]
    request.getfixturevalue("monkeypatch").undo()
    assert error_of(known) == several


def test_one_group_may_recognise_the_tier_for_the_others(
    tier: Options, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue("grouped")
    remote = Path(tier["remote"])
    logs = {topic: sorted(remote.rglob(f"{topic}-*/*")) for topic in ("hours", "days")}
    for path in logs["hours"]:
        path.unlink()
    (error, *_) = {row["error"] for row in rows(tier | {"topic": "hours", "mode": "permissive"})}
    assert "does not exist" in error
    assert len(rows(tier | {"topic": "days"})) == 4 * 180
    for path in logs["days"]:
        path.unlink()
    assert error_of(tier | {"mode": "permissive"})[0] is RemoteTierMissing


def test_a_limit_is_not_divided_among_more_tasks(tier: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_plan, "_TASK_BYTES_MIN", 100)
    monkeypatch.setattr(log_plan, "SPLIT_BYTES", 1000)
    assert len(tasks_of(tier)) > 100
    assert 30 <= len(tasks_of(tier | {"throttle_fetch": "1M"})) <= 34


@pytest.mark.usefixtures("grouped")
def test_an_error_of_a_partition_is_one_row(tier: Options) -> None:
    for path in Path(tier["remote"]).rglob("hours-*/*.leader_epoch_checkpoint"):
        path.write_bytes(b"0\n7\n")
    assert "leader-epoch index" in error_of(tier)[1]
    options = tier | {"bytes_per_task": "20000", "mode": "permissive"}
    assert max(task.work.count for task in tasks_of(options) if isinstance(task.work, Share)) > 4
    found = rows(options)
    (error,) = [row["error"] for row in found if row["error"]]
    assert "leader-epoch index" in error
    assert len(found) == 2 * 4 * 180 + 1


def test_a_narrow_condition_leaves_most_tasks_without_work(
    tier: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_plan, "_TASK_BYTES_MIN", 100_000)
    monkeypatch.setattr(log_plan, "SPLIT_BYTES", 20_000)
    condition = Predicate("offset", "<", 40)
    tasks = tasks_of(tier | {"topic": "hours"}, condition)
    assert 4 < len(tasks) <= 32
    counts = [sum(batch.num_rows for batch in rows_of(task)) for task in tasks]
    assert counts == [40, *[0] * (len(tasks) - 1)]


MIB = 1 << 20


def with_other_objects(tier: Options, folder: Path) -> Options:
    (folder / "other").mkdir()
    return tier | {"remote": made_tier(folder / "other", HOURS_AGAIN, day(random.Random(2))[:1])["remote"]}


def with_other_identity(tier: Options, _folder: Path) -> Options:
    identity = {"tier_identity": 1, "cluster_id": None, "metadata_topic_id": "AAAAAAAAAAAAAAAAAAAAAw"}
    text = json.dumps(identity | {"layout": "kafka"})
    Path(tier["remote"].removeprefix("file://"), ".tierctl-identity").write_text(text)
    return tier


@pytest.mark.parametrize(
    ("spoiled", "error"), [(with_other_objects, RemoteTierMissing), (with_other_identity, SafetyRefusal)]
)
def test_the_tier_of_another_metadata_topic_is_refused(
    spoiled: Callable[[Options, Path], Options], error: type[TierctlError], tier: Options, tmp_path: Path
) -> None:
    """Not even with mode=PERMISSIVE does it become a row."""
    assert rows(tier)
    with pytest.raises(error):
        rows(spoiled(tier, tmp_path) | {"mode": "PERMISSIVE"})


def test_all_tasks_together_hold_the_limit(tier: Options, tmp_path: Path) -> None:
    server = tmp_path / "server.properties"
    server.write_text(
        f"remote.log.manager.fetch.max.bytes.per.second={8 * MIB}\n"
        "remote.log.manager.fetch.quota.window.num=2\n"
    )
    small = {"bytes_per_task": "2000"}
    assert {task.scan.spec.throttle.fetch for task in tasks_of(tier | small)} == {None}
    for more, bytes_per_second in (({}, 8 * MIB), ({"throttle_fetch": "1M"}, MIB)):
        found = tasks_of(tier | small | {"broker_config": str(server)} | more)
        assert len(found) > 1
        (limit,) = {task.scan.spec.throttle.fetch for task in found}
        assert isinstance(limit, Limit)
        assert limit.bytes_per_second == bytes_per_second / len(found)


@pytest.mark.matrix
def test_a_task_waits_for_its_limit(tier: Options) -> None:
    take_transfers()
    found = tasks_of(tier | {"throttle_fetch": "100K"})
    read = [row for task in found for batch in rows_of(task) for row in batch.to_pylist()]
    assert read == rows(tier)
    assert shared_tier(found[0].scan.spec) is not shared_tier(tasks_of(tier)[0].scan.spec)
    taken = take_transfers()
    assert taken is not None
    assert taken.waits[Direction.FETCH].sum_s > 0


LARGE = 65 << 20


def test_the_limit_factor_reaches_executors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader and its tasks are pickled, and read in a process with the limits of any start."""
    monkeypatch.setattr(primitives, "_in_force", primitives.Limits(1))
    world = World(tmp_path)
    stored = compress(CompressionType.ZSTD, record_bytes(bytes(LARGE)))
    world.segment(0, batch_of(b"", CompressionType.ZSTD, offset=0, stored=stored), end_offset=0)
    options = {"metadata": str(world.metadata), "remote": str(world.remote), "mode": "PERMISSIVE"}

    def row_of(options: Options) -> Row:
        reader = RemoteLogReader(LogOptions.of(options), ("value", "error"))
        sent = pickle.dumps((reader, [*reader.partitions()]))
        primitives.use_limit_factor(1)
        reader, partitions = pickle.loads(sent)
        (row,) = (row for part in partitions for batch in reader.read(part) for row in batch.to_pylist())
        return dict(row)

    refused = row_of(options)
    assert refused["value"] is None
    assert "--limit-factor raises this limit" in refused["error"]
    read = row_of(options | {"limit_factor": "2"})
    assert (len(read["value"]), read["error"]) == (LARGE, None)
