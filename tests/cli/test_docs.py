"""Files generated from the commands are current, name every command, and are installed by the wheel."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder
from tierctl.cli.app import COMMANDS, GROUPS, leaves
from tierctl.cli.docs.messages import Node, command_tree
from tierctl.cli.docs.write import SCHEMA_FILES, files, write
from tierctl.cli.help import questions
from tierctl.cli.profiles import option_key
from tierctl.console_consumer import JAR

from tests.cli.shell import environment, tierctl
from tests.support.engines import engines

ROOT = Path(__file__).parents[2]


@cache
def generated() -> dict[Path, str]:
    """Return the files that `make docs` writes."""
    return files()


def on_disk(folder: Path) -> dict[Path, str]:
    rooms = (folder / "completions", folder / "man", folder / SCHEMA_FILES)
    written = (path for room in rooms for path in room.iterdir())
    return {path.relative_to(folder): path.read_text() for path in written if path.suffix != ".svg"}


def test_completions_and_man_pages_are_current() -> None:
    assert on_disk(ROOT) == generated(), "run 'make docs'"


def test_what_can_be_repeated_means_the_same_everywhere() -> None:
    """TIERCTL_... and a key in tierctl.toml apply to every command that has the option."""
    meanings: dict[str, set[str]] = {}
    for _, command in leaves():
        for param in command.params:
            if param.param_type_name == "option" and param.multiple:
                meanings.setdefault(option_key(param.opts), set()).add(param.metavar)
    assert {key: found for key, found in meanings.items() if len(found) > 1} == {}


def test_every_command_has_a_page_of_its_own() -> None:
    pages = {path.name for path in generated() if path.parent.name == "man" and path.suffix == ".1"}
    assert {"tierctl.1", *(f"tierctl-{name}.1" for name in COMMANDS)} <= pages
    assert len(pages) == len(list(command_tree().walk()))


def test_every_word_of_a_man_page_fits_a_line() -> None:
    """Lines that are not filled are left out: they are code."""
    for path, text in generated().items():
        if path.parent.name == "man":
            filled = re.sub(r"^\.nf$.*?^\.fi$", "", text, flags=re.MULTILINE | re.DOTALL)
            words = re.split(r"\s|\\:", re.sub(r"\\f.|\\&|\\(?=-)", "", filled))
            assert [word for word in words if len(word) > 71] == [], path


def test_writing_takes_away_what_is_gone(tmp_path: Path) -> None:
    (tmp_path / "man").mkdir()
    (tmp_path / "man" / "tierctl-gone.1").touch()
    (tmp_path / SCHEMA_FILES).mkdir(parents=True)
    (tmp_path / SCHEMA_FILES / "gone.schema.json").touch()
    write(tmp_path)
    assert on_disk(tmp_path) == generated()


@pytest.mark.parametrize(
    ("shell", "name"), [("bash", "tierctl.bash"), ("zsh", "_tierctl"), ("fish", "tierctl.fish")]
)
def test_completions_are_scripts_their_shell_can_read(shell: str, name: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed: its completion script was not tried")
    done = subprocess.run([program, "-n", ROOT / "completions" / name], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


LEAVES = [node for node in command_tree().walk() if not node.children]


@pytest.mark.parametrize("node", LEAVES, ids=lambda node: " ".join(node.path))
def test_every_command_has_two_or_three_examples(node: Node) -> None:
    assert 2 <= len(node.examples) <= 3
    words = " ".join(node.path)
    assert all(example.command.startswith(f"tierctl {words} ") for example in node.examples)
    shown = tierctl(*node.path, "--help", env=environment(COLUMNS="80")).out
    assert max(map(len, shown.splitlines())) <= 80
    unfolded = " ".join(shown.replace("\\\n", " ").split())
    for example in node.examples:
        assert f"$ {example.command}" in unfolded


def test_every_command_answers_a_question() -> None:
    """A new command needs a line in tierctl/cli/questions.toml, the source of tierctl-questions(7)."""
    named = {each.command.split()[1] for each in questions("first", "more")}
    assert set(COMMANDS) - named == set()


def test_the_help_of_the_program_has_the_first_questions() -> None:
    shown = tierctl("--help", env=environment(COLUMNS="80")).out
    unfolded = " ".join(shown.split())
    assert len(questions("first")) == 5
    for each in questions("first"):
        assert f"{each.text} $ {each.command}" in unfolded
    for title, entries in GROUPS.items():
        listed = shown.partition(f" {title} ")[2].partition("╰")[0].splitlines()[1:]
        assert [line.split()[1] for line in listed if line[2] != " "] == list(entries)


def test_every_command_with_rows_can_choose_and_sort_them() -> None:
    expected = {"--columns", "--sort", "--limit", "--no-header", "--times"}
    for node in command_tree().walk():
        names = {name for option in node.options for name in option.names}
        assert "--output" not in names or expected <= names, node.path


def test_the_manual_lists_the_engines_of_every_command() -> None:
    """A new command also needs a scene in test_both_engines.py."""
    page = ROOT / "tierctl" / "cli" / "docs" / "manual" / "spark.md"
    listed = re.findall(r"^- \*\*(.*)\*\* \*(.*)\*: (executors)?", page.read_text(), re.MULTILINE)
    assert {command: tuple(found.split(", ")) for command, found, _ in listed} == engines()
    assert {found for _, found, work in listed if not work} == {"local"}
    assert "local" not in {found for _, found, work in listed if work}


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md"])
def test_every_file_that_a_document_names_exists(document: str) -> None:
    """A path with `<name>` stands for several files. Targets of links are paths, too."""
    text = (ROOT / document).read_text()
    paths = re.findall(r"`((?:tierctl|tests|man|completions)/[^`<…]*)`", text)
    paths += re.findall(r"\]\(([^)#][^):]*)\)", text)
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


SHARED_JAR = Path("share", "java", JAR.name)
COMPLETIONS = {
    "tierctl.bash": "share/bash-completion/completions/tierctl",
    "_tierctl": "share/zsh/site-functions/_tierctl",
    "tierctl.fish": "share/fish/vendor_completions.d/tierctl.fish",
}
"""The paths below a prefix, or below ~/.local, in which shells search for completions."""


@pytest.fixture(scope="module")
def clone(module_folder: Path) -> Path:
    """Return a copy of the files from which the wheel is built, without the jar."""
    folder = module_folder / "a clone"
    skip = shutil.ignore_patterns("__pycache__", "*.jar")
    for name in ("tierctl", "man", "completions", ".hatch"):
        shutil.copytree(ROOT / name, folder / name, ignore=skip)
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, folder)
    return folder


def test_a_wheel_without_the_jar_says_so(
    clone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(WheelBuilder(str(clone)).build(directory=str(tmp_path)))
    captured = capsys.readouterr()
    assert "make wheel" in captured.out + captured.err


@pytest.fixture(scope="module")
def prefix(clone: Path, module_folder: Path) -> Path:
    """Return an environment in which pip installed the clone with the jar, without its dependencies."""
    (clone / JAR.relative_to(ROOT)).write_bytes(b"the jar")
    folder = module_folder / "prefix"
    options = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--ignore-installed")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "--prefix", folder, clone],
        check=True,
        env=environment(HOME=str(folder)),
    )
    return folder


def files_below(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}


def test_shared_files_are_installed_where_programs_search(prefix: Path) -> None:
    pages = {Path("share/man", f"man{page.suffix[1:]}", page.name) for page in (ROOT / "man").glob("*.[17]")}
    operations = {Path("share/tierctl") / path for path in files_below(ROOT / "tierctl" / "share")}
    completions = set(map(Path, COMPLETIONS.values()))
    installed = {Path("share") / path for path in files_below(prefix / "share")}
    assert installed == pages | operations | completions | {SHARED_JAR}
    for name, path in COMPLETIONS.items():
        assert (prefix / path).read_text() == (ROOT / "completions" / name).read_text()


def test_format_finds_the_jar(clone: Path, prefix: Path) -> None:
    """The README's `pip install '.[all]'` copies the package; `make formatter` may build the jar later."""
    (package,) = prefix.glob("lib*/python*/site-packages")
    asking = [prefix / "bin" / "tierctl", "format", "--formatter-jar"]
    env = environment(PYTHONPATH=str(package))

    def found() -> Path:
        ran = subprocess.run(asking, capture_output=True, text=True, check=True, env=env)
        return Path(ran.stdout.strip())

    installed, built = package / JAR.relative_to(ROOT), clone / JAR.relative_to(ROOT)
    assert found() == installed
    assert installed.read_bytes() == (prefix / SHARED_JAR).read_bytes() == b"the jar"
    for jar in (installed, prefix / SHARED_JAR, built):
        jar.unlink()
    assert subprocess.run(asking, capture_output=True, check=False, env=env).returncode == 10
    built.write_bytes(b"the jar")
    assert found() == built


STORING = (
    "status",
    "verify",
    "segments",
    "segments --sizes",
    "report",
    "explain orders-0",
    "fetch --limit 1",
)


@pytest.mark.parametrize("line", STORING)
def test_a_run_stores_its_state_if_the_help_says_so(
    line: str, capture: Callable[[str], Path], tmp_path: Path
) -> None:
    name, *words = line.split()
    root, options = capture("tiered-cluster"), ["--state-dir", str(tmp_path)]
    (node,) = (each for each in LEAVES if each.path == (name,))
    accepted = {option for each in node.options for option in each.names}
    where = {"--metadata": root / "before", "--remote": root / "before-remote", "--log-dir": root / "before"}
    places = (word for option in where if option in accepted for word in (option, where[option]))
    ran = tierctl(name, *words, *places, *options)
    assert ran.code in {0, 3}, ran.err
    (told,) = (each.help for each in node.options if "--state-dir" in each.names)
    assert bool(list(tmp_path.glob("_tierctl_state-*"))) == ("reads only new events" in told)
