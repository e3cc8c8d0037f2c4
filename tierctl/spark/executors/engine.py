"""Side effects on the executors of Apache Spark: a wave's pieces are a DataFrame, and so are the answers."""

import pickle
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

import tierctl
from tierctl.apply.defaults import WAVE_SIZE
from tierctl.apply.engine import SideEffect
from tierctl.apply.side_effects import SideEffectContext, SideEffectInput, SideEffectResult
from tierctl.apply.stop import Stop
from tierctl.errors import CorruptInputError, StoreWriteUnknown, TierctlError, UsageError
from tierctl.spark.executors.jobs import JobFailedError, JobStoppedError, collect, parallelism
from tierctl.spark.executors.progress import progress
from tierctl.spark.executors.worker import ANSWERS, GREETINGS, PIECE, BenchSpec, Greeter, Worker
from tierctl.spark.session.shipping import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

P = TypeVar("P", bound=SideEffectInput)

PIECES_PER_SLOT = 8
"""Of a wave: what publishing and a job's beginning cost is then little beside the work."""

TASKS_PER_SLOT = 4
"""Small tasks: the last ones end together, and a lost executor takes little with it."""

WAVE_SIZE_MAX = 2000
_GREETING_ROWS = 1 << 12


class SparkEngine:
    """Engine over a session of any kind, Spark Connect too: nothing but DataFrames is used.

    `slots` are the tasks that run at the same time, as far as Spark says when it is first asked.
    """

    def __init__(
        self, session: "SparkSession", spec: BenchSpec, *, stop: Stop | None = None, what: str = "segments"
    ) -> None:
        """`what` is shown beside the bar of tasks."""
        self._session = session
        self._spec = spec
        self._what = what
        self._stop = Stop() if stop is None else stop
        self._slots = 0
        _refuse_speculation(session)

    @property
    def verify_on_driver(self) -> bool:
        """Engine.verify_on_driver: what is a folder here need not be that folder on an executor."""
        master = str(self._session.conf.get("spark.master", ""))
        is_here = (master == "local" or master.startswith("local[")) and not is_connect(self._session)
        return self._spec.remote.uri.startswith("file:") and not is_here

    @property
    def slots(self) -> int:
        """How many tasks run at the same time."""
        self.ready()
        return max(1, self._slots)

    @property
    def wave_size(self) -> int:
        """How many segments a wave should have, so that every executor is busy."""
        return min(max(WAVE_SIZE, self.slots * PIECES_PER_SLOT), WAVE_SIZE_MAX)

    def ready(self) -> None:
        """Engine.ready; once, and again after a job has failed.

        UsageError when executors can't work: no tierctl, another one, or a library is missing.
        """
        if self._slots:
            return
        # As many tasks as Spark makes by itself are as many as run at a time.
        rows = self._session.range(_GREETING_ROWS)
        greeted = rows.mapInArrow(Greeter(spec=self._spec), GREETINGS)
        try:
            greetings = collect(greeted, stopped=self._stop.asked).to_pylist()
        except JobStoppedError:
            # Who asks sees by itself that it was told to stop.
            return
        for greeting in greetings:
            _require_fit(greeting)
        self._slots = len(greetings)

    def map(self, do: SideEffect[P], work: Sequence[P], bench: SideEffectContext) -> list[SideEffectResult]:
        """Engine.map. What a failed job leaves unanswered is done once more, piece by piece.

        Nothing is cleaned up by guess: a task that was lost may still be at work somewhere.
        """
        pieces = dict(enumerate(work))
        try:
            tasks = min(len(pieces), self.slots * TASKS_PER_SLOT)
            with parallelism(self._session, tasks), progress(self._session, self._what):
                answers = self._answers(do, pieces, bench, tasks=tasks)
        except JobStoppedError:
            return [SideEffectResult(begun=True, stopped=True)] * len(pieces)
        except JobFailedError as e:
            self._slots = 0
            answers = self._one_by_one(do, pieces, bench, e)
        return [answers.get(at, _unanswered(None)) for at in pieces]

    def _answers(
        self,
        do: SideEffect[P],
        pieces: Mapping[int, P],
        bench: SideEffectContext,
        *,
        tasks: int = 1,
        again: bool = False,
    ) -> dict[int, SideEffectResult]:
        frame = self._session.createDataFrame(steps(pieces, tasks))
        worker = Worker(do=do, spec=self._spec, again=again)
        rows = collect(frame.mapInArrow(worker, ANSWERS), stopped=bench.stop.asked).to_pylist()
        for row in rows:
            bench.advance(row["done_bytes"])
        return {row["at"]: _answer(row) for row in rows}

    def _one_by_one(
        self, do: SideEffect[P], pieces: Mapping[int, P], bench: SideEffectContext, failed: JobFailedError
    ) -> dict[int, SideEffectResult]:
        """So that one piece that kills whoever does it does not keep the others."""

        def alone(at: int) -> dict[int, SideEffectResult]:
            try:
                return self._answers(do, {at: pieces[at]}, bench, again=True)
            except JobStoppedError:
                return {at: SideEffectResult(begun=True, stopped=True)}
            except JobFailedError as e:
                return {at: _unanswered(e)}

        try:
            slots = self.slots
        except TierctlError:
            return {at: _unanswered(failed) for at in pieces}
        with ThreadPoolExecutor(slots) as pool:
            return {at: answer for found in pool.map(alone, pieces) for at, answer in found.items()}


