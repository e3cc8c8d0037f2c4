"""`--metadata s3://bucket/folder`: commands print the same as for the folder, on both engines."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.metadata.state_dir import LAST_RUNS
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.storage.stores import open_store
from tierctl.storage.stores.base import hashed_file

from tests.cli.shell import Ran
from tests.cli.shell import tierctl as run_here
from tests.pipeline.tables import rows_of
from tests.pipeline.tables import run as write_tables
from tests.spark.clusters import Driver, run_command
from tests.support.amounts import rest_in_matrix
from tests.support.servers import S3Server, found

Capture = Callable[[str], Path]
Tierctl = Callable[..., Ran]

SPARK = ("--engine", "spark", "--master", "local[2]")
REMOTE = "{remote}"
READING: tuple[tuple[str, ...], ...] = (
    ("segments", "--all", "--output", "json"),
    ("segments", "--offsets", "--remote", REMOTE, "--output", "json"),
    ("format", "--style", "json"),
    ("format", "--order", "time", "--from-offset", "3", "--metadata-partition", "2"),
    ("fetch", "--remote", REMOTE, "--topic", "clicks", "--partition", "0", "--limit", "5"),
    ("verify", "--remote", "{remote_before}", "--output", "json"),
    ("sweep", "--remote", REMOTE, "--output", "json", "--now", "0"),
)
MUTATING: tuple[tuple[str, ...], ...] = (
    ("sweep", "--remote", REMOTE),
    ("copy", "--remote", REMOTE, "--log-dir", "{folder}"),
)


def uploaded(folder: Path, bucket: str) -> str:
    """Return the URI of a copy of a metadata topic's files in a bucket."""
    uri = f"s3://{bucket}/backup/kafka-1"
    store = open_store(uri)
    files = [path for path in folder.glob(f"{METADATA_TOPIC}-*/*") if path.is_file() and path.stat().st_size]
    store.put_all({path.relative_to(folder).as_posix(): hashed_file(path) for path in files})
    store.close()
    return uri


@pytest.fixture(scope="module")
def folder(capture: Capture) -> Path:
    """Return a broker's log directory with all metadata partitions."""
    return capture("tiered-cluster") / "after"


@pytest.fixture
def remote(capture: Capture) -> Path:
    return capture("tiered-cluster") / "after-remote"


@pytest.fixture(scope="module")
def in_s3(folder: Path, s3_session: S3Server) -> str:
    with pytest.MonkeyPatch.context() as patched:
        return uploaded(folder, found(s3_session, patched).bucket())


pytestmark = pytest.mark.usefixtures("s3_server")


@pytest.fixture(params=rest_in_matrix(["local", "spark"]))
def tierctl(request: pytest.FixtureRequest) -> Tierctl:
    """Run a command on one engine."""
    if request.param == "local":
        return lambda *args: run_here(*args, "--engine", "local")
    driver: Driver = request.getfixturevalue("s3_driver")
    return lambda *args: driver.call(run_command, [str(arg) for arg in (*args, *SPARK)])


def words(command: tuple[str, ...], **places: object) -> list[str]:
    return [word.format(**places) for word in command]


def lasting(ran: Ran) -> object:
    """Return the output of a command; of a plan, without its identity, which contains time and folders."""
    if '"identity"' not in ran.out:
        return ran.out
    return {name: value for name, value in json.loads(ran.out).items() if name not in {"identity", "digest"}}


@pytest.mark.parametrize("command", READING, ids=lambda command: " ".join(command[:2]))
def test_reading_commands_say_the_same(
    command: tuple[str, ...], folder: Path, remote: Path, in_s3: str, tierctl: Tierctl
) -> None:
    line = words(command, remote=remote, remote_before=remote.with_name("before-remote"))
    expected = run_here(*line, "--metadata", folder)
    ran = tierctl(*line, "--metadata", in_s3)
    assert (ran.code, lasting(ran)) == (expected.code, lasting(expected)), ran.err
    assert len(ran.lines) > 2 or command[0] == "sweep"


def test_caches_offsets_and_a_state_directory(folder: Path, in_s3: str, tmp_path: Path) -> None:
    (tmp_path / "_rlmm_committed_offsets").write_text("0\n1\n3 5\n")
    for where, state_dir in ((folder, tmp_path / "of-folder"), (in_s3, tmp_path / "of-s3")):
        ran = run_here("cache", "build", "--metadata", where, "--state-dir", state_dir, "--out", tmp_path)
        assert ran.code == 0, ran.err
        ran = run_here("offsets", "check", "--metadata", where, tmp_path / "_rlmm_committed_offsets")
        assert ran.code == 0, ran.err
    written = [
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir() if path.name != LAST_RUNS}
        for name in ("of-folder", "of-s3")
    ]
    assert written[0] == written[1]
    # The next run reads the offsets and finds no new events.
    again = run_here("segments", "--metadata", in_s3, "--state-dir", tmp_path / "of-s3", "--output", "json")
    assert again.out == run_here("segments", "--metadata", folder, "--output", "json").out


@pytest.mark.matrix
def test_pipeline(folder: Path, in_s3: str, tmp_path: Path, s3_driver: Driver, s3_server: S3Server) -> None:
    """Executors write the files of a warehouse in a bucket, and a second run goes on from them."""
    write_tables(folder, tmp_path / "expected", now_ms=0)
    warehouse = f"s3://{s3_server.bucket()}/warehouse"
    where = ("--metadata", in_s3, "--warehouse", warehouse, "--master", "local[2]", "--now", "0")
    for _ in range(2):
        ran = s3_driver.call(run_command, ["pipeline", "run", *where])
        assert ran.code == 0, ran.err
    assert rows_of(warehouse) == rows_of(tmp_path / "expected")


@pytest.mark.parametrize("command", MUTATING, ids=lambda command: command[0])
def test_changes_are_refused(
    command: tuple[str, ...], folder: Path, remote: Path, in_s3: str, tierctl: Tierctl
) -> None:
    before = {path: path.stat().st_mtime_ns for path in remote.rglob("*")}
    ran = tierctl(*words(command, remote=remote, folder=folder), "--metadata", in_s3, "--apply")
    assert ran.code == 2
    assert ran.err.splitlines()[0] == f"error: the metadata topic at {in_s3} can only be read"
    assert "file:///dir" in ran.err
    assert {path: path.stat().st_mtime_ns for path in remote.rglob("*")} == before


def test_no_topic_there(s3_server: S3Server) -> None:
    uri = f"s3://{s3_server.bucket()}/nothing"
    for command in (("segments",), ("format",), ("pipeline", "run", "--warehouse", "w")):
        ran = run_here(*command, "--metadata", uri)
        assert ran.code == 10, ran.err
        assert f"error: {uri}/ has no metadata topic\n" in ran.err


def test_one_segment_file(folder: Path) -> None:
    file = next(folder.glob(f"{METADATA_TOPIC}-2/*.log"))
    expected = run_here("format", "--metadata", folder, "--metadata-partition", "2", "--style", "json")
    assert run_here("format", "--metadata", file, "--style", "json").out == expected.out
    assert run_here("format", file, "--style", "json").out == expected.out
    ran = run_here("segments", "--metadata", file)
    assert ran.code == 2
    assert f"{file} is one segment file" in ran.err
