"""Every problem in a file of settings is found, with its line, and files that Kafka accepts have none."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tierctl.checks.settings import check_broker_file, check_client_file, check_topics_file
from tierctl.model.settings import broker
from tierctl.model.settings.known import SettingProblem
from tierctl.model.settings.scopes import KafkaVersion
from tierctl.model.settings.topic import BrokerDefaults

Check = Callable[[Path, BrokerDefaults], Iterator[SettingProblem]]
TOPICS: Check = partial(check_topics_file, is_tiering=None)
TIERED = "t.remote.storage.enable=true\nt.local.retention.bytes=1\n"
TIERING = (
    "remote.log.storage.system.enable=true\nremote.log.storage.manager.class.name=x.Y\n"
    "remote.log.metadata.manager.listener.name=SSL\nlisteners=SSL://:1\n"
)
CASES: list[tuple[Check, str, list[tuple[str, int | None, str]]]] = [
    # Topic settings; tests/model/test_conflicts.py tests every kind of conflict.
    (TOPICS, f"{TIERED}t.retention.ms=10\nt.local.retention.ms=10\n", []),
    (TOPICS, f"{TIERED}t.retention.ms=10\nt.local.retention.ms=11\n", [("contradiction", 4, "lower")]),
    (TOPICS, f"{TIERED}t.cleanup.policy=delete,compact\n", [("contradiction", 1, "compact")]),
    (TOPICS, "t.local.retention.ms=11\nt.retention.ms=10\n", [("contradiction", 1, "lower")]),
    (TOPICS, "t.cleanup.policy=compact\nt.unclean.leader.election.enable=true\n", []),
    (
        TOPICS,
        "t.retention.byts=5\n\nt.qqq=1\n",
        [("unknown_setting", 1, "retention.bytes"), ("unknown_setting", 3, "qqq")],
    ),
    (TOPICS, "t.retention.ms=soon\nt.retention.bytes=1\n", [("wrong_value", 1, "soon")]),
    (TOPICS, "a/b.retention.ms=1\n", [("wrong_value", 1, "topic name")]),
    (TOPICS, "t.retention.ms=1\n\nt.retention.ms=2\n", [("duplicate", 3, "line 1")]),
    (TOPICS, "t.a=\\u12\nt.retention.ms=x\n", [("malformed", 1, ""), ("wrong_value", 2, "")]),
    # Names in drafts of KIP-405, which would otherwise be retention.bytes of another topic.
    (TOPICS, "t.local.log.retention.bytes=1\n", [("unknown_setting", 1, "write t.local.retention.bytes")]),
    (TOPICS, "t.remote.retention.bytes=1\n", [("unknown_setting", 1, "write t.retention.bytes")]),
    (TOPICS, "t.remote.log.storage.enable=true\n", [("unknown_setting", 1, "t.remote.storage.enable")]),
    (TOPICS, "t.remote.retention.bytes=1\nt.remote.retention.ms=1\n", []),
    (TOPICS, "__consumer_offsets.remote.storage.enable=true\n", [("contradiction", 1, "internal")]),
    # A broker's file.
    (check_broker_file, TIERING, []),
    (
        check_broker_file,
        f"{TIERING}log.local.retention.bytes=9\nlog.retention.bytes=8\n",
        [("contradiction", 5, "lower")],
    ),
    (check_broker_file, "log.retention.hours=1\nlog.retention.ms=5\n", [("contradiction", 1, "no effect")]),
    (check_broker_file, "remote.log.manger.thread.pool.size=1\n", [("misspelt", 1, "manager")]),
    (check_broker_file, "num.io.thread=1\n", [("unknown_setting", 1, "num.io.threads")]),
    (check_broker_file, "rsm.config.chunk.sizes=1\n", [("misspelt", 1, "rsm.config.chunk.size")]),
    (
        check_broker_file,
        "rlmm.config.remote.log.metadata.topic.replication.facter=1\n",
        [("misspelt", 1, "topic.replication.factor")],
    ),
    # KIP-405's first name of the setting; the nearest of the others is another one.
    (
        check_broker_file,
        "remote.log.manager.task.retry.interval.ms=1\n",
        [("misspelt", 1, "remote.log.manager.task.retry.backoff.ms")],
    ),
    (check_broker_file, "process.roles=controller\n", [("contradiction", 1, "system.enable")]),
    (
        check_broker_file,
        TIERING.replace("x.Y", "org.apache.kafka.server.log.remote.storage.RemoteStorageManager"),
        [("contradiction", 2, "io.aiven.kafka.tieredstorage.RemoteStorageManager")],
    ),
    (
        check_broker_file,
        TIERING
        + "remote.log.metadata.manager.class.name="
        + "org.apache.kafka.server.log.remote.storage.RemoteLogMetadataManager\n",
        [("contradiction", 5, "TopicBasedRemoteLogMetadataManager")],
    ),
    (check_broker_file, "remote.log.manager.task.retry.jitter=7\n", [("wrong_value", 1, "0.5")]),
    (check_broker_file, "rsm.config.chunk.size=0\n", [("wrong_value", 1, "rsm.config.chunk.size")]),
    (
        check_broker_file,
        "rlmm.config.remote.log.metadata.topic.num.partitions=x\n",
        [("wrong_value", 1, "num.partitions")],
    ),
    (
        check_broker_file,
        "rsm.config.encryption.key.pairs.k.private.key.file=/none.pem\n",
        [("unreadable", 1, "/none.pem")],
    ),
    # A client's file.
    (check_client_file, "security.protocol=PLAINTEXT\n", []),
    (check_client_file, "security.protcol=SSL\n", [("misspelt", 1, "security.protocol")]),
    (check_client_file, "max.poll.records=1\n", [("unknown_setting", 1, "other clients")]),
    (check_client_file, "security.protocol=X\n", [("wrong_value", 1, "SASL_SSL")]),
    (
        check_client_file,
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n",
        [("refused", None, "jaas")],
    ),
]


def problems(check: Check, text: str, folder: Path, version: str = "4.4") -> list[SettingProblem]:
    file = folder / "file"
    file.write_text(text)
    return list(check(file, BrokerDefaults(version=KafkaVersion.parse(version))))


@pytest.mark.parametrize(("check", "text", "expected"), CASES, ids=[text for _, text, _ in CASES])
def test_each_problem_has_its_line_and_says_what_to_do(
    check: Check, text: str, expected: list[tuple[str, int | None, str]], tmp_path: Path
) -> None:
    found = sorted(problems(check, text, tmp_path), key=lambda each: each.line or 0)
    assert [(each.kind, each.line) for each in found] == [(kind, line) for kind, line, _ in expected]
    for each, (_, _, words) in zip(found, expected, strict=True):
        assert words in f"{each.message} {each.why} {each.hint}"
        assert each.hint


def test_a_file_that_cannot_be_read_is_never_clean(tmp_path: Path) -> None:
    for check in (TOPICS, check_broker_file, check_client_file):
        for path in (tmp_path / "missing", tmp_path):
            (found,) = check(path, BrokerDefaults())
            assert (found.kind, found.severity) == ("unreadable", "error")


def test_settings_of_later_versions_are_found(tmp_path: Path) -> None:
    text = f"{TIERED}t.remote.copy.lag.bytes=1\n"
    assert problems(TOPICS, text, tmp_path, "4.4") == []
    (found,) = problems(TOPICS, text, tmp_path, "4.3")
    assert (found.kind, found.line) == ("not_in_version", 3)


def test_a_topic_is_not_tiered_by_brokers_that_do_not_tier(tmp_path: Path) -> None:
    file = tmp_path / "topics"
    file.write_text(TIERED)
    (found,) = check_topics_file(file, BrokerDefaults(), is_tiering=False)
    assert (found.line, broker.REMOTE_LOG_STORAGE_SYSTEM_ENABLE.name in found.message) == (1, True)
