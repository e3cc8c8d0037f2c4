"""Text files: Java's .properties, topic settings, TOML with the line of each key, the YAML file of topics."""

import re
import tomllib
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tierctl.errors import CorruptInputError, UsageError
from tierctl.model import TopicConfig, Uuid
from tierctl.model.local import SavedTopic, SavedTopics
from tierctl.model.settings import topic
from tierctl.model.settings.scopes import SettingSource
from tierctl.model.settings.topic import split_key
from tierctl.wire.files.properties import (
    MalformedLine,
    Property,
    parse_properties,
    parse_toml,
    read_properties,
    read_topic_configs,
)
from tierctl.wire.files.topics_file import read_topics_file, write_topics_file

NAMES = st.from_regex(r"[a-zA-Z0-9._-]{1,40}", fullmatch=True).filter(lambda name: name not in {".", ".."})
PRINTABLE = st.characters(blacklist_categories=("Cs",))
SETTINGS = st.dictionaries(
    st.from_regex(r"[a-z0-9._-]{1,30}", fullmatch=True), st.text(PRINTABLE, max_size=30), max_size=5
)
TOPICS = st.dictionaries(
    NAMES, st.tuples(st.binary(min_size=16, max_size=16), st.integers(1, 1_000_000), SETTINGS), max_size=6
)
WHOLE = """\
version: 1
saved: 2026-11-23T10:00:00Z
cluster_id: abc
not_covered: [ACLs]
topics:
  orders:
    topic_id: 2QZ5FAXaQrqgUzsReWnweA
    partitions: 3
    settings:
      retention.ms: 604800000
      remote.storage.enable: true
      cleanup.policy: 'delete'
  no:
    topic_id: 2QZ5FAXaQrqgUzsReWnweQ
    partitions: 1
"""


@given(
    TOPICS,
    st.none() | NAMES,
    st.none() | st.integers(0, 4_000_000_000).map(lambda s: s * 1000),
    st.floats(0, 1, exclude_max=True),
)
def test_a_file_is_read_as_it_was_written_and_whole(
    topics: dict[str, tuple[bytes, int, dict[str, str]]],
    cluster_id: str | None,
    saved_ms: int | None,
    cut: float,
) -> None:
    saved = SavedTopics(
        topics={
            name: SavedTopic(
                topic=name, topic_id=Uuid.from_bytes(raw), partitions=partitions, settings=settings
            )
            for name, (raw, partitions, settings) in topics.items()
        },
        cluster_id=cluster_id,
        saved_ms=saved_ms,
    )
    data = write_topics_file(saved)
    assert read_topics_file(data, "topics.yaml") == saved
    assert read_topics_file(data[:-1].replace(b"\n", b"\r\n"), "topics.yaml") == saved
    with pytest.raises(UsageError):
        read_topics_file(data[: int(cut * (len(data) - 1))], "topics.yaml")


def test_values_need_no_quotes_and_keep_their_text() -> None:
    """An operator may write values without quotes; YAML's own numbers and booleans are not used."""
    found = read_topics_file(WHOLE.encode(), "topics.yaml")
    assert found.topics["orders"].settings == {
        "retention.ms": "604800000",
        "remote.storage.enable": "true",
        "cleanup.policy": "delete",
    }
    assert found.topics["no"].partitions == 1
    assert (found.cluster_id, found.saved_ms) == ("abc", 1795428000000)


def test_the_file_says_what_it_does_not_cover() -> None:
    data = write_topics_file(SavedTopics(topics={}, cluster_id="abc"))
    assert yaml.safe_load(data)["not_covered"][:2] == ["ACLs", "quotas"]


BAD = {
    "another version": ("version: 1", "version: 2", 1, "version 1", "2"),
    "no version": ("version: 1\n", "", 1, "version:", "only saved, cluster_id"),
    "no topics": (WHOLE[WHOLE.index("topics:") :], "", 1, "topics:", "only version"),
    "an unknown key": ("cluster_id", "cluster", 3, "one of version, saved", "cluster"),
    "an unknown key of a topic": ("    settings", "    configs", 9, "one of topic_id", "configs"),
    "a topic twice": ("  no:", "  orders:", 13, "each name once", "orders again"),
    "a setting twice": ("cleanup.policy", "retention.ms", 12, "each name once", "retention.ms again"),
    "a hostile name": ("  no:", "  ../no:", 13, "a topic's name", "../no"),
    "no topic id": ("2QZ5FAXaQrqgUzsReWnweA", "2QZ5FAXaQrqgUzsReWnwe", 7, "a topic id of 22", "2QZ5"),
    "no partitions": ("partitions: 3", "partitions: 0", 8, "a number of partitions from 1", "0"),
    "partitions in hex": ("partitions: 3", "partitions: 0x3", 8, "a number of partitions from 1", "0x3"),
    "too many partitions": ("partitions: 3", "partitions: 1000001", 8, "a number of partitions", "1000001"),
    "a value that is a list": ("604800000", "[1, 2]", 10, "a value", "a list"),
    "a value that is missing": ("604800000", "", 10, "a value", "nothing"),
    "a setting with a space": (*("retention.ms", "retention ms", 10), "the name of a topic", "retention ms"),
    "topics as a list": ("  orders:", "  - orders:", 6, "the topics: lines", "a list"),
    "a time": ("2026-11-23T10:00:00Z", "yesterday", 2, "a time", "yesterday"),
}


