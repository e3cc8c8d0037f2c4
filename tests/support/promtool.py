"""promtool, Prometheus' own checker, built with Go into `.cache/programs`."""

import subprocess
from functools import cache
from pathlib import Path

from tests.support.servers import cannot, go_tool

MODULE = "github.com/prometheus/prometheus/cmd/promtool@v0.316.0"
# Service discovery is most of the build, and no check uses it.
TAGS = ("remove_all_sd",)
TIMEOUT_S = 60


@cache
def promtool() -> Path:
    """Return the program; without it skip the test, or fail under CI=true."""
    found = go_tool("promtool", MODULE, tags=TAGS)
    if found is None:
        cannot("PROMETHEUS", "promtool is built with Go, which is not there or can't download it")
    assert found is not None
    return found


def run_promtool(*args: str, stdin: bytes = b"") -> str:
    """Return stdout and stderr of a promtool that succeeds; fail otherwise."""
    ran = subprocess.run(
        [promtool(), *args], input=stdin, capture_output=True, timeout=TIMEOUT_S, check=False
    )
    text = (ran.stdout + ran.stderr).decode()
    assert ran.returncode == 0, text
    return text


def check_metrics(file: Path) -> None:
    """Fail unless `promtool check metrics` accepts the file without a warning."""
    assert run_promtool("check", "metrics", stdin=file.read_bytes()) == ""
