"""Real shells complete commands, options and names that the last run stored, whatever they contain."""

import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tierctl.commands.completion import NAMES_MAX, read_topics, store_topics

from tests.cli.shell import environment, tierctl
from tests.docs.documents import DOCUMENTS
from tests.support.interactive import SHELLS, Shell

COMPLETIONS = Path(__file__).parents[2] / "completions"
PROFILE = "default"
HOSTILE = (
    *("$(touch pwned)", "`touch pwned`", "; touch pwned", "| touch pwned", "&touch pwned", "> pwned"),
    *("\\$(touch pwned)", "'; touch pwned; '", '"; touch pwned; "', "a\ttouch pwned", "(touch pwned)"),
    *("*", "?wned", "[a-z]*", "~root", "{a,b}", "-e", "--apply", "a b", "a\rb", "\x1b[31mred", "!!", "é"),
    *("x" * 250, "$HOME", "${PATH:0}", "a[$(touch pwned)]", "=ls", "^a^b", "%1", "\\", ""),
)
PAGE = next(each for each in DOCUMENTS if each.name == "completion.md")
COMPINIT = "autoload -Uz compinit; compinit -u -D; "
(FPATH,) = (span for span in PAGE.spans if span.startswith("fpath="))
INSTALLED = {
    "bash": "source {scripts}/tierctl.bash; ",
    "zsh": FPATH.replace("~/.local/share/zsh/site-functions", "{scripts}") + "; " + COMPINIT,
    "fish": "source {scripts}/tierctl.fish; ",
}
SOURCED = {
    shell: f"{COMPINIT if shell == 'zsh' else ''}{before}{sys.executable} -m tierctl{after}; "
    for block in PAGE.blocks("sh")
    for before, shell, after in re.findall(r"^(.*_COMPLETE=source_(\w+) )tierctl(.*)$", block, re.MULTILINE)
}
"""The lines of tierctl-completion(7) for the start-up files of shells."""
RECORD = {
    "bash": "tierctl() { printf '%s\\n' \"$@\" > out; }; echo > ready\n",
    "zsh": "tierctl() { printf '%s\\n' \"$@\" > out }; echo > ready\n",
    "fish": "function tierctl; printf '%s\\n' $argv > out; end; echo > ready\n",
}
"""A definition of a command tierctl that writes its arguments to a file."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    found = tmp_path / "the home"
    found.mkdir()
    return found


def environ(home: Path) -> dict[str, str]:
    return {"HOME": str(home)}


def with_program(home: Path) -> dict[str, str]:
    """Return an environment in which shells find this tierctl as a program."""
    program = home.parent / "bin" / "tierctl"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nexec '{sys.executable}' -m tierctl \"$@\"\n")
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    return environ(home) | {"PATH": path, "PYTHONPATH": str(COMPLETIONS.parent)}


def stored(home: Path, profile: str = PROFILE) -> Path:
    return home / ".cache" / "tierctl" / "completion" / profile


def forge(home: Path, *lines: str) -> None:
    """Write lines that `store_topics` never writes."""
    stored(home).parent.mkdir(parents=True, exist_ok=True)
    stored(home).write_text("".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize("shell_name", SHELLS)
def test_a_shell_sources_what_tierctl_prints(shell_name: str, home: Path) -> None:
    setup = SOURCED[shell_name] + RECORD[shell_name]
    with Shell(shell_name, home, with_program(home)) as shell:
        shell.type(setup)
        shell.wait_for(home / "ready")
        shell.type("tierctl cache ver\t\n")
        assert shell.wait_for(home / "out").splitlines() == ["cache", "verify"]


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest, home: Path) -> Iterator[Shell]:
    with Shell(request.param, home, with_program(home)) as found:
        found.type(INSTALLED[request.param].format(scripts=COMPLETIONS) + RECORD[request.param])
        found.wait_for(home / "ready")
        yield found


COMPLETED = {
    "segments --topic or\t": ["segments", "--topic", "orders"],
    "explain cl\t 0": ["explain", "clicks", "0"],
    "--profile st\t verify": ["--profile", "staging", "verify"],
    "verify --kind missing_o\t": ["verify", "--kind", "missing_object"],
    "offsets repair --fo\t": ["offsets", "repair", "--force"],
    "format --style ki\t": ["format", "--style", "kip"],
    "segments --columns topic,start_of\t": ["segments", "--columns", "topic,start_offset"],
}


def test_a_shell_completes(shell: Shell, home: Path) -> None:
    store_topics(PROFILE, ["clicks", "orders", "-x", "$(touch pwned)"], environ(home))
    (home / "tierctl.toml").write_text("[profiles.staging]\n[profiles.production]\n")
    for keys, expected in COMPLETED.items():
        shell.type(f"tierctl {keys}\n")
        assert shell.wait_for(home / "out").splitlines() == expected
        (home / "out").unlink()


def test_no_shell_runs_a_stored_name(shell: Shell, home: Path) -> None:
    """The file is forged: only names with legal characters are completed."""
    forge(home, *HOSTILE, "good")
    hostile = (name.replace("\\", "").replace("'", "") for name in HOSTILE)
    profiles = "".join(f"[profiles.'{name}']\n" for name in dict.fromkeys(hostile) if name.isprintable())
    (home / "tierctl.toml").write_text(profiles)
    for option, typed in (("--topic", "$"), ("--profile", "")):
        # The shell reads the next keys when it has completed.
        shell.type(f"tierctl segments {option} {typed}\t\t\t\x15echo > completed\n")
        shell.wait_for(home / "completed")
        (home / "completed").unlink()
    shell.type("tierctl segments --topic go\t\n")
    assert shell.wait_for(home / "out").splitlines() == ["segments", "--topic", "good"]
    assert not (home / "pwned").exists()
    assert b"touch pwned" not in shell.printed, "an illegal name was offered"


def test_names_are_bounded_and_hostile_ones_refused(home: Path) -> None:
    many = [f"topic-{number:05d}" for number in range(NAMES_MAX + 7)]
    store_topics(PROFILE, [*HOSTILE, *reversed(many)], environ(home))
    assert stored(home).read_text().splitlines() == many[:NAMES_MAX]
    assert read_topics(PROFILE, environ(home)) == many[:NAMES_MAX]
    assert stat.S_IMODE(stored(home).stat().st_mode) == 0o600
    assert stat.S_IMODE(stored(home).parent.stat().st_mode) == 0o700
    forge(home, *many)
    assert read_topics(PROFILE, environ(home)) == many[:NAMES_MAX]


def test_a_write_that_fails_leaves_the_old_names(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store_topics(PROFILE, ["old"], environ(home))

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        store_topics(PROFILE, ["new"], environ(home))
    assert read_topics(PROFILE, environ(home)) == ["old"]
    assert [each.name for each in stored(home).parent.iterdir()] == [PROFILE]


@pytest.mark.parametrize(
    "env", [{}, {"HOME": ""}, {"HOME": "."}, {"HOME": "{home}/none"}, {"XDG_CACHE_HOME": "relative"}]
)
def test_without_a_home_nothing_is_stored(
    env: dict[str, str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    store_topics(PROFILE, ["a"], {name: value.format(home=home) for name, value in env.items()})
    assert list(home.iterdir()) == []


def test_the_cache_of_another_user_is_left_alone(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With sudo that keeps HOME, the user could not replace the files afterwards."""
    monkeypatch.setattr("os.geteuid", lambda: home.stat().st_uid + 1)
    store_topics(PROFILE, ["a"], environ(home))
    assert list(home.iterdir()) == []


