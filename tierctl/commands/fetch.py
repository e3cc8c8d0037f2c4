"""`fetch`: records from the tier and the local logs; or a segment, an index or a follower's state."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tierctl.commands.histories import read_selected
from tierctl.commands.request import TYPED_ONLY, Request
from tierctl.commands.resources import Resources
from tierctl.commands.restore.erasure import KeyOccurrences, erase_report
from tierctl.commands.restore.inventory import read_rebuilt
from tierctl.errors import CorruptInputError, ExitCode, NotFoundError, TierctlError, UsageError
from tierctl.files import PLAIN, replace_durably
from tierctl.model import IndexType, IsolationLevel, RemoteLogSegmentMetadata, Uuid
from tierctl.model.checked_values import must_be_written, natural_number, write_output
from tierctl.model.progress import Advance, Progress, SilentProgress
from tierctl.model.times import TIME_FORMS, parse_time_ms
from tierctl.read.partition_reader import (
    PartitionReader,
    ReadablePartition,
    illegal_name_error,
    readable_partitions,
)
from tierctl.read.readable_log import ReadableLog, reliable_leader_log, with_current_topic_ids
from tierctl.read.record_rows import (
    INDEXES,
    KEY_FORMS,
    RECORDS,
    Binary,
    RecordRow,
    encoder,
    index_rows,
    record_row,
)
from tierctl.read.segment import IndexFetcher, Refusals, Report, stored_or_rebuilt
from tierctl.read.tasks import plan_read_tasks
from tierctl.report.columns import Columns
from tierctl.report.render import SHOW, OutputFormat
from tierctl.report.results import RowLines, Stream, TableResult, TableRows
from tierctl.state.lineage import AuxiliarySource, Lineage, built_epochs, find_source
from tierctl.wire.files.checkpoints import (
    LEADER_EPOCHS_FILE,
    ProducerEntry,
    decode_producer_snapshot,
    read_leader_epoch_checkpoint,
    write_leader_epoch_checkpoint,
)

if TYPE_CHECKING:
    from tierctl.spark.executors.rendered_text import PrintStep
    from tierctl.state.tier_state import TierState

EARLIEST = "earliest"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRange:
    """The offsets [start_offset, until_offset) of one partition; `until_offset` is None for its end."""

    log: ReadableLog
    reader: PartitionReader
    start_offset: int
    until_offset: int | None

    @property
    def end_offset(self) -> int:
        """The offset before which reading ends."""
        return self.log.end_offset if self.until_offset is None else self.until_offset

    @property
    def note(self) -> str | None:
        """Why reading ends before `until_offset`; None if it does not."""
        undecided = self.reader.undecided_offset
        if undecided is None or (self.until_offset is not None and self.until_offset <= undecided):
            return None
        return (
            f"{self.log.topic_id_partition.topic_partition} ends at offset {undecided} for "
            "read_committed: the tier does not have the end of the transaction that begins there; "
            "--log-dir may have it"
        )


def find_range(
    log: ReadableLog,
    reader: PartitionReader,
    *,
    offset: str = EARLIEST,
    until_offset: int | None = None,
    from_time_ms: int | None = None,
    to_time_ms: int | None = None,
) -> RecordRange | None:
    """Return the range from `offset`, or from the first record of `from_time_ms` or later.

    It ends before `until_offset` and before the first record later than `to_time_ms`. Return None if no
    record is as late as `from_time_ms`; raise UsageError if `offset` is neither a number nor a name.
    """
    if from_time_ms is None:
        start = resolve_offset(offset, log)
    else:
        end = reader.end_offset if until_offset is None else until_offset
        found = reader.offset_for_time(from_time_ms, read_in=(0, end), with_control=False)
        if found is None:
            return None
        start = found.offset
    if to_time_ms is not None:
        later = reader.end_for_time(to_time_ms, start)
        if later is not None:
            until_offset = later if until_offset is None else min(until_offset, later)
    return RecordRange(log=log, reader=reader, start_offset=start, until_offset=until_offset)


_EARLIEST_LOCAL = "earliest-local"


def resolve_offset(text: str, log: ReadableLog) -> int:
    """Return the offset of a number or of one of ListOffsets' names.

    Raise UsageError for any other text, and for earliest-local if no local log is known.
    """
    local_start = log.local_start_offset
    if text == _EARLIEST_LOCAL and local_start is None:
        raise UsageError(
            f"--offset {text}: the start of the local log is not known",
            hint="add --log-dir, or --bootstrap-server for a running cluster",
        )
    named = {
        EARLIEST: log.log_start_offset,
        _EARLIEST_LOCAL: local_start or 0,
        "latest-tiered": log.latest_tiered_offset,
        "latest": log.end_offset,
    }
    if text in named:
        return max(named[text], log.log_start_offset)
    offset = natural_number(text)
    if offset is None:
        raise UsageError(f"--offset {text}: not an offset", hint=f"expected a number or {', '.join(named)}")
    return offset


@dataclass(frozen=True, slots=True)
class FollowerState:
    """A follower's auxiliary state (KIP-405), with its producer snapshot decoded and as stored."""

    source: AuxiliarySource
    leader_epochs: Lineage
    producers: tuple[ProducerEntry, ...]
    producer_snapshot: bytes
    exit_code: ExitCode = ExitCode.OK

    def to_json(self) -> dict[str, Any]:
        """Return the state as a JSON-ready object."""
        segment = self.source.segment
        return {
            "topic": segment.topic,
            "topic_id": segment.topic_id,
            "partition": segment.partition,
            "segment_id": segment.segment_id,
            "epoch": self.source.epoch,
            "next_offset": self.source.next_offset,
            "leader_epochs": [list(entry) for entry in self.leader_epochs.entries],
            "producers": [entry._asdict() for entry in self.producers],
        }


