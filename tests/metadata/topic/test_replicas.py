"""Replicas of the metadata topic in other log directories have equal bytes after any interruption."""

import errno
import shutil
from pathlib import Path

import pytest
from tierctl.errors import LockedError, MetadataError, SafetyRefusal
from tierctl.files import PLAIN, FileSystem
from tierctl.metadata.topic import MetadataTopic

from tests.commands.stopped import digests
from tests.metadata.topic.test_log_damage import content
from tests.metadata.topics import topic_in
from tests.support.broker_lock import can_start, running_broker
from tests.support.faults import Failing

LOG = "__remote_log_metadata-0/00000000000000000000.log"
HEAD_OF_A_BATCH = bytes(7) + b"\x01torn"


@pytest.fixture
def brokers(tmp_path: Path) -> list[Path]:
    """Return three log directories with the same record in the same partition."""
    folders = [tmp_path / f"broker-{number}" for number in range(3)]
    topic = topic_in(folders[0], writable=True, partition_count=2)
    topic.append([(0, b"first")])
    topic.close()
    for other in folders[1:]:
        shutil.copytree(folders[0], other)
    return folders


def opened(brokers: list[Path], *, fs: FileSystem = PLAIN) -> MetadataTopic:
    return topic_in(brokers[0], writable=True, replicas=brokers[1:], fs=fs)


def logs(brokers: list[Path]) -> list[bytes]:
    return [(broker / LOG).read_bytes() for broker in brokers]


def append_to(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def extend_first(brokers: list[Path]) -> None:
    topic = topic_in(brokers[0], writable=True)
    topic.append([(0, b"second")])
    topic.close()


def test_replicas_are_written_by_the_first_append_not_by_opening(brokers: list[Path]) -> None:
    extend_first(brokers)
    before = logs(brokers)
    topic = opened(brokers)
    assert logs(brokers) == before
    topic.append([])
    assert logs(brokers) == [before[0]] * 3
    topic.append([(0, b"third")])
    topic.close()
    assert [content(broker)[0] for broker in brokers] == [[b"first", b"second", b"third"]] * 3


def test_a_replica_of_a_running_broker_is_refused(brokers: list[Path]) -> None:
    extend_first(brokers)
    before = logs(brokers)
    with running_broker(brokers[2]):
        with pytest.raises(SafetyRefusal, match=f"a broker is running on {brokers[2]}") as refused:
            opened(brokers)
        assert "no option overrides" in (refused.value.hint or "")
        assert logs(brokers) == before
    topic = opened(brokers)
    assert not can_start(brokers[2])
    topic.close()
    assert can_start(brokers[2])


def test_two_writers_of_the_same_replicas(brokers: list[Path]) -> None:
    first = opened(brokers)
    with pytest.raises(LockedError):
        opened(brokers[::-1])
    first.close()
    opened([*brokers[::-1], brokers[0]]).close()


@pytest.mark.parametrize(
    ("own", "other"),
    [
        (b"", HEAD_OF_A_BATCH[:9]),
        (HEAD_OF_A_BATCH, b""),
        (HEAD_OF_A_BATCH, HEAD_OF_A_BATCH + b"x"),
        (bytes(4096), HEAD_OF_A_BATCH[:9]),
        (HEAD_OF_A_BATCH, bytes(4096)),
    ],
    ids=range(5),
)
def test_unfinished_writes_are_cut_off(brokers: list[Path], own: bytes, other: bytes) -> None:
    append_to(brokers[0] / LOG, own)
    append_to(brokers[1] / LOG, other)
    topic = opened(brokers)
    topic.append([(0, b"second" * 100)])
    topic.close()
    first, *others = logs(brokers)
    assert others == [first, first]
    assert content(brokers[1])[0] == [b"first", b"second" * 100]


@pytest.mark.parametrize(
    ("name", "added", "lacking"),
    [
        (LOG, HEAD_OF_A_BATCH, None),
        (LOG, b"", LOG),
        ("__remote_log_metadata-0/leader-epoch-checkpoint", b"", None),
    ],
    ids=["an unfinished write", "a log that a replica lacks", "leader epochs"],
)
def test_what_a_link_leads_to_is_not_copied(
    brokers: list[Path], tmp_path: Path, name: str, added: bytes, lacking: str | None
) -> None:
    """The owner of the folder could read, in the copy, a file that only this user can read."""
    secret = (brokers[0] / name).rename(tmp_path / "secret")
    append_to(secret, added)
    (brokers[0] / name).symlink_to(secret)
    if lacking is not None:
        (brokers[1] / lacking).unlink()
    before = digests(tmp_path)
    topic = opened(brokers)
    with pytest.raises(SafetyRefusal, match=f"{name} is a symbolic link: expected the file itself"):
        topic.append([(0, b"second")])
    topic.close()
    assert digests(tmp_path) == before


def test_a_failure_at_any_operation_is_made_good_by_the_next_run(brokers: list[Path], tmp_path: Path) -> None:
    append_to(brokers[0] / LOG, HEAD_OF_A_BATCH)
    append_to(brokers[1] / LOG, HEAD_OF_A_BATCH[:9])
    fault = failures = 0
    while failures == fault:
        copies = [tmp_path / f"run-{fault}" / broker.name for broker in brokers]
        for broker, copy in zip(brokers, copies, strict=True):
            shutil.copytree(broker, copy)
        topic = opened(copies, fs=Failing(fault, errno.ENOSPC, lasts=True))
        fault += 1
        try:
            topic.append([(0, b"second")])
        except MetadataError:
            failures += 1
        topic.close()
        topic = opened(copies)
        topic.append([(0, b"third")])
        topic.close()
        found = [content(copy)[0] for copy in copies]
        assert found[0] == found[1] == found[2]
        assert found[0] in ([b"first", b"third"], [b"first", b"second", b"third"])
        assert len(set(logs(copies))) == 1
    assert failures > 10
