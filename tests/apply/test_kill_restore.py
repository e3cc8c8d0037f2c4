"""kill -9 around every side effect of `restore into`: the node has no topic, or a complete one.

The same command then makes the files of an undisturbed run, byte for byte: what a broker serves from these is
tested in tests/live/test_restore.py.
"""

from pathlib import Path

import pytest
from tierctl.locallog.formatted_node import BootstrapFile
from tierctl.wire.kraft import topic_of

from tests.apply.worlds import World
from tests.support.formatted import LOGS, bootstrap_name, files, formatted_node, segments
from tests.support.killing import RESTORE_LABELS, SIGKILLED, Zygote, met, moments

BOOTSTRAP = Path(bootstrap_name("4.4.0")).name
METADATA_LOG = "00000000000000000000.log"
TORN = f"fsync {METADATA_LOG}"
"""The events are written, and the test cuts the last batch: a kill or a power cut can do this."""
CHANGES = (
    *("write leader-epoch-checkpoint", "write partition.metadata", "rename leader-epoch-checkpoint"),
    *("rename recovery-point-offset-checkpoint", "write replication-offset-checkpoint.tmp"),
    *(f"rename {METADATA_LOG}", f"write {METADATA_LOG}", TORN),
    *(f"rename {BOOTSTRAP}.bak", f"write {BOOTSTRAP}.tmp", f"rename {BOOTSTRAP}"),
)
"""Changes of files, each of which a killed run does not make the middle time."""


def command(world: World, node: Path) -> tuple[object, ...]:
    configs = node.parent / "configs"
    configs.write_text("bills.retention.ms=-1\n")
    return (
        *("restore", "into", node, "--log-dir", node, "--remote", world.remote, "--topic-configs", configs),
        *("--topic", "bills", "--deletes-are-denied", "--apply"),
    )


def has_topic(node: Path) -> bool:
    values = BootstrapFile.decode((node / bootstrap_name("4.4.0")).read_bytes()).values
    return any(topic_of(value) is not None for value in values)


@pytest.mark.slow
def test_kill_around_every_side_effect(tiered: World, forked: Zygote, tmp_path: Path) -> None:
    whole = formatted_node(tmp_path / "whole")
    objects = tiered.objects()
    ran = forked(*command(tiered, whole))
    assert ran.code == 0, ran.err
    assert (
        "kafka-configs.sh --bootstrap-server localhost:9092 --alter --entity-type topics --entity-name bills "
        "--delete-config remote.log.copy.disable,local.retention.ms,local.retention.bytes\n"
    ) in ran.raw_err
    end, known = files(whole), segments(whole)
    assert known
    assert has_topic(whole)
    middle = (["file", each, (met(ran)["file", each] + 1) // 2] for each in CHANGES)
    kills = [*moments(met(ran), RESTORE_LABELS), *middle]
    for at, kill in enumerate(kills):
        node = formatted_node(tmp_path / str(at))
        assert forked(*command(tiered, node), kills=[kill]).code == SIGKILLED
        if TORN in kill:
            last = max(node.glob(f"{LOGS}*/{METADATA_LOG}"), key=lambda log: log.stat().st_mtime_ns)
            last.write_bytes(last.read_bytes()[:-10])
        # The topic is written last: a broker that starts with it finds its log, checkpoints and segments.
        if has_topic(node):
            assert files(node) == end, kill
            assert segments(node) == known, kill
        for _ in range(2):
            again = forked(*command(tiered, node))
            assert again.code == 0, again.err
        assert files(node) == end, kill
        assert segments(node) == known, kill
        assert not list(node.glob("*-delete"))
    assert tiered.objects() == objects