def fetch_follower_state(
    log: ReadableLog, fetcher: IndexFetcher, leader_local_log_start_offset: int
) -> FollowerState:
    """Fetch the state that a follower builds if the leader's local log starts at that offset.

    Raise RemoteResourceNotFound if no segment contains the offset before it or an index is missing, and
    CorruptInputError for a damaged index: a replica must not be built from uncertain data.
    """
    log_end = log.end_offset if log.replica is None else log.replica.log.log_end_offset
    source = find_source(log.cache, log.lineage, leader_local_log_start_offset, log_end)
    index = fetcher.get(source.segment, IndexType.LEADER_EPOCH)
    snapshot = fetcher.get(source.segment, IndexType.PRODUCER_SNAPSHOT)
    try:
        epochs = read_leader_epoch_checkpoint(index)
        producers = decode_producer_snapshot(snapshot)
    except CorruptInputError as e:
        raise e.within(f"the indexes of remote segment {source.segment.segment_id}") from None
    log_start = 0 if log.replica is None else log.log_start_offset
    return FollowerState(source, built_epochs(source, epochs, log_start), producers, snapshot)


def write_follower_files(found: FollowerState, folder: Path) -> list[Path]:
    """Write `leader-epoch-checkpoint` and `<next offset>.snapshot` into `folder`; return their paths.

    Raise SafetyRefusal, before any change, if one of them has other content.
    """
    files = {
        folder / f"{found.source.next_offset:020d}.snapshot": found.producer_snapshot,
        folder / LEADER_EPOCHS_FILE: write_leader_epoch_checkpoint(found.leader_epochs.entries),
    }
    missing = [path for path, data in files.items() if must_be_written("--out", path, [data])]
    PLAIN.make_folder(folder)
    for path in missing:
        replace_durably(path, files[path])
    return [*files]


_COPY_BYTES = 1 << 20
_COUNTED_OFFSETS = 1000
"""Number of offsets between two reports of progress."""