@pytest.mark.parametrize("name", BAD)
def test_an_error_names_the_line_and_what_was_expected(name: str) -> None:
    old, new, line, expected, found = BAD[name]
    text = WHOLE.replace(old, new, 1)
    if name == "topics as a list":
        text = text[: text.index("    topic_id")].replace("- orders:", "- orders")
    with pytest.raises(UsageError) as caught:
        read_topics_file(text.encode(), "topics.yaml")
    assert caught.value.message.startswith(f"topics.yaml, line {line}: expected {expected}")
    assert f"found '{found}" in caught.value.message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "topics.yaml is empty"),
        (b"# nothing\n", "topics.yaml is empty"),
        (b"version: [1\ntopics: {}\n", "topics.yaml, line 2: no YAML"),
        (b"version: 1\n\ttopics: x\n", "topics.yaml, line 2: no YAML"),
        (
            write_topics_file(SavedTopics(topics={}))[:-5],
            "line 11: expected the last line '# End of the topics.', found '# End of the top'",
        ),
        (b"version: \xff\xfe", "topics.yaml: no YAML text"),
        (b"version: *unknown\n", "topics.yaml, line 1: no YAML"),
        (b"- " * 100_000 + b"a", "topics.yaml: nested too deeply"),
        (b"topics: !!python/object/apply:os.system ['false']\nversion: 1\n", "line 1: expected the topics"),
    ],
)
def test_what_is_no_such_file_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        read_topics_file(data, "topics.yaml")


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """So is every cut of a file."""
    for each in (data, *(WHOLE[:size].encode() for size in range(len(WHOLE)))):
        with suppress(UsageError):
            read_topics_file(each, "topics.yaml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", [("a", "b")]),
        ("a = b ", [("a", "b ")]),
        ("a: b\nc d\ne\t=\tf", [("a", "b"), ("c", "d"), ("e", "f")]),
        ("  # no\n! neither\n\n   \n a=1", [("a", "1")]),
        ("a=1\r\nb=2\rc=3", [("a", "1"), ("b", "2"), ("c", "3")]),
        ("key", [("key", "")]),
        ("key=", [("key", "")]),
        ("a==b", [("a", "=b")]),
        ("a\\=b\\:c\\ d=e", [("a=b:c d", "e")]),
        ("a=one\\\n   two\\\n\tthree", [("a", "onetwothree")]),
        ("a=one\\\\\nb=2", [("a", "one\\"), ("b", "2")]),
        ("a=one\\\n# not a comment", [("a", "one# not a comment")]),
        ("a=\\t\\n\\r\\f\\q\\u00e9\\u20AC", [("a", "\t\n\r\fqé€")]),
        ("a=\\ud83d\\ude00", [("a", "\U0001f600")]),
        ("a=x\\", [("a", "x")]),
        ("# comment \\\na=1", [("a", "1")]),
        ("a=1\na=2", [("a", "1"), ("a", "2")]),
        ("", []),
    ],
)
def test_as_java_reads_them(text: str, expected: list[tuple[str, str]]) -> None:
    assert [(p.key, p.value) for p in parse_properties(text.encode("latin-1"))] == expected


def test_bytes_are_latin_1_and_lines_are_counted() -> None:
    assert parse_properties(b"\n#\na=\\\n\xe9\nb=2\n") == [Property("a", "é", 3), Property("b", "2", 5)]


def test_a_broken_escape_names_its_line() -> None:
    with pytest.raises(CorruptInputError, match="line 2"):
        parse_properties(b"a=1\nb=\\u12g4\n")


def test_parsing_continues_behind_broken_lines() -> None:
    malformed: list[MalformedLine] = []
    text = b"a=1\nb=\\u12g4 \\\n  secret\r\n\\u=x\nc=3\nd=\\uzzzz"
    found = parse_properties(text, malformed.append)
    assert found == [Property("a", "1", 1), Property("c", "3", 5)]
    assert [each.line for each in malformed] == [2, 4, 6]


def test_settings_have_the_line_that_counts_and_errors_show_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.properties"
    path.write_text("ssl.keystore.password=a\\:b\n\nx=1\nx=2 \n")
    settings = read_properties(path, SettingSource.CLIENT_FILE)
    assert dict(settings) == {"ssl.keystore.password": "a:b", "x": "2 "}
    assert dict(settings.stripped().below("x") | {"y": "3"}) == {"": "2", "y": "3"}
    origin = settings.origin("x")
    assert origin is not None
    assert origin.place == f"{path}, line 4"
    path.write_text("sasl.jaas.config=secret\\uzzzz")
    with pytest.raises(UsageError, match="line 1") as raised:
        read_properties(path, SettingSource.CLIENT_FILE)
    assert "secret" not in raised.value.message + str(raised.value.__cause__)


def test_every_key_has_its_line() -> None:
    text = 'a=1\r\n\n[p.x]\nb = [\n 1, # one\n 2]\nc="""\nx = 1\n[y]"""\n[p."a b"]\nq={z=1}\n'
    found, problem = parse_toml(text)
    assert [(entry.path, entry.value, entry.line) for entry in found] == [
        (("a",), 1, 1),
        (("p", "x"), {}, 3),
        (("p", "x", "b"), [1, 2], 4),
        (("p", "x", "c"), "x = 1\n[y]", 7),
        (("p", "a b"), {}, 10),
        (("p", "a b", "q", "z"), 1, 11),
    ]
    assert problem is None


_KEYS = ["kN", '"k N=#["', "'kN'.x", "k.kN", " kN "]
_FORMS = [
    *("N", "'N ['", '"N \\"#]" # x = 1', "{k = N}", '"""N"]"""', "'''N\nk = 1'''"),
    *('"""\\"""\nN\n[t]\nk0 = 1\n"""', "[\nN,\n[7],\n{k = 1},\n'k0 = 1', # [\n]"),
]
_STATEMENTS = [*map(" = ".join, product(_KEYS, _FORMS)), "[tN]", '["t N".t] # [x]', "", "# k = N"]


@given(st.lists(st.sampled_from(_STATEMENTS)))
def test_the_line_of_a_key_is_never_that_of_another(statements: list[str]) -> None:
    """Each statement has the number of its line in its value, or in the name of its table."""
    text = ""
    for each in statements:
        text += each.replace("N", str(text.count("\n") + 1)) + "\n"
    found, problem = parse_toml(text)
    assert problem is None
    assert len(found) == sum(bool(each) and each[0] != "#" for each in statements)
    for path, value, line in found:
        place = re.search(r"[0-9]+", "".join(path) if value == {} else str(value))
        assert place is not None
        assert int(place[0]) == line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a=1\nb\nc=3\n", 2),
        ("a=1\nb=2\na=3", 3),
        ("[t]\na=1\n[t]\nb=2\n", 3),
        ('a="x\nb=2\n', 1),
        ("a=[1,\nb=2\nc=3\n", 2),
        ("a=1\r\na.b=2\r\nc=3\r\n", 2),
        ("\ufeffa=1\nb=2", 1),
        ('a="""\nb=2\n', None),
        ("a=1\nb=" + 5000 * "[", None),
    ],
)
def test_what_is_not_toml_has_its_line(text: str, line: int | None) -> None:
    found, problem = parse_toml(text)
    assert problem is not None
    assert (found, problem.line) == ([], line)
    assert problem.message.startswith("not TOML: ")


def _nested(text: str) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for path, value, _ in parse_toml(text).entries:
        table = root
        for key in path[:-1]:
            table = table.setdefault(key, {})
        table.setdefault(path[-1], value)
    return root


_VALUES = st.sampled_from(['"x"', "'[y]'", "3", "true", "[1,\n 2]", '"""\na = 1\n"""', "{k = 1}", '"a#b"'])
_LINES = st.one_of(
    st.tuples(st.sampled_from("abcd"), _VALUES).map(" = ".join),
    st.sampled_from(["", "# note", "[t]", "[u.v]", "  "]),
)


@given(st.lists(_LINES, max_size=8))
def test_values_are_those_of_pythons_own_parser(lines: list[str]) -> None:
    text = "\n".join(lines)
    try:
        expected = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        assert parse_toml(text).problem is not None
    else:
        assert parse_toml(text).problem is None
        assert _nested(text) == expected


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


@pytest.mark.parametrize(
    ("local", "code"), [("100", None), ("-2", None), ("101", "is above"), ("-1", "is above")]
)
def test_a_local_retention_above_the_retention_is_refused_as_by_kafka(
    tmp_path: Path, local: str, code: str | None
) -> None:
    path = _file(tmp_path, f"orders.retention.ms=100\norders.local.retention.ms={local}\n")
    if code is None:
        assert read_topic_configs(path)["orders"].retention_ms == 100
    else:
        with pytest.raises(UsageError, match=code):
            read_topic_configs(path)
