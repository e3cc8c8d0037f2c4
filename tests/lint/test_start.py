"""What a command imports: libraries that it does not need would make its start slow."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from tierctl import commands

from tests.cli.shell import environment

NOT_FOR_A_LISTING = {
    *("tierctl.kafka.cluster", "tierctl.spark.session", "tierctl.verify"),
    *("boto3", "confluent_kafka", "deltalake", "numba", "pandas", "pyspark", "rich", "yaml"),
}


def test_every_public_name_of_commands_can_be_imported() -> None:
    assert [name for name in commands.__all__ if getattr(commands, name, None) is None] == []
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = commands.no_such_name


def imported_by(*words: object) -> set[str]:
    """Return the modules that a process has imported when it has run a command line."""
    code = (
        "import sys; from tierctl.cli.entry import run; code = run(sys.argv[1:]);"
        "print('\\n'.join(sys.modules), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, env=environment(), check=True, text=True
    )
    return set(done.stderr.split())


def test_a_listing_of_segments(capture: Callable[[str], Path]) -> None:
    imported = imported_by("segments", "--metadata", capture("tiered-cluster") / "before")
    assert "tierctl.commands.segments" in imported
    assert imported & NOT_FOR_A_LISTING == set()


def test_a_status_imports_no_data_frames(capture: Callable[[str], Path]) -> None:
    imported = imported_by("status", "--metadata", capture("tiered-cluster") / "before")
    assert "tierctl.spark.fold" in imported
    assert imported & {"pandas", "pyspark"} == set()


WITHOUT_EXTRAS = """
import sys

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1].split(","):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Refusing())
from tierctl import commands
from tierctl.cli.app import leaves
from tierctl.cli.entry import run
for name in commands.__all__:
    getattr(commands, name)
assert len([*leaves()]) == 29
sys.exit(run(["segments", "--metadata", sys.argv[2]]))
"""


def test_no_command_needs_a_package_of_an_extra(capture: Callable[[str], Path]) -> None:
    """`pip install tierctl` installs no extra: a command asks for one where its options need it."""
    extras = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    wanted = {
        re.split(r"[\[<>=]", each)[0] for name in extras.keys() - {"all", "dev"} for each in extras[name]
    }
    packages = {name for name, found in packages_distributions().items() if wanted & set(found)}
    assert {"Crypto", "boto3", "confluent_kafka", "deltalake", "pyspark"} <= packages
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS, ",".join(packages), capture("tiered-cluster") / "before"],
        capture_output=True,
        env=environment(),
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["schedule", "submit", "doctor", "copy"])
def test_a_help_imports_no_client_and_no_spark(command: str) -> None:
    heavy = {"boto3", "confluent_kafka", "deltalake", "pandas", "pyspark"}
    assert imported_by(command, "--help") & heavy == set()


def test_a_sweep_loads_no_other_command(capture: Callable[[str], Path]) -> None:
    at = capture("tiered-cluster")
    where = ("--metadata", at / "before", "--remote", at / "before-remote")
    imported = imported_by("sweep", *where, "--allow-missing-objects")
    others = ("copy", "delete", "apply", "restore", "insight", "verify")
    assert "tierctl.commands.sweep" in imported
    prefixes = tuple(f"tierctl.commands.{each}" for each in others)
    assert {name for name in imported if name.startswith(prefixes)} == set()
