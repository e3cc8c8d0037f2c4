"""Runs as a user other than root: nothing that a third user can write is used."""

import os
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tierctl import kernel
from tierctl.files import OWN_LOCK, exclusive

from tests.cli.shell import Ran, environment, tierctl, tierctl_process

OPERATOR, OTHER = 12345, 12346
"""Two users, and their groups, without a name."""
_RIGHTS = ("+dac_read_search", "--ambient-caps=+dac_read_search")
"""Lets the operator read Python's packages, which root may have at a place of its own; it allows no write."""

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root can run as another user"
)


def operator(*args: object, cwd: Path | None = None, **env: str) -> Ran:
    """Run one command line as the operator."""
    person = (f"--reuid={OPERATOR}", f"--regid={OPERATOR}", "--clear-groups", "--inh-caps", *_RIGHTS)
    own = environment(PYTHONPATH=os.pathsep.join(sys.path), **env)
    return tierctl_process(*args, cwd=cwd, env=own, prefix=("setpriv", *person))


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder of the operator; pytest's own are closed to other users than root."""
    with TemporaryDirectory() as outer:
        Path(outer).chmod(0o755)
        made = Path(outer) / "folder"
        made.mkdir()
        os.chown(made, OPERATOR, OPERATOR)
        yield made


def owned(path: Path, user: int, mode: int) -> Path:
    os.chown(path, user, user)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("user", "mode", "why"),
    [
        (0, 0o644, None),
        (OTHER, 0o644, f"belongs to user {OTHER}"),
        (OPERATOR, 0o664, "can be written by its group"),
    ],
)
def test_settings(user: int, mode: int, why: str | None, folder: Path) -> None:
    """tests/cli/test_foreign_files.py has the other cases, and files that options name."""
    file = folder / "tierctl.toml"
    file.write_text('[profiles.default]\nmetadata = "/planted"\n')
    owned(file, user, mode)
    ran = operator("segments", cwd=folder)
    if why is None:
        assert f"settings of {file} are used" in ran.err
        assert "/planted" in ran.err
    else:
        assert ran.err.startswith("warning: ./tierctl.toml is not read: ")
        assert why in ran.err
        assert "--metadata is missing" in ran.err


def test_a_page_through_a_link_of_another_user(tier: list[str], folder: Path) -> None:
    """A link of this user or root is followed: a web server's folder may have one."""
    own, planted = folder / "own.html", folder / "planted.html"
    for link, user in ((own, OPERATOR), (planted, OTHER)):
        link.symlink_to(folder / f"page-of-{user}")
        os.chown(link, user, user, follow_symlinks=False)
    assert operator("report", *tier, "--html", own).code == 0
    assert (folder / f"page-of-{OPERATOR}").stat().st_uid == OPERATOR
    ran = operator("report", *tier, "--html", planted)
    assert (ran.code, ran.out) == (2, "")
    assert f"--html {planted} is a link of another user" in ran.err
    assert not (folder / f"page-of-{OTHER}").exists()


@pytest.mark.parametrize(
    ("user", "mode", "why"),
    [
        (OPERATOR, 0o700, None),
        (OPERATOR, 0o1777, "can be written by every user"),
    ],
)
def test_the_folder_of_the_files_for_spark_submit(
    user: int, mode: int, why: str | None, tier: list[str], folder: Path
) -> None:
    kept = folder / "kept"
    kept.mkdir()
    owned(kept, user, mode)
    words = ("submit", "--submit-dir", kept, "--master", "spark://127.0.0.1:1", "--no-check", "--")
    command = (*words, "segments", *tier, "--engine", "spark")
    ran = operator(*command)
    if why is not None:
        assert (ran.code, f"--submit-dir: {kept} {why}" in ran.err) == (2, True), ran.err
        assert list(kept.iterdir()) == []
        return
    assert ran.code == 0, ran.err
    script = kept / "tierctl-main.py"
    assert (script.stat().st_uid, stat.S_IMODE(script.stat().st_mode)) == (OPERATOR, 0o644)
    owned(script, OTHER, 0o666)
    script.write_text("import os\n")
    again = operator(*command)
    assert again.code == 0, again.err
    assert (script.stat().st_uid, stat.S_IMODE(script.stat().st_mode)) == (OPERATOR, 0o644)
    assert script.read_text() != "import os\n"


def test_root_keeps_no_code_below_the_folder_of_another_user(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With sudo that keeps HOME, root made the folders, and trusted them although they can be replaced."""
    (tmp_path / "archive.zip").touch()
    monkeypatch.setattr(kernel, "_PACKAGE", tmp_path / "archive.zip" / "tierctl")
    monkeypatch.setattr(kernel, "_digest", lambda: "digest")
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert kernel._cache_folder() is None
    ran = tierctl("submit", "--submit-dir", folder / "new", "--master", "yarn", "--", "segments")
    assert (ran.code, "--submit-dir: " in ran.err, "belongs to" in ran.err) == (2, True, True), ran.err
    assert list(folder.iterdir()) == []


def test_a_lock_file_that_root_made(folder: Path) -> None:
    """The user of the folder, such as a broker's, takes the lock later; a file that exists stays as it is."""
    with exclusive(folder):
        pass
    made = (folder / OWN_LOCK).stat()
    assert (made.st_uid, made.st_gid, stat.S_IMODE(made.st_mode)) == (OPERATOR, OPERATOR, 0o600)
    secret = folder.parent / "secret"
    secret.touch(0o600)
    os.link(secret, folder / "linked.lock")
    with exclusive(folder, "linked.lock"):
        pass
    assert secret.stat().st_uid == 0
