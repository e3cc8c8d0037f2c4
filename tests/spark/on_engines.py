"""Run one scene on both engines, and require the same result and work of executors."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tierctl.model.choices import EngineName
from tierctl.spark.executors.transport import Executors

from tests.cli.shell import Ran, tierctl

Run = Callable[..., Ran]
SPARK = ("--engine", "spark", "--master", "local[2]")


def require_same_on_both_engines(
    scene: Callable[[Run, Path], Any],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    code: int | None = None,
) -> list[object]:
    """Run `scene` in an empty folder with each engine, and return the functions given to `Executors.run`.

    With `code`, the last command of the scene must end with it.
    """
    summaries: dict[EngineName, list[str]] = {}
    jobs: list[object] = []
    functions: list[object] = []
    for name, called in (("_collect", jobs), ("probe_each", jobs), ("run", functions)):
        monkeypatch.setattr(Executors, name, _noted(name, called))
    found = []
    for engine in EngineName:
        more = SPARK if engine is EngineName.SPARK else ("--engine", "local")
        codes: list[int] = []
        summaries[engine] = []
        # In the same folder, because its path is printed.
        here = folder / "here"
        here.mkdir()
        found.append(scene(partial(_run_noting, codes, summaries[engine], more), here))
        shutil.rmtree(here)
        assert codes[-1] == (codes[-1] if code is None else code)
        assert codes[-1] != 1
        assert bool(jobs) is (engine is EngineName.SPARK), "executors did nothing"
    assert found[0] == found[1]
    assert summaries[EngineName.LOCAL] == summaries[EngineName.SPARK]
    return functions


def _noted(name: str, called: list[object]) -> Callable[..., Any]:
    method = getattr(Executors, name)

    def noted(self: Executors, function: Any, *args: Any, **more: Any) -> Any:
        called.append(getattr(function, "func", function))
        return method(self, function, *args, **more)

    return noted


def _run_noting(
    codes: list[int], summaries: list[str], more: tuple[str, ...], *words: object, cwd: Path | None = None
) -> Ran:
    ran = tierctl(*words, *more, cwd=cwd)
    codes.append(ran.code)
    # With Spark, the paths of a request are absolute, and doctor makes more checks.
    if cwd is not None:
        ran = replace(ran, err=ran.err.replace(f"{cwd}/", ""), summary=ran.summary.replace(f"{cwd}/", ""))
    if words[0] != "doctor":
        # Without the seconds of the run.
        summaries.append(ran.summary.partition(" (")[0])
    return ran