_RECORDS = "Which records"
_OBJECTS = "Instead of records"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest(Request):
    """A request for records, or for one of `raw_segment`, `index` and `auxiliary_state` instead."""

    offset: Annotated[
        str,
        typer.Option(
            metavar="N|NAME",
            help="Begin at this offset: a number, earliest, earliest-local, latest-tiered or latest.",
            rich_help_panel=_RECORDS,
        ),
    ] = EARLIEST
    until: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="End before this offset.", rich_help_panel=_RECORDS),
        TYPED_ONLY,
    ] = None
    from_time_ms: Annotated[
        int | None,
        typer.Option(
            "--from-time",
            metavar="TIME",
            parser=parse_time_ms,
            help=f"Begin at the first record of this time or later; {TIME_FORMS}.",
            rich_help_panel=_RECORDS,
        ),
    ] = None
    to_time_ms: Annotated[
        int | None,
        typer.Option(
            "--to-time",
            metavar="TIME",
            parser=parse_time_ms,
            help="End before the first record that is later than this.",
            rich_help_panel=_RECORDS,
        ),
    ] = None
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Stop after N records; with --sort, print the first N rows.",
            rich_help_panel=_RECORDS,
        ),
    ] = None
    isolation: Annotated[
        IsolationLevel,
        typer.Option(
            help="read_committed leaves out records of aborted transactions and ends at the last stable "
            "offset.",
            rich_help_panel=_RECORDS,
        ),
    ] = IsolationLevel.READ_UNCOMMITTED
    output: Annotated[
        OutputFormat | None,
        typer.Option(
            "--output",
            "-o",
            help="Format of the output. Default: for records a table at a terminal, otherwise jsonl; for "
            "objects their raw bytes.",
            rich_help_panel=SHOW,
        ),
    ] = None
    binary: Annotated[
        Binary,
        typer.Option(
            help="How keys and values are written. auto: as text if they are UTF-8, otherwise as base64; the "
            "fields key_encoding and value_encoding state which. Records of more than 8 MiB are written "
            "as sha256, which is an error; --limit-factor raises the limit.",
            rich_help_panel=SHOW,
        ),
    ] = Binary.AUTO
    raw_segment: Annotated[
        str | None,
        typer.Option(
            metavar="SEGMENT_ID",
            help="Print the segment's log as it is stored in the tier, or with --index one of its indexes.",
            rich_help_panel=_OBJECTS,
        ),
    ] = None
    index: Annotated[
        IndexType | None,
        typer.Option(
            help="Print an index of the segment of --raw-segment, or of the segment that contains --offset; "
            "with --output, print its decoded entries.",
            rich_help_panel=_OBJECTS,
        ),
    ] = None
    auxiliary_state: Annotated[
        int | None,
        typer.Option(
            metavar="OFFSET",
            min=1,
            help="Print the state that a follower restores from the tier if its leader's local log begins at "
            "OFFSET: leader epochs and producer snapshot. With --out DIR, also write the follower's "
            "files.",
            rich_help_panel=_OBJECTS,
        ),
    ] = None
    rebuild: Annotated[
        bool,
        typer.Option(
            help="Without --metadata: derive the metadata from the tier's objects, in memory, as the command "
            "rebuild does. This reads every segment, or every manifest, of the selected partitions "
            "once.",
            rich_help_panel=_RECORDS,
        ),
    ] = False
    erase_report: Annotated[
        Sequence[str],
        typer.Option(
            metavar="KEY",
            help="For an erasure request, list every segment and offset at which this key occurs, and the "
            f"objects that contain it: {KEY_FORMS}. Repeatable. All segments of the tier are searched, "
            "whatever their state, and with --log-dir the local logs, too.",
            rich_help_panel=_OBJECTS,
        ),
    ] = ()
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Write the object to this file (--auxiliary-state: into this folder). A file that has other "
            "content is refused.",
            rich_help_panel=_OBJECTS,
        ),
    ] = None

    @property
    def reads_metadata_of_cluster(self) -> bool:
        """Implement `Request.reads_metadata_of_cluster`: --rebuild derives the metadata."""
        return not self.rebuild


class RecordRows(Stream[RecordRow], TableResult):
    """Records as rows."""

    table = RECORDS, None


class RecordTexts(RowLines[str]):
    """The same records as text that executors have rendered as jsonl."""


