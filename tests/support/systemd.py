"""Check units with systemd-analyze, which needs no running systemd, and run them with a systemd of a test."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

TIMEOUT_S = 60


def analyze(*args: str, unit: Path) -> None:
    """Fail unless systemd-analyze accepts the unit without a warning; skip without the tool."""
    program = shutil.which("systemd-analyze")
    if program is None:
        # It is skipped also under CI=true, because systemd can't be installed like a server.
        pytest.skip("NOT TESTED WITH SYSTEMD: systemd-analyze is not there")
    ran = subprocess.run(
        [program, *args, unit], capture_output=True, timeout=TIMEOUT_S, check=False, text=True
    )
    remarks = [line for line in ran.stderr.splitlines() if unit.stem in line]
    assert (ran.returncode, remarks) == (0, []), ran.stdout + ran.stderr


_TARGETS = ("sysinit", "basic", "shutdown", "timers", "default", "network-online")
_BOOT = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir -p /run/lock /run/systemd
mount -t tmpfs tmpfs /var/log
mount -t tmpfs tmpfs /var/lib/systemd
mount --bind "$DATA" /srv
umount -R /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
exec "$SYSTEMD" --system --unit=default.target --log-target=null
"""
"""systemd as the first process of its own namespaces: with the units of a test only, and no other disk."""


@contextmanager
def booted(units: Path, data: Path, *, starts: str) -> Iterator[None]:
    """Run a systemd of its own that knows the unit files in `units` only, and starts the unit `starts`.

    Its services see `data` as /srv. Skip the test without the rights for that, or without systemd.
    """
    program = shutil.which("systemd", path="/usr/lib/systemd:/lib/systemd")
    namespaces = ("unshare", "--mount", "--pid", "--fork", "--cgroup", "--ipc", "--uts", "--kill-child")
    tried = subprocess.run([*namespaces, "true"], capture_output=True, check=False)
    if program is None or tried.returncode != 0:
        pytest.skip("NOT TESTED WITH SYSTEMD: it is not installed, or this user may not make namespaces")
    if Path(sys.prefix).is_relative_to("/tmp"):
        pytest.skip("NOT TESTED WITH SYSTEMD: services have a private /tmp, which does not have this Python")
    for name in _TARGETS:
        wants = f"Wants={starts}\n" if name == "default" else ""
        (units / f"{name}.target").write_text(f"[Unit]\nDefaultDependencies=no\n{wants}")
    env = {"PATH": os.environ["PATH"], "container": "test", "SYSTEMD_UNIT_PATH": str(units)}
    env |= {"DATA": str(data), "SYSTEMD": program, "SYSTEMD_GENERATOR_PATH": "/nonexistent"}
    process = subprocess.Popen([*namespaces, "--mount-proc", "sh", "-c", _BOOT], env=env)
    try:
        yield
        assert process.poll() is None, "systemd ended"
    finally:
        process.kill()
        process.wait()
