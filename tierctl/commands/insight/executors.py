"""Checks of the Spark session and its executors, for `doctor`.

The session is started by the first check. An error of Spark becomes a result.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tierctl.checks.check import Examination, Result, fault, not_checked, ok
from tierctl.checks.environment import ExecutorFacts, Versions, check_reached, check_scratch, check_versions
from tierctl.checks.registry import DoctorCheck
from tierctl.commands.request import cluster_location
from tierctl.commands.resources import Resources
from tierctl.errors import EngineError, TierctlError
from tierctl.model.choices import Severity
from tierctl.spark import inspection
from tierctl.storage.object_tier import object_tier

if TYPE_CHECKING:
    from tierctl.spark.executors.transport import Probed

WAIT_S = 120.0
"""How long to wait for the first task: a queue of YARN or Kubernetes may start executors slowly."""


def executor_facts(resources: Resources) -> dict[str, list[ExecutorFacts]]:
    """Return what the tasks found on their executors, by host.

    Raise the first error of an executor, and EngineError if Spark does not start or runs no task in time.
    """
    executors = resources.executors
    deadline_s = time.monotonic() + WAIT_S
    found: dict[str, list[ExecutorFacts]] = {}
    try:
        probes = executors.probe_each(
            inspection.executor_facts, stopped=lambda: time.monotonic() > deadline_s
        )
    except EngineError as e:
        if time.monotonic() <= deadline_s:
            raise
        raise EngineError(
            f"no executor has finished a task within {WAIT_S:.0f} s",
            hint="check that the Spark cluster has free cores and memory for an executor",
        ) from e
    for each in probes:
        if each.error is not None:
            raise each.error
        if each.facts is not None:
            found.setdefault(each.host, []).append(each.facts)
    return found


def check_spark(examination: Examination, resources: Resources) -> bool:
    """Check Spark, its executors, and the sources that they reach; return whether executors can work."""
    if check_executors(examination, resources):
        check_sources(examination, resources)
        return True
    request = resources.request
    named = {
        DoctorCheck.SPARK_CLUSTER: cluster_location(request),
        DoctorCheck.SPARK_METADATA: request.metadata,
        DoctorCheck.SPARK_STORE: request.remote,
    }
    for check, source in named.items():
        if source is not None:
            examination.add(not_checked(check, "", "no executor works"))
    return False


def check_executors(examination: Examination, resources: Resources) -> bool:
    """Start Spark and check its session, and versions and space of the executors; return whether they work.

    Spark's own errors are faults of `spark_session`, and errors of jobs are faults of `spark_python`.
    """
    where = resources.request.master or ""
    try:
        session = resources.spark
    except TierctlError as e:
        examination.add(fault(DoctorCheck.SPARK_SESSION, where, e.message, fix=e.hint))
        for check in (DoctorCheck.SPARK_PYTHON, DoctorCheck.SPARK_SCRATCH):
            examination.add(not_checked(check, where, "the Spark session did not start"))
        return False
    where = str(session.conf.get("spark.master", None) or where)
    try:
        found = executor_facts(resources)
    except TierctlError as e:
        examination.add(ok(DoctorCheck.SPARK_SESSION, where, f"Spark {session.version} started"))
        examination.add(fault(DoctorCheck.SPARK_PYTHON, where, e.message, fix=e.hint))
        examination.add(not_checked(DoctorCheck.SPARK_SCRATCH, where, "no executor works"))
        return False
    examination.add(_of_session(session.version, where, session.conf.get("spark.speculation", None), found))
    examination.make([DoctorCheck.SPARK_PYTHON], where, lambda: check_versions(found, Versions.here()))
    examination.make([DoctorCheck.SPARK_SCRATCH], where, lambda: check_scratch(found))
    return True


def _of_session(
    version: str, where: str, speculation: str | None, found: Mapping[str, Sequence[ExecutorFacts]]
) -> Result:
    tasks = sum(map(len, found.values()))
    text = f"Spark {version}, tasks at a time: {tasks} on hosts: {len(found)}"
    if speculation != "true":
        return ok(DoctorCheck.SPARK_SESSION, where, text)
    return fault(
        DoctorCheck.SPARK_SESSION,
        where,
        "spark.speculation is on",
        severity=Severity.WARNING,
        why="copy, sweep, delete and apply refuse this session: no segment may be stored or deleted twice "
        "at a time.",
        fix="set spark.speculation=false where the session is started",
    )


def check_sources(examination: Examination, resources: Resources) -> None:
    """Check that executors reach the cluster, the metadata topic and the store that the request names.

    A source that the driver can't reach itself is not examined: other checks report its error.
    """
    finders = {
        DoctorCheck.SPARK_CLUSTER: _driver_cluster,
        DoctorCheck.SPARK_METADATA: _driver_metadata,
        DoctorCheck.SPARK_STORE: _driver_tier,
    }
    found: dict[DoctorCheck, dict[str, Any]] = {}
    for check, find in finders.items():
        try:
            found[check] = find(resources)
        except (TierctlError, OSError) as e:
            reason = e.message if isinstance(e, TierctlError) else str(e)
            examination.add(not_checked(check, "", f"the driver can't reach it either: {reason}"))
    wanted = [check for check, facts in found.items() if facts]
    if wanted:
        sources = inspection.Sources(
            **{name: each for facts in found.values() for name, each in facts.items()}
        )
        examination.make(wanted, "", lambda: _reached(resources, sources, wanted))


def _reached(
    resources: Resources, sources: inspection.Sources, wanted: Sequence[DoctorCheck]
) -> Iterator[Result]:
    """Yield the results of the executors about the sources of the checks `wanted`."""
    probes = resources.executors.probe_each(partial(inspection.reach_sources, sources, uuid4().hex))
    for check in wanted:
        yield from check_reached(check, ((each.host, _found(each, check)) for each in probes))


def _found(probe: Probed[dict[str, str | TierctlError]], check: DoctorCheck) -> str | TierctlError:
    if probe.facts is not None:
        return probe.facts[check.value]
    return probe.error or EngineError("the executor returned nothing")


def _driver_cluster(resources: Resources) -> dict[str, Any]:
    """Return the cluster of the request and its id as fields of `Sources`; empty without a cluster."""
    location, cluster = cluster_location(resources.request), resources.cluster
    if location is None or cluster is None:
        return {}
    return {"cluster": location, "cluster_id": cluster.cluster_id()}


def _driver_metadata(resources: Resources) -> dict[str, Any]:
    """Return the metadata topic of the request and its end as fields of `Sources`; empty without one."""
    if resources.request.metadata is None:
        return {}
    topic = resources.metadata_topic(complete=False, quiet=True)
    return {"metadata": resources.metadata_location, "end_offsets": topic.end_offsets()}


def _driver_tier(resources: Resources) -> dict[str, Any]:
    """Return the tier of the request and one of its objects as fields of `Sources`; empty without one."""
    tier = None if resources.request.remote is None else object_tier(resources.remote)
    if tier is None:
        return {}
    keys = (each.key for each in tier.list_objects() if each.problem is None and each.size_bytes)
    return {"tier": resources.tier_spec(), "key": next(keys, None)}
