"""What a command imports: libraries that it does not need would make its start slow."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

import pytest
from tierctl import commands
from tierctl.cli.app import leaves

from tests.cli.shell import environment

NOT_FOR_A_LISTING = {
    *("tierctl.kafka.cluster", "tierctl.spark.session", "tierctl.commands.verify"),
    *("boto3", "confluent_kafka", "deltalake", "numba", "pandas", "pyspark", "rich", "yaml"),
}


def test_every_public_name_of_commands_can_be_imported() -> None:
    assert [name for name in commands.__all__ if getattr(commands, name, None) is None] == []
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = commands.no_such_name


_SHARED = {f"tierctl.commands.{name}" for name in ("completion", "request", "request_fields")}
HEAVY = {"boto3", "confluent_kafka", "deltalake", "pandas", "pyspark"}
OF_OTHERS = {f"tierctl.commands.{name}" for name in ("copy", "delete", "apply", "restore", "verify")}
TIER = "--metadata {root}/before --remote {root}/before-remote"
RUNS = {
    "segments --metadata {root}/before": ("tierctl.commands.segments", NOT_FOR_A_LISTING),
    "status --metadata {root}/before": ("tierctl.spark.fold", {"pandas", "pyspark"}),
    f"sweep {TIER} --allow-missing-objects": ("tierctl.commands.sweep", OF_OTHERS),
    "--help": ("tierctl.cli.help", HEAVY | {"numpy", "pyarrow"}),
}
"""Command lines, each with a module that it imports, and with modules that it must not import."""


def imported_by(*lines: str) -> set[str]:
    """Return the modules that a process has imported when it has run these command lines."""
    code = (
        "import sys; from tierctl.cli.entry import run; codes = [run(line.split()) for line in sys.argv[1:]];"
        "print('\\n'.join(sys.modules), file=sys.stderr); sys.exit(max(codes))"
    )
    command = [sys.executable, "-c", code, *lines]
    done = subprocess.run(command, capture_output=True, env=environment(), check=True, text=True)
    return set(done.stderr.split())


@pytest.mark.parametrize("line", RUNS)
def test_a_run_imports_only_what_it_needs(line: str, capture: Callable[[str], Path]) -> None:
    needed, others = RUNS[line]
    assert all(find_spec(name) for name in others)
    imported = imported_by(line.format(root=capture("tiered-cluster")))
    assert needed in imported
    assert [name for name in imported if any(f"{name}.".startswith(f"{other}.") for other in others)] == []
    if line == "--help":
        commands_of = {name for name in imported if name.startswith("tierctl.commands.")}
        assert commands_of <= _SHARED


def test_no_help_imports_a_client_or_spark() -> None:
    assert imported_by(*(f"{' '.join(words)} --help" for words, _ in leaves())) & HEAVY == set()


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
assert len([*leaves()]) == int(sys.argv[3])
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
    folder, count = capture("tiered-cluster") / "before", str(len([*leaves()]))
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS, ",".join(packages), folder, count],
        capture_output=True,
        env=environment(),
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
