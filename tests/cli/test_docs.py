"""Files generated from the commands are current, and the README agrees with the commands."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tierctl.cli.docs.examples import questions
from tierctl.cli.docs.tree import COMMANDS_FILE, command_tree
from tierctl.cli.docs.write import SCHEMA_FILES, files, write
from tierctl.cli.help.completion import fitting
from tierctl.cli.main import COMMANDS, GROUPS, build, everything, leaves
from tierctl.cli.settings.keys import option_key
from tierctl.model.engine import WITHOUT_ENGINE, WORK_ON_EXECUTORS, engines_of

from tests.cli.shell import environment, tierctl

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text()
COMMANDS_JSON = COMMANDS_FILE.relative_to(ROOT)


def on_disk(folder: Path) -> dict[Path, str]:
    rooms = (folder / "completions", folder / "man", folder / SCHEMA_FILES)
    others = (folder / COMMANDS_JSON, folder / "README.md")
    written = [*(path for room in rooms for path in room.iterdir()), *others]
    return {path.relative_to(folder): path.read_text() for path in written}


def test_completions_and_man_pages_are_current() -> None:
    assert on_disk(ROOT) == files(), "run 'make docs'"


def test_what_can_be_repeated_means_the_same_everywhere() -> None:
    """TIERCTL_... and a key in tierctl.toml apply to every command that has the option."""
    meanings: dict[str, set[str]] = {}
    for command in leaves(build()):
        for param in command.params:
            if param.param_type_name == "option" and param.multiple:
                meanings.setdefault(option_key(param.opts), set()).add(param.metavar)
    assert {key: found for key, found in meanings.items() if len(found) > 1} == {}


def test_every_command_has_a_page_of_its_own() -> None:
    pages = {path.name for path in files() if path.parent.name == "man" and path.suffix == ".1"}
    assert {"tierctl.1", *(f"tierctl-{name}.1" for name in COMMANDS)} <= pages
    assert len(pages) == len(list(everything(build())))


def test_writing_takes_away_what_is_gone(tmp_path: Path) -> None:
    (tmp_path / "man").mkdir()
    (tmp_path / "man" / "tierctl-gone.1").touch()
    (tmp_path / SCHEMA_FILES).mkdir(parents=True)
    (tmp_path / SCHEMA_FILES / "gone.schema.json").touch()
    write(tmp_path)
    assert on_disk(tmp_path) == files()


COMPLETED = pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("tierctl f", {"format", "fetch"}),
        ("tierctl cache ver", {"verify"}),
        ("tierctl --profile x cache ver", {"verify"}),
        ("tierctl format --output ", {"table", "json", "jsonl", "csv"}),
        (
            "tierctl format --state DELETE_P",
            {f"DELETE_PARTITION_{s}" for s in ("MARKED", "STARTED", "FINISHED")},
        ),
        ("tierctl offsets repair --fo", {"--force"}),
        ("tierctl format --max-messages ", set()),
    ],
)


@COMPLETED
def test_the_words_that_fit(words: str, expected: set[str]) -> None:
    before, _, started = words.rpartition(" ")
    assert set(fitting(command_tree(), before.split()[1:], started)) == expected


@COMPLETED
def test_bash_completes(words: str, expected: set[str]) -> None:
    last = ' ""' if words.endswith(" ") else ""
    script = (
        f"source '{ROOT}/completions/tierctl.bash'; COMP_WORDS=({words}{last})"
        '; COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _tierctl; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=True, env=environment()
    )
    assert (set(done.stdout.split()), done.stderr) == (expected, "")


@pytest.mark.parametrize(
    ("shell", "name"), [("bash", "tierctl.bash"), ("zsh", "_tierctl"), ("fish", "tierctl.fish")]
)
def test_completions_are_scripts_their_shell_can_read(shell: str, name: str) -> None:
    program = shutil.which(shell)
    if program is None:
        # The shell scripts, read as text, contain every command.
        text = (ROOT / "completions" / name).read_text()
        assert all(command in text for command in COMMANDS)
        return
    done = subprocess.run([program, "-n", ROOT / "completions" / name], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_every_command_answers_a_question() -> None:
    """A new command needs a line in tierctl/cli/docs/questions.toml, the source of the README's table."""
    named = {each.command.split()[1] for each in questions("first", "more")}
    assert set(COMMANDS) - named == set()


def test_the_help_of_the_program_has_the_first_questions() -> None:
    shown = tierctl("--help", env=environment(COLUMNS="80")).out
    assert max(map(len, shown.splitlines())) <= 80
    unfolded = " ".join(shown.split())
    assert len(questions("first")) == 5
    for each in questions("first"):
        assert f"{each.command} {each.text}" in unfolded
    for title, names in GROUPS.items():
        listed = shown.partition(f"\n{title}\n")[2].partition("\n\n")[0]
        assert [line.split()[0] for line in listed.splitlines() if line[2] != " "] == list(names)


def test_every_command_with_rows_can_choose_and_sort_them() -> None:
    expected = {"--columns", "--sort", "--limit", "--no-header", "--times"}
    for node in command_tree().walk():
        names = {name for option in node.options for name in option.names}
        assert "--output" not in names or expected <= names, node.path


def test_the_table_of_engines_has_every_command_and_is_right() -> None:
    """A new command needs an entry in WORK_ON_EXECUTORS and in the scenes of test_both_engines.py."""
    leaves = [node for node in command_tree().walk() if not node.children]
    assert {" ".join(node.path) for node in leaves} == set(WORK_ON_EXECUTORS), "see tierctl/model/engine.py"
    for node in leaves:
        choices = next((option.choices for option in node.options if "--engine" in option.names), ("local",))
        assert choices == engines_of(" ".join(node.path)), node.path
    assert {command for command, work in WORK_ON_EXECUTORS.items() if work is None} == set(WITHOUT_ENGINE)


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md"])
def test_every_file_that_a_document_names_exists(document: str) -> None:
    """A path with `<name>` stands for several files. Targets of links are paths, too."""
    text = (ROOT / document).read_text()
    paths = re.findall(r"`((?:tierctl|tests|man|completions)/[^`<…]*)`", text)
    paths += re.findall(r"\]\(([^)#][^):]*)\)", text)
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []
