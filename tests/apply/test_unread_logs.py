"""Local logs that are not understood, or that a broker has twice: what is planned, and what is reported."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.errors import ExitCode

from tests.apply.conftest import Ran
from tests.apply.worlds import World, check_durable
from tests.commands.restore.unread import Change, flipped, patched
from tests.support.topic_settings import enabled

Tierctl = Callable[..., Ran]
WHOLE = [0, 600, 1200, 1800, 2400]
LOG, NEXT, EPOCHS = "00000000000000001200", "00000000000000001800.snapshot", "leader-epoch-checkpoint"
MUTATIONS: dict[str, tuple[str, Change | None, ExitCode, str]] = {
    "magic": (f"{LOG}.log", patched(16, 3), ExitCode.CORRUPT, "found magic 3"),
    "magic of a later batch": (f"{LOG}.log", patched(16, 127, nth=3), ExitCode.CORRUPT, "found magic 127"),
    "codec 5": (f"{LOG}.log", patched(22, 5, mends_crc=True), ExitCode.CORRUPT, "from 0 to 4, found 5"),
    "codec 7": (f"{LOG}.log", patched(22, 7, mends_crc=True), ExitCode.CORRUPT, "from 0 to 4, found 7"),
    "a bit": (f"{LOG}.log", flipped(200), ExitCode.CORRUPT, "expected CRC-32C"),
    "no offset index": (f"{LOG}.index", None, ExitCode.PARTIAL, f"{LOG}.index"),
    "no time index": (f"{LOG}.timeindex", None, ExitCode.PARTIAL, f"{LOG}.timeindex"),
    "offset index": (f"{LOG}.index", flipped(4), ExitCode.CORRUPT, "offset index at byte 8"),
    "time index": (f"{LOG}.timeindex", flipped(3), ExitCode.CORRUPT, "time index at byte 12"),
    "no snapshot": (NEXT, None, ExitCode.OK, "no producer snapshot at offset 1800"),
    "snapshot": (NEXT, lambda data: b"\0\7" + data[2:], ExitCode.CORRUPT, "found version 7"),
    "no epochs": (EPOCHS, None, ExitCode.OK, "leader epochs of segment 0 are not all known"),
    "epochs": (EPOCHS, lambda data: b"7" + data[1:], ExitCode.CORRUPT, "found version 7"),
    "no entries": (EPOCHS, lambda _: b"0\n0\n", ExitCode.OK, "leader epochs of segment 0 are not all known"),
}
"""Changes of files of bills-0: the file, its change (None: it is missing), the exit code and the reason."""


@pytest.fixture(scope="module")
def logs(capture: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    local = capture("untiered-broker") / "local"
    folder = tmp_path_factory.mktemp("logs") / "local"
    return shutil.copytree(local, folder, ignore=shutil.ignore_patterns("ledger-*", "events-*"))


@pytest.mark.parametrize("name", MUTATIONS)
def test_copy_stops_where_the_log_is_not_understood(
    tierctl: Tierctl, logs: Path, tmp_path: Path, name: str
) -> None:
    world = World(tmp_path / "metadata", tmp_path / "remote", logs, tmp_path / "state")
    file, change, code, reason = MUTATIONS[name]
    path = logs / "bills-0" / file
    sound = path.read_bytes()
    path.write_bytes(change(sound)) if change else path.unlink()
    try:
        where = (*world.where, "--layout", "kafka", "--log-dir", logs, *enabled(logs))
        ran = tierctl("copy", *where, "--output", "json", "--apply")
    finally:
        path.write_bytes(sound)
    assert (ran.code, reason in ran.out + ran.err) == (code, True), ran.out + ran.err
    found = {
        number: [
            each.start_offset for each in world.segments() if each.topic_id_partition.partition == number
        ]
        for number in (0, 1)
    }
    assert found == {0: [] if file == EPOCHS else [0, 600], 1: WHOLE}
    assert {str(each.state) for each in world.segments()} == {"COPY_SEGMENT_FINISHED"}
    check_durable(world)


META = "version=1\nnode.id={}\ncluster.id=c\n"


@pytest.fixture
def twice(tiered: World, tmp_path: Path) -> Callable[[int], tuple[object, ...]]:
    """Return options with two log directories that both have bills-0; broker `node_id` has the second."""
    other = tmp_path / "other"
    shutil.copytree(tiered.logs, other)
    (tiered.logs / "meta.properties").write_text(META.format(1))

    def options(node_id: int) -> tuple[object, ...]:
        (other / "meta.properties").write_text(META.format(node_id))
        return ("--log-dir", tiered.logs, "--log-dir", other)

    return options


@pytest.mark.parametrize("command", ["copy", "sweep"])
def test_nothing_is_planned(
    tierctl: Callable[..., Ran],
    tiered: World,
    twice: Callable[[int], tuple[object, ...]],
    command: str,
) -> None:
    settings = enabled(tiered.logs) if command == "copy" else ("--topic-configs", tiered.logs / "configs")
    ran = tierctl(command, *tiered.where, *twice(1), *settings, "-o", "json")
    assert (ran.code, ran.json["steps"]) == (7, [])
    assert "unreadable: " in ran.err
    assert "bills-0: expected one folder on broker 1 of cluster c, found 2: " in ran.err
    replicas = tierctl(command, *tiered.where, *twice(2), *settings, "-o", "json")
    assert replicas.code == 0
    assert bool(replicas.json["steps"]) == (command == "sweep")
    assert "note: bills-0 has 2 replicas in the log directories: the newest is used" in replicas.err
