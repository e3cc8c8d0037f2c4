"""Erase keys: find every record with one, and sign the lists of the records that a restored log lacks.

`fetch --erase-report` searches all segments of the tier, whatever their state is: consumers may not see a
segment whose deletion did not finish, or one that an unclean election left behind, but its objects still
contain the key.

`restore log --without-keys` writes a signed list per partition. It has the records that the new log has
without key, value and headers. It is a file of JSON lines: the first describes the log, each other one a
record. Its signature is in a file with the same name and the suffix `.sig`. The same log has the same list,
so that a second replica, or a second run, changes nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, TypedDict

from tierctl.commands.resources import Resources
from tierctl.commands.restore.inventory import TierSets
from tierctl.errors import CorruptInputError, ExitCode, NotFoundError, UsageError
from tierctl.files import PLAIN, exists, is_dir, read_regular, write_durably
from tierctl.locallog import list_partitions
from tierctl.model import (
    ListedSet,
    LocalSegment,
    ObjectPart,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    TopicPartition,
    Uuid,
)
from tierctl.model.checked_values import read_named, require_replaceable
from tierctl.model.progress import Progress
from tierctl.model.selection import counted, names_text
from tierctl.read.record_rows import KEY_FORMS, parse_key
from tierctl.read.tasks import KeyRecord, SearchedSegment, search_segment
from tierctl.report import columns as f
from tierctl.report.columns import Columns, Field, Kind, Shown
from tierctl.report.results import Stream, TableResult
from tierctl.report.table import bytes_text
from tierctl.storage.stores.base import RemoteObject

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SegmentKey = tuple[TopicIdPartition, Uuid]


class KeyOccurrence(TypedDict):
    """A record with one of the keys."""

    topic: Annotated[str, f.TOPIC, Shown(0)]
    topic_id: Annotated[str, f.TOPIC_ID, Shown(5)]
    partition: Annotated[int, f.PARTITION, Shown(0)]
    offset: Annotated[int, f.OFFSET, Shown(0)]
    timestamp_ms: Annotated[int, f.TIMESTAMP_MS, Shown(2)]
    key_sha256: Annotated[str, Field(Kind.TEXT, "SHA-256 of the record's key, hex"), Shown(5)]
    segment_id: Annotated[str | None, f.SEGMENT_ID, Shown(4)]
    state: Annotated[str | None, f.STATE, Shown(3)]
    object: Annotated[
        str, Field(Kind.NAME, "URI of the object, or path of the file, that holds the record"), Shown(1)
    ]


KEY_OCCURRENCES = Columns(
    KeyOccurrence,
    name="key-occurrences",
    title="Records with the keys of an erasure request",
    commands="fetch --erase-report",
    noun="record",
)


class KeyOccurrences(Stream[KeyOccurrence], TableResult):
    """Records with one of the keys, as rows."""

    table = KEY_OCCURRENCES, None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Segment:
    """A segment to search; `object` is the URI of the remote log, or the path of the local one."""

    partition: TopicIdPartition
    segment: RemoteLogSegmentMetadata | LocalSegment
    size_bytes: int
    object: str
    state: str | None = None
    """State by the metadata; None if they do not have the segment, and for a local one."""

    def row(self, record: KeyRecord) -> KeyOccurrence:
        remote = self.segment if isinstance(self.segment, RemoteLogSegmentMetadata) else None
        return {
            "topic": self.partition.topic,
            "topic_id": str(self.partition.topic_id),
            "partition": self.partition.partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
            "key_sha256": record.key_sha256,
            "segment_id": None if remote is None else str(remote.segment_id),
            "state": self.state,
            "object": self.object,
        }


def erase_report(resources: Resources, keys: Sequence[str]) -> Generator[KeyOccurrence, None, ExitCode]:
    """Yield a row for each record with one of `keys`; segments that can't be searched are problems.

    Segments without metadata are searched by the metadata that are derived from their objects. Raises
    UsageError for malformed keys and NotFoundError for an unknown selection or an empty tier.
    """
    digests = frozenset(map(parse_key, keys))
    not_found = {digest.hex() for digest in digests}
    counts: Counter[str] = Counter()
    with resources:
        tier = TierSets.of(resources)
        segments = _segments(tier, counts)
        total = sum(each.size_bytes for each in segments)
        with resources.progress.bar("searching", unit="bytes", total=total) as advance:
            for each, result in _searched(tier, segments, digests):
                counts["records"] += result.records
                for error in result.errors:
                    resources.problems.report(error)
                not_found.difference_update(record.key_sha256 for record in result.found)
                yield from map(each.row, result.found)
                advance(each.size_bytes)
        resources.progress.note(
            f"searched {counted(len(segments), 'segment')}, {counted(counts['records'], 'record')}, "
            f"{bytes_text(total)}"
        )
        if not_found:
            resources.progress.note(
                f"{len(not_found)} of {len(digests)} keys are in no record that was searched, "
                f"by SHA-256: {names_text(not_found)}"
            )
        if counts["others"]:
            resources.progress.warn(
                f"objects of the tier that belong to no segment and were not searched: {counts['others']}"
            )
    return resources.problems.exit_code_of(has_read=True)


def _segments(tier: TierSets, counts: Counter[str]) -> list[_Segment]:
    """Return the segments of the tier and of the log directories; report sets that can't be read."""
    resources = tier.resources

    def count_other(_other: RemoteObject) -> None:
        counts["others"] += 1

    listed = tier.listed(others=count_other)
    known = _known(resources)
    selection = resources.resolve_selection(
        (each.partition for each in listed),
        (partition for partition, _ in known),
        list_partitions(resources.request.log_dir),
    )
    chosen = [
        each
        for each in listed
        if each.partition in selection
        and (each.sizes_bytes.get(ObjectPart.LOG) or each.problem or each.unknown)
    ]
    found = list(_remote_segments(tier, chosen, known))
    found += [
        _Segment(
            partition=log.topic_id_partition,
            segment=segment,
            size_bytes=segment.size_bytes,
            object=str(segment.log),
        )
        for log in resources.logs_if_given(is_tolerant=True)
        if log.topic_id_partition in selection
        for segment in log.segments
    ]
    if not found:
        raise NotFoundError("no segment to search", hint="check --remote and --log-dir")
    return found


def _known(resources: Resources) -> dict[SegmentKey, RemoteLogSegmentMetadata]:
    """Return the segments that the metadata have; none without --metadata.

    Raise the errors of `inspect_tier` if the tier is not that of the metadata: a report about the tier of
    another cluster would be no evidence.
    """
    if resources.request.metadata is None:
        return {}
    metadata = resources.metadata()
    state = metadata.refresh()
    resources.inspect_tier(metadata)
    return {
        (part.topic_id_partition, segment.segment_id): segment
        for part in state
        for segment in part.cache.list_remote_log_segments()
    }


def _remote_segments(
    tier: TierSets, listed: Sequence[ListedSet], known: dict[SegmentKey, RemoteLogSegmentMetadata]
) -> Iterator[_Segment]:
    own = [segment for each in listed if (segment := known.get((each.partition, each.segment_id)))]
    for each in tier.derived(listed, finished=own):
        if each.segment is None:
            tier.resources.problems.report(
                _unreadable(each.listed, each.why_not_understood or str(each.why_incomplete))
            )
            continue
        segment = known.get((each.listed.partition, each.listed.segment_id))
        yield _Segment(
            partition=each.listed.partition,
            segment=each.segment,
            # An entry that is no object has no size; the search reports it.
            size_bytes=each.listed.sizes_bytes.get(ObjectPart.LOG, 0),
            object=tier.remote.name_of(each.segment),
            state=None if segment is None else segment.state.name,
        )


def _unreadable(listed: ListedSet, why: str) -> CorruptInputError:
    return CorruptInputError(
        f"{listed.partition}: segment {listed.segment_id} was not searched",
        expected="a complete set of objects",
        found=why,
        hint="its log in the tier may contain the key: see tierctl verify, and delete the log if it is "
        "leaked",
    )


