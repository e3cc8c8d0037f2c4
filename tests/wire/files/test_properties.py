"""Java's .properties files."""

import pytest
from tierctl.errors import CorruptInputError
from tierctl.wire.files.properties import Property, parse_properties


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
