"""Behaviour that all commands share: help, settings, errors, exit codes, pipes, signals."""

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl import __version__, commands
from tierctl.cli.app import leaves, why_refused
from tierctl.cli.docs.messages import Node, command_tree
from tierctl.cli.entry import run

from tests.cli.shell import environment, tierctl

Capture = Callable[[str], Path]


def test_version() -> None:
    ran = tierctl("--version")
    assert (ran.code, ran.out, ran.err) == (0, f"tierctl {__version__}\n", "")


@pytest.mark.parametrize("node", list(command_tree().walk()), ids=lambda e: " ".join(e.path))
def test_help_fits_and_cuts_no_name_and_divides_no_choice(node: Node) -> None:
    """At 60 columns texts stand below the names of options, at 100 beside them."""
    width = 60 if len(node.options) % 2 else 100
    help_of = "--help" if node.path and node.children else "--help-all"
    ran = tierctl(*node.path, help_of, env=environment(COLUMNS=str(width)))
    assert (ran.code, "…" in ran.out) == (0, False)
    assert [line for line in ran.lines if len(line) > width] == []
    assert "[default: (" not in ran.out
    # Hyphens do not divide an option, and its value stands on its line, if both fit.
    assert not re.search(r"--\w+-\n", ran.out)
    shown = set(re.split(r"[\s<>|,]+", ran.out))
    for option in node.options:
        choices = option.choices if option.metavar == "|".join(option.choices) else ()
        assert {*option.names, *choices} - shown == set()


@pytest.mark.parametrize(
    ("args", "message", "hint"),
    [
        (["fromat"], "'fromat'", "format"),
        (["format", "--metdata", "x"], "--metdata", "did you mean --metadata"),
        (["sweep", "--threads", "x"], "'--threads': expected a whole number, found 'x'", ""),
        (["sweep", "--max-fraction", "x"], "'--max-fraction': expected a number, found 'x'", ""),
        (["sweep", "--max-fraction", "3"], "'--max-fraction': expected a value less than or equal to 1", ""),
        (["sweep", "--max-fraction", "inf"], "'--max-fraction': expected a ", "see 'tierctl sweep --help'"),
        (["sweep", "--apply=false"], "'--apply' does not take a value", "see 'tierctl sweep --help'"),
        (["cache", "show", "--limit"], "'--limit' requires an argument", "see 'tierctl cache show --help'"),
        (["--profile"], "'--profile' requires an argument", "see 'tierctl --help'"),
        (["format"], "nothing to read", "name --metadata or segment files"),
        (["format", "--style", "nope", "--input", "hex"], "no style 'nope'", "json, kafka, kip"),
        (["segments", "--metadata", "kafka://"], "no bootstrap servers", "kafka://host:port"),
        (["format", "--metadata", "gopher://x"], "unknown scheme 'gopher'", "file:///dir"),
        *(
            ([*words, f"{scheme}://[x"], f"{words[-1]} {shown}", "brackets: [::1]:9092")
            for words, scheme, shown in (
                (["segments", "--metadata"], "kafka", "kafka://[x: not a URI"),
                (["segments", "--metadata"], "s3", "s3://[x: not a URI"),
                (["doctor", "--remote"], "hdfs", "hdfs://[x: not a URI"),
                (["doctor", "--remote"], "file", "file://[x: not a URI"),
                (["pipeline", "run", "--metadata", "x", "--warehouse"], "s3", "s3://[x: not a URI"),
            )
        ),
        (["segments", "--bootstrap-server", "[x"], "--bootstrap-server [x: not a URI", "brackets: [::1]"),
        (["format", "--metadata", "file://var/x"], "the URI names a host, 'var'", "file:///var/x"),
        (["format", "--metadata", "x", "--topic-id", "abc"], "not a Kafka id: 'abc'", "22 characters"),
        (["format", "--interval", "9ms"], "'--interval': 9ms is not from 10 to 60000", ""),
        (["format", "--interval", "2m"], "'--interval': 2m is not from 10 to 60000", ""),
        (["pipeline", "run", "--interval", "500ms"], "'--interval': 500ms is not from 1 to 2592000", ""),
        (["delete", "--interval", "0s"], "'--interval': 0s is not from 1 to 2592000000", ""),
        (["delete", "--interval", "PT0S"], "'--interval': PT0S is not from 1 to 2592000000", ""),
        (["delete", "--interval", "999999999d"], "'--interval': 999999999d is not from 1 to 2592000000", ""),
        (["status", "--watch", "PT0.05S"], "'--watch': PT0.05S is not from 0.1 to 2592000", ""),
        (["status", "--watch", "999999999d"], "'--watch': 999999999d is not from 0.1 to 2592000", ""),
        (["segments", "--metadata", "x", "--epoch", "1"], "--epoch needs --offset", "name the offset"),
        (["segments", "--metadata", "x", "--offset", "1", "--time", "5"], "--offset and --time exclude", ""),
        (["segments", "--metadata", "x", "--all", "--check"], "--all, --check, --offsets, --offset and", ""),
        (["segments", "--metadata", "x", "--by", "epoch"], "--by epoch goes with --sizes", "--by epoch'"),
        (["sweep", "--log-file", "/absent/x"], "--log-file /absent/x: /absent is not a folder", ""),
        (["sweep", "--log-file", "/dev"], "--log-file /dev: Is a directory", ""),
        (["sweep", "--log-file", "/dev/full"], "--log-file /dev/full: it is no regular file", ""),
        (["sweep", "--log-format", "xml"], "'xml' is not one of 'text', 'json'", ""),
        (["segments", ""], "unexpected empty argument", "see 'tierctl segments --help'"),
        (["segments", "--columns", ""], "--columns: expected names of columns, found ''", "leave it out"),
        (["segments", "--sort", ","], "--sort: expected names of columns, found ','", "leave it out"),
        (["segments", "--bootstrap-server", "x"], "'x' is no host:port", "as in broker1:9092"),
        (["config", "show", "--override", "x"], "expected NAME=VALUE", "as --override chunk.size"),
        (["delete", "--metadata", "x", "--i-know-it-is-deleted", "x"], "--mark", "'tierctl delete --help'"),
    ],
)
def test_usage_errors(args: list[str], message: str, hint: str) -> None:
    ran = tierctl(*args)
    assert (ran.code, ran.out) == (2, "")
    error, *rest = ran.err.splitlines()
    assert error.startswith("error: ")
    assert message in error
    assert hint in ran.err
    assert (len(rest), rest[0][:6]) == (1, "hint: ")