class ObjectBytes(Stream[bytes]):
    """The bytes of a segment or an index; none if they were written to `FetchRequest.out`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEntries(TableResult):
    """The decoded entries of an index, as rows with its fields."""

    rows: list[dict[str, Any]]
    exit_code: ExitCode
    columns: Columns
    """The columns of the rows."""

    def table_rows(self) -> TableRows:
        """Implement `TableResult.table_rows`."""
        return self.columns, self.rows


FetchResult = RecordRows | RecordTexts | ObjectBytes | IndexEntries | FollowerState | KeyOccurrences


def fetch(request: FetchRequest, progress: Progress | None = None) -> FetchResult:
    """Return the records of every selected partition in turn, or the object that the request names.

    Each offset comes once, from the segment of the current lineage. Unreadable data are reported as
    problems, and reading continues after them. Raises UsageError for contradicting options; reading, which
    for records and bytes begins with iteration, raises NotFoundError for an unknown selection, segment or
    offset, and the errors of the tier, the metadata and the cluster.
    """
    _require_consistent(request)
    resources = Resources(request=request, progress=progress or SilentProgress())
    if request.index is not None and request.output is not None:
        return _index_entries(resources, request, request.index)
    if request.raw_segment is not None or request.index is not None:
        return ObjectBytes(_object_bytes(resources, request))
    if request.erase_report:
        return KeyOccurrences(erase_report(resources, request.erase_report))
    if request.auxiliary_state is not None:
        return _follower_state(resources, request, request.auxiliary_state)
    if resources.is_on_spark:
        seen = set[str]()
        texts = _record_texts(resources, request, seen)
        return RecordTexts(texts, RECORDS, lambda text: text[:-1].split("\n"), "json", seen)
    return RecordRows(_record_rows(resources, request))


def _require_consistent(request: FetchRequest) -> None:
    """Raise UsageError for options that contradict each other."""
    is_object = request.raw_segment is not None or request.index is not None
    if request.erase_report and _chooses_records(request):
        raise UsageError(
            "--erase-report searches every record of the selected partitions",
            hint="use only --topic, --topic-id and --partition to select records",
        )
    if request.rebuild and request.metadata is not None:
        raise UsageError(
            "--rebuild can't be used with --metadata",
            hint="leave out --rebuild, or --metadata and TIERCTL_METADATA",
        )
    if request.from_time_ms is not None and request.offset != EARLIEST:
        raise UsageError("--offset and --from-time both state where to begin", hint="give one of them")
    if request.auxiliary_state is not None and is_object:
        raise UsageError("--auxiliary-state can't be used with --raw-segment or --index")
    if request.out is not None and not is_object and request.auxiliary_state is None:
        raise UsageError("--out needs --raw-segment, --index or --auxiliary-state", hint="redirect stdout")
    if request.output is not None and is_object and request.index is None:
        raise UsageError("--output can't be used with --raw-segment", hint="leave --output out")
    if request.output == "csv" and request.auxiliary_state is not None:
        raise UsageError("--output csv can't be used with --auxiliary-state", hint="use json, jsonl or table")


def _chooses_records(request: FetchRequest) -> bool:
    """Return whether options select some of the records, or objects instead of records."""
    chosen = (
        *(request.until, request.from_time_ms, request.to_time_ms, request.limit),
        *(request.raw_segment, request.index, request.auxiliary_state),
    )
    is_committed = request.isolation is IsolationLevel.READ_COMMITTED
    return request.offset != EARLIEST or is_committed or any(each is not None for each in chosen)


def _read_state(resources: Resources) -> "TierState":
    """Return the state of the selected partitions, of the metadata topic or of the tier's objects."""
    if isinstance(resources.request, FetchRequest) and resources.request.rebuild:
        return read_rebuilt(resources)
    return read_selected(resources)


def _partitions(resources: Resources, report: Report) -> list[ReadablePartition]:
    """Return the selected partitions with readable data; report those with an illegal name instead."""
    state, selection = _read_state(resources), resources.selection
    by_name = bool(selection.topics) and not selection.topic_ids
    if by_name:
        selection = with_current_topic_ids(selection, resources.cluster)
    legal = []
    logs = resources.logs_if_given(is_tolerant=True)
    for found in readable_partitions(state, logs, selection, by_name=by_name):
        refusal = illegal_name_error(found.topic_id_partition)
        if refusal is None:
            legal.append(found)
        else:
            report(refusal)
    return legal


