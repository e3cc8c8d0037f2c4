"""Read the key file of `restore --materialise --without-keys`, and report which keys occurred."""

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from tierctl.apply.materialise.left_out import LeftOut, Removal
from tierctl.errors import UsageError
from tierctl.model.progress import Progress
from tierctl.read.record_rows import KEY_FORMS, parse_key

_LINES_SHOWN_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class WithoutKeys:
    """The keys of a file: the SHA-256 of each key, with the number of the first line that has it."""

    file: Path
    lines: dict[bytes, int]
    removal: Removal

    @classmethod
    def read(cls, keys: str | None, lists: str | None, signing_key: str | None) -> Self | None:
        """Return the keys of the file `keys`; None if none of the three options is given.

        Raise UsageError if only some of the options are given, if the file has no keys, or if a line is
        malformed.
        """
        if keys is None and lists is None and signing_key is None:
            return None
        if keys is None or lists is None or signing_key is None:
            raise UsageError(
                "--without-keys, --left-out and --sign-with must be given together",
                hint="--left-out DIR is the folder for the lists of the erased records, and --sign-with FILE "
                "is the Ed25519 key that signs them",
            )
        if Path(lists).exists() and not Path(lists).is_dir():
            raise UsageError(
                f"--left-out {lists} is not a folder", hint="name a folder; tierctl makes it if it is missing"
            )
        path = Path(keys)
        lines = _parsed(path, _text_of(path))
        if find_spec("cryptography") is None:
            raise UsageError(
                "--sign-with needs cryptography, which is not installed", hint="pip install tierctl[kafka]"
            )
        from tierctl.apply.materialise.signing import SigningKey

        key = SigningKey.read(Path(signing_key))
        removal = Removal(digests=frozenset(lines), lists=Path(lists), key=key)
        return cls(file=path, lines=lines, removal=removal)

    def report(self, lists: Iterable[LeftOut | None], progress: Progress) -> None:
        """Report how many records the signed lists say were left out, and which keys occur in no list."""
        found: set[bytes] = set()
        records = 0
        for each in lists:
            if each is None:
                progress.warn(
                    f"{self.removal.lists} has no signed list of a log that was restored: it is unknown "
                    f"which keys of {self.file} were not found"
                )
                return
            found |= each.keys
            records += each.records
        progress.say(
            f"left out {records} records with {len(found)} of {len(self.lines)} keys: "
            f"the signed lists are in {self.removal.lists}"
        )
        missing = sorted(number for digest, number in self.lines.items() if digest not in found)
        if missing:
            shown = ", ".join(map(str, missing[:_LINES_SHOWN_MAX]))
            more = f" and {len(missing) - _LINES_SHOWN_MAX} more" if len(missing) > _LINES_SHOWN_MAX else ""
            progress.warn(
                f"not found: {len(missing)} keys of {self.file} occur in no record that was restored, those "
                f"of lines {shown}{more}"
            )


def _text_of(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as e:
        raise UsageError(f"--without-keys {path} can't be read: {e.strerror}") from None
    except UnicodeDecodeError as e:
        raise UsageError(
            f"--without-keys {path}: expected UTF-8, found byte {e.object[e.start]:#04x} at byte {e.start}",
            hint=f"one key per line: {KEY_FORMS}",
        ) from None


def _parsed(path: Path, text: str) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    lines = text.removesuffix("\n").split("\n") if text else []
    for number, line in enumerate(lines, 1):
        where = f"--without-keys {path} line {number}"
        if line.endswith("\r"):
            raise UsageError(
                f"{where}: expected a key, found one with a carriage return at its end",
                hint="end lines with a line feed only; write a key that ends with a carriage return as hex: "
                "or base64:",
            )
        try:
            found.setdefault(parse_key(line), number)
        except UsageError as e:
            raise UsageError(f"{where}: {e.message}", hint=e.hint) from None
    if not found:
        raise UsageError(f"--without-keys {path} has no keys", hint=f"one key per line: {KEY_FORMS}")
    return found
