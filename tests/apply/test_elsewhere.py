"""Side effects on another machine, where the path of the tier names a different folder."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from tierctl.apply.run_context import LocalEngine, SideEffect, SideEffectContext, SideEffectResult, Status
from tierctl.errors import EngineError, StoreWriteUnknown
from tierctl.model import RemoteLogSegmentState

from tests.apply.runs import run_on, statuses
from tests.apply.worlds import World, copy_world
from tests.storage.tiers import local_tier

P = TypeVar("P")
S = RemoteLogSegmentState


class Elsewhere(LocalEngine):
    """An engine that works in a folder of its own."""

    verify_on_driver = True

    def __init__(self, folder: Path) -> None:
        super().__init__(1)
        self._folder = folder

    def begin(
        self, side_effect: SideEffect[P], inputs: Sequence[P], context: SideEffectContext
    ) -> Callable[[], list[SideEffectResult]]:
        return super().begin(side_effect, inputs, replace(context, remote=local_tier(self._folder)))


class Gone(LocalEngine):
    """An engine that accepts no work."""

    def ready(self) -> None:
        raise EngineError("Spark is gone")


@pytest.fixture
def empty(capture: Callable[[str], Path], tmp_path: Path) -> World:
    return copy_world(tmp_path / "world", capture("untiered-broker"))


def test_a_copy_that_is_not_seen_from_here_is_not_finished(empty: World, tmp_path: Path) -> None:
    outcomes = run_on("copy", empty, engine=Elsewhere(tmp_path / "elsewhere"), wave_size=2)
    assert statuses(outcomes) == [Status.FAILED, Status.FAILED, Status.DROPPED]
    assert isinstance(outcomes[0].error, StoreWriteUnknown)
    assert {segment.state for segment in empty.segments()} == {S.COPY_SEGMENT_STARTED}


def test_a_deletion_that_is_not_seen_from_here_is_not_finished(empty: World, tmp_path: Path) -> None:
    run_on("copy", empty)
    shutil.copytree(empty.remote, tmp_path / "elsewhere")
    outcomes = run_on("sweep", empty, engine=Elsewhere(tmp_path / "elsewhere"))
    assert set(statuses(outcomes)) == {Status.FAILED}
    assert S.DELETE_SEGMENT_STARTED in {segment.state for segment in empty.segments()}
    assert set(statuses(run_on("sweep", empty))) == {Status.DONE}


def test_nothing_is_published_for_an_engine_that_is_gone(empty: World) -> None:
    outcomes = run_on("copy", empty, engine=Gone(1), wave_size=2)
    assert statuses(outcomes) == [Status.FAILED, Status.FAILED, Status.DROPPED]
    assert empty.segments() == []
