"""Draw the picture of the README: the flow of tierctl from `picture.svg`, and the commands by group."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from textwrap import wrap
from typing import Final
from xml.sax.saxutils import escape

_DRAWING: Final = Path(__file__).with_name("picture.svg")
"""The style, and what tierctl reads and does; the groups of commands stand in the place of `$groups`."""
_WIDTH, _MARGIN, _LINE = 960, 20, 18
_GROUPS_TOP: Final = 324
_TITLE_CHARACTERS, _NAME_CHARACTERS = 21, 10


def picture(groups: Mapping[str, Sequence[str]]) -> str:
    """Return the picture as SVG; `groups` has the names of commands by title."""
    titles = max(len(_folded(title)) for title in groups)
    rows = max(-(-len(names) // _columns(names)) for names in groups.values())
    height = _GROUPS_TOP + 28 + (titles + rows) * _LINE
    drawing = Template(_DRAWING.read_text(encoding="utf-8"))
    return drawing.substitute(height=height, ground=height - 2, groups="\n".join(_groups(groups)))


def _groups(groups: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield a column for each group of commands: the title up to its semicolon, and the commands."""
    width = (_WIDTH - _MARGIN * (len(groups) + 1)) / len(groups)
    top = _GROUPS_TOP + 28 + max(len(_folded(title)) for title in groups) * _LINE
    for i, (title, names) in enumerate(groups.items()):
        x = _MARGIN + i * (width + _MARGIN)
        yield f'<path class="arrow" d="M{x:g} {_GROUPS_TOP}H{x + width:g}"/>'
        for j, line in enumerate(_folded(title)):
            yield _text("title", x, _GROUPS_TOP + 22 + j * _LINE, line)
        columns = _columns(names)
        for j, name in enumerate(names):
            yield _text("command", x + j % columns * width / 2, top + j // columns * _LINE, name)


def _folded(title: str) -> list[str]:
    """Return the lines of the title of a group, up to its semicolon."""
    return wrap(title.partition(";")[0], _TITLE_CHARACTERS)


def _columns(names: Sequence[str]) -> int:
    """Return in how many columns the names of a group's commands fit."""
    return 1 if max(map(len, names)) > _NAME_CHARACTERS else 2


def _text(kind: str, x: float, y: float, text: str) -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(text)}</text>'