def test_a_run_stores_what_it_read(capture: Callable[[str], Path], home: Path) -> None:
    profiles = ("[profiles.default]", "threads = 3", "[profiles.staging]", "[profiles.'a b']")
    (home / "tierctl.toml").write_text("\n".join(profiles))
    where = ("--metadata", capture("tiered-cluster") / "before")
    ran = tierctl("segments", *where, "--topic", "orders", env=environment(**environ(home)), cwd=home)
    assert ran.code == 0
    # All topics are stored, not only the selected one.
    assert read_topics(PROFILE, environ(home)) == ["clicks", "metrics", "orders", "payments", "shortlived"]
    ran = tierctl("segments", *where, "--profile", "staging", env=environment(**environ(home)), cwd=home)
    assert ran.code == 0
    assert {each.name for each in stored(home).parent.iterdir()} == {"default", "staging"}


@pytest.mark.parametrize("obstacle", ["a file", "a link to nothing", "no right"])
def test_a_home_that_can_t_be_written_changes_nothing(
    obstacle: str, capture: Callable[[str], Path], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if obstacle == "a file":
        (home / ".cache").write_text("")
    elif obstacle == "a link to nothing":
        (home / ".cache").symlink_to(home / "nowhere" / "else")
    else:
        # Root may write to every folder.
        monkeypatch.setattr(Path, "mkdir", refuse)
    where = ("--metadata", capture("tiered-cluster") / "before")
    ran = tierctl("segments", *where, env=environment(**environ(home)))
    assert (ran, ran.summary) != (None, "")
    assert ran == tierctl("segments", *where)


def refuse(*_: object, **__: object) -> None:
    raise PermissionError(30, "Read-only file system")
