"""A run continues from snapshots, or from the caches if a snapshot is not valid."""

import os
from pathlib import Path

import pytest
from tierctl.metadata.state_dir import directory as state_dir
from tierctl.metadata.state_dir.directory import PREFIX

from tests.metadata.state_dir.test_directory import (
    CACHE,
    HOME,
    PARTITIONS,
    Place,
    events,
    made_place,
    summary,
)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return made_place(tmp_path)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the caches that are read."""
    found: list[str] = []
    load = state_dir.load_cache
    monkeypatch.setattr(
        state_dir, "load_cache", lambda path, *more: (found.append(path.name), load(path, *more))[1]
    )
    return found


def test_unchanged_caches_are_not_read(place: Place, loads: list[str]) -> None:
    place.run()
    again = place.run()
    assert (loads, again.records_read) == ([], 0)
    assert summary(again.state) == summary(place.truth())
    place.append(*events([7]))
    third = place.run()
    assert (loads, third.records_read) == ([], 2)
    assert summary(third.state) == summary(place.truth()) == summary(place.run().state)


@pytest.mark.parametrize("change", ["content", "time", "snapshot", "no snapshot", "cut snapshot"])
def test_what_changed_is_read_from_the_caches(place: Place, loads: list[str], change: str) -> None:
    place.run()
    cache, snapshot = place.state / CACHE, place.state / f"{PREFIX}{HOME}"
    if change == "content":
        flip(cache)
    elif change == "time":
        os.utime(cache, ns=(1, 1))
    elif change == "snapshot":
        flip(snapshot)
    elif change == "no snapshot":
        snapshot.unlink()
    else:
        snapshot.write_bytes(snapshot.read_bytes()[:-9])
    again = place.run()
    assert loads == [CACHE]
    assert summary(again.state) == summary(place.truth())
    assert len(again.notes) == (1 if change == "content" else 0)
    loads.clear()
    assert summary(place.run().state) == summary(place.truth())
    assert loads == []


def flip(path: Path) -> None:
    """Change a byte in the middle, so that only the modification time differs."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_record_that_is_read_again_leaves_no_snapshot(place: Place) -> None:
    place.append(b"\x00nonsense")
    place.append(*events([8]))
    for _ in range(2):
        assert summary(place.run().state) == summary(place.truth())
    names = {path.name for path in place.state.iterdir() if path.name.startswith(PREFIX)}
    assert names == {f"{PREFIX}{n}" for n in range(PARTITIONS) if n != HOME and place.truth().read.get(n)}
