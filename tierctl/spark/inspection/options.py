"""Check the values of --master and --spark-conf without Spark; PySpark is not imported."""

from collections.abc import Iterator, Mapping, Sequence

from tierctl.errors import TierctlError, UsageError
from tierctl.model.settings.problems import ProblemKind, SettingProblem
from tierctl.model.settings.secrets import shown
from tierctl.model.settings.stated import Origin
from tierctl.model.uris import HIDDEN
from tierctl.spark.session import SparkSettings
from tierctl.spark.session.settings import is_credential


def settings_problems(
    master: str | None, texts: Sequence[str], origins: Mapping[str, Origin]
) -> Iterator[SettingProblem]:
    """Yield a problem for each value of --master and --spark-conf that tierctl refuses; start nothing.

    `origins` are those of the values of the options, by `master` and `spark_conf`.
    """
    good: list[str] = []
    for text in texts:
        try:
            SparkSettings.of(None, [text])
        except UsageError as e:
            yield refused("spark_conf", hidden(text), e, origins)
        else:
            good.append(text)
    try:
        SparkSettings.of(master, [])
    except UsageError as e:
        yield refused("master", shown("master", str(master)), e, origins)
        return
    for text in good:
        try:
            SparkSettings.of(master, [text])
        except UsageError as e:
            yield refused("spark_conf", hidden(text), e, origins)


def refused(option: str, found: str, error: TierctlError, origins: Mapping[str, Origin]) -> SettingProblem:
    """Return the problem that a value of `option`, named as in a request, is refused with `error`."""
    origin = origins.get(option)
    name = option.replace("_", "-")
    return SettingProblem(
        kind=ProblemKind.REFUSED,
        file=None if origin is None else origin.file,
        line=None if origin is None else origin.line,
        setting=name,
        message=error.message,
        expected=f"a value of --{name} with which Spark starts",
        found=found,
        hint=error.hint or f"see --{name} in tierctl-spark(7)",
    )


def hidden(text: str) -> str:
    """Return a KEY=VALUE as it may be printed."""
    name, equals, value = text.partition("=")
    return f"{name}={HIDDEN}" if equals and is_credential(name, value) else shown("spark_conf", text)
