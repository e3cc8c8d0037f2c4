"""Settings in --topic-configs beside a cluster that has other values are named, as they are not used."""

import pytest
from tierctl.commands.resources import unused_settings
from tierctl.model import TopicConfig


@pytest.mark.parametrize(
    ("in_file", "in_force", "unused"),
    [
        ({"retention.ms": "5"}, {"retention.ms": "7"}, ["t.retention.ms=5"]),
        ({"retention.ms": "7"}, {"retention.ms": "7"}, []),
        ({"retention.ms": "7", "retention.bytes": "1"}, {"retention.ms": "7"}, ["t.retention.bytes=1"]),
        ({"retention.ms": "5"}, None, []),
    ],
)
def test_settings(in_file: dict[str, str], in_force: dict[str, str] | None, unused: list[str]) -> None:
    there = {} if in_force is None else {"t": TopicConfig.from_settings(in_force)}
    assert unused_settings({"t": TopicConfig.from_settings(in_file)}, there) == unused
