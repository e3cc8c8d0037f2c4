"""Every cell of the table of engines: output, files and counters are the same on both engines."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tierctl.errors import EngineError
from tierctl.metadata.cache_building import plan_compaction
from tierctl.metadata.cache_files import entry_rows
from tierctl.model.choices import ONLY_SPARK
from tierctl.spark import fold
from tierctl.spark.executors import examined
from tierctl.storage.throttle import Direction, Throttle, ThrottleSettings, Waits

from tests.cli.shell import Ran, environment, tierctl
from tests.spark.clusters import ROOT, Driver, Engine, run_command
from tests.spark.on_engines import SPARK, Run, require_same_on_both_engines
from tests.spark.scenes import CACHES, CODES, RECOVERY, SCENES, cache_folder, files_in
from tests.spark.without_spark import LOCAL, ONLY_LOCAL
from tests.spark.worlds import Capture, tiered
from tests.support.engines import engines


def test_every_command_has_a_scene() -> None:
    commands = {command for command, found in engines().items() if len(found) > 1}
    assert {command.partition(" --")[0] for command in SCENES} == commands
    # tests/spark/session/test_submit.py and tests/live/test_backup_config.py run the other two.
    others = {"submit", "backup-config", *ONLY_SPARK}
    assert commands | ONLY_LOCAL.keys() | others == engines().keys()
    assert not commands & ONLY_LOCAL.keys()


BULK_READS = ("format", "segments", "fetch", "verify")
COUNTED = {"fetch": True, "fetch --erase-report": True, "verify": True, "copy --from-remote": True}
COUNTED |= {"copy": False, "sweep": False, "apply": False}
"""The commands of which the counters of both engines are compared, and whether they read the tier."""


@pytest.fixture
def small_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Split small captures as if they were large."""
    monkeypatch.setattr(fold, "LEAST_EVENTS", 1)
    monkeypatch.setattr(fold, "LEAST_BYTES", 1)
    monkeypatch.setattr(fold, "BYTES_PER_JOB", 50_000)


