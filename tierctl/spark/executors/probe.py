"""Probe executors before they get work: how many tasks run at a time, and whether they can do the work."""

import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa

import tierctl
from tierctl.errors import TierctlError, UsageError
from tierctl.spark.executors.serialization import decoded_outcome, with_host
from tierctl.spark.executors.task import outcome

Facts = TypeVar("Facts")

PROBES_DDL = "host STRING, version STRING, is_error BOOLEAN, data BINARY"
_PROBES = pa.schema(
    [("host", pa.string()), ("version", pa.string()), ("is_error", pa.bool_()), ("data", pa.binary())]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed(Generic[Facts]):
    """What the probe of one task returned: the host and its version of tierctl, and `facts` or an `error`."""

    host: str
    version: str
    facts: Facts | None = None
    error: TierctlError | None = None


def no_check() -> None:
    """Accept every executor that can import tierctl."""


@dataclass(frozen=True, slots=True)
class ProbeExecutor:
    """The callable for `DataFrame.mapInArrow` that probes the executor of one task.

    `check` returns facts about the executor, or raises TierctlError if the executor cannot do the work.
    """

    check: Callable[[], Any] = no_check

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row per task: host, version of tierctl, and the encoded result or error of `check`."""
        for _ in batches:
            pass
        data, is_error = outcome(lambda _: self.check(), None)
        row = {"host": socket.gethostname(), "version": tierctl.__version__}
        yield pa.RecordBatch.from_pylist([row | {"is_error": is_error, "data": data}], schema=_PROBES)


def probed(row: Mapping[str, Any]) -> Probed[Any]:
    """Return the probe in `row`, a row of ProbeExecutor."""
    facts, error = decoded_outcome(row["data"], is_error=row["is_error"])
    return Probed(host=row["host"], version=row["version"], facts=facts, error=error)


def require_usable(found: Probed[Any]) -> None:
    """Raise the error of a probe, or UsageError for another version of tierctl."""
    if found.error is not None:
        raise with_host(found.error, found.host)
    if found.version != tierctl.__version__:
        raise UsageError(
            f"executor {found.host} has tierctl {found.version}, not {tierctl.__version__}",
            hint="install the same version, or none, on the executors",
        )
