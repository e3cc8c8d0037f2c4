"""--throttle-copy and --throttle-fetch in the summary and the metrics, and their reaction to signals."""

import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.shell import environment, tierctl

Capture = Callable[[str], Path]


@pytest.fixture
def copy(capture: Capture, tmp_path: Path) -> tuple[str, ...]:
    for name in ("metadata", "tier"):
        (tmp_path / name).mkdir()
    places = ("--metadata", str(tmp_path / "metadata"), "--remote", str(tmp_path / "tier"))
    logs = str(capture("untiered-broker") / "local")
    return ("copy", *places, "--log-dir", logs, "--topic", "ledger", "--assume-enabled", "--apply")


def test_a_limited_copy_says_how_long_it_waited(copy: tuple[str, ...], tmp_path: Path) -> None:
    metrics = tmp_path / "x.prom"
    begun_s = time.monotonic()
    ran = tierctl(*copy, "--throttle-copy", "2M", "--metrics-file", metrics)
    # 3.9 MiB minus the burst of one second.
    assert time.monotonic() - begun_s > 0.9
    assert (ran.code, ", throttled 1 s (" in ran.summary) == (0, True), ran.summary
    values = dict(line.rsplit(" ", 1) for line in metrics.read_text().splitlines() if line[0] != "#")
    name = "kafka_server_remotelogmanager_remote_copy_throttle_time_"
    assert 0 < float(values[f"{name}avg"]) <= float(values[f"{name}max"]) <= 1000
    assert not any("fetch_throttle" in each for each in values)
    places = copy[1:5]
    (tmp_path / "server.properties").write_text(
        "remote.log.manager.fetch.max.bytes.per.second=2000000\nremote.log.manager.fetch.quota.window.num=2\n"
    )
    for limit in (("--broker-config", tmp_path / "server.properties"), ("--throttle-fetch", "2M")):
        ran = tierctl("verify", *places, "--deep", *limit)
        assert (ran.code, ", throttled " in ran.summary) == (0, True), ran.summary


def test_two_tiers_of_a_run_share_the_limits(copy: tuple[str, ...], tmp_path: Path) -> None:
    assert tierctl(*copy).code == 0
    for name in ("metadata2", "tier2"):
        (tmp_path / name).mkdir()
    ran = tierctl(
        *("copy", "--from-remote", copy[4], "--metadata", copy[2], "--remote", tmp_path / "tier2", "--apply"),
        *("--to-metadata", tmp_path / "metadata2", "--throttle-fetch", "4M", "--throttle-copy", "4M"),
    )
    assert (ran.code, ", throttled " in ran.summary) == (0, True), ran.err


@pytest.mark.parametrize(("command", "number"), [("copy", signal.SIGTERM), ("verify", signal.SIGINT)])
def test_a_signal_ends_the_wait_at_once(command: str, number: int, copy: tuple[str, ...]) -> None:
    args: tuple[str, ...] = (*copy, "--throttle-copy", "50K", "--threads", "1", "--wave-size", "1")
    if command == "verify":
        assert tierctl(*copy).code == 0
        args = ("verify", *copy[1:5], "--deep", "--throttle-fetch", "50K")
    process = subprocess.Popen(
        [sys.executable, "-m", "tierctl", *args, "-v"], stderr=subprocess.PIPE, env=environment(), text=True
    )
    assert process.stderr is not None
    assert any(line.startswith("metadata topic: ") for line in process.stderr)
    time.sleep(2)
    assert process.poll() is None, process.stderr.read()
    begun_s = time.monotonic()
    process.send_signal(number)
    process.wait(20)
    assert time.monotonic() - begun_s < 3
    err = process.stderr.read()
    process.stderr.close()
    assert process.returncode == 128 + number, err
    assert "Traceback" not in err
    same = shlex.join(["tierctl", *map(str, args), "-v"])
    if command == "verify":
        assert f"\nverify: stopped by {signal.Signals(number).name}; nothing was changed (" in err
    assert err.endswith(f"; next: {same}\n")
    if command == "copy":
        # The next run completes the copy that was stopped.
        summary = err.splitlines()[-1]
        listed = tierctl("segments", *copy[1:3], "--output", "jsonl").out
        begun = listed.count('"COPY_SEGMENT_STARTED"')
        assert 0 < begun < 4
        assert re.search(rf": 4 pending, .*; {begun} cop(y|ies) begun and not finished: the next ", summary)
        ran = tierctl(*copy)
        assert ran.code == 0, ran.err
        assert tierctl("verify", *copy[1:5], "--deep").code in {0, 3}
