"""The README's picture: its texts are legible in a browser, and name the real flow and all commands."""

from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import tierctl
from tierctl.cli.app import COMMANDS
from tierctl.cli.docs.messages import command_tree

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PICTURE = Path(__file__).parents[2] / "man" / "tierctl.svg"
TEXTS_AND_BOXES = """() => {
  const box = element => { const b = element.getBBox(); return [b.x, b.y, b.x + b.width, b.y + b.height] };
  const all = [...document.querySelectorAll('text')];
  const rects = [...document.querySelectorAll('rect')].map(box);
  return [all.map(text => [text.textContent, ...box(text)]), rects];
}"""


def test_it_has_every_command_and_the_steps_of_the_flow() -> None:
    root = ET.fromstring(PICTURE.read_text())
    texts: dict[str, list[str]] = {}
    for element in root.iter("{http://www.w3.org/2000/svg}text"):
        texts.setdefault(element.get("class") or "", []).append(element.text or "")
    assert sorted(texts["command"]) == sorted(COMMANDS)
    packages = {path.stem for path in Path(tierctl.__file__).parent.rglob("*")}
    assert {"read", "fold", "plan", "apply", "report"} <= packages & set(texts["title"])
    known = {name for node in command_tree().walk() for option in node.options for name in option.names}
    assert set(texts["option"]) <= known


def faults(browser: "Browser") -> list[str]:
    """Return the texts that overlap another text, or cross the edge of a box, in a browser."""
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(PICTURE.as_uri())
        texts, boxes = page.evaluate(TEXTS_AND_BOXES)
    found = []
    for (one, *a), (other, *b) in combinations(texts, 2):
        if a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]:
            found.append(f"{one!r} overlaps {other!r}")
    for text, left, top, right, bottom in texts:
        for x, y, to_x, to_y in boxes:
            is_inside = x <= left and right <= to_x and y <= top and bottom <= to_y
            is_outside = right <= x or to_x <= left or bottom <= y or to_y <= top
            if not is_inside and not is_outside:
                found.append(f"{text!r} crosses the edge of a box")
    return found


def test_no_text_is_hidden(browser: "Browser") -> None:
    assert faults(browser) == []
