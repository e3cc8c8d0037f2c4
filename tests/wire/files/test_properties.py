"""Java's .properties files."""

from pathlib import Path

import pytest
from tierctl.errors import CorruptInputError, UsageError
from tierctl.model.settings.scopes import SettingSource
from tierctl.wire.files.properties import MalformedLine, Property, parse_properties, read_properties


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
