"""Every command line runs: in blocks of code, prose, tables, man pages, comments and unit files."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tierctl.cli.docs.messages import ERASURE, VERIFY_LIST

from tests.cli.shell import environment, tierctl
from tests.docs import programs
from tests.docs.documents import CONTRIBUTING, DOCUMENTS, README, Command, Document
from tests.docs.lines import (
    VARIABLE,
    commands,
    in_spans,
    in_text,
    lines_of_texts,
    modes,
    shared_files,
    texts_of_code,
)
from tests.docs.running import replaced, run_all, write_profile
from tests.docs.world import captured_files, profile_environment

TEXTS = lines_of_texts()
EXAMPLES = {
    " ".join(node.path): [each.command for each in node.examples]
    for node in commands().walk()
    if not node.children
}
OTHERS = sorted({line for lines in TEXTS.values() for line in lines if not line.startswith("tierctl")})


def of_files(lines: list[str]) -> list[str]:
    """Return the lines of tierctl that run on files; tests/docs/test_cluster.py runs those with a broker."""
    own = (line for line in lines if line.startswith("tierctl") and not programs.is_mention(line))
    return [line for line in own if not Command("", line, ()).asks_cluster]


def start_spark_for(lines: list[str], request: pytest.FixtureRequest) -> None:
    """Start the session of the tests if a line runs the pipeline, which else needs a process of its own."""
    if any(line.startswith("tierctl pipeline run") for line in lines):
        request.getfixturevalue("spark")


@pytest.fixture
def run(capture: Callable[[str], Path], tmp_path: Path) -> Callable[[str], None]:
    """Return a function that runs one line of tierctl."""
    names = captured_files(capture, tmp_path)
    env = profile_environment(names, tmp_path)
    assert tierctl("cache", "build", "--out", "caches", cwd=tmp_path, env=env).code == 0
    return lambda line: programs.run_tierctl(line, names, tmp_path, env)


@pytest.mark.parametrize("text", [name for name, lines in TEXTS.items() if of_files(lines)])
def test_lines_of_tierctl_run(text: str, run: Callable[[str], None]) -> None:
    """Run the lines of one text in their order, in one folder."""
    for line in of_files(TEXTS[text]):
        run(line)


def test_whole_lines_of_shared_files_need_no_profile(capture: Callable[[str], Path], tmp_path: Path) -> None:
    """Cron and systemd run them as they are; files stand in place of the cluster and of its settings."""
    env = environment(TIERCTL_TOPIC_CONFIGS="topics.properties")
    names = {**captured_files(capture, tmp_path), "kafka://broker1:9092": tmp_path / "data"}
    whole = {line for text in shared_files().values() for line in in_text(text) if "--metadata" in line}
    assert len(whole) == 2
    for line in whole:
        ran = tierctl(*shlex.split(replaced(line, names))[1:], cwd=tmp_path, env=env)
        assert ran.code == 0, f"{line}\n{ran.err}"


def test_examples_of_the_pipeline_name_options_that_exist() -> None:
    """`make matrix` runs them; in `make test`, a page of the manual has such a line."""
    for line in EXAMPLES["pipeline run"]:
        programs.require_names(line)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(name, marks=[pytest.mark.matrix] if name == "pipeline run" else [])
        for name, lines in EXAMPLES.items()
        if of_files(lines)
    ],
)
def test_examples_of_a_command_run(
    command: str, run: Callable[[str], None], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Run the examples in the help and in the man page of a command, unchanged except for their paths."""
    start_spark_for(EXAMPLES[command], request)
    if command == "apply":
        run("tierctl sweep --log-start-offset orders-0=1800 --plan-out plan.json")
    if command == "copy":
        shutil.rmtree(tmp_path / "state")
        (tmp_path / "metadata").mkdir()
        (tmp_path / "new-tier").mkdir()
        (tmp_path / "topics.properties").write_text("ledger.remote.storage.enable=true\n")
    # The tier and the node of these examples have nothing yet.
    names = {
        "copy": {"s3://archive/tier": "s3://new/tier"},
        "restore log": {"/var/lib/kafka/new": "new-broker"},
    }
    for line in of_files(EXAMPLES[command]):
        run(replaced(line, names.get(command, {})))


