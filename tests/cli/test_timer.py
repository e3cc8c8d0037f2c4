"""A timer of systemd runs the printed service, in its sandbox, as the units say it."""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.shell import environment
from tests.support.systemd import booted

SOON = "[Timer]\nOnCalendar=\nOnCalendar=*:*:0/2\nRandomizedDelaySec=0\nAccuracySec=100ms\n"
"""A drop-in, so that a test need not wait for the next hour; the printed units stay as they are."""
OUTPUT = (
    "[Service]\nStandardError=append:/srv/writable/stderr\n"
    "ExecStartPost=sh -c 'touch /srv/outside || echo refused >> /srv/writable/refused'\n"
)
"""A drop-in that keeps the messages, and tries to write outside of the folders that options name."""
TIMEOUT_S = 90


def write_units(folder: Path, *command: str) -> str:
    """Write the units that schedule prints for `command` to `folder`; return the name of the timer."""
    program = str(Path(sys.executable).with_name("tierctl"))
    line = [program, "schedule", "--systemd", "--every", "hourly", "--user", "root", *command]
    printed = subprocess.run(line, capture_output=True, check=True, text=True, env=environment()).stdout
    files = dict.fromkeys(("service", "timer"), "")
    for text in printed.split("# /etc/systemd/system/")[1:]:
        name, _, content = text.partition("\n")
        (folder / name).write_text(content)
        files[name.rpartition(".")[2]] = name
    for name, content in ((files["timer"], SOON), (files["service"], OUTPUT)):
        (folder / f"{name}.d").mkdir()
        (folder / f"{name}.d" / "test.conf").write_text(content)
    return files["timer"]


def runs_of(metrics: Path) -> float:
    """Return the counter of runs in a file of metrics, 0 before the first run."""
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("tierctl_runs_total{"))


@pytest.mark.slow
def test_a_timer_runs_the_printed_service(capture: Callable[[str], Path], tmp_path: Path) -> None:
    units, data = tmp_path / "units", tmp_path / "data"
    metrics, refused = data / "writable" / "tierctl.prom", data / "writable" / "refused"
    for name in ("before", "before-remote"):
        shutil.copytree(capture("tiered-cluster") / name, data / name)
    units.mkdir()
    metrics.parent.mkdir()
    where = ("--metadata", "/srv/before", "--remote", "/srv/before-remote")
    timer = write_units(units, "verify", *where, "--metrics-file", "/srv/writable/tierctl.prom")
    with booted(units, data, starts=timer):
        deadline_s = time.monotonic() + TIMEOUT_S
        while runs_of(metrics) < 2 and time.monotonic() < deadline_s:
            time.sleep(0.2)
    said = (metrics.parent / "stderr").read_text()
    assert runs_of(metrics) >= 2, said
    assert said.count("verify: 36 segments of 5 topics") >= 2
    # The sandbox: a folder that no option names can't be written.
    assert refused.read_text().startswith("refused")
    assert {each.name for each in data.iterdir()} == {"before", "before-remote", "writable"}