def _range(
    resources: Resources, request: FetchRequest, partition: ReadablePartition, report: Report
) -> RecordRange | None:
    """Return the range of the request's records in a partition, if it has any; report damage to `report`."""
    leader = reliable_leader_log(resources.cluster, partition.topic_id_partition)
    log = resources.readable_log(partition, report=report, leader=leader)
    return find_range(
        log,
        PartitionReader(log, resources.indexes, report, isolation=request.isolation),
        offset=request.offset,
        until_offset=request.until,
        from_time_ms=request.from_time_ms,
        to_time_ms=request.to_time_ms,
    )


def _record_rows(resources: Resources, request: FetchRequest) -> Generator[RecordRow, None, ExitCode]:
    encode = encoder(request.binary)
    refusals = Refusals(resources.problems.report)
    report = refusals.report

    def rows(opened: ExitStack) -> Iterator[RecordRow]:
        partitions = _partitions(resources, resources.problems.report)
        total = _offset_count(request, partitions)
        advance = opened.enter_context(resources.progress.bar("reading", unit="offsets", total=total))
        for topic, own in groupby(partitions, key=lambda each: each.topic_id_partition.topic):
            with refusals.within(topic):
                for partition in own:
                    if found := _range(resources, request, partition, report):
                        yield from records(found, advance)

    def records(found: RecordRange, advance: Advance) -> Iterator[RecordRow]:
        done = found.start_offset
        for record in found.reader.read(found.start_offset, found.until_offset):
            refusals.has_read()
            yield record_row(found.log.topic_id_partition, record, encode, report)
            if record.offset - done >= _COUNTED_OFFSETS:
                advance(record.offset - done)
                done = record.offset
        advance(max(found.end_offset - done, 0))
        if found.note is not None:
            resources.progress.note(found.note)

    with resources, ExitStack() as opened:
        yield from islice(rows(opened), request.limit)
    return resources.problems.exit_code_of(has_read=refusals.has_records)


def _offset_count(request: FetchRequest, partitions: Iterable[ReadablePartition]) -> int | None:
    """Return the number of offsets to read; None if the request has bounds, which are resolved later."""
    bounds = (request.until, request.from_time_ms, request.to_time_ms, request.limit)
    is_bounded = request.offset != EARLIEST or any(bound is not None for bound in bounds)
    return None if is_bounded else sum(partition.offset_count for partition in partitions)


def _record_texts(
    resources: Resources, request: FetchRequest, seen: set[str]
) -> Generator[str, None, ExitCode]:
    """Yield the records as executors render them, and add their topic ids to `seen`.

    Errors and notes are reported when their turn comes.
    """
    from tierctl.spark.executors.rendered_text import TextFormat, printed

    with resources:
        text_format = TextFormat(
            spec=resources.tier_spec().resolved(resources.remote).shared(lambda: resources.executors.slots),
            binary=str(request.binary),
        )
        steps = _print_steps(resources, request)
        for found in printed(resources.executors, text_format, steps, rows_max=request.limit):
            for problem in found.problems:
                resources.problems.report(problem)
            if found.text:
                seen.add(str(found.topic_id))
                yield found.text
            if found.note is not None:
                resources.progress.note(found.note)
    return resources.problems.exit_code_of(has_read=bool(seen))


