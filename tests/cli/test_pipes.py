"""A pipe, a device or a socket in place of a file that tierctl finds in a folder never blocks a run."""

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

import pytest

from tests.cli.shell import Ran, tierctl

ROOT, STATE = "{root}", "{state}"
METADATA, REMOTE = "--metadata={root}/before", "--remote={root}/before-remote"
LOGS, KEPT = "--log-dir={root}/before", "--state-dir={state}"
READING: dict[str, Sequence[str]] = {
    "segments": ("segments", METADATA),
    "format": ("format", METADATA),
    "verify": ("verify", METADATA, REMOTE, LOGS),
    "status": ("status", METADATA, REMOTE, LOGS),
    "explain": ("explain", METADATA, REMOTE, LOGS),
    "sweep": ("sweep", METADATA, REMOTE, LOGS, "--topic-configs={root}/topics.properties"),
    "copy": ("copy", METADATA, REMOTE, LOGS),
    "rebuild": ("rebuild", METADATA, REMOTE, LOGS),
    "fetch": ("fetch", METADATA, REMOTE, LOGS, "--topic=orders", "--partition=0", "--limit=1"),
    "doctor": ("doctor", METADATA, REMOTE, LOGS),
}
FOUND = (
    "before/__remote_log_metadata-0/*.log",
    "before/__remote_log_metadata-0/leader-epoch-checkpoint",
    "before/__remote_log_metadata-0/partition.metadata",
    "before/orders-0/*.log",
    "before/orders-0/*.index",
    "before/orders-0/*.snapshot",
    "before/orders-0/leader-epoch-checkpoint",
    "before/orders-0/partition.metadata",
    "before/log-start-offset-checkpoint",
    "before/replication-offset-checkpoint",
    "before-remote/*/orders-0-*/*.log",
    "before-remote/*/orders-0-*/*.leader_epoch_checkpoint",
)


def run(words: Sequence[object]) -> Ran:
    """Run a command in this process; raise TimeoutError if it takes longer than 30 s."""

    def give_up(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"{words}: blocked")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(30)
    try:
        ran = tierctl(*words)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert ran.code != 1, ran.err
    assert "internal" not in ran.err
    return ran


@pytest.mark.parametrize("pattern", FOUND)
def test_a_pipe_in_place_of_a_file_blocks_no_command(
    pattern: str, writable: Callable[[str], Path], tmp_path: Path
) -> None:
    root = writable("tiered-cluster")
    path = min(root.glob(pattern))
    path.unlink()
    os.mkfifo(path)
    for words in list(READING.values())[FOUND.index(pattern) % 2 :: 2]:
        run([word.format(root=root, state=tmp_path / "state") for word in words])


def test_a_pipe_in_the_state_directory_blocks_no_command(
    capture: Callable[[str], Path], tmp_path: Path
) -> None:
    root = capture("tiered-cluster")
    places = {"root": root, "state": tmp_path / "state"}
    made = ("sweep", METADATA, REMOTE, LOGS, KEPT, "--apply")
    assert run([word.format(**places) for word in made]).code == 0
    names = [path for path in sorted((tmp_path / "state").rglob("*")) if path.is_file()]
    assert names
    for path in names:
        content = path.read_bytes()
        path.unlink()
        os.mkfifo(path)
        for command in (
            f"segments {METADATA}",
            *(f"status {METADATA} {REMOTE}", f"sweep {METADATA} {REMOTE} {LOGS}"),
        ):
            run([word.format(**places) for word in [*command.split(), KEPT]])
        path.unlink()
        path.write_bytes(content)


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_plan_that_is_no_file_is_refused(kind: str, capture: Callable[[str], Path], tmp_path: Path) -> None:
    plan = tmp_path / "plan"
    if kind == "pipe":
        os.mkfifo(plan)
    else:
        plan = Path("/dev/zero")
    root = capture("tiered-cluster")
    ran = run(["apply", plan, "--metadata", root / "before", "--remote", root / "before-remote"])
    assert ran.code in {2, 4}, ran.err
