"""Add man pages by section, and the jar of `make formatter`, which git ignores, to a wheel's shared data."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

JAR = "tierctl/console_consumer/tierctl-formatter.jar"
SHARED_JAR = "share/java/tierctl-formatter.jar"


class SharedDataHook(BuildHookInterface):  # type: ignore[type-arg]
    """Installs man pages to share/man, and the jar to share/java; the package has a copy of the jar, too."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the pages and the jar to `build_data`, or warn that the wheel has no jar."""
        if version == "editable":
            return
        for page in sorted(Path(self.root, "man").glob("*.[17]")):
            section = page.suffix.removeprefix(".")
            build_data["shared_data"][f"man/{page.name}"] = f"share/man/man{section}/{page.name}"
        if Path(self.root, JAR).is_file():
            build_data["shared_data"][JAR] = SHARED_JAR
        else:
            self.app.display_warning(f"no {JAR}: 'make wheel' builds the jar, and a wheel that contains it")
