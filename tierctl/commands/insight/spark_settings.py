"""The Spark settings in force: their problems, and the settings of the session that they start."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace

from tierctl.commands.insight.executors import check_executors, executor_facts
from tierctl.commands.resources import Resources
from tierctl.doctor.checks import Check
from tierctl.doctor.examination import Examination, Result
from tierctl.doctor.executors import Versions, hosts_text
from tierctl.doctor.result import Outcome
from tierctl.errors import EngineError, UsageError
from tierctl.model.settings.problems import ProblemKind, SettingProblem, did_you_mean
from tierctl.model.settings.stated import Origin, SettingSource
from tierctl.model.severity import Severity
from tierctl.spark import inspection
from tierctl.spark.session import SparkSettings

_SEVERITIES = {Outcome.PROBLEM: Severity.ERROR, Outcome.WARNING: Severity.WARNING}


def spark_problems(resources: Resources, origins: Mapping[str, Origin]) -> Iterator[SettingProblem]:
    """Yield the problems of --master and --spark-conf; start Spark if tierctl refuses none of them.

    `origins` are those of the values of the options, by `master` and `spark_conf`.
    """
    request = resources.request
    found = list(inspection.settings_problems(request.master, request.spark_conf, origins))
    yield from found
    if found:
        return
    examination = Examination()
    if check_executors(examination, resources):
        names = SparkSettings.of(request.master, request.spark_conf).conf
        for name, nearest in inspection.mistyped_names(resources.spark, names):
            yield _mistyped(name, nearest, origins)
    for result in examination.results:
        if result.outcome in _SEVERITIES:
            yield _problem(result, resources, origins)


def _mistyped(name: str, nearest: str, origins: Mapping[str, Origin]) -> SettingProblem:
    error = UsageError(f"Spark has no setting {name}, and ignores it", hint=did_you_mean(nearest, ""))
    problem = inspection.refused("spark_conf", name, error, origins)
    return replace(
        problem,
        kind=ProblemKind.UNKNOWN_SETTING,
        expected="the name of a setting of Spark",
        of_severity=Severity.WARNING,
    )


def _problem(result: Result, resources: Resources, origins: Mapping[str, Origin]) -> SettingProblem:
    """Return the fault of a session or of executors as a problem of the option that states its cause."""
    request = resources.request
    option, found = "master", request.master or result.subject
    for text in request.spark_conf:
        name, _, value = text.partition("=")
        if name.strip() in result.found or (value.strip() and value.strip() in result.found):
            option, found = "spark_conf", inspection.hidden(text)
    error = EngineError(f"{result.subject}: {result.found}", hint=result.fix)
    problem = replace(
        inspection.refused(option, found, error, origins), of_severity=_SEVERITIES[result.outcome]
    )
    if result.check is Check.SPARK_SESSION:
        return problem
    return replace(
        problem, kind=ProblemKind.UNUSABLE, expected="executors that can run tierctl", found=result.found
    )


def session_settings(
    resources: Resources, origins: Mapping[str, Origin]
) -> Iterator[tuple[str, str, Origin, str]]:
    """Start Spark; yield name, value, origin and use of the settings of its session, then of its executors.

    The values of executors are the versions that they report.
    """
    request = resources.request
    settings = SparkSettings.of(request.master, request.spark_conf)
    stated = inspection.session_settings(resources.spark, settings, origins)
    for name, value in stated.items():
        yield name, value, stated.origin(name) or Origin(source=SettingSource.SPARK), "used by Spark"
    hosts: dict[Versions, dict[str, None]] = {}
    for host, tasks in sorted(executor_facts(resources).items()):
        for each in tasks:
            hosts.setdefault(each.versions, {})[host] = None
    for versions, named in hosts.items():
        origin = Origin(source=SettingSource.EXECUTOR, name=hosts_text([*named]))
        for name, version in asdict(versions).items():
            yield f"executor.{name}", version, origin, "reported by executors"
