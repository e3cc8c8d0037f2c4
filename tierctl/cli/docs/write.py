"""Write completions/, man/ with the picture of the README, and the schema files.

`python -m tierctl.cli.docs.write [DIR]`; DIR is the project.
"""

import json
import os
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from string import Template
from textwrap import wrap
from typing import Final
from xml.sax.saxutils import escape

from tierctl.cli.app import GROUPS
from tierctl.cli.docs import man as docs_man
from tierctl.cli.docs.schemas import schemas
from tierctl.cli.docs.tree import command_tree

SCHEMA_FILES = Path("tierctl", "report", "schema_files")
PICTURE = Path("man", "tierctl.svg")
_SHELLS: Final = {"bash": "tierctl.bash", "zsh": "_tierctl", "fish": "tierctl.fish"}
"""The shells, with the names of their scripts."""
_DRAWING: Final = Path(__file__).with_name("picture.svg")
"""The style, and what tierctl reads and does; the groups of commands stand in the place of `$groups`."""
_WIDTH, _MARGIN, _LINE = 960, 20, 18
_GROUPS_TOP: Final = 324
_TITLE_CHARACTERS, _NAME_CHARACTERS = 21, 10


def files() -> dict[Path, str]:
    """Return the text of every file by its path in the project."""
    completions = {Path("completions", name): _completion(shell) for shell, name in _SHELLS.items()}
    pages = {Path("man", name): text for name, text in docs_man.pages(command_tree()).items()}
    described = {
        SCHEMA_FILES / name: json.dumps(schema, indent=2) + "\n" for name, schema in schemas().items()
    }
    return completions | pages | described | {PICTURE: picture(GROUPS)}


def _completion(shell: str) -> str:
    """Return the completion script that Typer generates for a shell."""
    command = [sys.executable, "-P", "-m", "tierctl"]
    environ = os.environ | {"_TIERCTL_COMPLETE": f"source_{shell}"}
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout


def picture(groups: Mapping[str, Collection[str]]) -> str:
    """Return the picture as SVG; `groups` has the names of commands by title."""
    titles = max(len(_folded(title)) for title in groups)
    rows = max(-(-len(names) // _columns(names)) for names in groups.values())
    height = _GROUPS_TOP + 28 + (titles + rows) * _LINE
    drawing = Template(_DRAWING.read_text(encoding="utf-8"))
    return drawing.substitute(height=height, ground=height - 2, groups="\n".join(_groups(groups)))


def _groups(groups: Mapping[str, Collection[str]]) -> Iterator[str]:
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


def _columns(names: Collection[str]) -> int:
    """Return in how many columns the names of a group's commands fit."""
    return 1 if max(map(len, names)) > _NAME_CHARACTERS else 2


def _text(kind: str, x: float, y: float, text: str) -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(text)}</text>'


def write(folder: Path) -> None:
    """Write every file below `folder`, and delete man pages and schemas that no longer exist."""
    wanted = files()
    for parent in {path.parent for path in wanted}:
        (folder / parent).mkdir(parents=True, exist_ok=True)
    for room in (Path("man"), SCHEMA_FILES):
        for old in (folder / room).iterdir():
            if room / old.name not in wanted:
                old.unlink()
    for path, text in wanted.items():
        (folder / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
