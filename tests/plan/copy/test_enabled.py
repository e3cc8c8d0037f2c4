"""Only topics with tiering enabled are copied; compacted topics are refused."""

import pytest
from tierctl.errors import SafetyRefusal
from tierctl.model import TopicConfig
from tierctl.plan.copy import require_enabled, why_not_enabled

ON = TopicConfig(remote_storage_enable=True)
OFF = TopicConfig(remote_storage_enable=False)
SILENT = TopicConfig()
COMPACTED = TopicConfig(remote_storage_enable=True, cleanup_policy=frozenset({"compact", "delete"}))
CONFIGS = {"on": ON, "off": OFF, "silent": SILENT, "compacted": COMPACTED}
CONFIGS["compacted-silent"] = TopicConfig(cleanup_policy=frozenset({"compact"}))
NOT_AMONG = "remote.storage.enable=true is not among the topic's settings"
REFUSED = "Kafka refuses remote storage for compacted topics"


@pytest.mark.parametrize(
    ("name", "assumed", "reason"),
    [
        ("on", False, None),
        ("on", True, None),
        ("off", False, "remote.storage.enable=false"),
        ("off", True, "remote.storage.enable=false"),
        ("silent", False, NOT_AMONG),
        ("silent", True, None),
        ("absent", False, NOT_AMONG),
        ("absent", True, None),
        ("compacted", False, f"cleanup.policy=compact,delete: {REFUSED}"),
        ("compacted", True, f"cleanup.policy=compact,delete: {REFUSED}"),
        ("compacted-silent", False, f"cleanup.policy=compact: {REFUSED}"),
        ("compacted-silent", True, f"cleanup.policy=compact: {REFUSED}"),
        ("__consumer_offsets", True, "internal topics are never tiered"),
    ],
)
def test_why_a_topic_is_left_out(name: str, assumed: bool, reason: str | None) -> None:
    found = why_not_enabled(name, CONFIGS, {name} if assumed else {"other"})
    assert (found or "").startswith(reason or "")
    assert bool(found) == bool(reason)


@pytest.mark.parametrize(
    ("topics", "named", "assumed", "message"),
    [
        ((), (), (), None),
        (("on", "silent", "off", "compacted"), (), (), None),
        (("on", "absent"), ("on",), (), None),
        (("silent",), ("silent",), ("silent",), None),
        (("off",), (), (), None),
        (
            ("silent", "absent"),
            (),
            (),
            f"is copied (absent, silent): {NOT_AMONG}",
        ),
        (("silent", "off"), (), (), f"none of the 2 selected topics is copied (off, silent): {NOT_AMONG}"),
        (("compacted", "off"), (), (), "none of the 2 selected topics is copied"),
        (("compacted",), (), (), f"(compacted): cleanup.policy=compact,delete: {REFUSED}"),
        (("on", "silent"), ("on", "silent"), (), f"topic silent is not copied: {NOT_AMONG}"),
        (("on", "silent"), ("on", "silent"), ("silent",), None),
        (("off",), ("off",), ("off",), "topic off is not copied: remote.storage.enable=false"),
        (("compacted",), ("compacted",), ("compacted",), "topic compacted is not copied: cleanup.policy"),
    ],
)
def test_what_a_run_refuses(
    topics: tuple[str, ...], named: tuple[str, ...], assumed: tuple[str, ...], message: str | None
) -> None:
    if message is None:
        require_enabled(topics, CONFIGS, named=named, assumed=assumed)
        return
    with pytest.raises(SafetyRefusal) as refused:
        require_enabled(topics, CONFIGS, named=named, assumed=assumed)
    assert message in refused.value.message
    assert ("--assume-enabled" in (refused.value.hint or "")) == (NOT_AMONG in message)
