"""Reports of executors, for `doctor`: versions, the sources that they reach, and who wrote events."""

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tierctl.checks.environment import ExecutorFacts, Versions
from tierctl.checks.registry import DoctorCheck
from tierctl.errors import EngineError, TierctlError
from tierctl.model.location import TopicLocation
from tierctl.report.table import counted
from tierctl.spark.executors.task import shared_cluster, shared_tier, shared_topic
from tierctl.storage.open_tier import TierSpec

_SAME_FILES = "executors must see the same files as the driver: use a shared file system"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The sources that executors are to reach, and what the driver found there.

    `cluster_id` is that of the driver's `cluster`, `end_offsets` are those of its `metadata` topic, and `key`
    is an object in its `tier`; None for a tier without objects. A source that is None is not examined.
    """

    cluster: TopicLocation | None = None
    cluster_id: str = ""
    metadata: TopicLocation | None = None
    end_offsets: Mapping[int, int] = field(default_factory=dict)
    tier: TierSpec | None = None
    key: str | None = None


def executor_facts() -> ExecutorFacts:
    """Return the versions of this executor, and the space for segments in its folder for temporary files."""
    versions = Versions.here()
    try:
        scratch = tempfile.gettempdir()
        with tempfile.TemporaryFile(dir=scratch) as file:
            file.write(b"x")
        disk = os.statvfs(scratch)
    except OSError as e:
        folder = os.environ.get("TMPDIR", "the folder for temporary files")
        return ExecutorFacts(versions=versions, scratch=folder, scratch_error=e.strerror or str(e))
    free_bytes = disk.f_bavail * disk.f_frsize
    return ExecutorFacts(versions=versions, scratch=scratch, free_bytes=free_bytes)


def reach_sources(sources: Sources, job: str) -> dict[str, str | TierctlError]:
    """Return what this executor found at each source, by the name of the check: a text, or an error."""
    found: dict[str, str | TierctlError] = {}
    if sources.cluster is not None:
        found[DoctorCheck.SPARK_CLUSTER.value] = _attempt(lambda: _reach_cluster(sources, job), None)
    if (topic := sources.metadata) is not None:
        hint = _SAME_FILES if topic.is_local else None
        found[DoctorCheck.SPARK_METADATA.value] = _attempt(lambda: _reach_metadata(sources, job), hint)
    if (tier := sources.tier) is not None:
        hint = _SAME_FILES if tier.uri.startswith("file:") else None
        found[DoctorCheck.SPARK_STORE.value] = _attempt(lambda: _reach_store(sources), hint)
    return found


def _attempt(reach: Callable[[], str], hint: str | None) -> str | TierctlError:
    """Return the result of `reach`, or its error, with `hint` unless it is None."""
    try:
        return reach()
    except OSError as e:
        return EngineError(f"{e.filename or 'a file'} can't be read: {e.strerror or e}", hint=hint)
    except TierctlError as e:
        e.hint = hint or e.hint
        return e


def _reach_cluster(sources: Sources, job: str) -> str:
    assert sources.cluster is not None
    cluster_id = shared_cluster(sources.cluster, job).cluster_id()
    if cluster_id != sources.cluster_id:
        raise EngineError(
            f"{sources.cluster.servers} is cluster {cluster_id}; for the driver it is {sources.cluster_id}"
        )
    return f"reached cluster {cluster_id}"


def _reach_metadata(sources: Sources, job: str) -> str:
    """Read the last record of the first metadata partition that has one."""
    assert sources.metadata is not None
    topic = shared_topic(sources.metadata, job)
    begins, ends = topic.beginning_offsets(), topic.end_offsets()
    for number, end in sorted(sources.end_offsets.items()):
        if ends.get(number, 0) < end:
            raise EngineError(
                f"metadata partition {number} ends at offset {ends.get(number, 0)}, "
                f"but at {end} for the driver"
            )
    written = [each for each in sorted(ends) if ends[each] > begins[each]]
    if not written:
        return f"{counted(len(ends), 'metadata partition')}, all of them empty"
    first = written[0]
    for _ in topic.read(first, ends[first] - 1, ends[first]):
        pass
    return f"read the last record of metadata partition {first} of {len(ends)}"


def _reach_store(sources: Sources) -> str:
    assert sources.tier is not None
    store = shared_tier(sources.tier).store
    listed = store.list_folder("")
    names = f"{counted(len(listed.folders), 'folder')} and {counted(len(listed.objects), 'object')}"
    if sources.key is None:
        return f"listed the top folder: {names}"
    with store.open(sources.key, 0, 1) as stream:
        stream.read()
    return f"listed the top folder: {names}; read the first byte of an object"