def test_hostile_text_in_an_error_is_escaped() -> None:
    ran = tierctl("format", "--style", "\x1b[31mred", "--input", "hex")
    assert "\x1b" not in ran.err
    assert "x1b[31mred" in ran.err


def count(*args: object, **options: object) -> int:
    ran = tierctl("format", *args, **options)  # type: ignore[arg-type]
    assert ran.code == 0, ran.err
    return len(ran.lines)


def test_settings_come_from_command_line_environment_and_profile(after: Path, tmp_path: Path) -> None:
    """The command line takes precedence over the environment, and the environment over the profile."""
    file = tmp_path / "tierctl.toml"
    file.write_text(
        'profile = "one"\n'
        f'[profiles.one]\nmetadata = "{after.as_uri()}"\nlimit = 3\n'
        f'[profiles.two]\nmetadata = "{after}"\nlimit = 5\ntopic = ["orders", "clicks"]\n'
    )
    env = environment(TIERCTL_LIMIT="7")
    assert count(cwd=tmp_path) == 3
    assert count("--profile", "two", cwd=tmp_path) == 5
    assert count("--profile", "two", cwd=tmp_path, env=env) == 7
    assert count("--limit", 9, cwd=tmp_path, env=env) == 9
    assert count("--config-file", file) == 3
    assert count(env=environment(TIERCTL_CONFIG_FILE=str(file), TIERCTL_PROFILE="two")) == 5
    in_environment = environment(TIERCTL_CONFIG_FILE=str(file), TIERCTL_PROFILE="two")
    assert len(tierctl("--profile", "one", "format", env=in_environment).lines) == 3
    (tmp_path / "other.toml").write_text(f'[profiles.two]\nmetadata = "{after}"\nlimit = 4\n')
    typed = ("--config-file", tmp_path / "other.toml")
    assert len(tierctl(*typed, "format", env=in_environment).lines) == 4
    for words in (("--profile", "", "format"), ("format", "--profile=")):
        empty = tierctl(*words, cwd=tmp_path)
        assert (empty.code, "--profile: expected a name, found an empty text" in empty.err) == (2, True)
    rows = tierctl("--profile", "two", "format", "--style", "json", cwd=tmp_path).lines
    assert {json.loads(row)["topic"] for row in rows} <= {"orders", "clicks"}


