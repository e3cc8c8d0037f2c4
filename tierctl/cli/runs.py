"""The commands that run others unattended or on Spark: `schedule`, `submit` and `pipeline`."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple
from unicodedata import category

import typer

from tierctl import commands
from tierctl.cli.app import Command, command, group, named_command, parsed, unknown_command
from tierctl.cli.config import check_names, choosing_profile, parsed_for_later
from tierctl.cli.display import Printer, Rows, console_of, summarize
from tierctl.cli.options import METADATA_TOPIC, SPARK, NoCheck, is_typed, request_of
from tierctl.cli.profiles import RunSettings
from tierctl.errors import ExitCode, UsageError
from tierctl.files import is_file
from tierctl.model.choices import ONLY_SPARK, EngineName
from tierctl.model.location import folder_of, is_uri
from tierctl.report.render import OutputFormat

_OWN_WORDS_FIRST: Final = {"allow_interspersed_args": False}
"""Settings of a command whose argument is another command with its options."""

group("pipeline", "Write the metadata topic to Delta tables.")

_SHARE = files("tierctl").joinpath("share")

_WRITTEN_FOLDERS = ("state_dir", "warehouse", "submit_dir")

_CHANGED_FOLDERS = ("metadata", "remote", "to_metadata", "log_dir", "file", "files", "into", "left_out")
"""Options and arguments whose folders only a run that changes a tier, a log or a cache writes."""

_CHANGING = ("apply", "probe_writes")

_WRITTEN_FILES = ("metrics_file", "log_file", "plan_out", "html", "output_file", "out", "listing_out")
"""Options whose files are written beside their names and renamed, so that their folders must be writable."""


class Every(StrEnum):
    """How often a command runs, as systemd's OnCalendar names it."""

    HOURLY = "hourly"
    DAILY = "daily"
    WEEKLY = "weekly"


_WITHOUT_METADATA = frozenset({"doctor", "restore", "offsets"})
"""Commands that can do something without the metadata topic."""

_CRON_BYTES_MAX = 998
"""The longest command in a line of cron: its C programs read it into 1000 bytes, and drop what follows."""

_CRON_TIMES = {Every.HOURLY: "17 * * * *", Every.DAILY: "17 3 * * *", Every.WEEKLY: "17 3 * * 0"}

_Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="COMMAND", help="The command of tierctl, with its options.", show_default=False),
]

_Systemd = Annotated[bool, typer.Option("--systemd", help="Print a systemd service and its timer.")]

_Cron = Annotated[bool, typer.Option("--cron", help="Print a file for /etc/cron.d.")]

_EveryOption = Annotated[Every, typer.Option("--every", help="How often the command runs.")]

_User = Annotated[
    str,
    typer.Option(
        "--user", metavar="NAME", help="The user who runs the command, able to read the log directories."
    ),
]


@command("schedule", ..., context_settings=_OWN_WORDS_FIRST)
def schedule(
    ctx: typer.Context,
    command: _Words = None,
    systemd: _Systemd = False,
    cron: _Cron = False,
    every: _EveryOption = Every.HOURLY,
    user: _User = "kafka",
    no_check: NoCheck = False,
) -> int:
    """Print systemd units or cron lines that run a command.

    schedule checks the options of the command, its profile, and the names of topics, settings, tiers and
    files, unless --no-check is given. If the metadata topic can't be read here, topics and tiers are not
    checked, and a note says so. A command after submit is checked in the same way. A command that continues
    until it is stopped, as with --follow or --watch, is refused. schedule installs and runs nothing.

    The scheduled run uses the same tierctl.toml, and relative paths are relative to the current folder. The
    systemd service runs in a sandbox: the command may write only to the folders that its options name, which
    are listed in ReadWritePaths; to those of the metadata, the tier and the logs only with --apply. Write
    credentials into the file of EnvironmentFile, or into a file that an option names, as --command-config;
    never into the command or tierctl.toml.

    The templates, a configuration for logrotate, alert rules and a Grafana dashboard are in share/tierctl of
    the installation.
    """
    if not (systemd or cron):
        raise UsageError(
            "--systemd or --cron is missing",
            hint="add --systemd to print units, or --cron to print cron lines",
        )
    _require_user(user)
    scheduled = _checked(ctx, command or [], check=not no_check)
    if systemd and "submit_dir" in scheduled.params and scheduled.params["submit_dir"] is None:
        raise UsageError(
            "--systemd: in the sandbox, submit can't write its files into the home folder",
            hint="add --submit-dir /var/lib/tierctl/submit to submit, which the unit may write",
        )
    texts = [_units(scheduled, every, user)] if systemd else []
    if cron:
        texts.append(_cron_file(scheduled, every, user))
    typer.echo("".join(texts), nl=False)
    summarize(ctx, f"runs {every}: tierctl {shlex.join(scheduled.path)}")
    return ExitCode.OK


