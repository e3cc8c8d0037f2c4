"""tierctl prints the same offsets as Kafka's tools, and the same records as a consumer."""

import json
import shutil
from pathlib import Path

import pytest

from tests.live.commands import fetched, rows, tierctl, where
from tests.report.html.pages import lanes_in
from tests.support.amounts import rest_in_matrix
from tests.support.broker import Broker, Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
TOPICS = ("read-plain", "read-tx")
FORMATTER = (
    "org.apache.kafka.server.log.remote.metadata.storage.serialization."
    "RemoteLogMetadataSerde$RemoteLogMetadataFormatter"
)


@pytest.fixture(scope="module")
def tiered(broker: Broker) -> Broker:
    """Return a plain topic with a raised log start, and a topic with transactions, some aborted."""
    if TOPICS[0] in broker.admin.list_topics(timeout=10).topics:
        return broker
    broker.create_topic("read-plain", 2, tiered=True)
    broker.create_topic("read-tx", tiered=True)
    broker.produce("read-plain", 3500, compression_type="zstd")
    broker.produce("read-plain", 2500, partition=1)
    for number in range(12):
        broker.produce_transaction("read-tx", 300, commit=number % 3 != 1)
        broker.produce("read-tx", 40, seed=number)
    broker.await_idle()
    broker.delete_records("read-plain", 1, 1200)
    broker.await_idle()
    return broker


@pytest.mark.matrix
def test_offsets_are_those_of_get_offset_shell(tiered: Broker) -> None:
    found = rows("segments", *where(tiered)[:2], "--offsets", *("--topic", TOPICS[0], "--topic", TOPICS[1]))
    columns = ["earliest", "earliest_local", "latest_tiered", "latest"]
    if tiered.release.number >= (4, 2):
        columns.append("earliest_pending_upload")
    for column in columns:
        told = tiered.offsets(column.replace("_", "-"), *TOPICS)
        assert {(row["topic"], row["partition"]): row[column] for row in found} == told, column
    listed = rows("segments", *where(tiered)[:2], "--topic", TOPICS[1])
    assert max(row["end_offset"] for row in listed) == tiered.offsets("latest-tiered")["read-tx", 0]


def test_brokers_that_cannot_say_what_is_still_to_be_copied(tiered: Broker) -> None:
    ran = tierctl("segments", *where(tiered)[:2], "--offsets", "--topic", TOPICS[0], "--output", "jsonl")
    answers = {json.loads(line)["earliest_pending_upload"] for line in ran.lines}
    is_old = tiered.release.number < (4, 2)
    assert (ran.code, answers == {None}) == (0, is_old), ran.err
    assert ("earliest_pending_upload is not known: the brokers are of Kafka 3.9" in ran.err) is is_old


@pytest.mark.matrix
def test_style_kafka_is_the_text_of_this_version(tiered: Broker) -> None:
    told = tiered.console_consumer("__remote_log_metadata", "--formatter", FORMATTER)
    ran = tierctl("format", *where(tiered)[:2], "--style", "kafka", "--topic", TOPICS[0]).ok()
    assert len(ran.lines) > 2
    assert set(ran.lines) == {line for line in told if f":{TOPICS[0]}-" in line}


@pytest.mark.parametrize("has_logs", [False, True])
@pytest.mark.matrix
def test_the_page_has_the_offsets_of_get_offset_shell(tiered: Broker, has_logs: bool, tmp_path: Path) -> None:
    page, logs = tmp_path / "tier.html", ("--log-dir", tiered.log_dir) if has_logs else ()
    tierctl("report", *where(tiered), *logs, "--topic", "read-*", "--html", page).ok()
    data = lanes_in(page)
    names = [data["topics"][topic][0] for topic in data["rows"]["topic"]]
    keys = list(zip(names, data["rows"]["number"], strict=True))
    for column, told in (("log_start", "earliest"), ("log_end", "latest")):
        found = dict(zip(keys, data["rows"][column], strict=True))
        assert found == tiered.offsets(told, *TOPICS), column
    assert min(data["rows"]["local_bytes"]) > 0
    listed = rows("segments", *where(tiered)[:2], "--topic", "read-*")
    assert sum(data["rows"]["tier_bytes"]) == sum(each["segment_size_in_bytes"] for each in listed)
    kinds = {data["kinds"][code >> 1][0] for code in data["items"]["kind"]}
    assert kinds >= {"current", "active" if has_logs else "leader"}
    assert ("leader" in kinds) is not has_logs


@pytest.mark.parametrize("isolation", rest_in_matrix(["read_committed", "read_uncommitted"]))
def test_records_are_a_consumers(tiered: Broker, isolation: str) -> None:
    starts, lasts = tiered.offsets("earliest", *TOPICS), tiered.offsets("latest-tiered", *TOPICS)
    for topic, partition in starts:
        served = tiered.records(topic, partition, isolation=isolation, start=starts[topic, partition])
        wanted = [record for record in served if record[0] <= lasts[topic, partition]]
        assert fetched(tiered, topic, partition, isolation) == wanted
        # The files of the running broker's log above the tier are only read.
        above = fetched(tiered, topic, partition, isolation, "--log-dir", tiered.log_dir)
        assert above[: len(wanted)] == wanted


def test_nothing_is_wrong(tiered: Broker) -> None:
    for args in (("verify", *where(tiered), "--deep"), ("segments", *where(tiered), "--check")):
        ran = tierctl(*args, *("--topic", TOPICS[0], "--topic", TOPICS[1]), "--output", "jsonl")
        assert (ran.code, [line for line in ran.lines if '"info"' not in line]) == (0, []), ran.err
    printed = tierctl("format", *where(tiered)[:2], "--topic", TOPICS[0], "--style", "json")
    assert printed.code == 0
    assert len(printed.lines) >= 2 * len(rows("segments", *where(tiered)[:2], "--topic", TOPICS[0]))


@pytest.mark.matrix
def test_a_leader_that_knows_more_than_the_metadata(brokers: Brokers, tmp_path: Path) -> None:
    """With metadata of an hour ago, nobody copied the segments that the broker has deleted since."""
    broker, topic = brokers.shared(), "read-later"
    broker.create_topic(topic, tiered=True)
    for number in range(2):
        broker.produce(topic, 1500, seed=number)
        broker.await_idle()
        if number == 0:
            for folder in broker.log_dir.glob("__remote_log_metadata-*"):
                shutil.copytree(folder, tmp_path / folder.name)
    old = ("--metadata", tmp_path, "--bootstrap-server", broker.bootstrap, "--remote", broker.remote_dir)
    ran = tierctl("verify", *old, "--topic", topic, "--output", "jsonl")
    findings = {f["check"]: f for f in map(json.loads, ran.lines) if f["severity"] == "error"}
    tiered = broker.offsets("latest-tiered", topic)[topic, 0]
    assert (ran.code, findings.keys()) == (3, {"offsets", "gap"}), ran.err
    assert f"offsets up to {tiered} for copied" in findings["offsets"]["found"]
    assert findings["gap"]["end_offset"] == broker.offsets("earliest-local", topic)[topic, 0] - 1
