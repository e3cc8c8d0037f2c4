"""Every command line that names a broker runs with a real broker that does not tier, and a tier in S3."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest
from tierctl.checks import restored
from tierctl.cli.docs.messages import command_tree

from tests.cli.shell import environment, tierctl
from tests.docs.documents import DOCUMENTS, README, Command, Document
from tests.docs.lines import lines_of_texts
from tests.docs.programs import run_tierctl
from tests.docs.running import run_all, write_profile
from tests.live.commands import assumed
from tests.support.amounts import rest_in_matrix
from tests.support.broker import METADATA_PARTITIONS, Broker, Brokers
from tests.support.servers import S3Server, found
from tests.support.spark_classes import end_jvm

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
TOPICS = ("orders", "payments", "deleted")


@pytest.fixture(scope="module")
def broker(brokers: Brokers) -> Iterator[Broker]:
    """Return a broker with segments to copy."""
    made = brokers.own(tiered=False, replica_high_watermark_checkpoint_interval_ms="200")
    made.create_topic("__remote_log_metadata", METADATA_PARTITIONS)
    for topic in TOPICS:
        made.create_topic(topic)
        made.produce(topic, 3500)
    ends = [f"{topic} 0 3500" for topic in TOPICS]
    checkpoint = made.log_dir / "replication-offset-checkpoint"
    made.wait_for("the high watermarks", lambda: all(end in checkpoint.read_text() for end in ends))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def names(broker: Broker, s3_session: S3Server) -> Iterator[Mapping[str, object]]:
    """Return the values that replace names in command lines, with one tier for all documents."""
    with pytest.MonkeyPatch.context() as patched:
        bucket = f"s3://{found(s3_session, patched).bucket()}"
        # restore check waits for the offsets of the tier, which a broker that does not tier never reports.
        patched.setattr(restored, "_SETTLED_S", 1)
        where = ("--metadata", f"kafka://{broker.bootstrap}", "--remote", f"{bucket}/tier")
        copied = tierctl("copy", *where, "--log-dir", broker.log_dir, *assumed(*TOPICS), "--apply")
        assert copied.code == 0, copied.err
        yield {
            "broker1:9092": broker.bootstrap,
            "s3://archive": bucket,
            "/var/lib/kafka/data": broker.log_dir,
        }


def start_no_spark_here(commands: Iterable[Command]) -> None:
    """End the JVM of this process if a command runs the pipeline, which then has a process of its own.

    Workers of a JVM that an earlier test started have no credentials for the store.
    """
    if any("pipeline run" in each.line for each in commands):
        end_jvm()


@pytest.mark.parametrize(
    "document",
    rest_in_matrix(each for each in DOCUMENTS if any(command.asks_cluster for command in each.commands)),
    ids=lambda document: document.name,
)
def test_command_lines_run(
    document: Document, broker: Broker, names: Mapping[str, object], tmp_path: Path
) -> None:
    if any("--mark" in each.line for each in document.commands):
        broker.delete_topic("deleted")
    (tmp_path / "client.properties").write_text("security.protocol=PLAINTEXT\n")
    (tmp_path / "state").mkdir()
    folders = {"/var/lib/tierctl": tmp_path / "state", "/var/lib/prometheus/node-exporter": tmp_path}
    # tests/console_consumer/ and tests/live/test_rebuild_online.py run those of Kafka's tools.
    others = ("is_stock_consumer", "administers_cluster")
    mine = [
        each for each in document.commands if each.asks_cluster and not any(getattr(each, k) for k in others)
    ]
    start_no_spark_here(mine)
    run_all(mine, {**names, **folders}, tmp_path)


def with_profile(names: Mapping[str, object], folder: Path) -> dict[str, object]:
    """Write the README's profile; return the values of names with its state directory."""
    (folder / "state").mkdir()
    with_state = {**names, "/var/lib/tierctl": folder / "state"}
    write_profile(README, with_state, folder)
    return with_state


def test_the_set_of_runs(names: Mapping[str, object], tmp_path: Path) -> None:
    """Run the commands in the README's section about cron, which are without options in a table of runs."""
    with_profile(names, tmp_path)
    section = Document("README.md, In cron", README.section("In cron and systemd"))
    lines = [span for span in section.spans if span.startswith("tierctl ")]
    assert len(lines) == 7
    run_all([Command(section.name, line, ()) for line in lines], names, tmp_path)


@pytest.mark.matrix
def test_lines_in_texts_run(names: Mapping[str, object], tmp_path: Path) -> None:
    """Run the lines in running text that need a broker: in prose, man pages, and shared files."""
    names = with_profile(names, tmp_path)
    env = environment(HOME=str(tmp_path))
    lines = {line for lines in lines_of_texts().values() for line in lines if line.startswith("tierctl ")}
    mine = [each for line in sorted(lines) if (each := Command("", line, ())).asks_cluster]
    assert mine
    start_no_spark_here(mine)
    for each in mine:
        run_tierctl(each.line, names, tmp_path, env)


@pytest.mark.matrix
def test_examples_run(names: Mapping[str, object], tmp_path: Path) -> None:
    """Run the examples of the help that name a broker."""
    examples = [each.command for node in command_tree().walk() for each in node.examples]
    commands = [Command("examples.toml", line, ()) for line in examples]
    mine = [each for each in commands if each.asks_cluster]
    assert mine
    start_no_spark_here(mine)
    with_profile(names, tmp_path)
    run_all(mine, names, tmp_path)
