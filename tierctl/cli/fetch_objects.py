"""`tierctl fetch` of what is no record: a segment's bytes, an index, a follower's auxiliary state."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import typer

from tierctl.cli import options
from tierctl.cli.context import Context
from tierctl.cli.fetch import chosen_partitions, offset_of
from tierctl.cli.reading import Tier, note, read_state
from tierctl.errors import NotFoundError, RemoteResourceNotFound, UsageError
from tierctl.model import IndexType, RemoteLogSegmentMetadata, Uuid

if TYPE_CHECKING:
    from tierctl.read.partitions import ReadablePartition
    from tierctl.read.tolerated_errors import ToleratedErrors

_COPY_BYTES = 1 << 20


def fetch_object(ctx: typer.Context, context: Context, problems: "ToleratedErrors") -> None:
    """A segment's log or one of its indexes: raw, or an index decoded with --output."""
    index = ctx.params["index"]
    output = ctx.params["output"]
    if output is not None and index is None:
        raise UsageError("--output does not go with --raw-segment", hint="its bytes are written as they are")
    tier = Tier.of(context)
    segment = _segment(ctx, context, tier, problems)
    if index is None:
        with tier.remote.fetch_log_segment(segment, 0) as stream:
            _emit(_chunks(stream), ctx.params["out"])
        return
    data = _index_data(segment, IndexType(index), tier)
    if output is not None:
        from tierctl.read.index_rows import index_rows
        from tierctl.report import render

        columns, rows = index_rows(data, IndexType(index), segment.start_offset)
        render(rows, output, columns)
        return
    _emit([data], ctx.params["out"])


def _segment(
    ctx: typer.Context, context: Context, tier: Tier, problems: "ToleratedErrors"
) -> RemoteLogSegmentMetadata:
    """The segment of --raw-segment, else the remote one that answers for --offset."""
    text = ctx.params["raw_segment"]
    if text is None:
        return _segment_at(ctx, context, tier, problems)
    wanted = Uuid.parse(text)
    for part in read_state(context, problems):
        found = part.cache.get(wanted) if part.topic_id_partition in context.selection else None
        if found is not None:
            return found
    raise NotFoundError(
        f"no remote segment {wanted}", hint="see tierctl segments, and --all for deleted ones"
    )


def _segment_at(
    ctx: typer.Context, context: Context, tier: Tier, problems: "ToleratedErrors"
) -> RemoteLogSegmentMetadata:
    readable = _only(list(chosen_partitions(context, problems)), "--index without --raw-segment")
    view = tier.view(readable, problems)
    offset = offset_of(ctx.params["offset"], view)
    segment = view.remote_segment_for(offset)
    if segment is None:
        raise NotFoundError(
            f"no remote segment answers for offset {offset} of {readable.topic_id_partition.topic_partition}"
        )
    return segment


def _only(found: "list[ReadablePartition]", option: str) -> "ReadablePartition":
    if len(found) != 1:
        raise UsageError(
            f"{option} is about one partition, {len(found)} are chosen",
            hint="name it: --topic T --partition P",
        )
    return found[0]


def _index_data(segment: RemoteLogSegmentMetadata, index_type: IndexType, tier: Tier) -> bytes:
    """The index as stored; an offset or time index that is missing is built again from the segment."""
    from tierctl.read.index_lookup import rebuilt_indexes
    from tierctl.read.segment_bytes import RemoteSegment

    try:
        with tier.remote.fetch_index(segment, index_type) as stream:
            return stream.read()
    except RemoteResourceNotFound:
        if index_type not in {IndexType.OFFSET, IndexType.TIMESTAMP}:
            raise
    note(f"the {index_type.value} index of {segment.segment_id} is missing; built again from the segment")
    offsets, times = rebuilt_indexes(RemoteSegment(segment, tier.remote))
    return offsets.data if index_type is IndexType.OFFSET else times.data


def fetch_auxiliary_state(ctx: typer.Context, context: Context, problems: "ToleratedErrors") -> None:
    """Prints a follower's auxiliary state; with --out writes the files it would have, too."""
    from tierctl.read.follower_files import fetch_follower_state, write_follower_files
    from tierctl.report import render_object

    if ctx.params["output"] is options.OutputFormat.CSV:
        raise UsageError("--auxiliary-state is one object", hint="use --output json, jsonl or table")
    tier = Tier.of(context)
    readable = _only(list(chosen_partitions(context, problems)), "--auxiliary-state")
    view = tier.view(readable, problems)
    found = fetch_follower_state(view, tier.fetcher, ctx.params["auxiliary_state"])
    if ctx.params["out"] is not None:
        write_follower_files(found, ctx.params["out"])
    render_object(found.to_json(), ctx.params["output"] or options.OutputFormat.JSON)


def _emit(chunks: Iterable[bytes], path: Path | None) -> None:
    """Raw bytes to stdout, or to a file that appears under its name only when it is whole."""
    if path is not None:
        from tierctl.files import write_durably

        write_durably(path, chunks)
        return
    for chunk in chunks:
        sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()


def _chunks(stream: BinaryIO) -> Iterator[bytes]:
    while chunk := stream.read(_COPY_BYTES):
        yield chunk
