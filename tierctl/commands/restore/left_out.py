"""The keys whose records a restored log must not have, and the signed lists of the records that it lacks.

A signed list per partition has the records that the new log has without key, value and headers. It is a file
of JSON lines: the first describes the log, each other one a record. Its signature is in a file with the same
name and the suffix `.sig`. The same log has the same list, so that a second replica, or a second run, changes
nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tierctl.errors import UsageError
from tierctl.files import PLAIN, read_regular, write_durably
from tierctl.model import TopicPartition
from tierctl.model.progress import Progress
from tierctl.read.record_rows import KEY_FORMS, parse_key

if TYPE_CHECKING:
    from tierctl.apply.signing import SigningKey


FORMAT = "tierctl-left-out/1"
_SIGNATURE_SUFFIX = ".sig"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A list whose signature is right.

    `log` is its first line. `segments` has base offset and size of each segment of the log, `keys` the
    SHA-256 of each key that occurred, and `records` counts the records.
    """

    log: Mapping[str, Any]
    segments: tuple[tuple[int, int], ...]
    keys: frozenset[bytes]
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The keys whose records are erased (as SHA-256), the folder of the lists, and the signing key."""

    digests: frozenset[bytes]
    lists: Path
    key: SigningKey

    @property
    def keys_sha256(self) -> str:
        """The SHA-256 of all digests in ascending order, in hex: the same for the same keys."""
        return hashlib.sha256(b"".join(sorted(self.digests))).hexdigest()

    def path(self, partition: TopicPartition) -> Path:
        """Return the file of the list of a new log."""
        return self.lists / f"{partition}.jsonl"

    def write(
        self,
        partition: TopicPartition,
        log: Mapping[str, Any],
        segments: Iterable[tuple[int, int]],
        rows: Iterable[Mapping[str, Any]],
    ) -> None:
        """Write the list of a new log and its signature durably; raises OSError."""
        sizes = [{"base_offset": base, "size_bytes": size} for base, size in segments]
        keys = {"keys": len(self.digests), "keys_sha256": self.keys_sha256}
        head = {"format": FORMAT, **log, **keys, "segments": sizes}
        data = b"".join(json.dumps(row).encode() + b"\n" for row in (head, *rows))
        path = self.path(partition)
        PLAIN.make_folder(self.lists)
        for file, content in ((path, data), (_signature_of(path), self.key.sign(data))):
            write_durably(file, [content], mode=0o666)

    def read(self, partition: TopicPartition) -> LeftOut | None:
        """Return the list of a new log for these keys; None if there is none that the key has signed."""
        path = self.path(partition)
        try:
            data, signature = read_regular(path), read_regular(_signature_of(path))
        except FileNotFoundError:
            return None
        if not self.key.has_signed(data, signature):
            return None
        head, *rows = (json.loads(line) for line in data.splitlines())
        if head["format"] != FORMAT or head["keys_sha256"] != self.keys_sha256:
            return None
        return LeftOut(
            log=head,
            segments=tuple((each["base_offset"], each["size_bytes"]) for each in head["segments"]),
            keys=frozenset(bytes.fromhex(row["key_sha256"]) for row in rows),
            records=len(rows),
        )


def _signature_of(path: Path) -> Path:
    return path.with_name(path.name + _SIGNATURE_SUFFIX)


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
        from tierctl.apply.signing import SigningKey

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
