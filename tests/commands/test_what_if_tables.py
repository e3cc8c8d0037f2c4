"""`report --what-if` decides by the pipeline's tables as `sweep` does, and as without them."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tierctl.commands.resources import Resources
from tierctl.errors import AuthenticationError, ExitCode
from tierctl.locallog import read_log_dirs
from tierctl.metadata.state_dir import Journal
from tierctl.model import TopicConfig, Uuid
from tierctl.pipeline.update import read_warehouse
from tierctl.pipeline.warehouse import WarehouseSpec

from tests.cli.shell import Ran, tierctl
from tests.metadata.events import started, update
from tests.pipeline.tables import run, write
from tests.support.fake_cluster import LoggedCluster

Options = tuple[object, ...]
CONFIGS = {name: TopicConfig(remote_storage_enable=True) for name in ("clicks", "metrics", "orders")}


class WithoutRights(LoggedCluster):
    """The settings of one topic may not be read."""

    def topic_configs(self, names: Iterable[str]) -> dict[str, TopicConfig]:
        asked = set(names)
        if "metrics" in asked:
            raise AuthenticationError("the settings of metrics are not shown to this user", hint="ask")
        return super().topic_configs(asked)


FORGETFUL = partial(LoggedCluster, forgets=True)


def kept_log_starts(metadata: Path, _remote: Path) -> Options:
    state_dir = metadata.with_name("state")
    state_dir.mkdir(mode=0o700)
    logs = (log for log in read_log_dirs([metadata]) if log.topic_id_partition.topic == "orders")
    starts = {log.topic_id_partition: log.local_log_start_offset for log in logs}
    Journal(state_dir).raise_log_starts(starts)
    return ("--log-dir", metadata, "--state-dir", state_dir)


def unreadable_log(metadata: Path, _remote: Path) -> Options:
    (metadata / "orders-0" / "leader-epoch-checkpoint").write_text("?")
    return ("--log-dir", metadata)


def unreadable_index(_metadata: Path, remote: Path) -> Options:
    for index in remote.glob("**/metrics-*/*leader_epoch_checkpoint*"):
        index.write_text("?")
    return ("--remote", remote)


def tier(_metadata: Path, remote: Path) -> Options:
    return ("--remote", remote)


def no_tier(_metadata: Path, _remote: Path) -> Options:
    return ()


Case = tuple[Callable[[Path, Path], Options], partial[LoggedCluster] | None, ExitCode]


@pytest.fixture(scope="module")
def tables(capture: Callable[[str], Path], module_folder: Path) -> Path:
    run(capture("tiered-cluster") / "before", module_folder / "tables")
    return module_folder / "tables"


@pytest.mark.parametrize(
    "case",
    [
        (kept_log_starts, None, ExitCode.OK),
        (unreadable_log, None, ExitCode.CORRUPT),
        (tier, None, ExitCode.OK),
        (tier, FORGETFUL, ExitCode.PARTIAL),
        (no_tier, FORGETFUL, ExitCode.PARTIAL),
        (unreadable_index, FORGETFUL, ExitCode.PARTIAL),
        (no_tier, partial(WithoutRights, forgets=False), ExitCode.PARTIAL),
    ],
)
def test_tables_decide_as_the_topic(
    case: Case, tables: Path, writable: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, brokers, code = case
    metadata, remote = writable("tiered-cluster/before"), writable("tiered-cluster/before-remote")
    configs = metadata.with_name("configs")
    configs.write_text("orders.retention.ms=604800000\nmetrics.retention.ms=864000000\n")
    where = (*made(metadata, remote), "--topic-configs", configs, "--kafka-version", "4.3")
    if brokers is not None:
        monkeypatch.setattr(Resources, "cluster", brokers(read_log_dirs([metadata]), CONFIGS))
        where += ("--bootstrap-server", "broker1:9092")

    def ran(*source: object) -> Ran:
        asked = ("report", "--what-if", "metrics.retention.ms=36h", "--now", "2026-11-25T12:00:00Z")
        return tierctl(*asked, *where, "-o", "json", *source)

    of_topic, of_tables = ran("--metadata", metadata), ran("--warehouse", tables)
    assert (of_tables.out, of_tables.code) == (of_topic.out, of_topic.code)
    assert of_topic.code == code, of_topic.err
    for told in (of_topic, of_tables):
        assert ("--topic-configs: not used" in told.err) is (brokers is not None)


def test_a_record_that_is_not_understood_is_named(tmp_path: Path) -> None:
    """Its metadata partition has no user partition: nothing else says why the run ends with an error."""
    metadata, tables = tmp_path / "metadata", tmp_path / "tables"
    write(metadata, [started(1), update(1), b"\x63what"])
    run(metadata, tables)
    for source in (("--metadata", metadata), ("--warehouse", tables)):
        ran = tierctl("report", "--what-if", "*.retention.ms=36h", "--now", "2026-11-25T12:00:00Z", *source)
        assert ran.code == ExitCode.CORRUPT
        assert "__remote_log_metadata-0, offset 0" in ran.err


def test_the_tier_of_other_metadata_is_refused(tables: Path, writable: Callable[[str], Path]) -> None:
    metadata, remote = writable("tiered-cluster/before"), writable("unclean-leader/before/remote")
    for source in (("--metadata", metadata), ("--warehouse", tables)):
        ran = tierctl("report", "--what-if", "metrics.retention.ms=36h", "--remote", remote, *source)
        assert (ran.code, ran.out) == (ExitCode.RETRYABLE, "")
        assert "has no object of the finished segments" in ran.err


@pytest.mark.parametrize("is_own", [True, False])
def test_the_tables_of_another_clusters_metadata_are_refused(
    is_own: bool, tables: Path, writable: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = read_log_dirs([writable("tiered-cluster/before")])
    cluster = LoggedCluster(logs, CONFIGS, forgets=False)
    topic_id = read_warehouse(WarehouseSpec.of(tables.as_uri())).commit.topic_id
    assert topic_id is not None
    own = Uuid.parse(topic_id) if is_own else Uuid.from_bytes(b"another-topic-id")
    cluster.facts["__remote_log_metadata"] = replace(cluster.facts["orders"], topic_id=own)
    monkeypatch.setattr(Resources, "cluster", cluster)
    asked = ("report", "--what-if", "metrics.retention.ms=36h", "--bootstrap-server", "broker1:9092")
    ran = tierctl(*asked, "--warehouse", tables)
    assert ("is of metadata topic" in ran.err, ran.code == ExitCode.REFUSED) == (not is_own, not is_own)
