"""Signed lists of the records that a new log has without key, value and headers; one list per partition.

A list is a file of JSON lines: the first describes the log, each other one a record. Its signature is in a
file with the same name and the suffix `.sig`. The same log has the same list, so that a second replica, or a
second run, changes nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tierctl.files import PLAIN, read_regular, write_durably
from tierctl.model import TopicPartition

if TYPE_CHECKING:
    from tierctl.apply.materialise.signing import SigningKey

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
