"""`fetch --erase-report`: every segment and offset at which a key occurs, with the objects that contain it.

All segments of the tier are searched, whatever their state is: consumers may not see a segment whose deletion
did not finish, or one that an unclean election left behind, but its objects still contain the key.
"""

from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, TypedDict

from tierctl.commands.resources import Resources
from tierctl.commands.restore.inventory import TierSets
from tierctl.errors import CorruptInputError, ExitCode, NotFoundError
from tierctl.locallog import list_partitions
from tierctl.model import (
    ListedSet,
    LocalSegment,
    ObjectPart,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Uuid,
)
from tierctl.model.selection import names_text
from tierctl.read.record_rows import parse_key
from tierctl.read.tasks import KeyRecord, SearchedSegment, search_segment
from tierctl.report import fields as f
from tierctl.report.columns import Columns, Field, Kind, Shown
from tierctl.report.results import Stream, TableResult, TableRows
from tierctl.report.texts import bytes_text
from tierctl.storage.stores.base import RemoteObject

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

    def table_rows(self) -> TableRows:
        """Implement `TableResult.table_rows`; all segments are searched."""
        return KEY_OCCURRENCES, self


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
            f"searched {len(segments)} segments, {counts['records']} records, {bytes_text(total)}"
        )
        if not_found:
            resources.progress.note(
                f"{len(not_found)} of {len(digests)} keys are in no record that was searched, "
                f"by SHA-256: {names_text(not_found)}"
            )
        if counts["others"]:
            resources.progress.warn(
                f"{counts['others']} objects of the tier belong to no segment and were not searched"
            )
    return resources.problems.exit_code


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
    chosen = [each for each in listed if each.partition in selection and each.sizes_bytes.get(ObjectPart.LOG)]
    found = list(_remote_segments(tier, chosen, known))
    found += [
        _Segment(
            partition=log.topic_id_partition,
            segment=segment,
            size_bytes=segment.size_bytes,
            object=str(segment.log),
        )
        for log in resources.logs_if_given()
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
            size_bytes=each.listed.sizes_bytes[ObjectPart.LOG],
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
