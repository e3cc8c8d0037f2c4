"""Check what a Spark session and its executors report: versions, space, and the sources that they reach."""

import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa

import tierctl
from tierctl.doctor.checks import Check
from tierctl.doctor.examination import Result, fault, ok
from tierctl.doctor.result import Outcome
from tierctl.errors import TierctlError
from tierctl.report.texts import bytes_text, counted

SEGMENT_BYTES = 1 << 30
"""The default of segment.bytes: the space that one task needs for a segment."""
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """The versions that driver and executors must share; `python` is major and minor."""

    python: str
    tierctl: str
    pyarrow: str

    @classmethod
    def here(cls) -> Self:
        """Return the versions of this process."""
        python = ".".join(platform.python_version_tuple()[:2])
        return cls(python=python, tierctl=tierctl.__version__, pyarrow=pa.__version__)

    def __str__(self) -> str:
        """Return the versions as text."""
        return f"Python {self.python}, tierctl {self.tierctl}, pyarrow {self.pyarrow}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorFacts:
    """What one task found on its executor.

    `scratch` is the folder for temporary files, and `free_bytes` its free space; `scratch_error` states why
    no file can be written there.
    """

    versions: Versions
    scratch: str
    free_bytes: int = 0
    scratch_error: str | None = None


def check_versions(found: Mapping[str, Sequence[ExecutorFacts]], own: Versions) -> Iterator[Result]:
    """Yield the results about the versions on each host; `own` are those of the driver."""
    yield from joined(
        (host, _of_versions(versions, own))
        for host, tasks in found.items()
        for versions in {each.versions for each in tasks}
    )


def _of_versions(versions: Versions, own: Versions) -> Result:
    check = Check.SPARK_PYTHON
    if (versions.python, versions.tierctl) != (own.python, own.tierctl):
        return fault(check, "", f"{versions}; the driver has {own}")
    if versions.pyarrow != own.pyarrow:
        why = "Results come from executors in pyarrow's format; tierctl is tested with one version on all."
        found = f"{versions}; the driver has pyarrow {own.pyarrow}"
        return fault(check, "", found, outcome=Outcome.WARNING, why=why)
    return ok(check, "", str(versions))


def check_scratch(found: Mapping[str, Sequence[ExecutorFacts]]) -> Iterator[Result]:
    """Yield the results about the folders for temporary files, of which the tasks of a host share one."""
    results = []
    for host, tasks in found.items():
        for folder in {each.scratch for each in tasks}:
            sharing = [each for each in tasks if each.scratch == folder]
            results.append((host, _of_scratch(folder, sharing)))
    yield from joined(results)


def _of_scratch(folder: str, sharing: Sequence[ExecutorFacts]) -> Result:
    check = Check.SPARK_SCRATCH
    error = next((each.scratch_error for each in sharing if each.scratch_error is not None), None)
    if error is not None:
        return fault(check, "", f"{folder} can't be written: {error}")
    free_bytes = min(each.free_bytes for each in sharing)
    tasks = counted(len(sharing), "task")
    if free_bytes < SEGMENT_BYTES * len(sharing):
        found = f"{folder} has {bytes_text(free_bytes)} free for segments of {tasks} at a time"
        return fault(check, "", found, outcome=Outcome.WARNING)
    return ok(check, "", f"{folder} has room for segments of {tasks} at a time")


def check_reached(check: Check, found: Iterable[tuple[str, str | TierctlError]]) -> Iterator[Result]:
    """Yield the results about one source, given host and finding of each task."""
    yield from joined((host, _of_source(check, each)) for host, each in found)


def _of_source(check: Check, found: str | TierctlError) -> Result:
    if isinstance(found, TierctlError):
        return fault(check, "", found.message, fix=found.hint)
    return ok(check, "", found)


def joined(results: Iterable[tuple[str, Result]]) -> Iterator[Result]:
    """Yield each different result once, with the hosts on which it was found as subject."""
    hosts: dict[Result, dict[str, None]] = {}
    for host, result in results:
        hosts.setdefault(result, {})[host] = None
    for result, named in hosts.items():
        yield replace(result, subject=hosts_text([*named]))


def hosts_text(hosts: Sequence[str]) -> str:
    """Return `executor a`, or the number of hosts and the first of them: `executors on 2 hosts: a, b`."""
    shown = ", ".join(hosts[:_SHOWN]) + (", …" if len(hosts) > _SHOWN else "")
    return f"executor {shown}" if len(hosts) == 1 else f"executors on {len(hosts)} hosts: {shown}"