@pytest.mark.parametrize("is_in_profile", [True, False])
@pytest.mark.parametrize(
    ("line", "reason", "hint"),
    [
        ("status --output=jsn", "'jsn' is not one of 'table'", "did you mean json?"),
        ("sweep --threads=x", "expected a whole number, found 'x'", "see --threads in 'tierctl sweep"),
        ("cache show --limit=x", "expected a whole number", "see --limit in 'tierctl cache show"),
        ("sweep --limit-factor=0", "expected a value greater than or equal to 1", "see --limit-factor in"),
        ("status --lock-timeout=soon", "not a duration: 'soon'", "90s"),
        ("status --metrics-file=/absent/x", "/absent/x: /absent is not a folder", "node_exporter"),
        ("status --remote=s3://me:secret@bucket/x", "a URI must not contain", "leave them out"),
    ],
)
def test_a_wrong_value_that_was_not_typed_names_its_source(
    line: str, reason: str, hint: str, is_in_profile: bool, tmp_path: Path
) -> None:
    """The command line does not have the option, so it must not be named as if it were typed."""
    *command, option = line.split()
    key, _, value = option.removeprefix("--").partition("=")
    file, variable = tmp_path / "a.toml", f"TIERCTL_{key.upper().replace('-', '_')}"
    file.write_text(f'[profiles.default]\nquiet = true\n\n{key} = "{value}"\n')
    more = ("--config-file", "a.toml") if is_in_profile else ()
    env = environment(**({} if is_in_profile else {variable: value}))
    ran = tierctl(*command, *more, cwd=tmp_path, env=env)
    error, hinted = ran.err.splitlines()
    assert (ran.code, ran.out) == (2, "")
    assert error.startswith(f"error: a.toml, line 4: {key}" if is_in_profile else f"error: {variable}")
    assert reason in error
    assert hint in hinted
    assert "secret" not in ran.err
    typed = tierctl(*command, option, *more, cwd=tmp_path).err.splitlines()[0]
    assert f"--{key}" in typed
    assert reason in typed
    assert "a.toml" not in typed


def test_no_option_refuses_a_value_in_words_of_the_library_that_converts_it() -> None:
    values = ("maybe", "x", "-1", "nan", "1e400", ["a", "b"])
    options = {option.name: option for _, command in leaves() for option in command.options}
    found = {
        (name, why)
        for name, option in options.items()
        for each in values
        if (why := why_refused(option, each))
    }
    assert ("quiet", "expected true or false, found 'maybe'") in found
    assert [
        each for each in found if re.search("Input should|expected a value an? |Value error", each[1])
    ] == []


@pytest.mark.parametrize("command", ["format", "segments --help"])
def test_output_nobody_reads_ends_a_run_in_silence(command: str, after: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "tierctl", *command.split(), "--metadata", after],
        stdout=writing,
        stderr=subprocess.PIPE,
        env=environment(),
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


@pytest.mark.parametrize(("closed", "code"), [(">&-", 141), ("<&-", 0), ("2>&-", 0), ("<&- >&- 2>&-", 141)])
def test_streams_that_are_closed_from_the_start(closed: str, code: int, after: Path) -> None:
    command = f"exec '{sys.executable}' -m tierctl segments --metadata '{after}' {closed}"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, env=environment(), text=True, check=False, timeout=60
    )
    assert (done.returncode, bool(done.stdout)) == (code, code == 0), done.stderr
    assert bool(done.stderr) == (closed == "<&-")


@pytest.mark.parametrize("words", ["hex", "framed -"])
def test_a_closed_stdin_is_not_an_empty_one(words: str) -> None:
    command = f"exec '{sys.executable}' -m tierctl format --input {words} <&-"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, env=environment(), text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr.splitlines()[0]) == (2, "", "error: stdin is closed")


