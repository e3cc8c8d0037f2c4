"""`tierctl submit`: a command by way of spark-submit."""

import os
import shlex
import sys
from importlib import resources
from pathlib import Path
from typing import Annotated, Never

import typer

from tierctl.cli import options
from tierctl.errors import ExitCode, UsageError
from tierctl.spark.session.settings import SparkSettings
from tierctl.spark.session.submit import DeployMode

_RESOURCES = "What it gets"
_MAIN = "tierctl-main.py"
_LOG_SETTINGS = "log4j2.properties"
_HINT = "after --, as in: tierctl submit --master yarn -- sweep --metadata ..."

Command = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="-- COMMAND...", help="The command of tierctl, with its options.", show_default=False
    ),
]
Master = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="yarn, k8s://https://host:port or spark://host:port."),
]
Mode = Annotated[
    DeployMode,
    typer.Option(
        "--deploy-mode",
        help="Where the driver runs: here, or on the cluster (YARN and Kubernetes only).",
        show_default=True,
    ),
]
Run = Annotated[bool, typer.Option("--run", help="Run it. Without this the line is printed.")]
NumExecutors = Annotated[
    int | None,
    typer.Option(
        "--num-executors", metavar="N", min=1, help="YARN and Kubernetes.", rich_help_panel=_RESOURCES
    ),
]
ExecutorCores = Annotated[
    int | None,
    typer.Option("--executor-cores", metavar="N", min=1, help="Tasks at a time.", rich_help_panel=_RESOURCES),
]
ExecutorMemory = Annotated[
    str | None,
    typer.Option("--executor-memory", metavar="SIZE", help="As 4g.", rich_help_panel=_RESOURCES),
]
DriverMemory = Annotated[
    str | None,
    typer.Option("--driver-memory", metavar="SIZE", help="As 2g.", rich_help_panel=_RESOURCES),
]
PythonArchive = Annotated[
    str | None,
    typer.Option(
        "--python-archive",
        metavar="FILE",
        help="A packed environment (venv-pack, conda-pack) with tierctl's libraries, which driver and "
        "executors unpack and run. Default: the interpreter they have; on a standalone cluster this one.",
        rich_help_panel=_RESOURCES,
    ),
]
ContainerImage = Annotated[
    str | None,
    typer.Option(
        "--container-image",
        metavar="IMAGE",
        help="Kubernetes: an image with Spark, Python and tierctl's libraries.",
        rich_help_panel=_RESOURCES,
    ),
]
SubmitDir = Annotated[
    Path | None,
    typer.Option(
        "--submit-dir",
        metavar="DIR",
        help="Where the files are kept that the line names: tierctl as a zip, and the script. "
        "Default: ~/.cache/tierctl.",
    ),
]


def register(app: typer.Typer) -> None:
    """Adds `submit`."""
    app.command("submit", context_settings={"allow_interspersed_args": False})(submit)


def submit(
    ctx: typer.Context,
    command: Command = None,
    master: Master = None,
    deploy_mode: Mode = DeployMode.CLIENT,
    run: Run = False,
    num_executors: NumExecutors = None,
    executor_cores: ExecutorCores = None,
    executor_memory: ExecutorMemory = None,
    driver_memory: DriverMemory = None,
    python_archive: PythonArchive = None,
    container_image: ContainerImage = None,
    submit_dir: SubmitDir = None,
    spark_conf: options.SparkConf = None,
) -> int:
    """Print, or run, the spark-submit line of a command with --engine spark.

    The line has tierctl itself, the interpreter and the resources; never a credential. Files and folders that
    the command names are those of the machine where the driver runs, as are environment and tierctl.toml.

    Lines for a standalone cluster are tried against a real one; those for YARN and Kubernetes against
    spark-submit itself, up to where it asks for the cluster: they were not run on one.
    """
    from tierctl.spark.session.submit import Submission, program

    words, changes_things = _checked(ctx, command or [])
    folder = submit_dir or _default_folder()
    is_verbose = bool(getattr(ctx.obj, "verbose", False))
    submission = Submission(
        settings=SparkSettings.of(master, spark_conf or (), changes_things=changes_things),
        deploy_mode=deploy_mode,
        command=words,
        main=str(folder / _MAIN),
        package=str(folder / _package_name()),
        python_archive=python_archive,
        container_image=container_image,
        resources=_resources(ctx),
    )
    line = [program(), *submission.words()]
    _write_files(folder)
    if run:
        _become(line, None if is_verbose else folder / _LOG_SETTINGS)
    typer.echo(_shown(line))
    return ExitCode.OK


def _become(line: list[str], log_settings: Path | None) -> Never:
    """Signals, output and exit code are spark-submit's from here on."""
    env = dict(os.environ)
    if log_settings is not None:
        ours = f"-Dlog4j2.configurationFile={log_settings.absolute().as_uri()}"
        env["SPARK_SUBMIT_OPTS"] = f"{ours} {env.get('SPARK_SUBMIT_OPTS', '')}".strip()
    sys.stdout.flush()
    os.execve(line[0], line, env)


def _checked(ctx: typer.Context, words: list[str]) -> tuple[list[str], bool]:
    """The command with --engine spark, and whether it changes things; UsageError for one that has none."""
    root = ctx.find_root()
    found, rest = root.command, list(words)
    while hasattr(found, "commands") and rest and rest[0] in found.commands:
        found = found.commands[rest.pop(0)]
    path = words[: len(words) - len(rest)]
    if not any(param.name == "engine" for param in found.params):
        what = " ".join(path or words[:1])
        raise UsageError(f"{what}: no command that runs on Spark" if what else "no command", hint=_HINT)
    if not any(word.partition("=")[0] == "--engine" for word in rest):
        rest = ["--engine", "spark", *rest]
    given = found.make_context(" ".join(path), list(rest), parent=root)
    if given.params["engine"] != "spark":
        raise UsageError("--engine local needs no spark-submit", hint="run the command itself")
    if any(options.is_typed(given, name) for name in ("master", "spark_conf")):
        raise UsageError(
            "--master and --spark-conf go before the command", hint="tierctl submit --master ..."
        )
    return [*path, *rest], "apply" in given.params


def _resources(ctx: typer.Context) -> dict[str, str]:
    """What spark-submit has options of its own for."""
    names = ("num_executors", "executor_cores", "executor_memory", "driver_memory")
    return {name.replace("_", "-"): str(ctx.params[name]) for name in names if ctx.params[name] is not None}


def _default_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tierctl"


def _package_name() -> str:
    from tierctl.spark.session.shipping import archive

    return archive().name


def _write_files(folder: Path) -> None:
    """What the line names; files that are there already are not touched."""
    from tierctl.files import replace_durably
    from tierctl.spark.session.jvm import QUIET_LOGS
    from tierctl.spark.session.shipping import archive

    folder.mkdir(parents=True, exist_ok=True)
    script = resources.files("tierctl.cli").joinpath("submitted.py").read_bytes()
    wanted = {_MAIN: script, archive().name: archive().read_bytes(), _LOG_SETTINGS: QUIET_LOGS.encode()}
    for name, content in wanted.items():
        file = folder / name
        if not file.is_file() or file.read_bytes() != content:
            replace_durably(file, content)


def _shown(line: list[str]) -> str:
    """For a shell, an option a line."""
    main = next(at for at, word in enumerate(line) if word.endswith(_MAIN))
    lines: list[list[str]] = [line[:1]]
    for at, word in enumerate(line[1:], 1):
        if at == main or (at < main and word.startswith("--")):
            lines.append([])
        lines[-1].append(word)
    return " \\\n  ".join(map(shlex.join, lines))