def _searched(
    tier: TierSets, segments: Sequence[_Segment], digests: frozenset[bytes]
) -> Iterator[tuple[_Segment, SearchedSegment]]:
    """Yield each segment with its result: those of the tier first, on either engine, then the local ones."""
    search = partial(search_segment, digests=digests)
    stored = [(each, each.segment) for each in segments if isinstance(each.segment, RemoteLogSegmentMetadata)]
    metadata = [segment for _, segment in stored]
    results = tier.read(search, metadata, size_bytes=lambda each: each.segment_size_in_bytes, threads=1)
    yield from zip((each for each, _ in stored), results, strict=True)
    for each in segments:
        if isinstance(each.segment, LocalSegment):
            yield each, search(tier.remote, each.segment)


_KIND = "tierctl-left-out/"
FORMAT = f"{_KIND}1"
_BEGIN = f'{{"format": "{_KIND}'.encode()
_SIGNATURE_SUFFIX = ".sig"
_SIGNATURE_BYTES = 64
_KEY_BYTES_MAX = 1 << 16
_KEY_HINT = "make one: openssl genpkey -algorithm ed25519 -out key.pem"


@dataclass(frozen=True, slots=True)
class SigningKey:
    """An Ed25519 private key, whose signatures OpenSSL verifies (RFC 8032); `repr` omits it."""

    _key: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the key in the PEM file `path`; UsageError if it has no unencrypted Ed25519 private key."""
        if find_spec("cryptography") is None:
            raise UsageError(
                "--sign-with needs cryptography, which is not installed", hint="pip install tierctl[kafka]"
            )
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            key = load_pem_private_key(read_named(path, _KEY_BYTES_MAX), None)
        except OSError as e:
            raise UsageError(f"--sign-with {path} can't be read: {e.strerror}", hint=_KEY_HINT) from None
        except (ValueError, TypeError, UnsupportedAlgorithm) as e:
            raise UsageError(
                f"--sign-with {path}: expected an unencrypted private key in PEM, found none "
                f"({type(e).__name__})",
                hint=_KEY_HINT,
            ) from None
        if not isinstance(key, Ed25519PrivateKey):
            raise UsageError(
                f"--sign-with {path}: expected an Ed25519 key, found another kind", hint=_KEY_HINT
            )
        return cls(key)

    def sign(self, data: bytes) -> bytes:
        """Return the signature of `data`, _SIGNATURE_BYTES bytes."""
        return self._key.sign(data)

    def has_signed(self, data: bytes, signature: bytes) -> bool:
        """Return whether `signature` is that of `data` by this key."""
        from cryptography.exceptions import InvalidSignature

        try:
            self._key.public_key().verify(signature, data)
        except InvalidSignature:
            return False
        return True


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

    def require_replaceable(self, partitions: Iterable[TopicPartition]) -> None:
        """Raise SafetyRefusal if the list of a new log, or its signature, would replace another file.

        Also raise the errors of `output_error`.
        """
        for path in map(self.path, partitions):
            require_replaceable("--left-out", path, "list", lambda head: head.startswith(_BEGIN))
            signature = _signature_of(path)
            require_replaceable(
                "--left-out", signature, "signature", lambda head: len(head) == _SIGNATURE_BYTES
            )

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
        if exists(Path(lists)) and not is_dir(Path(lists)):
            raise UsageError(
                f"--left-out {lists} is not a folder", hint="name a folder; tierctl makes it if it is missing"
            )
        path = Path(keys)
        lines = _parsed(path, _text_of(path))
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
        return read_named(path).decode("utf-8")
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
    if not text.endswith("\n"):
        raise UsageError(
            f"--without-keys {path} line {len(lines)}: expected a line feed after the last key, found the "
            "end of the file",
            hint="a file that was cut may lack keys, or have a part of one: end its last line if it is whole",
        )
    return found