def steps(pieces: Mapping[int, SideEffectInput], tasks: int = 1) -> pa.Table:
    """A wave as a table: where it stands in the wave, which segment it is about, and the piece itself."""
    rows = [
        {
            "at": at,
            "topic": piece.metadata.topic,
            "topic_id": str(piece.metadata.topic_id),
            "partition": piece.metadata.partition,
            "segment_id": str(piece.metadata.segment_id),
            "start_offset": piece.metadata.start_offset,
            "end_offset": piece.metadata.end_offset,
            "segment_size_in_bytes": piece.metadata.segment_size_in_bytes,
            PIECE: pickle.dumps(piece),
        }
        for at, piece in pieces.items()
    ]
    table = pa.Table.from_pylist(rows)
    return pa.Table.from_batches(table.to_batches(max_chunksize=-(-len(rows) // max(1, tasks))))


def _answer(row: Mapping[str, Any]) -> SideEffectResult:
    return SideEffectResult(
        begun=row["begun"],
        stopped=row["stopped"],
        custom_metadata=row["custom_metadata"],
        error=error_of(row),
    )


def _unanswered(failed: JobFailedError | None) -> SideEffectResult:
    why = "no executor answered" if failed is None else failed.message
    hint = "run the command again" if failed is None else failed.hint
    return SideEffectResult(
        begun=True, error=StoreWriteUnknown(f"what became of it is not known: {why}", hint=hint)
    )


def error_of(row: Mapping[str, Any]) -> TierctlError | None:
    """The error in columns `error`, `message` and `hint`, with the `host` where it was met."""
    if row["error"] is None:
        return None
    kind = _classes(TierctlError).get(row["error"], TierctlError)
    place = f"on executor {row['host']}"
    hint = f"{row['hint']}; {place}" if row["hint"] else place
    error = kind.__new__(kind)
    TierctlError.__init__(error, row["message"], hint=hint)
    if isinstance(error, CorruptInputError):
        error.what, error.expected, error.found = row["message"], "", ""
        error.at = error.source = None
    return error


def _classes(root: type[TierctlError]) -> dict[str, type[TierctlError]]:
    found = {root.__name__: root}
    for kind in root.__subclasses__():
        found |= _classes(kind)
    return found


def _require_fit(greeting: Mapping[str, Any]) -> None:
    error = error_of(greeting)
    if error is not None:
        raise error
    if greeting["version"] != tierctl.__version__:
        raise UsageError(
            f"executor {greeting['host']} has tierctl {greeting['version']}, not {tierctl.__version__}",
            hint="install the same version, or none, on the executors",
        )


def _refuse_speculation(session: "SparkSession") -> None:
    if str(session.conf.get("spark.speculation", "false")).lower() == "true":
        raise UsageError(
            "spark.speculation is on: no segment may be stored or deleted twice at a time",
            hint="start Spark, or its Connect server, with spark.speculation=false",
        )
