"""`submit`: run a tierctl command by spark-submit, or return the line that does."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Never

import typer

from tierctl.commands.shared_options import TYPED_ONLY, SparkConf
from tierctl.errors import UsageError
from tierctl.files import write_durably
from tierctl.model.progress import Progress
from tierctl.spark.session.jvm import QUIET_LOGS
from tierctl.spark.session.settings import SparkSettings
from tierctl.spark.session.shipping import archive
from tierctl.spark.session.submit import DeployMode, Submission, program
from tierctl.trust import why_distrusted, why_folder_distrusted

_SCRIPT = "tierctl-main.py"
_LOG_SETTINGS = "log4j2.properties"


_RESOURCES = "Resources"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitRequest:
    """A request to run `command` on a Spark cluster; it is only prepared unless `run` is true."""

    command: Annotated[
        Sequence[str],
        typer.Argument(
            metavar="-- COMMAND", help="The command of tierctl, with its options.", show_default=False
        ),
    ] = ()
    is_mutating: bool = True
    """Whether the command may change a tier: then Spark must not run a task twice at the same time."""
    master: Annotated[
        str | None,
        typer.Option("--master", metavar="URL", help="yarn, k8s://https://host:port or spark://host:port."),
    ] = None
    deploy_mode: Annotated[
        DeployMode,
        typer.Option(
            "--deploy-mode",
            help="Where the driver runs: on this machine (client), or on the cluster (YARN and Kubernetes "
            "only).",
        ),
    ] = DeployMode.CLIENT
    run: Annotated[
        bool,
        typer.Option(
            "--run",
            help="Run spark-submit; otherwise its command line is printed.",
        ),
        TYPED_ONLY,
    ] = False
    num_executors: Annotated[
        int | None,
        typer.Option(
            "--num-executors",
            metavar="N",
            min=1,
            help="Number of executors, on YARN and Kubernetes.",
            rich_help_panel=_RESOURCES,
        ),
    ] = None
    executor_cores: Annotated[
        int | None,
        typer.Option(
            "--executor-cores",
            metavar="N",
            min=1,
            help="Number of tasks that an executor runs at the same time.",
            rich_help_panel=_RESOURCES,
        ),
    ] = None
    executor_memory: Annotated[
        str | None,
        typer.Option(
            "--executor-memory",
            metavar="SIZE",
            help="Memory per executor, e.g. 4g.",
            rich_help_panel=_RESOURCES,
        ),
    ] = None
    driver_memory: Annotated[
        str | None,
        typer.Option(
            "--driver-memory",
            metavar="SIZE",
            help="Memory of the driver, such as 2g.",
            rich_help_panel=_RESOURCES,
        ),
    ] = None
    python_archive: Annotated[
        str | None,
        typer.Option(
            "--python-archive",
            metavar="FILE",
            help="Archive of a Python environment (venv-pack, conda-pack) with tierctl's libraries, which "
            "the driver and executors unpack and use. Default: the Python of the cluster's machines; on a "
            "standalone cluster, the path of this Python.",
            rich_help_panel=_RESOURCES,
        ),
    ] = None
    container_image: Annotated[
        str | None,
        typer.Option(
            "--container-image",
            metavar="IMAGE",
            help="On Kubernetes: an image with Spark, Python and tierctl's libraries.",
            rich_help_panel=_RESOURCES,
        ),
    ] = None
    submit_dir: Annotated[
        Path | None,
        typer.Option(
            "--submit-dir",
            metavar="DIR",
            help="Folder for the files that the command line uses: tierctl as a zip, and the script. "
            "Default: ~/.cache/tierctl.",
        ),
    ] = None
    spark_conf: SparkConf = ()
    verbose: bool = False
    """Whether Spark's own log is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitLine:
    """The command line of spark-submit."""

    words: Sequence[str]
    script: str
    """The word after which the tierctl command begins."""


def submit(request: SubmitRequest, progress: Progress | None = None) -> SubmitLine:  # noqa: ARG001
    """Write the files that spark-submit needs and return its command line; with `run`, become spark-submit.

    Raise UsageError for a master or settings that spark-submit would refuse, and for credentials.
    """
    folder = request.submit_dir or _default_folder()
    script = str(folder / _SCRIPT)
    settings = SparkSettings.of(request.master, request.spark_conf, changes_things=request.is_mutating)
    submission = Submission(
        settings=settings,
        deploy_mode=request.deploy_mode,
        command=request.command,
        main=script,
        package=str(folder / archive().name),
        python_archive=request.python_archive,
        container_image=request.container_image,
        resources=_resources(request),
    )
    words = [program(), *submission.words()]
    _write_files(folder)
    if request.run:
        _become(words, None if request.verbose else folder / _LOG_SETTINGS)
    return SubmitLine(words=words, script=script)


def _resources(request: SubmitRequest) -> dict[str, str]:
    """Return the options of spark-submit that have a field in `request`, without their dashes."""
    given = {
        "num-executors": request.num_executors,
        "executor-cores": request.executor_cores,
        "executor-memory": request.executor_memory,
        "driver-memory": request.driver_memory,
    }
    return {name: str(value) for name, value in given.items() if value is not None}


def _default_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tierctl"


def _write_files(folder: Path) -> None:
    """Write the script, the tierctl package and the log settings; leave files with the same content alone.

    Raise UsageError for a folder in which somebody else may replace the script.
    """
    folder.mkdir(parents=True, exist_ok=True)
    why = why_folder_distrusted(folder.resolve())
    if why is not None:
        raise UsageError(f"--submit-dir: {why}", hint="name a folder that only this user and root may write")
    script = resources.files("tierctl.spark.session").joinpath("driver.py").read_bytes()
    package = archive()
    contents = {_SCRIPT: script, package.name: package.read_bytes(), _LOG_SETTINGS: QUIET_LOGS.encode()}
    for name, content in contents.items():
        file = folder / name
        if not file.is_file() or why_distrusted(file) is not None or file.read_bytes() != content:
            write_durably(file, [content], mode=0o666)


def _become(words: Sequence[str], log_settings: Path | None) -> Never:
    """Replace this process by spark-submit, which then receives signals and sets output and exit code."""
    env = dict(os.environ)
    if log_settings is not None:
        option = f"-Dlog4j2.configurationFile={log_settings.absolute().as_uri()}"
        env["SPARK_SUBMIT_OPTS"] = f"{option} {env.get('SPARK_SUBMIT_OPTS', '')}".strip()
    sys.stdout.flush()
    os.execve(words[0], list(words), env)
