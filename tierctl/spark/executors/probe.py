"""Probe executors before they get work: how many tasks run at a time, and whether they can do the work."""

import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import tierctl
from tierctl.errors import TierctlError, UsageError
from tierctl.spark.executors.serialization import decoded_error, dumps, with_host

PROBES_DDL = "host STRING, version STRING, error BINARY"
_PROBES = pa.schema([("host", pa.string()), ("version", pa.string()), ("error", pa.binary())])


def no_check() -> None:
    """Accept every executor that can import tierctl."""


@dataclass(frozen=True, slots=True)
class ProbeExecutor:
    """The callable for `DataFrame.mapInArrow` that probes the executor of one task.

    `check` raises TierctlError if the executor cannot do the work.
    """

    check: Callable[[], None] = no_check

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row per task: host, version of tierctl, and the encoded error of `check` or null."""
        for _ in batches:
            pass
        error = None
        try:
            self.check()
        except TierctlError as e:
            error = dumps(e)
        row = {"host": socket.gethostname(), "version": tierctl.__version__, "error": error}
        yield pa.RecordBatch.from_pylist([row], schema=_PROBES)


def require_usable(probe: Mapping[str, Any]) -> None:
    """Raise the error in `probe`, a row of ProbeExecutor, or UsageError for another version of tierctl."""
    if probe["error"] is not None:
        raise with_host(decoded_error(probe["error"]), probe["host"])
    if probe["version"] != tierctl.__version__:
        raise UsageError(
            f"executor {probe['host']} has tierctl {probe['version']}, not {tierctl.__version__}",
            hint="install the same version, or none, on the executors",
        )
