"""Files generated from the commands are current, and name every command."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tierctl.cli.app import COMMANDS, GROUPS, leaves
from tierctl.cli.docs.messages import Node, command_tree
from tierctl.cli.docs.write import SCHEMA_FILES, files, write
from tierctl.cli.help import questions
from tierctl.cli.profiles import option_key
from tierctl.model.choices import ONLY_SPARK, WITHOUT_ENGINE, WORK_ON_EXECUTORS, engines_of

from tests.cli.shell import environment, tierctl

ROOT = Path(__file__).parent.parent.parent


def on_disk(folder: Path) -> dict[Path, str]:
    rooms = (folder / "completions", folder / "man", folder / SCHEMA_FILES)
    written = (path for room in rooms for path in room.iterdir())
    return {path.relative_to(folder): path.read_text() for path in written if path.suffix != ".svg"}


def test_completions_and_man_pages_are_current() -> None:
    assert on_disk(ROOT) == files(), "run 'make docs'"


def test_what_can_be_repeated_means_the_same_everywhere() -> None:
    """TIERCTL_... and a key in tierctl.toml apply to every command that has the option."""
    meanings: dict[str, set[str]] = {}
    for _, command in leaves():
        for param in command.params:
            if param.param_type_name == "option" and param.multiple:
                meanings.setdefault(option_key(param.opts), set()).add(param.metavar)
    assert {key: found for key, found in meanings.items() if len(found) > 1} == {}


def test_every_command_has_a_page_of_its_own() -> None:
    pages = {path.name for path in files() if path.parent.name == "man" and path.suffix == ".1"}
    assert {"tierctl.1", *(f"tierctl-{name}.1" for name in COMMANDS)} <= pages
    assert len(pages) == len(list(command_tree().walk()))


def test_writing_takes_away_what_is_gone(tmp_path: Path) -> None:
    (tmp_path / "man").mkdir()
    (tmp_path / "man" / "tierctl-gone.1").touch()
    (tmp_path / SCHEMA_FILES).mkdir(parents=True)
    (tmp_path / SCHEMA_FILES / "gone.schema.json").touch()
    write(tmp_path)
    assert on_disk(tmp_path) == files()


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


def test_the_table_of_engines_has_every_command_and_is_right() -> None:
    """A new command needs an entry in WORK_ON_EXECUTORS and in the scenes of test_both_engines.py."""
    assert {" ".join(node.path) for node in LEAVES} == set(WORK_ON_EXECUTORS), "see tierctl/model/choices.py"
    for node in LEAVES:
        command = " ".join(node.path)
        only = ("spark",) if command in ONLY_SPARK else ("local",)
        choices = next((option.choices for option in node.options if "--engine" in option.names), only)
        assert choices == engines_of(command), node.path
    assert {command for command, work in WORK_ON_EXECUTORS.items() if work is None} == set(WITHOUT_ENGINE)


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md"])
def test_every_file_that_a_document_names_exists(document: str) -> None:
    """A path with `<name>` stands for several files. Targets of links are paths, too."""
    text = (ROOT / document).read_text()
    paths = re.findall(r"`((?:tierctl|tests|man|completions)/[^`<…]*)`", text)
    paths += re.findall(r"\]\(([^)#][^):]*)\)", text)
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []
