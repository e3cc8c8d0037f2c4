"""Formatters of other packages."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.shell import environment, tierctl_process
from tests.cli.test_format import value


def plugin(folder: Path, code: str, *, names: Sequence[str] = ("shout",)) -> dict[str, str]:
    """Install a package with formatters into this environment."""
    (folder / "plugged.py").write_text(code)
    info = folder / "plugged-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 1.0\n")
    points = "".join(f"{name} = plugged:make\n" for name in names)
    (info / "entry_points.txt").write_text(f"[tierctl.formatters]\n{points}")
    return environment(PYTHONPATH=str(folder))


def test_a_formatter_of_a_plugin(tmp_path: Path) -> None:
    env = plugin(
        tmp_path,
        "class Shout:\n"
        "    def __init__(self, properties):\n"
        "        self.end = properties.get('sep', '!')\n"
        "    def lines(self, records):\n"
        "        for record in records.rows():\n"
        "            yield f'{record.metadata_offset}{self.end} {record.event.topic.upper()}'\n"
        "make = Shout\n",
    )
    stdin = value().encode()
    assert (
        tierctl_process("format", "--input", "hex", "--style", "shout", stdin=stdin, env=env).out
        == "0! _INTERNAL\n"
    )
    ran = tierctl_process("format", "--input", "hex", "--style", "shout", "--sep", "?", stdin=stdin, env=env)
    assert ran.out == "0? _INTERNAL\n"


@pytest.mark.parametrize(
    ("code", "names", "message"),
    [
        ("def make(properties): raise KeyError('x')\n", ["shout"], "can't be loaded: KeyError"),
        ("def make(properties): return 3\n", ["shout"], "is no formatter"),
        ("make = None\n", ["kafka"], "is claimed by plugged, tierctl"),
    ],
)
def test_a_broken_plugin_is_named(code: str, names: list[str], message: str, tmp_path: Path) -> None:
    env = plugin(tmp_path, code, names=names)
    ran = tierctl_process("format", "--input", "hex", "--style", names[0], stdin=value().encode(), env=env)
    assert ran.code == 2
    assert message in ran.err
    assert "plugged" in ran.err
