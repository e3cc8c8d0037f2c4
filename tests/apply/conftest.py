"""Small parts of real captures, over which tests run tierctl."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tierctl.apply.run_context import Status
from tierctl.metadata.manager import TopicBasedRemoteLogMetadataManager
from tierctl.model import MetadataEvent

from tests.apply.runs import run_on, statuses
from tests.apply.sites import Site
from tests.apply.worlds import RETENTION, World, copy_world
from tests.support.servers import S3Server
from tests.verify.tiers import Spoilt


@pytest.fixture(autouse=True)
def no_power_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace fsync by a no-op: these tests cut no power. Other tests check that fsync is called."""
    monkeypatch.setattr("os.fsync", lambda _fd: None)


@pytest.fixture(scope="module")
def beginning(capture: Callable[[str], Path], module_folder: Path) -> World:
    world = copy_world(module_folder / "empty", capture("untiered-broker"))
    (world.logs / "configs").write_text(RETENTION)
    return world


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URI of a tier: a folder, or a bucket in tests with `in_each_place`."""
    if getattr(request, "param", "folder") == "folder":
        return (tmp_path / "tiers").as_uri()
    server: S3Server = request.getfixturevalue("s3_server")
    return f"s3://{server.bucket()}"


@pytest.fixture
def site(beginning: World, place: str, tmp_path: Path) -> Site:
    """Return metadata without events, and the URI of a tier that does not exist yet."""
    shutil.copytree(beginning.metadata, tmp_path / "metadata")
    shutil.copytree(beginning.logs, tmp_path / "logs")
    return Site(tmp_path / "metadata", tmp_path / "logs", f"{place}/tier")


@pytest.fixture(scope="module")
def copied(beginning: World, module_folder: Path) -> World:
    world = beginning.clone(module_folder / "tiered")
    assert set(statuses(run_on("copy", world))) == {Status.DONE}
    return world


@pytest.fixture
def empty(beginning: World, tmp_path: Path) -> World:
    return beginning.clone(tmp_path / "empty")


@pytest.fixture
def tiered(copied: World, tmp_path: Path) -> World:
    return copied.clone(tmp_path / "tiered")


@pytest.fixture
def cluster(writable: Callable[[str], Path], tmp_path: Path) -> World:
    """The captured tiered cluster before the broker deleted any segment."""
    metadata = writable("tiered-cluster/before")
    return World(metadata, writable("tiered-cluster/before-remote"), metadata, tmp_path / "state")


@pytest.fixture
def tier(cluster: World) -> Spoilt:
    """The same tier, which tests may damage."""
    return Spoilt(cluster.metadata, cluster.remote)


Watch = Callable[[int, str, str], None]
"""Receives the number of a publication, "before" or "after", and the state in its events."""


@pytest.fixture
def publications(monkeypatch: pytest.MonkeyPatch) -> Callable[[Watch], None]:
    """Calls a function around each publication; it may raise."""

    def install(watch: Watch) -> None:
        original, count = TopicBasedRemoteLogMetadataManager.publish, [0]

        def watched(self: Any, events: Sequence[MetadataEvent], **more: Any) -> None:
            count[0] += 1
            watch(count[0], "before", str(events[0].state))
            original(self, events, **more)
            watch(count[0], "after", str(events[0].state))

        monkeypatch.setattr(TopicBasedRemoteLogMetadataManager, "publish", watched)

    return install