def _print_steps(resources: Resources, request: FetchRequest) -> "Iterator[PrintStep]":
    """Yield tasks in order, each with the errors met while it was planned.

    Planning runs ahead of the executors; so errors are reported only when the records before them are out.
    """
    from tierctl.spark.executors.rendered_text import SPLIT_BYTES, PrintStep

    met: list[TierctlError] = []
    is_committed = request.isolation is IsolationLevel.READ_COMMITTED

    def take_met() -> tuple[TierctlError, ...]:
        taken = tuple(met)
        met.clear()
        return taken

    try:
        for partition in _partitions(resources, met.append):
            found = _range(resources, request, partition, met.append)
            if found is None:
                continue
            tasks = plan_read_tasks(
                found.log,
                *found.reader.span(found.start_offset, found.until_offset),
                committed_only=(resources.indexes, met.append) if is_committed else None,
                split_bytes=SPLIT_BYTES,
            )
            for task in tasks:
                yield PrintStep(task=task, problems=take_met())
            found.reader.report_unread(found.until_offset)
            yield PrintStep(problems=take_met(), note=found.note)
    except TierctlError as e:
        yield PrintStep(problems=take_met(), ended=e)


def _object_bytes(resources: Resources, request: FetchRequest) -> Generator[bytes, None, ExitCode]:
    with resources, closing(_chunks(resources, _segment(resources, request), request.index)) as chunks:
        if request.out is None:
            yield from chunks
        elif must_be_written("--out", request.out, chunks):
            write_output("--out", request.out, chunks, mode=0o666)
    return resources.problems.exit_code


def _chunks(
    resources: Resources, segment: RemoteLogSegmentMetadata, index: IndexType | None
) -> Generator[bytes, None, None]:
    if index is not None:
        yield stored_or_rebuilt(resources.remote, segment, index, resources.progress.note)
        return
    expected, found = segment.segment_size_in_bytes, 0
    bar = resources.progress.bar("reading", unit="bytes", total=expected)
    with resources.remote.fetch_log_segment(segment, 0) as stream, bar as advance:
        while chunk := stream.read(_COPY_BYTES):
            yield chunk
            advance(len(chunk))
            found += len(chunk)
    if found != expected:
        raise CorruptInputError(
            "log",
            expected=f"{expected} bytes, as the segment's metadata say",
            found=f"{found}",
            source=resources.remote.name_of(segment),
            hint="tierctl verify shows which objects are damaged; without --out all bytes are printed",
        )


def _index_entries(resources: Resources, request: FetchRequest, index: IndexType) -> IndexEntries:
    with resources:
        segment = _segment(resources, request)
        data = stored_or_rebuilt(resources.remote, segment, index, resources.progress.note)
        rows = list(index_rows(data, index, segment.start_offset))
        exit_code, columns = resources.problems.exit_code, INDEXES[index]
        return IndexEntries(rows=rows, exit_code=exit_code, columns=columns)


def _segment(resources: Resources, request: FetchRequest) -> RemoteLogSegmentMetadata:
    """Return the segment `raw_segment`, or else the remote segment that contains `offset`."""
    if request.raw_segment is None:
        partition = _only_partition(resources, "--index without --raw-segment")
        log = resources.readable_log(partition)
        offset = resolve_offset(request.offset, log)
        found = log.remote_segment_for(offset)
        if found is None:
            raise NotFoundError(f"no remote segment holds offset {offset} of {partition.topic_id_partition}")
        return found
    wanted = Uuid.parse(request.raw_segment)
    state, selection = _read_state(resources), resources.selection
    for part in state:
        found = part.get(wanted) if part.topic_id_partition in selection else None
        if found is not None:
            return found
    raise NotFoundError(
        f"no remote segment {wanted}", hint="see tierctl segments, and --all for deleted ones"
    )


def _only_partition(resources: Resources, option: str) -> ReadablePartition:
    """Return the only selected partition; UsageError, which names `option`, if there are several."""
    found = _partitions(resources, resources.problems.report)
    if len(found) != 1:
        raise UsageError(
            f"{option} is about one partition, {len(found)} are chosen",
            hint="name it: --topic T --partition P",
        )
    return found[0]


def _follower_state(resources: Resources, request: FetchRequest, offset: int) -> FollowerState:
    with resources:
        log = resources.readable_log(_only_partition(resources, "--auxiliary-state"))
        state = fetch_follower_state(log, resources.indexes, offset)
        if request.out is not None:
            write_follower_files(state, request.out)
        return replace(state, exit_code=resources.problems.exit_code)