@pytest.mark.parametrize("line", OTHERS)
def test_lines_of_other_programs_run(line: str) -> None:
    program = line.split(maxsplit=1)[0]
    assert program in programs.PROGRAMS, f"no test runs {line!r}"
    programs.PROGRAMS[program](line)


@pytest.mark.parametrize("document", [*DOCUMENTS, CONTRIBUTING], ids=lambda document: document.name)
def test_modes_of_commands_exist(document: Document) -> None:
    """A span such as `verify --deep` names an option of a command, and need not be a whole command line."""
    for line in modes(document):
        programs.require_names(line)


def test_hints_name_commands_and_options_that_exist() -> None:
    found = [line for text in texts_of_code() for line in in_text(text)]
    for line in found:
        programs.require_names(line.replace(VARIABLE, "1"))
    assert len(found) > 100


FOREIGN = {
    *("--add", "--add-config", "--allow-principal", "--alter", "--bootstrap-controller", "--cluster"),
    *("--delete-config", "--entity-name", "--entity-type", "--formatter", "--group", "--operation"),
    *("--release-version", "--start-offset", "--transactionalId"),
    *("--archives", "--conf", "--name", "--py-files"),
    *("--collector", "--release"),
    *("--x-s3", "--xa-s3"),
}
"""Options of Kafka's tools, of spark-submit, of node_exporter and of javac; ends of buckets' names."""


def test_texts_of_the_code_name_options_that_exist() -> None:
    known = {name for node in commands().walk() for option in node.options for name in option.names}
    words = re.compile(r"(?<![\w-])--[a-z][\w-]*\w(?![\w-])")
    named = {word for text in texts_of_code() for word in words.findall(text)}
    assert len(named & known) > 100
    assert named - known - FOREIGN == set()


@pytest.mark.parametrize(
    "text",
    [
        "`tierctl sweep --aply`",
        "`tierctl segments --topic absent`",
        "Run tierctl swep --apply.",
        "`make nothing`",
        "`docker run tierctl`",
    ],
)
def test_a_wrong_line_fails(text: str, run: Callable[[str], None]) -> None:
    (line,) = [*in_spans(Document("text", text)), *in_text(text if "`" not in text else "")]
    runs = run if of_files([line]) else test_lines_of_other_programs_run
    with pytest.raises((AssertionError, SystemExit, ValueError)):
        runs(line)


def test_openssl_verifies_a_list_of_erased_records(run: Callable[[str], None], tmp_path: Path) -> None:
    """Run the lines of tierctl-restore-log(1), ERASURE, in their order."""
    (made,) = re.findall(r"\((openssl [^)]+)\)", " ".join(" ".join(ERASURE).split()))
    shell = partial(subprocess.run, cwd=tmp_path, check=True, env=environment(), capture_output=True)
    shell(shlex.split(made))
    (tmp_path / "keys").write_text("k\n")
    run(
        "tierctl restore log --topic orders --partition 0 --log-dir new-broker "
        "--as-id AAAAAAAAAAAAAAAAAAAAAQ --without-keys keys --left-out . --sign-with key.pem --apply"
    )
    for line in VERIFY_LIST:
        shell(shlex.split(line))
    listed = tmp_path / "orders-0.jsonl"
    listed.write_bytes(listed.read_bytes().replace(b"orders", b"order5", 1))
    with pytest.raises(subprocess.CalledProcessError):
        shell(shlex.split(VERIFY_LIST[-1]))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_command_lines_run(
    document: Document, capture: Callable[[str], Path], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    names = captured_files(capture, tmp_path)
    if document is not README and document.blocks("toml"):
        write_profile(document, names, tmp_path)
    elsewhere = ("asks_cluster", "runs_spark", "is_stock_consumer")
    mine = [each for each in document.commands if not any(getattr(each, name) for name in elsewhere)]
    start_spark_for([each.line for each in mine], request)
    run_all(mine, names, tmp_path)
