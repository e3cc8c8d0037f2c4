"""Lost acknowledgements and broker restarts during a run: later runs finish the work."""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tierctl.errors import ExitCode
from tierctl.kafka.client_settings import ClientSettings
from tierctl.metadata.server_properties import MetadataClients
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.metadata.topic.cluster_topic import ClusterTopic

from tests.live.commands import await_recorded, base_offsets, hasty, objects, plan, rows, tierctl
from tests.support.broker import Broker, Brokers
from tests.support.faults import observed
from tests.support.kafka_proxy import PRODUCE, Fault, KafkaProxy

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture(scope="module")
def broker(brokers: Brokers) -> Broker:
    """Return a broker that may be stopped, behind a proxy; it tiers none of these topics."""
    found = brokers.disturbed()
    found.wait_for("the metadata topic", lambda: METADATA_TOPIC in found.admin.list_topics(timeout=5).topics)
    return found


@pytest.fixture
def proxy(broker: Broker) -> Iterator[KafkaProxy]:
    assert broker.proxied_at is not None
    with KafkaProxy(broker.proxied_at, broker.ports[2]) as found:
        yield found


def through(broker: Broker) -> str:
    return f"localhost:{broker.proxied_at}"


def test_a_lost_acknowledgement_is_asked_for_again(broker: Broker, proxy: KafkaProxy) -> None:
    """The broker recognises the batch by producer id and sequence: it is stored once and acknowledged."""
    broker.create_topic("acked", 2)
    clients = MetadataClients.same(ClientSettings(bootstrap_servers=(through(broker),)))
    topic = ClusterTopic(clients, topic="acked", writable=True)
    wave = [(number % 2, b"%d" % number) for number in range(40)]
    for kind in ("reset after", "reset before"):
        before = topic.end_offsets()[0]
        proxy.faults = [Fault(kind, PRODUCE)]
        assert topic.append(wave) == [before + number // 2 for number in range(40)]
        assert proxy.faults[0].seen > 1
    sent = [value for partition, value in wave if partition == 0]
    assert [record[3] for record in broker.records("acked")] == sent * 2
    topic.close()


@dataclass
class Disturbed:
    """Run a command on a topic with a fault, and again until no work is left."""

    broker: Broker
    proxy: KafkaProxy
    kind: str
    topic: str
    folder: Path

    @property
    def where(self) -> tuple[object, ...]:
        patient = () if self.kind == "restart" else ("--command-config", hasty(self.folder))
        where = ("--metadata", f"kafka://{through(self.broker)}", "--remote", self.broker.remote_dir)
        return (*where, *patient, "--wave-size", 1)

    def run(self, label: str, *args: object) -> None:
        """Inject the fault at the first `label`; later runs finish, and no work is done twice."""
        with self._disturbed(label) as happened:
            ran = tierctl(*args, *self.where, "--apply")
        assert happened, "nothing was disturbed"
        # A run waits for a broker that starts again.
        expected = {0} if self.kind == "restart" else {ExitCode.PARTIAL, ExitCode.RETRYABLE}
        assert ran.code in expected, ran.err
        plan(*args, *self.where, "--apply")
        assert plan(*args, *self.where)["steps"] == []

    @contextmanager
    def _disturbed(self, label: str) -> Iterator[list[str]]:
        happened: list[str] = []

        def watch(seen: str, moment: str) -> None:
            if (seen, moment) == (label, "before") and not happened:
                happened.append(seen)
                self._begin()

        try:
            with observed(watch):
                yield happened
        finally:
            self.proxy.faults = []
            if not self.broker.is_running:
                self.broker.start()

    def _begin(self) -> None:
        match self.kind:
            case "restart":
                self.broker.stop(kill=True)
                threading.Thread(target=self._start_soon).start()
            case "all lost":
                self.proxy.faults = [Fault("reset after", PRODUCE, on=True)]

    def _start_soon(self) -> None:
        time.sleep(0.5)
        self.broker.launch()

    def check_events(self) -> None:
        """Check that no state of a segment is published twice, and that Kafka accepts every event."""
        printed = tierctl("format", "--style", "json", *self.where[:2], "--topic", self.topic)
        events = printed.rows
        times = Counter((event.get("segment_id"), event["partition"], event["state"]) for event in events)
        # An event whose acknowledgement was lost is published again by the next run, as brokers do.
        assert max(times.values()) <= (1 if self.kind == "restart" else 2)
        said = tierctl("verify", *self.where[:4], "--topic", self.topic, "--output", "jsonl")
        kinds = {json.loads(line)["check"] for line in said.lines}
        assert kinds <= {"dangling_copy", "unknown_topic", "temp_leftover"}, said.out


@pytest.mark.matrix
@pytest.mark.parametrize("kind", ["restart", "all lost"])
def test_every_command_converges(broker: Broker, proxy: KafkaProxy, kind: str, tmp_path: Path) -> None:
    topic = kind.replace(" ", "-")
    topic_id = broker.create_topic(topic)
    broker.produce(topic, 3500)
    await_recorded(broker, {topic: 3500})
    disturbed = Disturbed(broker, proxy, kind, topic, tmp_path)
    beside = ("--topic", topic, "--allow-live-brokers")

    copy = ("copy", "--log-dir", broker.log_dir, *beside, "--assume-enabled")
    disturbed.run("copy.finished.publish", *copy)
    disturbed.check_events()
    finished = rows("segments", *disturbed.where[:2], "--topic", topic)
    assert [row["state"] for row in finished] == ["COPY_SEGMENT_FINISHED"] * 3
    assert len(base_offsets(broker, topic)) == 3

    sweep = ("sweep", *beside, "--log-start-offset", f"{topic}-0={finished[1]['end_offset'] + 1}")
    disturbed.run("sweep.started.publish", *sweep)
    disturbed.check_events()
    assert base_offsets(broker, topic) == [finished[2]["start_offset"]]
    assert broker.offsets("earliest", topic) == {(topic, 0): finished[2]["start_offset"]}

    broker.delete_topic(topic)
    narrow = ("delete", "--topic-id", topic_id)
    if kind == "restart":
        plan(*narrow, *disturbed.where, "--mark", "--apply")
    else:
        disturbed.run("delete.marked.publish", *narrow, "--mark")
    disturbed.run("delete.segment_finished.publish", *narrow)
    disturbed.check_events()
    assert objects(broker, topic) == set()
