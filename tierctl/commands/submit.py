"""`submit`: run a tierctl command by spark-submit, or return the line that does."""

import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Never

import typer

from tierctl.commands.request import TYPED_ONLY, SparkConf
from tierctl.commands.request_fields import fit_fields
from tierctl.errors import UsageError
from tierctl.files import is_file, why_below_others, why_distrusted, why_folder_distrusted, write_durably
from tierctl.model.progress import Progress
from tierctl.spark.session.jvm import QUIET_LOGS, REMOTE, SparkSettings, archive, conf_of, is_credential

ENVIRONMENT = "environment"
"""The folder below the working directory of driver and executors that --python-archive is unpacked to."""
UPLOADS = "spark.kubernetes.file.upload.path"
IMAGE = "spark.kubernetes.container.image"
_ARCHIVED_PYTHON = f"./{ENVIRONMENT}/bin/python"
_SCHEME = re.compile(r"[a-z0-9]+:")
_MEMORY = re.compile(r"[1-9][0-9]*[kmgt]", re.IGNORECASE)
"""What both Spark and a JVM's -Xmx, which becomes the driver's, take for a size."""
_NO_IMAGE = {"container-image": "leave it out: only Kubernetes runs containers"}
_ONE_PROCESS = "leave it out: tasks run in the driver; local[N] sets their number, --driver-memory its memory"
_IGNORED = {
    "spark://": {
        "num-executors": "limit the cores of all executors: --spark-conf spark.cores.max=N, "
        "and those of each with --executor-cores",
        **_NO_IMAGE,
    },
    "local": {
        **dict.fromkeys(("num-executors", "executor-cores", "executor-memory"), _ONE_PROCESS),
        **_NO_IMAGE,
    },
    "yarn": _NO_IMAGE,
}
"""By the beginning of a master: the options that Spark ignores there, with what to do instead."""


class DeployMode(StrEnum):
    """Where the driver runs: on this machine or on the cluster."""

    CLIENT = "client"
    CLUSTER = "cluster"


def program() -> str:
    """Return the path of spark-submit in SPARK_HOME, on PATH or in PySpark; raise UsageError without one."""
    home = os.environ.get("SPARK_HOME")
    found = shutil.which(str(Path(home, "bin", "spark-submit")) if home else "spark-submit")
    if found is None and home is None:
        spec = find_spec("pyspark")
        own = Path(spec.origin).parent if spec and spec.origin else Path()
        found = shutil.which(str(own / "bin" / "spark-submit"))
    if found is None:
        raise UsageError("there is no spark-submit", hint="set SPARK_HOME, or pip install 'tierctl[spark]'")
    return found


_SCRIPT = "tierctl-main.py"
_LOG_SETTINGS = "tierctl-log4j2.properties"


