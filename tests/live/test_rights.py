"""If a right is missing, the run ends with exit code 11 and names it, before it changes anything."""

from collections.abc import Collection
from pathlib import Path

import pytest
from tierctl.errors import ExitCode
from tierctl.kafka.client_settings import Right
from tierctl.metadata.topic import METADATA_TOPIC

from tests.live.commands import base_offsets, plan, rows, tierctl, where
from tests.live.secured import allow, copied_topic, forget_tier, login
from tests.support.broker import Broker, Brokers

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
TOPIC = "rights"
RIGHTS = frozenset(
    {
        *(Right(operation, METADATA_TOPIC) for operation in ("Describe", "Read", "Write", "Create")),
        *(Right(operation, TOPIC) for operation in ("Describe", "DescribeConfigs", "Read", "Delete")),
        Right("DescribeConfigs"),
    }
)
"""All rights that copy, sweep and delete need, as the manual states them."""


@pytest.fixture(scope="module")
def guarded(brokers: Brokers) -> Broker:
    """Return a broker without a metadata topic; a tier belongs to the topic of its first copy."""
    broker = brokers.guarded()
    forget_tier(broker)
    return broker


def by_user(broker: Broker, folder: Path) -> tuple[object, ...]:
    config = login(broker, folder)
    config.write_text(config.read_text() + "request.timeout.ms=10000\n")
    return (
        *("--metadata", f"kafka://{broker.bootstrap_sasl}", "--command-config", config),
        *("--remote", broker.remote_dir),
    )


def without(operations: Collection[str], topic: str | None) -> frozenset[Right]:
    return RIGHTS - {Right(operation, topic) for operation in operations}


@pytest.mark.matrix
def test_rights(guarded: Broker, tmp_path: Path) -> None:
    mine = by_user(guarded, tmp_path)

    def refused(left: frozenset[Right], missing: Right, *args: object) -> None:
        allow(guarded, left)
        ran = tierctl(*args, *mine)
        assert (ran.code, ran.out) == (ExitCode.AUTHENTICATION, ""), (missing, ran.out, ran.err)
        assert missing.hint in ran.err, (missing, ran.err)

    create = Right("Create", METADATA_TOPIC)
    copy = ("copy", "--create-metadata-topic", "--log-dir", guarded.log_dir)
    refused(RIGHTS - {create}, create, *copy, "--apply")
    assert METADATA_TOPIC not in guarded.admin.list_topics(timeout=10).topics
    copied_topic(guarded, TOPIC, tmp_path)
    assert len(base_offsets(guarded, TOPIC)) == 3

    sweep = ("sweep", "--log-start-offset", f"{TOPIC}-0=1100", "--apply")
    for operations, topic, command in (
        (("Describe", "Read", "Write"), METADATA_TOPIC, ("segments",)),
        (("Read",), METADATA_TOPIC, ("segments",)),
        (("Write",), METADATA_TOPIC, sweep),
        (("Describe", "Read", "Delete"), TOPIC, sweep),
        (("DescribeConfigs",), TOPIC, sweep),
    ):
        refused(without(operations, topic), Right(operations[0], topic), *command)
    allow(guarded, without({"DescribeConfigs"}, None))
    ran = tierctl(*sweep, *mine)
    assert (ran.code, "settings can't be read" in ran.err) == (ExitCode.REFUSED, True)
    allow(guarded, without({"Delete"}, TOPIC))
    ran = tierctl(*sweep, *mine)
    assert (ran.code, Right("Delete", TOPIC).hint in ran.err) == (ExitCode.AUTHENTICATION, True), ran.err
    # Nothing was changed, not even the log start.
    assert guarded.offsets("earliest", TOPIC) == {(TOPIC, 0): 0}
    listed = rows("segments", *where(guarded)[:2], "--topic", TOPIC)
    assert [row["state"] for row in listed] == ["COPY_SEGMENT_FINISHED"] * 3

    # The other rights are sufficient.
    allow(guarded, RIGHTS)
    done = plan(*sweep, *mine)
    assert [outcome["status"] for outcome in done["outcomes"]] == ["done"]
    assert guarded.offsets("earliest", TOPIC) == {(TOPIC, 0): 1100}
