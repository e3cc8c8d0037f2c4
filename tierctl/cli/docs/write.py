"""Write completions/, man/, the schema files, commands.json, and the README's table of questions.

`python -m tierctl.cli.docs.write [DIR]`; DIR is the project.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from tierctl.cli.docs import man as docs_man
from tierctl.cli.docs.picture import picture
from tierctl.cli.docs.readme import readme
from tierctl.cli.docs.tree import tree
from tierctl.cli.help import shells as docs_shells
from tierctl.cli.help.node import COMMANDS_FILE
from tierctl.cli.main import GROUPS, build
from tierctl.report.schemas import schemas

SCHEMA_FILES = Path("tierctl", "report", "schema_files")
PICTURE = Path("man", "tierctl.svg")


def files() -> dict[Path, str]:
    """Return the text of every file by its path in the project."""
    root = tree(build())
    completions = {Path("completions", name): text for name, text in docs_shells.scripts(root).items()}
    pages = {Path("man", name): text for name, text in docs_man.pages(root).items()}
    commands = json.dumps(asdict(root), indent=1) + "\n"
    described = {
        SCHEMA_FILES / name: json.dumps(schema, indent=2) + "\n" for name, schema in schemas().items()
    }
    others = {Path("tierctl", "cli", "help", COMMANDS_FILE.name): commands, Path("README.md"): readme()}
    others[PICTURE] = picture(GROUPS)
    return completions | pages | described | others


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
