"""`backup-config` reads back what it has written before it replaces a file."""

from dataclasses import replace
from pathlib import Path

import pytest
from tierctl.commands.restore import backup_config
from tierctl.errors import CorruptInputError
from tierctl.model import Uuid
from tierctl.model.local import SavedTopic, SavedTopics
from tierctl.wire.files.topics_file import read_topics_file, write_topics_file

ORDERS = SavedTopic(topic="orders", topic_id=Uuid.from_bytes(bytes(range(16))), partitions=3, settings={})
SAVED = SavedTopics(topics={"orders": ORDERS}, cluster_id="abc", saved_ms=1000)


def test_the_file_gives_the_topics_back() -> None:
    data = backup_config.file_of(SAVED, Path("topics.yaml"))
    assert read_topics_file(data, "topics.yaml") == SAVED


@pytest.mark.parametrize("written", [{}, {"orders": replace(ORDERS, partitions=2)}])
def test_another_content_is_refused(written: dict[str, SavedTopic], monkeypatch: pytest.MonkeyPatch) -> None:
    other = write_topics_file(replace(SAVED, topics=written))
    monkeypatch.setattr(backup_config, "write_topics_file", lambda _: other)
    with pytest.raises(CorruptInputError, match="others instead of orders"):
        backup_config.file_of(SAVED, Path("topics.yaml"))