_RESOURCES = "Resources"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitRequest:
    """A request to run `command` on a Spark cluster; it is only prepared unless `run` is true."""

    command: Annotated[
        Sequence[str],
        typer.Argument(
            metavar="-- COMMAND", show_default=False, help="The command of tierctl, with its options."
        ),
    ] = ()
    is_mutating: bool = True
    """Whether the command may change a tier: then Spark must not run a task twice at the same time."""
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="yarn, k8s://https://host:port or spark://host:port.")
    ] = None
    deploy_mode: Annotated[
        DeployMode,
        typer.Option(
            help="Where the driver runs: on this machine (client), or on the cluster (YARN and Kubernetes "
            "only)."
        ),
    ] = DeployMode.CLIENT
    run: Annotated[
        bool, typer.Option(help="Run spark-submit; otherwise its command line is printed."), TYPED_ONLY
    ] = False
    num_executors: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Number of executors, on YARN and Kubernetes.",
            rich_help_panel=_RESOURCES,
        ),
    ] = None
    executor_cores: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Number of tasks that an executor runs at the same time.",
            rich_help_panel=_RESOURCES,
        ),
    ] = None
    executor_memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Memory per executor, e.g. 4g.", rich_help_panel=_RESOURCES),
    ] = None
    driver_memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Memory of the driver, such as 2g.", rich_help_panel=_RESOURCES),
    ] = None
    python_archive: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Archive of a Python environment (venv-pack, conda-pack) with tierctl's libraries, which "
            "the driver and executors unpack and use. Default: the Python of the cluster's machines; on "
            "a standalone cluster, the path of this Python.",
            rich_help_panel=_RESOURCES,
        ),
    ] = None
    container_image: Annotated[
        str | None,
        typer.Option(
            metavar="IMAGE",
            help="On Kubernetes: an image with Spark, Python and tierctl's libraries.",
            rich_help_panel=_RESOURCES,
        ),
    ] = None
    submit_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder for the files that the command line uses: tierctl as a zip, and the script. "
            "Default: ~/.cache/tierctl.",
        ),
    ] = None
    spark_conf: SparkConf = ()
    verbose: bool = False
    """Whether Spark's own log is shown."""

    def __post_init__(self) -> None:
        fit_fields(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Submission:
    """A request to submit, the settings of Spark, and the paths of the script and of the zip with tierctl."""

    request: SubmitRequest
    settings: SparkSettings
    main: str
    package: str

    def validate(self) -> None:
        """Raise UsageError for a master or settings that spark-submit would refuse, and for credentials."""
        request, master = self.request, self.settings.master
        if master is None:
            raise UsageError("--master is missing", hint="yarn, k8s://https://host:port or spark://host:port")
        if self.settings.is_connect:
            raise UsageError(
                "spark-submit can't use a Spark Connect server",
                hint="run the command with --master sc://... itself",
            )
        self._require_used(master)
        self._require_readable()
        archive = request.python_archive
        if archive is not None and not _SCHEME.match(archive) and not is_file(Path(archive)):
            raise UsageError(f"--python-archive {archive}: no such file")
        if request.deploy_mode is DeployMode.CLUSTER:
            self._require_cluster_mode(master)
        if (
            master.startswith("k8s://")
            and request.container_image is None
            and IMAGE not in self.settings.conf
        ):
            raise UsageError(
                "--container-image is missing", hint="an image with Spark, Python and tierctl's libraries"
            )
        for word in request.command:
            name, equals, value = word.partition("=")
            is_key_file = name == "--aiven-private-key"
            if is_credential("", word) or (equals and not is_key_file and is_credential(name, value)):
                raise UsageError(
                    f"{name if equals else 'an argument'}: a command line must not contain credentials",
                    hint="put them in a file, a profile, or the environment of the driver",
                )

    @property
    def resources(self) -> dict[str, str]:
        """The options of spark-submit that have a field in the request, without their dashes."""
        given = {
            "num-executors": self.request.num_executors,
            "executor-cores": self.request.executor_cores,
            "executor-memory": self.request.executor_memory,
            "driver-memory": self.request.driver_memory,
        }
        return {name: str(value) for name, value in given.items() if value is not None}

    def words(self) -> list[str]:
        """Return the arguments of spark-submit."""
        request, archive = self.request, self.request.python_archive
        return [
            *("--master", str(self.settings.master), "--deploy-mode", str(request.deploy_mode)),
            *("--name", f"tierctl {request.command[0]}"),
            *(word for name, value in self.resources.items() for word in (f"--{name}", value)),
            *(("--archives", f"{archive}#{ENVIRONMENT}") if archive else ()),
            *("--py-files", self.package),
            *(word for name, value in self._conf().items() for word in ("--conf", f"{name}={value}")),
            self.main,
            *request.command,
        ]

    def _conf(self) -> dict[str, str]:
        """Return the settings that the driver needs before it starts; the operator's replace the defaults."""
        defaults = dict(self._pythons())
        if self.request.container_image is not None:
            defaults[IMAGE] = self.request.container_image
        return defaults | dict(self.settings.conf)

    def _pythons(self) -> Iterator[tuple[str, str]]:
        """Yield the settings that name the interpreter of driver and executors."""
        master = str(self.settings.master)
        if self.request.python_archive is None:
            # On machines with their own file systems, Spark uses their python3.
            if not master.startswith(("yarn", "k8s://")):
                yield "spark.pyspark.python", sys.executable
            elif self.request.deploy_mode is DeployMode.CLIENT:
                yield "spark.pyspark.driver.python", sys.executable
        elif self.request.deploy_mode is DeployMode.CLIENT:
            yield "spark.pyspark.driver.python", sys.executable
            yield "spark.pyspark.python", _ARCHIVED_PYTHON
        elif master == "yarn":
            yield "spark.yarn.appMasterEnv.PYSPARK_PYTHON", _ARCHIVED_PYTHON
            yield "spark.executorEnv.PYSPARK_PYTHON", _ARCHIVED_PYTHON
        else:
            yield "spark.pyspark.python", _ARCHIVED_PYTHON

    def _require_used(self, master: str) -> None:
        """Raise UsageError for an option that spark-submit ignores with this master."""
        given = [*self.resources, *(["container-image"] if self.request.container_image else ())]
        for name in given:
            scheme = next((each for each in _IGNORED if master.startswith(each)), None)
            hint = None if scheme is None else _IGNORED[scheme].get(name)
            if hint is not None:
                raise UsageError(f"--{name}: Spark ignores it with --master {master}", hint=hint)

    def _require_readable(self) -> None:
        """Raise UsageError for a size that is none, and for a path that spark-submit would take apart."""
        for name, value in self.resources.items():
            if name.endswith("memory") and not _MEMORY.fullmatch(value):
                raise UsageError(
                    f'--{name} "{value}" is not a size', hint="a number and a unit, as 4g or 512m"
                )
        for name, path in (("submit-dir", self.package), ("python-archive", self.request.python_archive)):
            if path is not None and "," in path:
                raise UsageError(
                    f"--{name}: spark-submit divides {path} at its commas, as a list of files",
                    hint="name a path without a comma",
                )
            if path is not None and "#" in path:
                raise UsageError(
                    f"--{name}: spark-submit reads {path} up to the #, as a path and the name of a copy",
                    hint="name a path without a #",
                )

    def _require_cluster_mode(self, master: str) -> None:
        """Raise UsageError if the master runs no Python drivers, or if its pods cannot read the files."""
        if not master.startswith(("yarn", "k8s://")):
            raise UsageError(
                f"--deploy-mode cluster: {master} runs no Python drivers", hint="use --deploy-mode client"
            )
        local = [
            path
            for path in (self.main, self.package, self.request.python_archive)
            if path and not _SCHEME.match(path)
        ]
        if master.startswith("k8s://") and local and UPLOADS not in self.settings.conf:
            raise UsageError(
                f"--deploy-mode cluster: pods don't see {local[0]}",
                hint=f"--spark-conf {UPLOADS}=s3a://bucket/folder, where spark-submit puts such files",
            )


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
    settings = SparkSettings(
        master=request.master, conf=conf_of(request.spark_conf), changes_things=request.is_mutating
    )
    submission = _Submission(
        request=request, settings=settings, main=script, package=str(folder / archive().name)
    )
    submission.validate()
    words = [program(), *submission.words()]
    _write_files(folder)
    if request.run:
        _become(words, None if request.verbose else folder / _LOG_SETTINGS)
    return SubmitLine(words=words, script=script)


def _default_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "tierctl"
    except RuntimeError as e:
        why = "the files for spark-submit have no folder: this user has no home folder"
        raise UsageError(why, hint="name a folder with --submit-dir") from e


def _write_files(folder: Path) -> None:
    """Write the script, the tierctl package and the log settings; leave files with the same content alone.

    Raise UsageError for a folder in which somebody else may replace the script.
    """
    why = why_below_others(folder)
    if why is None:
        folder.mkdir(parents=True, exist_ok=True)
        why = why_folder_distrusted(folder.resolve())
    if why is not None:
        raise UsageError(f"--submit-dir: {why}", hint="name a folder that only this user and root may write")
    script = resources.files("tierctl.spark.session").joinpath("driver.py").read_bytes()
    package = archive()
    contents = {_SCRIPT: script, package.name: package.read_bytes(), _LOG_SETTINGS: QUIET_LOGS.encode()}
    for name, content in contents.items():
        file = folder / name
        if not is_file(file) or why_distrusted(file) is not None or file.read_bytes() != content:
            # The printed line runs the files later, under whatever umask they were written.
            write_durably(file, [content], mode=0o644)


def _become(words: Sequence[str], log_settings: Path | None) -> Never:
    """Replace this process by spark-submit, which then receives signals and sets output and exit code."""
    # spark-submit refuses the address of a Spark Connect server beside a master.
    env = {name: text for name, text in os.environ.items() if name != REMOTE}
    # A driver without memory must not hang. The last of two options that contradict each other counts.
    options = ["-XX:+ExitOnOutOfMemoryError"]
    if log_settings is not None:
        options.append(f"-Dlog4j2.configurationFile={log_settings.absolute().as_uri()}")
    env["SPARK_SUBMIT_OPTS"] = " ".join([*options, env.get("SPARK_SUBMIT_OPTS", "")]).strip()
    sys.stdout.flush()
    os.execve(words[0], list(words), env)
