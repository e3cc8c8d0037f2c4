"""Leader epochs that are not understood: sweep deletes nothing for their partition, whatever is asked for."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from tierctl.errors import ExitCode

from tests.cli.shell import tierctl
from tests.commands.restore.test_not_understood import REFUSALS, refusing
from tests.commands.restore.unread import Change

MUTATIONS: dict[str, Change | None] = {
    "version": lambda data: b"7" + data[1:],
    "empty": lambda _: b"",
    "no entries": lambda _: b"0\n0\n",
    "text": lambda _: b"0\n1\nx y\n",
    "negative": lambda _: b"0\n1\n-3 -7\n",
    "missing": None,
}
TABLE = [("tier", name) for name in (*MUTATIONS, *REFUSALS)]
TABLE += [("log", name) for name in ("version", "empty", "text", "missing")]


@pytest.mark.parametrize(("where", "name"), TABLE)
def test_nothing_follows_from_leader_epochs_that_are_not_understood(
    writable: Callable[[str], Path], tmp_path: Path, where: str, name: str
) -> None:
    logs, remote = writable("tiered-cluster/before"), writable("tiered-cluster/before-remote")
    configs = tmp_path / "configs"
    configs.write_text("orders.retention.ms=1\n")
    [newest] = remote.rglob("orders-0-*/*2400-*.leader_epoch_checkpoint")
    file = newest if where == "tier" else logs / "orders-0" / "leader-epoch-checkpoint"
    change = MUTATIONS.get(name)
    if change:
        file.write_bytes(change(file.read_bytes()))
    elif name not in REFUSALS:
        file.unlink()
    more = ("--log-dir", logs) if where == "log" else ()
    # The batches of the log say that its file was cut: what it lacks is known, and nothing is unread.
    is_cut = where == "log" and name in {"empty", "no entries", "missing"}
    for option in ((), ("--off-lineage",), ("--unreferenced-epochs",)):
        with refusing(newest.name, REFUSALS[name]) if name in REFUSALS else nullcontext():
            ran = tierctl(
                *("sweep", "--metadata", logs, "--remote", remote, "--topic", "orders", *more),
                *("--topic-configs", configs, *option, "--output", "json"),
            )
        assert "orders-0" in ran.err
        steps = {(step["action"], step["partition"]) for step in ran.json["steps"]}
        assert steps == {("delete_segment", 1), ("delete_segment", 2)}, ran.err
        code = (ExitCode.REFUSED if option else ExitCode.OK) if is_cut else ExitCode.CORRUPT
        assert ran.code == code, ran.err
    of = (*("--metadata", logs, "--remote", remote, *more), "--topic-configs", configs, "--output", "json")
    with refusing(newest.name, REFUSALS[name]) if name in REFUSALS else nullcontext():
        shown = [
            tierctl("explain", "orders", "0", *of),
            tierctl("report", *of),
            tierctl("report", "--what-if", "orders.retention.ms=7d", *of),
        ]
    assert [ran.code == ExitCode.CORRUPT for ran in shown] == [not is_cut] * len(shown), shown