@pytest.mark.parametrize(
    ("command", "output"), [("segments", "table"), ("verify", "json"), ("segments --sizes", "csv")]
)
def test_every_format_ends_in_silence_where_nobody_reads(
    command: str, output: str, tier: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w", buffering=1 << 20, encoding="utf-8", closefd=False) as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        code = run([*command.split(), *tier, "-o", output])
        monkeypatch.undo()
        os.dup2(os.open(os.devnull, os.O_WRONLY), writing)
    os.close(writing)
    assert code == 128 + signal.SIGPIPE


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_signals_end_a_run_in_silence(number: signal.Signals, after: Path) -> None:
    """The run has an encoding in which not every topic's name can be printed."""
    args = ["format", "--metadata", str(after), "--follow"]
    with subprocess.Popen(
        [sys.executable, "-m", "tierctl", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(LC_ALL="C", PYTHONIOENCODING="ascii"),
        text=True,
    ) as process:
        assert process.stdout is not None
        for _ in range(118):
            assert process.stdout.readline().startswith("partition: ")
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (128 + number, "", "")


def test_a_mistyped_metadata_folder_is_no_empty_tier(tmp_path: Path) -> None:
    ran = tierctl("sweep", "--remote", ".", "--apply", "--metadata", "typo", cwd=tmp_path)
    assert (ran.code, ran.out) == (10, "")
    assert "has no metadata topic" in ran.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "hint"), [("TIERCTL_METADTA", 'did you mean "TIERCTL_METADATA"?'), ("TIERCTL_QQQ", "")]
)
def test_variables_that_name_no_option_are_refused(name: str, hint: str, after: Path) -> None:
    ran = tierctl("segments", "--metadata", after, env=environment(**{name: "true"}))
    assert (ran.code, ran.out) == (2, "")
    assert f"{name} is set, but names no option" in ran.err
    assert hint in ran.err


_ENDS = """
import atexit, threading, time
from tierctl.cli import entry

class Dismantled:
    def __del__(self):
        print("dismantled")

def late():
    time.sleep(0.2)
    print("thread")

kept = Dismantled()
atexit.register(print, "handler")
threading.Thread(target=late).start()
entry.run = lambda args: 3
entry.main()
"""


def test_a_process_waits_for_its_threads_and_handlers_and_is_not_dismantled() -> None:
    command = [sys.executable, "-c", _ENDS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (3, "thread\nhandler\n", "")


_AGAIN = """
import os, signal, sys, threading, time
from tierctl.cli import entry

def late():
    time.sleep(0.3)
    os.kill(os.getpid(), int(sys.argv[1]))
    time.sleep(60)

threading.Thread(target=late).start()
entry.run = lambda args: 3
entry.main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_process_waits_for_its_threads_ends_it(number: signal.Signals) -> None:
    command = [sys.executable, "-c", _AGAIN, str(int(number))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "", "")


_INTERRUPTED = """
import os, runpy, signal, sys
from importlib.metadata import EntryPoint

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

program, module = sys.argv[1:3]
sys.argv[1:] = ["--version"]
if "ignored" in program:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.meta_path.insert(0, Interrupting())
if "script" in program:
    EntryPoint("tierctl", SCRIPT, "console_scripts").load()()
else:
    runpy.run_module("tierctl", run_name="__main__")
"""


@pytest.mark.parametrize(
    ("program", "module"),
    [
        ("module", "tierctl.cli.entry"),
        ("script", "typer"),
        ("module", "tierctl.cli.insight"),
        ("module, ignored", "tierctl.cli.insight"),
    ],
)
def test_an_interruption_of_the_start_prints_no_traceback(program: str, module: str) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    code = _INTERRUPTED.replace("SCRIPT", repr(project["scripts"]["tierctl"]))
    command = [sys.executable, "-c", code, program, module]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    # The last module is imported by a run, which ends by its own code.
    stopped = 128 + signal.SIGINT if module == "tierctl.cli.insight" else -signal.SIGINT
    assert (done.returncode, done.stderr) == (0 if "ignored" in program else stopped, "")


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "entry.Signalled(2)"])
def test_a_signal_before_a_run_begins_or_after_its_end_prints_no_traceback(error: str) -> None:
    code = f"from tierctl.cli import entry\ndef run(args): raise {error}\nentry.run = run\nentry.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_imports_change_no_handler_of_signals() -> None:
    """A notebook must be interruptible while it uses the library."""
    code = "import signal, tierctl.__main__, tierctl.cli.entry, tierctl.commands; print(signal.getsignal(2))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "default_int_handler" in done.stdout


def test_an_internal_error_names_the_line_of_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reports one of a scheduled run has no traceback."""

    def fail(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(commands, "show_config", fail)
    ran = tierctl("config", "show")
    assert ran.code == 1
    assert re.search(r"AssertionError \(tierctl.cli.config line \d+, tests.cli.test_frame line", ran.err)
