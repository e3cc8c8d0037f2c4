"""Topic settings from a .properties file."""

from functools import partial
from pathlib import Path

import pytest
from tierctl.errors import UsageError
from tierctl.model import TopicConfig
from tierctl.model.settings import topic
from tierctl.model.settings.topic import split_key
from tierctl.wire.files.properties import read_topic_configs


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "topics.properties"
    path.write_text(text)
    return path


def test_settings_by_topic(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        """
        # what the cluster had
        clicks.retention.bytes=2097152
        clicks.remote.storage.enable : true
        my.dotted.topic.local.retention.ms = 1
        other.dotted.topic.retention.ms = 1
        metrics.retention.ms=172800000
        metrics.retention.ms=172800001
        metrics.compression.type=lz4
        """,
    )
    of_file = partial(TopicConfig, default_retention_ms=7 * 86_400_000)
    assert read_topic_configs(path) == {
        "clicks": of_file(retention_bytes=2097152, remote_storage_enable=True),
        "my.dotted.topic": of_file(),
        "other.dotted.topic": of_file(retention_ms=1),
        "metrics": of_file(retention_ms=172800001),
    }


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("clicks.retention.ms", ("clicks", "retention.ms")),
        ("clicks.local.retention.ms", ("clicks", "local.retention.ms")),
        ("a.b.c.segment.bytes", ("a.b.c", "segment.bytes")),
        ("retention.ms", ("retention.ms", None)),
        ("clicks.retention", ("clicks.retention", None)),
        ("nothing", ("nothing", None)),
    ],
)
def test_the_longest_setting_wins(key: str, expected: tuple[str, str | None]) -> None:
    assert split_key(key) == expected


def test_every_setting_splits() -> None:
    for row in topic.TABLE:
        assert split_key(f"a.topic.{row.name}") == ("a.topic", row.name)


@pytest.mark.parametrize(
    ("key", "named", "hint"),
    [
        ("clicks.retention.byte", "retention.byte", 'did you mean "retention.bytes"?'),
        ("a.b.retention.byts", "retention.byts", 'did you mean "retention.bytes"?'),
        ("clicks.qqq", "clicks.qqq", "expected TOPIC.SETTING=VALUE"),
        ("retention.ms", "retention.ms", "expected TOPIC.SETTING=VALUE"),
    ],
)
def test_an_unknown_setting_is_an_error(tmp_path: Path, key: str, named: str, hint: str) -> None:
    path = _file(tmp_path, f"clicks.retention.ms=7\n{key}=5\n")
    with pytest.raises(UsageError, match=f'line 2: unknown topic setting "{named}"') as raised:
        read_topic_configs(path)
    assert raised.value.hint == hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("clicks.retention.ms=soon", "line 1: topic clicks: retention.ms='soon' is not a whole number"),
        ("clicks.retention.ms=-2", "retention.ms='-2' is not a whole number of at least -1"),
        ("clicks.remote.storage.enable=yes", "remote.storage.enable='yes' is not true or false"),
        ("../x.retention.ms=1", "line 1.*no topic name"),
        ("\n.retention.ms=1", "line 2.*no topic name"),
        ("a.retention.ms=\\u12", "line 1"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_topic_configs(_file(tmp_path, text))


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be read"):
        read_topic_configs(tmp_path / "missing")