def _require_user(user: str) -> None:
    """Raise UsageError for a user name that ends a cron line's field or a systemd directive (useradd(8))."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}\$?", user):
        raise UsageError(
            f"--user {user!r}: expected the name of a user, of letters, digits, dots, dashes and underscores",
            hint="--user kafka",
        )


def _require_no_controls(word: str) -> None:
    """Raise UsageError for a word with a control character, or with a byte that is no UTF-8.

    A line end would begin a directive of its own, and the byte can't be printed as it is.
    """
    # Python also splits lines at U+0085, U+2028 and U+2029, and the first is a control character.
    found = next((each for each in word if category(each) in {"Cc", "Cs", "Zl", "Zp"}), None)
    if found is not None:
        is_byte = category(found) == "Cs"
        what = "a byte that is no UTF-8" if is_byte else f"the control character U+{ord(found):04X}"
        raise UsageError(
            f"{word!r}: a scheduled command must not contain {what}",
            hint="remove it from the command",
        )


def _require_legal_for_spark(words: Sequence[str]) -> None:
    """Raise the UsageError of the run for settings of Spark in `words`, such as one with a credential.

    Unlike the run, this function is called before the words are printed. The words of a command after submit
    are included.
    """
    found: dict[str, list[str]] = {"--master": [], "--spark-conf": []}
    for before, word in pairwise(["", *words]):
        name, is_joined, value = word.partition("=")
        if is_joined and name in found:
            found[name].append(value)
        elif before in found:
            found[before].append(word)
    from tierctl.spark.session.jvm import SparkSettings, conf_of

    SparkSettings(conf=conf_of(found["--spark-conf"]))
    for master in found["--master"]:
        SparkSettings(master=master)


class _Scheduled(NamedTuple):
    """A command line: the words of the command, all words, and the values of its options."""

    path: Sequence[str]
    words: Sequence[str]
    params: Mapping[str, Any]
    folder: Path | None
    """The current folder, if a path of the options is relative to it."""

    @property
    def name(self) -> str:
        """The name of the units and of the file in cron.d, where names must not contain a dot."""
        return "-".join(("tierctl", *self.path))


def _checked(ctx: typer.Context, words: Sequence[str], *, check: bool) -> _Scheduled:
    """Return the command line; raise UsageError for an unknown command and for wrong options.

    With `check`, also raise the errors of `check_names`. The options of a command after submit belong to the
    result, because its driver writes what they name.
    """
    command, arguments = named_command(words)
    path = words[: len(words) - len(arguments)]
    if not isinstance(command, Command) or command.name == "schedule":
        raise unknown_command(words, "as in: tierctl schedule --cron sweep ...")
    given = parsed_for_later(ctx, path, command, arguments)
    settings: RunSettings = ctx.obj
    _note_variables(ctx, settings)
    chosen = choosing_profile(arguments, file=settings.file, profile=settings.profile)
    words = [*path, *chosen, *arguments]
    params = given.params | given.meta
    if path == ["submit"]:
        own = _on_spark(ctx, params["command"] or [], is_printed=True, check=check)
        params = {**own.params, "run": params["run"], "submit_dir": params["submit_dir"]}
    if params.get("apply") and params.get("now_ms") is not None:
        raise UsageError(
            "a scheduled run with --apply must not have --now: each run decides as of its own time",
            hint="leave --now out",
        )
    _require_end(given, path[0], params)
    _note_missing(ctx, path, params)
    if path != ["submit"]:
        check_names(given, params, path[0], console_of(ctx), is_asked=check)
    for text in (*words, *_written(params), str(Path.cwd())):
        _require_no_controls(text)
    _require_legal_for_spark(words)
    if not params.get("run", True):
        raise UsageError("a scheduled submit without --run runs nothing", hint="add --run to submit")
    paths = (Path(path) for name, value in params.items() for path in _paths_of(name, value))
    return _Scheduled(path, words, params, None if all(map(Path.is_absolute, paths)) else Path.cwd())


def _require_end(given: typer.Context, command: str, params: Mapping[str, Any]) -> None:
    """Raise UsageError for a command line whose run continues until it is stopped.

    cron would start one more such process at every time, and they would never end.
    """
    is_bounded = command == "format" and any(params.get(name) is not None for name in ("limit", "timeout_ms"))
    consumes = command == "format" and is_typed(given, "bootstrap_server")
    endless = {
        "--watch": params.get("watch") is not None,
        "--interval": command == "delete" and params.get("interval") is not None,
        "--follow": bool(params.get("follow")) and not is_bounded,
        "--bootstrap-server": consumes and not is_bounded,
    }
    option = next((name for name, is_given in endless.items() if is_given), None)
    if option is not None:
        raise UsageError(
            f"with {option}, {command} continues until it is stopped: a scheduled run must end",
            hint="add --timeout-ms or --limit"
            if consumes
            else f"leave {option} out: --every repeats the run",
        )


def _note_variables(ctx: typer.Context, settings: RunSettings) -> None:
    """Report the variables of this shell that the run will not have."""
    names = sorted(name for name in settings.environ if name.startswith("TIERCTL_"))
    if names:
        console_of(ctx).note(
            f"the run does not have {', '.join(names)} of this shell: name the options in the command, or "
            "the variables in the EnvironmentFile of the unit"
        )


def _note_missing(ctx: typer.Context, path: Sequence[str], params: Mapping[str, Any]) -> None:
    """Report a command that needs --metadata and does not get it from its options or its profile."""
    needs = "metadata" in params and path[0] not in _WITHOUT_METADATA
    if needs and params["metadata"] is None and params.get("bootstrap_server") is None:
        console_of(ctx).note(
            f"neither the command nor a profile of tierctl.toml names --metadata: {' '.join(path)} ends with "
            f"exit code {ExitCode.USAGE}, unless TIERCTL_METADATA is set where it runs"
        )


def _paths_of(name: str, value: Any) -> list[str]:
    """Return the local paths that an option names."""
    each = value if isinstance(value, list | tuple) else [value]
    if name in {*_WRITTEN_FOLDERS, *_CHANGED_FOLDERS, *_WRITTEN_FILES}:
        return _local_paths(value)
    return [str(path) for path in each if isinstance(path, Path)]


def _program() -> list[str]:
    """Return the words that start this tierctl, with whole paths: units and cron have another PATH."""
    found = shutil.which(sys.argv[0]) or shutil.which("tierctl")
    if found is not None and Path(found).name == "tierctl":
        return [str(Path(found).absolute())]
    # -P: Python must not import modules from the current folder, which others may be able to write.
    return [sys.executable, "-P", "-m", "tierctl"]


def _units(scheduled: _Scheduled, every: Every, user: str) -> str:
    service = _replaced(
        _SHARE.joinpath("systemd", "tierctl@.service").read_text(),
        Description=f"tierctl {' '.join(scheduled.path)}",
        Documentation=f"man:{scheduled.name}(1)",
        EnvironmentFile=f"-/etc/tierctl/{scheduled.name}.env",
        # Of all settings, only command lines have variables.
        ExecStart=" ".join(map(_systemd_word, [*_program(), *scheduled.words])).replace("$", "$$"),
        User=user,
        WorkingDirectory=str(scheduled.folder or "/").replace("%", "%%"),
        ReadWritePaths=" ".join(_systemd_word(f"-{path}") for path in _written(scheduled.params)),
    )
    timer = _replaced(
        _SHARE.joinpath("systemd", "tierctl@.timer").read_text(),
        Description=f"Run tierctl {' '.join(scheduled.path)}",
        OnCalendar=every,
    )
    files = ((f"{scheduled.name}.service", service), (f"{scheduled.name}.timer", timer))
    return "\n".join(f"# /etc/systemd/system/{name}\n{text}" for name, text in files)


def _replaced(template: str, **values: str) -> str:
    """Return the sections of a unit with new values of some settings; comments above them are left out."""
    lines = template[template.index("[Unit]") :].splitlines()
    names = [line.partition("=")[0] for line in lines]
    for name, value in values.items():
        lines[names.index(name)] = f"{name}={value}"
    return "\n".join([*lines, ""])


def _systemd_word(word: str) -> str:
    """Return one word of a unit: specifiers are not expanded, blanks do not end it."""
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return text if re.fullmatch(r"[^\s\"'\\;]+", word) else f'"{text}"'


def _written(params: Mapping[str, Any]) -> list[str]:
    """Return the folders on this machine that a command with these options may write, sorted.

    A run that only reads, or only plans, has no write access to the metadata, the tier and the logs. The
    parent of a file below the root is the root, to which the sandbox must not give access: the file itself is
    named instead.
    """
    changes = any(params.get(name) for name in _CHANGING)
    names = (*_WRITTEN_FOLDERS, *(_CHANGED_FOLDERS if changes else ()))
    named = {_whole(path) for name in names for path in _local_paths(params.get(name))}
    folders = {path.parent if is_file(path) else path for path in named}
    files = {_whole(path) for name in _WRITTEN_FILES for path in _local_paths(params.get(name))}
    parents = {path if path.parent == Path("/") else path.parent for path in files}
    return sorted(map(str, folders | parents))


def _whole(path: str) -> Path:
    """Return an absolute path without `..`: systemd ignores a folder that is named with it."""
    return Path(path).resolve() if ".." in Path(path).parts else Path(path).absolute()


def _local_paths(value: Any) -> list[str]:
    """Return the paths in the value of an option: local ones, from plain paths and from file URIs."""
    values = value if isinstance(value, list | tuple) else [] if value is None else [value]
    paths = []
    for each in values:
        text = str(each)
        if isinstance(each, Path) or not is_uri(text):
            paths.append(text)
        elif text.startswith("file:"):
            paths.append(str(folder_of("the option", text)))
    return paths


def _cron_file(scheduled: _Scheduled, every: Every, user: str) -> str:
    """Return a file for cron.d; cron takes an unescaped % for the end of the line.

    Raise UsageError for a command that is too long: cron would run its beginning without the last options.
    Findings are rows on stdout, which are not kept, so a line on stderr states the exit code. 6 is a lock,
    and 9 a plan that has something to do.
    """
    template = _SHARE.joinpath("cron", "tierctl").read_text()
    settings = [line for line in template.splitlines() if re.match("[A-Z]+=", line)]
    words, at = list(scheduled.words), len(scheduled.path)
    if not {"--quiet", "-q"} & set(words):
        words[at:at] = ["--quiet"]
    line = shlex.join([*_program(), *words])
    told = f'echo "tierctl {" ".join(scheduled.path)}: exit code $c, see man tierctl-exit-codes" >&2'
    failed = f"{{ c=$?; [ $c = 6 ] || [ $c = 9 ] || {told}; exit $c; }}"
    if scheduled.folder is not None:
        line = f"cd {shlex.quote(str(scheduled.folder))} && {line}"
    # A backslash before another one, or before a percent sign, escapes it in some crons. In the shell all
    # stand between quotes, which end and begin again between the two.
    line = re.sub(r"\\(?=[\\%])", r"\\''", line)
    run = f"{line} </dev/null >/dev/null || {failed}".replace("%", "\\%")
    length = len(run.encode())
    if length > _CRON_BYTES_MAX:
        raise UsageError(
            f"--cron: the command has {length} bytes, and cron drops what is beyond {_CRON_BYTES_MAX}",
            hint="write options into a profile of tierctl.toml and name it with --profile, or use --systemd",
        )
    return "\n".join([f"# /etc/cron.d/{scheduled.name}", *settings, f"{_CRON_TIMES[every]} {user} {run}", ""])


_HINT = "after --, as in: tierctl submit --master yarn -- sweep --metadata ..."


@command("submit", ..., context_settings=_OWN_WORDS_FIRST)
def submit(ctx: typer.Context, request: commands.SubmitRequest, no_check: NoCheck = False) -> int:
    """Print, or run, the spark-submit command line that runs a command.

    The command runs with --engine spark.

    The command line names tierctl, the Python interpreter and the resources, and never contains a credential.
    Paths in the command, the environment and tierctl.toml are those of the machine on which the driver runs.
    Without --run, the profile and the names of topics, settings, tiers and files in the command are checked,
    unless --no-check is given. If the metadata topic can't be read here, topics and tiers are not checked,
    and a note says so.

    The command lines for a standalone cluster and for YARN are tested on small clusters. Those for Kubernetes
    are tested up to the point where spark-submit connects to the cluster.
    """
    own = _on_spark(ctx, request.command or [], is_printed=not request.run, check=not no_check)
    words = own.words
    request = request_of(commands.SubmitRequest, ctx, command=words, is_mutating="apply" in own.params)
    line = commands.submit(request, console_of(ctx))
    typer.echo(_shell_text(line.words, line.words.index(line.script)))
    _, arguments = named_command(words)
    summarize(ctx, f"runs on Spark: tierctl {shlex.join(words[: len(words) - len(arguments)])}")
    return ExitCode.OK


class _OnSpark(NamedTuple):
    """A command with `--engine spark`: its words, and the values of its options."""

    words: list[str]
    params: Mapping[str, Any]


def _on_spark(ctx: typer.Context, words: Sequence[str], *, is_printed: bool, check: bool) -> _OnSpark:
    """Return the command with `--engine spark`.

    Raise UsageError for a command without the option `--engine`, and for wrong options of the command. If the
    line `is_printed`, also call `check_names`; `check` is whether names are checked.
    """
    command, arguments = named_command(words)
    path = words[: len(words) - len(arguments)]
    names = {option.name for option in command.options} if isinstance(command, Command) else ()
    if words and not isinstance(command, Command):
        raise unknown_command(words, _HINT)
    what = " ".join(path)
    if "engine" not in names and what not in ONLY_SPARK:
        raise UsageError(f"{what}: this command can't run on Spark" if what else "no command", hint=_HINT)
    if "engine" in names and not any(word.partition("=")[0] == "--engine" for word in arguments):
        arguments = ["--engine", "spark", *arguments]
    settings: RunSettings = ctx.obj
    chosen = choosing_profile(arguments, file=settings.config_file, profile=settings.profile)
    arguments = [*chosen, *arguments]
    if is_printed and check:
        given = parsed_for_later(ctx, path, command, arguments)
    else:
        given = parsed(ctx, path, command, arguments)
    params = given.params
    if params.get("engine", EngineName.SPARK) != EngineName.SPARK:
        raise UsageError("submit can't be used with --engine local", hint="run the command itself")
    if any(is_typed(given, name) for name in ("master", "spark_conf")):
        raise UsageError(
            "--master and --spark-conf must be before the command", hint="tierctl submit --master ..."
        )
    if is_printed:
        check_names(given, params, path[0], console_of(ctx), is_asked=check)
    return _OnSpark([*path, *arguments], params | given.meta)


def _shell_text(words: Sequence[str], script_at: int) -> str:
    """Return the command line as text for a shell: each option of spark-submit on its own line."""
    lines: list[list[str]] = [[words[0]]]
    for at, word in enumerate(words[1:], 1):
        if at == script_at or (at < script_at and word.startswith("--")):
            lines.append([])
        lines[-1].append(word)
    return " \\\n  ".join(map(shlex.join, lines))


@command("pipeline run", METADATA_TOPIC, ..., "now_ms", Rows, SPARK, rows=lambda: (commands.COMMITS,))
def run(ctx: typer.Context, request: commands.RunPipelineRequest) -> int:
    """Update the tables to the end of the metadata topic: events, segments, partitions and anomalies.

    Each table is a Delta table in a folder of the warehouse. `events` has every record, unreadable ones too;
    `segments` has the segments that are not deleted; `partitions` has sizes, offsets and counts; `anomalies`
    has the findings of verify that need only metadata. DuckDB, polars, pandas, Spark and Trino can read the
    tables, also while a run commits: a reader sees one version of a table. Earlier versions stay readable for
    a day. The history of a table records the number of the run's commit as `tierctl.commit`.

    A run is a query of Spark's Structured Streaming, whose tasks fold the events with the rows that the
    tables have, and write files. Without --master Spark uses the cores of this machine. It continues after
    the last commit, and a run without new events does not start Spark. It can be killed at any time; the next
    run produces the same tables. While a run uses a warehouse, another run exits with code 6. Every 16th
    commit combines small files of `events`, and deletes files that no version of the last day uses.
    """
    printer = Printer.of(ctx, output=OutputFormat.JSONL if request.follow else None)

    made: list[int] = []

    def print_commit(commit: commands.PipelineCommit) -> None:
        made.append(commit.commit)
        printer.show([commit])
        sys.stdout.flush()

    latest = commands.run_pipeline(request, console_of(ctx), on_commit=print_commit)
    if made or request.follow:
        printer.finish()
    else:
        summarize(ctx, f"no new events since commit {latest.commit}")
    return ExitCode.OK
