"""Write completions/, man/ and commands.json: `python -m tierctl.cli.docs.write [DIR]`."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from tierctl.cli.docs import man as docs_man
from tierctl.cli.docs.tree import tree
from tierctl.cli.help import shells as docs_shells
from tierctl.cli.help.node import COMMANDS_FILE
from tierctl.cli.main import build


def files() -> dict[Path, str]:
    """Return the text of every file by its path in the project."""
    root = tree(build())
    completions = {Path("completions", name): text for name, text in docs_shells.scripts(root).items()}
    pages = {Path("man", name): text for name, text in docs_man.pages(root).items()}
    commands = json.dumps(asdict(root), indent=1) + "\n"
    return completions | pages | {Path("tierctl", "cli", "help", COMMANDS_FILE.name): commands}


def write(folder: Path) -> None:
    """Write every file below `folder`, and delete the man pages of commands that no longer exist."""
    wanted = files()
    for room in {path.parent for path in wanted}:
        (folder / room).mkdir(parents=True, exist_ok=True)
    for page in (folder / "man").iterdir():
        if Path("man", page.name) not in wanted:
            page.unlink()
    for path, text in wanted.items():
        (folder / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
