"""Packages import their modules when a public name is first used, so that small commands start fast."""

import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
import tierctl

from tests.cli.shell import environment

ROOT = Path(tierctl.__file__).parent
PACKAGES = sorted(
    ".".join(file.parent.relative_to(ROOT.parent).parts)
    for file in ROOT.rglob("__init__.py")
    if "__all__ =" in file.read_text()
)
NOT_FOR_A_LISTING = {
    *("tierctl.kafka", "tierctl.locallog.loading", "tierctl.storage.open", "tierctl.spark", "tierctl.verify"),
    *("tierctl.plan", "tierctl.metadata.topic.folder_writer", "tierctl.metadata.state_dir.directory"),
    *("javaproperties", "pandas", "rich", "boto3", "urllib.request"),
    *("tierctl.storage.stores.base", "pyarrow.compute", "numpy.ma", "dateutil"),
}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_can_be_imported(package: str) -> None:
    module = import_module(package)
    assert [name for name in module.__all__ if getattr(module, name, None) is None] == []
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = module.no_such_name


def test_a_listing_of_segments_imports_only_the_path_from_the_topic_to_the_rows(
    capture: Callable[[str], Path],
) -> None:
    folder = capture("tiered-cluster") / "before"
    code = (
        "import sys; from tierctl.cli.main import run; code = run(sys.argv[1:]);"
        "print('\\n'.join(sys.modules), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "segments", "--metadata", folder],
        capture_output=True,
        env=environment(),
        check=True,
        text=True,
    )
    imported = set(done.stderr.split())
    assert "tierctl.commands.segments" in imported
    assert imported & NOT_FOR_A_LISTING == set()
