"""Files that somebody else can write: settings, and the options that come from none of them."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.cli.help.node import settings_key
from tierctl.cli.main import build, leaves

from tests.cli.shell import environment, tierctl

OTHER = 12345
"""A user, and a group, without a name."""
HARMFUL = {
    *("log-start-offset", "max-deletes", "max-fraction", "no-lease", "yes", "allow-live-brokers"),
    *("allow-missing-objects", "adopt-tier", "i-know-it-is-deleted", "off-lineage", "unreferenced-epochs"),
    *("truncated-metadata", "now", "override", "force", "orphan-age", "broker-id", "deletes-are-denied"),
    *("after-hole", "apply", "all-log-dirs", "assume-enabled", "clean-dangling", "copy-of-objects", "mark"),
    *("custom-metadata-max-bytes", "find", "log-start", "max-age", "set", "until", "without-keys"),
}

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file of another user")

CHANGES = [
    ("", None, None, None),
    ("file", 0o664, None, None),
    ("folder", 0o775, None, None),
    ("file", 0o666, None, "can be written by every user (mode 0666)"),
    ("file", 0o664, (0, OTHER), "can be written by its group (mode 0664)"),
    ("file", None, (OTHER, 0), f"belongs to user {OTHER}"),
    ("folder", 0o777, None, "can be written by every user (mode 0777)"),
    ("folder", 0o1777, None, "can be written by every user (mode 1777)"),
    ("folder", 0o775, (0, OTHER), "can be written by its group (mode 0775)"),
    ("folder", None, (OTHER, 0), f"belongs to user {OTHER}"),
    ("link", 0o666, None, "can be written by every user (mode 0666)"),
    ("link", None, (OTHER, 0), f"belongs to user {OTHER}"),
]
"""Whose mode and owner are changed, and why others may change a file then; None if they may not."""


def changed(file: Path, what: str, mode: int | None, owner: tuple[int, int] | None) -> None:
    """Change mode and owner of `file` or its folder; with "link", of a new target of `file`."""
    target = file.parent if what == "folder" else file
    if what == "link":
        target = file.parent / "elsewhere"
        file.rename(target)
        file.symlink_to(target)
    if mode is not None:
        target.chmod(mode)
    if owner is not None:
        os.chown(target, *owner)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "shared"
    made.mkdir(mode=0o755)
    (made / "tierctl.toml").write_text('[profiles.default]\nmax-messages = 1\nmetadata = "/planted"\n')
    (made / "tierctl.toml").chmod(0o644)
    return made


@as_root
@pytest.mark.parametrize(("what", "mode", "owner", "why"), CHANGES)
def test_settings_that_others_can_change_are_not_used(
    what: str, mode: int | None, owner: tuple[int, int] | None, why: str | None, folder: Path
) -> None:
    file = folder / "tierctl.toml"
    changed(file, what, mode, owner)
    here = tierctl("segments", cwd=folder)
    home = folder.parent / "home"
    home.mkdir()
    (home / "tierctl").symlink_to(folder)
    named = [
        tierctl("segments", "--config-file", file),
        tierctl("segments", env=environment(TIERCTL_CONFIG_FILE=str(file))),
        tierctl("segments", cwd=folder, env=environment(TIERCTL_CONFIG_FILE="tierctl.toml")),
        tierctl("segments", cwd=folder.parent, env=environment(XDG_CONFIG_HOME=str(home))),
    ]
    if why is None:
        assert here.raw_err.count(f"note: settings of {file} are used") == 1
        assert all("/planted" in ran.err for ran in (here, *named))
        assert not any("settings of" in ran.err for ran in named)
    else:
        assert here.err.startswith("warning: ./tierctl.toml is not read: ")
        assert why in here.err
        assert "--metadata is missing" in here.err
        for ran in named:
            assert (ran.code, ran.out) == (2, "")
            assert "tierctl.toml is not read: " in ran.err
            assert why in ran.err
            assert "/planted" not in ran.err


@as_root
def test_the_own_file_is_read_in_place_of_one_that_is_not_used(folder: Path) -> None:
    os.chown(folder / "tierctl.toml", OTHER, 0)
    own = folder.parent / ".config" / "tierctl"
    own.mkdir(parents=True)
    (own / "tierctl.toml").write_text('[profiles.default]\nmetadata = "/mine"\n')
    ran = tierctl("segments", cwd=folder, env=environment(HOME=str(folder.parent)))
    assert "./tierctl.toml is not read" in ran.err
    assert "/mine" in ran.err


@pytest.mark.parametrize("command", [("config", "check"), ("doctor",), ("segments", "--limit", "x")])
def test_every_command_says_that_the_file_of_the_folder_is_used(
    command: tuple[str, ...], folder: Path
) -> None:
    assert "/shared/tierctl.toml are used" in tierctl(*command, cwd=folder).err


def test_what_decides_about_deletes_comes_from_the_command_line_only() -> None:
    params = [p for command in leaves(build()) for p in command.params if p.param_type_name == "option"]
    typed = {settings_key(p.opts).replace("_", "-") for p in params if p.is_typed_only}
    assert typed >= HARMFUL
    others = {settings_key(p.opts).replace("_", "-") for p in params if not p.is_typed_only}
    assert typed & others == set()
    assert {p.envvar for p in params if p.is_typed_only} == {None}
    assert not {name for name in others if name.startswith(("allow-", "i-know-", "no-l", "max-d", "max-f"))}


@pytest.mark.parametrize("name", sorted(HARMFUL))
def test_such_an_option_in_a_file_or_in_the_environment_is_an_error(name: str, tmp_path: Path) -> None:
    file = tmp_path / "tierctl.toml"
    option, variable = f"--{name}", f"TIERCTL_{name.upper().replace('-', '_')}"
    for key in (name, name.replace("-", "_")):
        file.write_text(f'[profiles.unused]\n{key} = "1"\n')
        ran = tierctl("segments", "--metadata", tmp_path, cwd=tmp_path)
        assert (ran.code, ran.out) == (2, "")
        assert f"tierctl.toml, line 2: {name} = 1: " in ran.err
        assert option in ran.err
    file.unlink()
    ran = tierctl("segments", "--metadata", tmp_path, env=environment(**{variable: "1"}))
    assert (ran.code, ran.out) == (2, "")
    assert f"{variable} is set: " in ran.err
    assert option in ran.err


def test_the_manual_lists_these_options() -> None:
    page = (Path(__file__).parents[2] / "man" / "tierctl-settings.7").read_text().replace("\\-", "-")
    assert [name for name in sorted(HARMFUL) if f"--{name}" not in page] == []


def test_a_large_file_of_settings_is_read_in_a_short_time(tmp_path: Path) -> None:
    """20,000 lines took minutes when the time grew with the square of the lines."""
    file = tmp_path / "tierctl.toml"
    file.write_text("[profiles.default]\n" + "".join(f"x{i} = [\n  1,\n]\n" for i in range(7000)))
    ran = tierctl("config", "check", "--config-file", file, "--limit", "1")
    assert ran.code == 2


def _link(file: Path) -> None:
    file.rename(file.parent / "bashrc")
    file.symlink_to(file.parent / "bashrc")


def _pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@as_root
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda file: file.chmod(0o660), None),
        (lambda file: file.chmod(0o602), "it can be written by every user (mode 0602)"),
        (lambda file: (file.chmod(0o660), os.chown(file, 0, OTHER)), "it can be written by its group"),
        (lambda file: os.chown(file, OTHER, 0), f"it belongs to user {OTHER}"),
        (lambda file: os.link(file, file.parent / "bashrc"), "it has 2 names (hard links)"),
        (_link, "it is a link"),
        (_pipe, "it is no regular file"),
    ],
    ids=["own", "world", "group", "owner", "hard link", "link", "pipe"],
)
def test_messages_are_appended_only_to_a_file_of_this_user(
    change: Callable[[Path], object], why: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "log"
    file.write_text("before\n")
    change(file)
    ran = tierctl("segments", "--metadata", tmp_path / "$(touch x)", "--log-file", file)
    if why is None:
        assert ran.code == 10
        assert file.read_text().startswith("before\n20")
    else:
        assert (ran.code, ran.out) == (2, "")
        assert f"--log-file {file}: {why}" in ran.err
        assert not file.is_file() or file.read_text() == "before\n"
