"""Write completions/, the pages of man/, and the schema files.

`python -m tierctl.cli.docs.write [DIR]`; DIR is the project.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tierctl.cli.docs import man as docs_man
from tierctl.cli.docs.schemas import schemas
from tierctl.cli.docs.tree import command_tree

SCHEMA_FILES = Path("tierctl", "report", "schema_files")
_SHELLS: Final = {"bash": "tierctl.bash", "zsh": "_tierctl", "fish": "tierctl.fish"}
"""The shells, with the names of their scripts."""


def files() -> dict[Path, str]:
    """Return the text of every file by its path in the project."""
    completions = {Path("completions", name): _completion(shell) for shell, name in _SHELLS.items()}
    pages = {Path("man", name): text for name, text in docs_man.pages(command_tree()).items()}
    described = {
        SCHEMA_FILES / name: json.dumps(schema, indent=2) + "\n" for name, schema in schemas().items()
    }
    return completions | pages | described


def _completion(shell: str) -> str:
    """Return the completion script that Typer generates for a shell."""
    command = [sys.executable, "-P", "-m", "tierctl"]
    environ = os.environ | {"_TIERCTL_COMPLETE": f"source_{shell}"}
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout


def write(folder: Path) -> None:
    """Write every file below `folder`, and delete man pages and schemas that no longer exist."""
    wanted = files()
    for parent in {path.parent for path in wanted}:
        (folder / parent).mkdir(parents=True, exist_ok=True)
    for room in (Path("man"), SCHEMA_FILES):
        for old in (folder / room).iterdir():
            if room / old.name not in wanted and old.suffix != ".svg":
                old.unlink()
    for path, text in wanted.items():
        (folder / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
