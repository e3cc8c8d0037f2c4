"""What a command imports: libraries that it does not need would make its start slow."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl import commands

from tests.cli.shell import environment

NOT_FOR_A_LISTING = {
    *("tierctl.kafka.cluster", "tierctl.spark.session", "tierctl.verify"),
    *("boto3", "confluent_kafka", "deltalake", "pandas", "pyspark", "rich", "yaml"),
}


def test_every_public_name_of_commands_can_be_imported() -> None:
    assert [name for name in commands.__all__ if getattr(commands, name, None) is None] == []
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = commands.no_such_name


def imported_by(*words: object) -> set[str]:
    """Return the modules that a process has imported when it has run a command line."""
    code = (
        "import sys; from tierctl.cli.main import run; code = run(sys.argv[1:]);"
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


@pytest.mark.parametrize("command", ["schedule", "submit", "doctor", "copy"])
def test_a_help_imports_no_client_and_no_spark(command: str) -> None:
    heavy = {"boto3", "confluent_kafka", "deltalake", "pandas", "pyspark"}
    assert imported_by(command, "--help") & heavy == set()


def test_a_sweep_loads_no_other_command(capture: Callable[[str], Path]) -> None:
    at = capture("tiered-cluster")
    where = ("--metadata", at / "before", "--remote", at / "before-remote")
    imported = imported_by("sweep", *where, "--allow-missing-objects")
    others = ("copy", "delete", "apply", "recovery", "insight", "verify")
    assert "tierctl.commands.sweep.act" in imported
    prefixes = tuple(f"tierctl.commands.{each}" for each in others)
    assert {name for name in imported if name.startswith(prefixes)} == set()
    restores = {f"tierctl.apply.{each}" for each in ("to_log", "to_metadata", "to_node", "repairs")}
    assert imported & restores == set()
