"""Find files with passwords and private keys that other users can read, and files that they can change."""

import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tierctl.doctor.checks import Check
from tierctl.doctor.examination import Result, fault, ok
from tierctl.doctor.files import is_reachable, replaceable_in
from tierctl.doctor.result import Outcome
from tierctl.files import why_distrusted
from tierctl.model.settings.registry import holds_secret

_PASSWORD_IN_URI = re.compile(rb"://[^/\s\"':@]+:[^/\s\"'@]+@")
_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class SecretFile:
    """A file that tierctl reads; `holds` names the secret in it, None if there is none."""

    path: Path
    holds: str | None


def settings_files(path: Path, settings: Mapping[str, str]) -> Iterator[SecretFile]:
    """Yield the file with `settings`, and the key stores and key files that they name."""
    held = sorted(name for name, value in settings.items() if holds_secret(name, value))
    yield SecretFile(path, ", ".join(held[:3]) + (", …" if len(held) > 3 else "") if held else None)
    for name, value in sorted(settings.items()):
        if name.endswith(("keystore.location", ".private.key.file")):
            yield SecretFile(Path(value.strip()), name)


def profile_file(path: Path) -> SecretFile:
    """Return tierctl.toml, which contains a secret if a URI in it has a password."""
    with path.open("rb") as file:
        found = _PASSWORD_IN_URI.search(file.read(_BYTES_MAX))
    return SecretFile(path, "a password in a URI" if found else None)


def check_secrets(files: Iterable[SecretFile]) -> Iterator[Result]:
    """Yield the results about the files, each once; files that do not exist have none."""
    for path, holds in {each.path: each.holds for each in files}.items():
        if path.exists():
            yield from _of_file(path, holds)


def _of_file(path: Path, holds: str | None) -> Iterator[Result]:
    subject, real = str(path), path.resolve()
    mode = stat.S_IMODE(real.stat().st_mode)
    what = f"it holds {holds}" if holds else "it holds no secret"
    is_open = is_reachable(real)
    if mode & stat.S_IWOTH and is_open:
        yield fault(Check.SECRETS, subject, f"every user may write it (mode {mode:04o}); {what}")
    elif (folder := replaceable_in(real)) is not None:
        yield fault(Check.SECRETS, subject, f"every user may replace it, as {folder} can be written; {what}")
    elif holds and mode & stat.S_IROTH and is_open:
        yield fault(Check.SECRETS, subject, f"every user may read it (mode {mode:04o}); {what}")
    elif mode & stat.S_IWGRP:
        found = f"its group may write it (mode {mode:04o}); {what}"
        yield fault(Check.SECRETS, subject, found, outcome=Outcome.WARNING)
    elif (why := why_distrusted(real, sticky_folder=True)) is not None:
        yield fault(Check.SECRETS, subject, f"others may change it: {why}; {what}", outcome=Outcome.WARNING)
    else:
        yield ok(Check.SECRETS, subject, f"mode {mode:04o}; {what}")
