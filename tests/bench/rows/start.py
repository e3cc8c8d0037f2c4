"""Start-up: commands without work, compared with the interpreter itself."""

import sys
from collections.abc import Iterator
from pathlib import Path

from tests.bench.harness import Comparison, Required, Side, row
from tests.bench.metadata_log import Shape, metadata_log
from tests.bench.process import run, tierctl

TINY = Shape(segments=20, user_partitions=4, metadata_partitions=5)
ROUNDS = 11


def _python() -> Side:
    return Side("python -c pass", lambda: run(sys.executable, "-c", "pass"))


@row("start-version", work="`--version`", shape="–", required=Required(seconds=0.040), rounds=ROUNDS)
def version(_folder: Path) -> Iterator[Comparison]:
    """Print the version."""
    yield Comparison(Side("tierctl", lambda: run(*tierctl("--version"))), _python())


@row("start-help", work="`--help`", shape="–", required=Required(seconds=0.060), rounds=ROUNDS)
def show_help(_folder: Path) -> Iterator[Comparison]:
    """Print the help of the program."""
    yield Comparison(Side("tierctl", lambda: run(*tierctl("--help"))), _python())


@row("start-completion", work="completion", shape="–", required=Required(seconds=0.060), rounds=ROUNDS)
def completion(_folder: Path) -> Iterator[Comparison]:
    """Complete an option of `sweep` as bash does."""
    asked = {"_TIERCTL_COMPLETE": "complete_bash", "COMP_WORDS": "tierctl sweep --me", "COMP_CWORD": "2"}
    yield Comparison(Side("tierctl", lambda: run(*tierctl(), env=asked)), _python())


@row(
    "start-segments",
    work="`segments`",
    shape=str(TINY),
    required=Required(seconds=0.250),
    rounds=ROUNDS,
    limit=(
        "Imports take most of it: by `python -X importtime`, measured beside other work, 43 % of their time "
        "are tierctl's own 146 modules (more than half of it to create 112 dataclasses), 23 % pyarrow, 16 % "
        "NumPy."
    ),
)
def segments(_folder: Path) -> Iterator[Comparison]:
    """List the segments of a tiny folder."""
    log = metadata_log(TINY)
    yield Comparison(Side("tierctl", lambda: run(*tierctl("segments", "--metadata", log.uri))), _python())
