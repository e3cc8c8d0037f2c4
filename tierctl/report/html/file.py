"""The file of the page: replaced atomically, and only if it is a page of an earlier run."""

import os
from pathlib import Path

from tierctl.errors import UsageError, output_error
from tierctl.files import exclusive_replacement, write_durably
from tierctl.report.html.content import PageContent
from tierctl.report.html.page import GENERATOR, page_chunks

_HEAD_BYTES = 4096
_LOCK_TIMEOUT_S = 10.0


def require_replaceable(path: Path) -> None:
    """Raise UsageError unless `path` can be written and is new, empty, or a page that tierctl wrote.

    It is called before the work, so that a typing error neither wastes a run nor replaces another file.
    """
    folder = path.absolute().parent
    try:
        if path.is_dir():
            raise UsageError(f"--html {path} is a folder", hint=f"name a file in it, as {path / 'tier.html'}")
        if not folder.is_dir():
            raise UsageError(
                f"--html {path}: the folder {folder} does not exist", hint="make it, or name another"
            )
        if path.is_symlink() and path.lstat().st_uid not in {os.geteuid(), 0}:
            raise UsageError(f"--html {path} is a link of another user", hint="name a file, or make the link")
        if path.exists():
            _require_page(path)
    except OSError as e:
        raise UsageError(f"--html {path}: {e.strerror}", hint="name a file that this user may write") from e
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(
            f"--html {path}: this user may not write in {folder}",
            hint="the page replaces the file by a rename, which needs the right to write in its folder",
        )


def _require_page(path: Path) -> None:
    if not path.is_file():
        raise UsageError(f"--html {path} is not a regular file", hint="name a file that the page replaces")
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if head and GENERATOR.encode() not in head:
        raise UsageError(
            f"--html {path} is a file that tierctl report did not write: it is not replaced",
            hint="name another file, or remove this one",
        )


def write_page(path: Path, content: PageContent) -> int:
    """Replace `path` by the page, atomically and durably; return its size in bytes.

    Raise UsageError if the user may not write it or it has become another file, OutputError if the disk is
    full or fails, and LockedError if another run writes it for more than ten seconds.
    """
    chunks = [chunk.encode("utf-8", "backslashreplace") for chunk in page_chunks(content)]
    # A name in a web server's folder may be a link to the file.
    target = path.resolve()
    try:
        with exclusive_replacement(target, timeout_s=_LOCK_TIMEOUT_S):
            require_replaceable(target)
            write_durably(target, chunks, mode=0o666)
    except OSError as e:
        raise output_error(f"--html {path}", e) from e
    return sum(map(len, chunks))
