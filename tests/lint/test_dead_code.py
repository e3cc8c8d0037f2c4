"""The check for dead code finds unused code, and exceptions that are no longer needed."""

from pathlib import Path

from tests.lint.dead_code import dead_code


def test_unused_code_and_needless_exceptions_are_reported(tmp_path: Path) -> None:
    source = "def used():\n    pass\n\n\ndef unused():\n    pass\n\n\ndef kept():\n    pass\n\n\nused()\n"
    (tmp_path / "module.py").write_text(source)
    found = dead_code([tmp_path], frozenset({"kept", "used"}))
    assert [line.rpartition(": ")[2] for line in found] == [
        "unused function unused",
        "remove it from ALLOWED",
    ]
    assert "used is used now" in found[1]
