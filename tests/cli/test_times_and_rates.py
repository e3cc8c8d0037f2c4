"""Options with times, durations and rates: the forms that they accept, and the effect of a limit."""

import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.cli.docs.messages import command_tree
from tierctl.model.times import TIME_FORMS

from tests.cli.shell import environment, tierctl

TIMES = {"--now", "--time", "--from-time", "--to-time", "--until"}


@pytest.mark.parametrize(
    ("line", "time"),
    [
        ("verify --now", "2026-11-21T10:30:00Z"),
        ("report --show growth --now", "9999-12-31T23:59:59.999Z"),
        ("format --limit 1 --to-time", "-3000d"),
        ("fetch --remote {root}/before-remote --limit 1 --to-time", "now"),
    ],
)
def test_times_are_accepted(line: str, time: str, capture: Callable[[str], Path]) -> None:
    """tests/model/test_times.py has every form."""
    root = capture("tiered-cluster")
    command, *args = line.format(root=root).split()
    ran = tierctl(command, "--metadata", root / "before", *args, time)
    assert ran.code == 0, ran.err


@pytest.mark.parametrize("time", ["noon", "-5", "253402300800000", "9" * 18, "+999999w"])
def test_others_are_refused_with_the_forms(time: str, capture: Callable[[str], Path]) -> None:
    ran = tierctl("segments", "--metadata", capture("tiered-cluster") / "before", "--now", time)
    assert (ran.code, ran.out) == (2, "")
    assert f"hint: expected {TIME_FORMS}\n" in ran.err


def test_every_option_of_a_time_says_what_it_accepts() -> None:
    options = [option for node in command_tree().walk() for option in node.options]
    found = [option for option in options if "TIME" in (option.metavar or "").split("|")]
    assert {name for option in found for name in option.names} == TIMES
    # fetch and format end before an offset, restore before a time.
    others = [each for each in options if TIMES & {*each.names} and each not in found]
    assert {each.names for each in others} == {("--until",)}
    for option in found:
        assert "-2h" in option.help or "--to-time" in option.names


DURATIONS = [
    ("--copy-limit", "status"),
    ("--election-timeout", "restore check"),
    ("--interval", "delete"),
    ("--interval", "format"),
    ("--interval", "pipeline run"),
    ("--lock-timeout", "segments"),
    ("--max-age", "apply {tmp}/none.json"),
    ("--orphan-age", "verify"),
    ("--watch", "status"),
]
"""The options whose values are durations, each with a command."""
NAMES_OF_DURATIONS = re.compile(r"-(ms|s|timeout|interval|age|watch|wait|delay|seconds|days)\Z")


def test_every_option_of_a_duration_says_what_it_accepts() -> None:
    options = [option for node in command_tree().walk() for option in node.options]
    found = [option for option in options if "DURATION" in (option.metavar or "")]
    names = {name for name, _ in DURATIONS}
    assert {name for option in found for name in option.names} == names
    for option in found:
        assert "500ms, 90s, 1h30m, 7d, or PT90S (ISO 8601)" in option.help, option.names
    # The console consumer's option has its unit in its name.
    others = {name for option in options for name in option.names} - names - {"--timeout-ms"}
    assert not [name for name in others if NAMES_OF_DURATIONS.search(name)]


@pytest.mark.parametrize(("option", "words"), DURATIONS)
def test_every_form_of_a_duration_is_accepted(option: str, words: str, tmp_path: Path) -> None:
    command = words.format(tmp=tmp_path).split()
    for duration in ("2s", "PT2S", "25", "+30", "soon"):
        ran = tierctl(*command, "--metadata", tmp_path / "none", f"{option}={duration}", cwd=tmp_path)
        is_refused = f"{option}: not a duration: {duration!r}" in ran.err
        assert is_refused is (duration in {"25", "+30", "soon"}), ran.err
        assert ("a unit is missing: 25s or 25ms" in ran.err) is (duration == "25")


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
    ran = tierctl("verify", *places, "--deep", "--broker-config", tmp_path / "server.properties")
    assert (ran.code, ", throttled " in ran.summary) == (0, True), ran.summary
    # Both tiers of a run share the limits.
    for name in ("metadata2", "tier2"):
        (tmp_path / name).mkdir()
    ran = tierctl(
        *("copy", "--from-remote", copy[4], "--metadata", copy[2], "--remote", tmp_path / "tier2", "--apply"),
        *("--to-metadata", tmp_path / "metadata2", "--throttle-fetch", "4M", "--throttle-copy", "4M"),
    )
    assert (ran.code, ", throttled " in ran.summary) == (0, True), ran.err


def test_a_signal_ends_the_wait_at_once(copy: tuple[str, ...]) -> None:
    """The next run completes the copy that was stopped."""
    args = (*copy, "--throttle-copy", "50K", "--threads", "1", "--wave-size", "1", "-v")
    process = subprocess.Popen(
        [sys.executable, "-m", "tierctl", *args], stderr=subprocess.PIPE, env=environment(), text=True
    )
    assert process.stderr is not None
    assert any(line.startswith("metadata topic: ") for line in process.stderr)
    listing = ("segments", *copy[1:3], "--output", "jsonl")
    while '"COPY_SEGMENT_STARTED"' not in tierctl(*listing).out:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    begun_s = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.wait(20)
    assert time.monotonic() - begun_s < 3
    err = process.stderr.read()
    process.stderr.close()
    assert process.returncode == 128 + signal.SIGTERM, err
    assert "Traceback" not in err
    assert err.endswith(f"; next: {shlex.join(['tierctl', *args])}\n")
    begun = tierctl(*listing).out.count('"COPY_SEGMENT_STARTED"')
    assert 0 < begun < 4
    said = rf": 4 pending, .*; {begun} cop(y|ies) begun and not finished: the next "
    assert re.search(said, err.splitlines()[-1])
    ran = tierctl(*copy)
    assert ran.code == 0, ran.err
    assert tierctl("verify", *copy[1:5], "--deep").code in {0, 3}
