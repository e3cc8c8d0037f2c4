"""A broker with an authorizer, and the rights of its user."""

import re
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

from tierctl.kafka.client_settings import Right
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.model import Uuid

from tests.live.commands import assumed, metadata_settings, plan, where
from tests.support import broker_settings
from tests.support.broker import USER, Broker


def allow(broker: Broker, rights: Collection[Right]) -> None:
    """Give USER these rights and no others."""
    from confluent_kafka.admin import AclBindingFilter

    everything = AclBindingFilter("any", None, "any", f"User:{USER}", None, "any", "any")
    (deleted,) = broker.admin.delete_acls([everything]).values()
    deleted.result(30)
    acls = [_acl(right) for right in rights]
    for future in broker.admin.create_acls(acls).values():
        future.result(30)
    # The controller responds before the broker has the new rights.
    broker.wait_for("the rights", lambda: len(broker.admin.describe_acls(everything).result(30)) == len(acls))


def _acl(right: Right) -> Any:
    from confluent_kafka.admin import (
        AclBinding,
        AclOperation,
        AclPermissionType,
        ResourcePatternType,
        ResourceType,
    )

    kinds = ((ResourceType.TOPIC, right.topic), (ResourceType.GROUP, right.group))
    kind, name = next((each for each in kinds if each[1] is not None), (ResourceType.BROKER, "kafka-cluster"))
    return AclBinding(
        kind,
        name or "",
        ResourcePatternType.LITERAL,
        f"User:{USER}",
        "*",
        AclOperation[re.sub(r"(?<!^)(?=[A-Z])", "_", right.operation).upper()],
        AclPermissionType.ALLOW,
    )


def login(broker: Broker, folder: Path) -> Path:
    assert broker.certificates is not None
    settings = broker_settings.login("SCRAM-SHA-512") | broker.certificates.trust
    return broker_settings.write_client_file(folder, settings)


def forget_tier(broker: Broker) -> None:
    """Delete the metadata topic and its tier.

    Another test's events would fence the partition, and its topic may have another number of partitions.
    """
    if METADATA_TOPIC in broker.admin.list_topics(timeout=10).topics:
        broker.delete_topic(METADATA_TOPIC)
        if broker.remote_dir.exists():
            shutil.rmtree(broker.remote_dir)


def copied_topic(broker: Broker, name: str, folder: Path) -> Uuid:
    """Copy a topic with tierctl, with a broker that does not tier."""
    topic_id = broker.create_topic(name)
    broker.produce(name, 3500)
    done = plan(
        *("copy", *where(broker), "--broker-config", metadata_settings(folder), "--create-metadata-topic"),
        *(*assumed(name), "--log-dir", broker.log_dir, "--apply"),
    )
    assert [outcome["status"] for outcome in done["outcomes"]] == ["done"] * 3
    return topic_id