@pytest.mark.usefixtures("spark", "small_inputs")
@pytest.mark.parametrize("command", SCENES)
def test_both_engines_print_and_write_the_same(
    command: str, capture: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "run.prom"

    def scene(run: Run, folder: Path) -> Any:
        if command not in COUNTED:
            return SCENES[command](run, capture, folder)
        found = SCENES[command](
            lambda *words, cwd=None: run(*words, "--metrics-file", file, cwd=cwd), capture, folder
        )
        counted = counters(file)
        # A run adds to the counters in the file.
        file.unlink()
        assert any(key[0] == FETCHED_BYTES and value for key, value in counted.items()) is COUNTED[command]
        return found, counted

    functions = require_same_on_both_engines(scene, tmp_path, monkeypatch, code=CODES.get(command))
    if command in RECOVERY:
        assert examined._list_folder in functions, "executors did not list the tier"
        assert examined._read_group in functions, "executors read no object"


@pytest.mark.matrix
@pytest.mark.parametrize("engine", ["connect", "standalone"], indirect=True)
@pytest.mark.parametrize("command", ["copy", "sweep", "delete", "rebuild --aiven-private-key", *BULK_READS])
def test_every_kind_of_spark_does_the_same(
    command: str, engine: Engine, capture: Capture, tmp_path: Path
) -> None:
    found = []
    for run in (tierctl, engine.tierctl):
        folder = tmp_path / "folder"
        folder.mkdir()
        found.append(SCENES[command](run, capture, folder))
        shutil.rmtree(folder)
    assert found[0] == found[1]


@pytest.mark.matrix
@pytest.mark.parametrize("command", [each for each in SCENES if each != "apply --plan of restore"])
def test_relative_paths_mean_the_same_to_executors(
    command: str, local_cluster_driver: Driver, capture: Capture, tmp_path: Path
) -> None:
    """Each executor is a process with another working directory than the driver has.

    A plan names its paths, so that the one of an absolute path is not that of a relative one.
    """
    spark = ("--engine", "spark", "--master", local_cluster_driver.master)

    def here(words: list[str], folder: Path) -> Ran:
        return tierctl(*words, "--engine", "local", cwd=folder)

    def there(words: list[str], folder: Path) -> Ran:
        ran: Ran = local_cluster_driver.call(run_command, [*words, *spark], folder)
        return ran

    found = []
    for run in (here, there):
        # The same folder, because its path is printed.
        folder = tmp_path / "folder"
        folder.mkdir()
        scene = SCENES[command](partial(_with_relative_paths, run, folder), capture, folder)
        found.append(_with_same_paths(scene, folder, tmp_path.parent))
        shutil.rmtree(folder)
    assert found[0] == found[1]


def _with_same_paths(value: Any, folder: Path, above: Path) -> Any:
    """Return a result with one form of the paths below `folder`: Spark prints some as absolute ones."""
    if isinstance(value, str):
        return value.replace(os.path.relpath(above, folder), str(above)).replace(f"{folder}/", "")
    if is_dataclass(value):
        compared = (getattr(value, each.name) for each in fields(value) if each.compare)
        return [_with_same_paths(each, folder, above) for each in compared]
    if isinstance(value, dict):
        return {name: _with_same_paths(each, folder, above) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_with_same_paths(each, folder, above) for each in value]
    return value


def _with_relative_paths(
    run: Callable[[list[str], Path], Ran], folder: Path, *words: object, cwd: Path | None = None
) -> Ran:
    where = cwd or folder
    return run([_relative(str(word), where) for word in words], where)


def _relative(word: str, folder: Path) -> str:
    option, equals, path = word.rpartition("=")
    return option + equals + (os.path.relpath(path, folder) if path.startswith("/") else path)


@pytest.mark.matrix
def test_the_local_engine_needs_no_spark(tmp_path: Path) -> None:
    """The commands do their work in a process in which PySpark can't be imported."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.without_spark", tmp_path, *LOCAL],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [*LOCAL]


@pytest.mark.parametrize("command", [name for name, found in engines().items() if found == ("local",)])
def test_the_other_commands_have_no_engine(command: str) -> None:
    ran = tierctl(*command.split(), "--engine", "spark")
    assert ran.code == 2


@pytest.mark.parametrize(
    ("name", "more_bytes", "message"),
    [("a.rlmcache", 1, "bytes on an executor"), ("b.rlmcache", 0, "an executor can't read b.rlmcache")],
)
def test_executors_of_another_machine(name: str, more_bytes: int, message: str, tmp_path: Path) -> None:
    """The file with the same path on the other machine differs or is missing."""
    (tmp_path / "a.rlmcache").write_bytes(b"abc")
    file = fold._File(name, 3 + more_bytes)
    before = Path.cwd()
    with pytest.raises(EngineError, match=message) as caught:
        fold._read(entry_rows, str(tmp_path), file)
    assert "shared file system" in (caught.value.hint or "")
    assert Path.cwd() == before


def test_a_file_that_changed_is_not_replaced(
    capture: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The executors have read another file with the same path."""
    cache_folder(capture, tmp_path, spoil=False)
    before = files_in(tmp_path / CACHES)
    monkeypatch.setattr(
        "tierctl.commands.cache.plan_compaction", lambda path: replace(plan_compaction(path), crc=7)
    )
    ran = tierctl("cache", "compact", tmp_path / CACHES, "--apply")
    assert ran.code == 4
    assert "is not the file that was read" in ran.err
    assert files_in(tmp_path / CACHES) == before


FETCHED_BYTES = "kafka_server_brokertopicmetrics_remotefetchbytes_total"


def counters(file: Path) -> dict[tuple[str, ...], float]:
    """Return the counters in a metrics file by name and labels."""
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(file.read_text())
        for sample in family.samples
        if family.type == "counter"
    }


@pytest.mark.matrix
@pytest.mark.usefixtures("spark")
def test_waits_of_executors_are_reported(capture: Capture, tmp_path: Path) -> None:
    world, file = tiered(capture, tmp_path / "world"), tmp_path / "x.prom"
    limit = ("--throttle-fetch", "2M", "--metrics-file", file)
    ran = tierctl("verify", *world.where[:4], "--deep", *limit, *SPARK)
    assert (ran.code, ", throttled " in ran.summary) == (0, True), ran.summary
    values = dict(line.rsplit(" ", 1) for line in file.read_text().splitlines() if line[0] != "#")
    name = "kafka_server_remotelogmanager_remote_fetch_throttle_time_"
    assert 0 < float(values[f"{name}avg"]) <= float(values[f"{name}max"])


def test_waits_of_processes_may_overlap() -> None:
    """A run's wait is that of the process that waited longest; counts and sums cover all processes."""
    throttle = Throttle(ThrottleSettings())
    for process, elapsed_s in (("a:1", 2.0), ("b:1", 3.0), ("a:1", 4.0)):
        waits = {Direction.FETCH: Waits(2, elapsed_s + 1, elapsed_s, elapsed_s)}
        throttle.add_waits(process, waits)
    times = throttle.times[Direction.FETCH].ended
    assert (times.count, times.sum_s, times.max_s, throttle.elapsed_s) == (6, 12.0, 4.0, 6.0)
