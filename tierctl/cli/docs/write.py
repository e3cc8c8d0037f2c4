"""Write completions/ and man/: `python -m tierctl.cli.docs.write [DIR]`."""

import sys
from pathlib import Path

from tierctl.cli.docs import man as docs_man
from tierctl.cli.docs import shells as docs_shells
from tierctl.cli.docs.tree import tree
from tierctl.cli.main import build


def files() -> dict[Path, str]:
    """Return the text of every file by its path in the project."""
    root = tree(build())
    completions = {Path("completions", name): text for name, text in docs_shells.scripts(root).items()}
    return completions | {Path("man", name): text for name, text in docs_man.pages(root).items()}


def write(folder: Path) -> None:
    """Write every file below `folder`, and delete the man pages of commands that no longer exist."""
    wanted = files()
    for room in {path.parent for path in wanted}:
        (folder / room).mkdir(parents=True, exist_ok=True)
        for found in (folder / room).iterdir():
            if room / found.name not in wanted:
                found.unlink()
    for path, text in wanted.items():
        (folder / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
