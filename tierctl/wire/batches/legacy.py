"""Messages of the formats 0 and 1 (magic): a log entry is one message, or a wrapper of compressed messages.

Kafka 4 still reads them, and copies them to the tier as they are (KIP-724). Their heads are BatchHeads
without leader epoch and producer; the offset of a wrapper is that of its last message.

Source: org.apache.kafka.common.record.LegacyRecord, AbstractLegacyRecordBatch.DeepRecordsIterator.
"""

import re
import struct
import zlib
from collections.abc import Iterator
from itertools import pairwise

from tierctl.errors import CorruptInputError, LimitExceeded
from tierctl.wire.batches.batch_head import (
    COMPRESSION_MASK,
    LENGTH_END,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_AT,
    MESSAGE_LENGTH_MIN,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    OFFSET_DELTA_MAX,
    BatchHead,
    Buffer,
    CompressionType,
    Record,
    decompress,
    is_message,
    with_right_checksum,
)
from tierctl.wire.primitives import at_most, limits

_ENTRY = struct.Struct(">qiIbb")
_OFFSET_AND_LENGTH = struct.Struct(">qi")
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_LENGTH_MIN_OF_1 = 22
_CHUNK = 1 << 20
# An offset below 2^56, a length that is positive, a magic of 0 or 1 and attributes up to 15.
_CANDIDATE = re.compile(rb"(?s)\x00(?=.{7}(?!\x00{4})[\x00-\x7f].{3}.{4}[\x00\x01][\x00-\x0f])")


def is_cut(buf: Buffer, position: int, lowest: int, highest: int) -> bool:
    """Return whether the first bytes at `position` can be those of a message that the buffer's end cuts."""
    offset, _, _, magic, attributes = _ENTRY.unpack_from(buf, position)
    is_known = magic in {0, 1} and attributes & COMPRESSION_MASK <= CompressionType.LZ4
    return is_known and lowest <= offset <= highest


def wrong_crc(buf: Buffer, head: BatchHead) -> CorruptInputError | None:
    """Return an error if the message with `head` does not have its CRC-32."""
    # No slice of `buf`: a message may be large, and a slice of bytes is a copy.
    with memoryview(buf) as whole, whole[head.position + MAGIC_AT : head.end] as covered:
        computed = zlib.crc32(covered)
    if computed == head.crc:
        return None
    return _wrong(head.position + LENGTH_END, f"CRC-32 {computed:#010x}", f"{head.crc:#010x}")


def head_at(buf: Buffer, position: int) -> BatchHead | CorruptInputError:
    """Return the head of the message at `position`, for which `is_message` is true; check its lengths.

    A wrapper's base offset and number of records are those of one message: `opened` sets them.
    """
    offset, length, crc, magic, attributes = _ENTRY.unpack_from(buf, position)
    if magic and length < _LENGTH_MIN_OF_1:
        return _wrong(position + 8, f"a length of at least {_LENGTH_MIN_OF_1}", str(length))
    timestamp_ms = _INT64.unpack_from(buf, position + _ENTRY.size)[0] if magic else NO_TIMESTAMP
    head = BatchHead(
        position=position,
        base_offset=offset,
        length=length,
        partition_leader_epoch=-1,
        magic=magic,
        crc=crc,
        attributes=attributes & (COMPRESSION_MASK | (LOG_APPEND_TIME if magic else 0)),
        last_offset_delta=0,
        base_timestamp_ms=timestamp_ms,
        max_timestamp_ms=timestamp_ms,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=1,
    )
    codec = attributes & COMPRESSION_MASK
    if codec > CompressionType.LZ4:
        return _wrong(position + MAGIC_AT + 1, "a compression type from 0 to 3", str(codec))
    try:
        _places(buf, head.payload_position, head.end)
    except CorruptInputError as error:
        return error
    return head


def opened(buf: Buffer, head: BatchHead) -> BatchHead | CorruptInputError:
    """Return `head` with the base offset and the number of the messages in it; it must have a right CRC.

    Of the messages in a wrapper, only offsets and lengths are checked.
    """
    if head.compression is CompressionType.NONE:
        return head
    try:
        data = _decompressed(head, buf[head.payload_position : head.end], None)
        offsets = _offsets(head, data)
    except CorruptInputError as error:
        return CorruptInputError(error.what, expected=error.expected, found=error.found, at=head.position)
    except LimitExceeded as error:
        expected = at_most(limits().batch_bytes, "bytes of messages")
        return _wrong(head.position, expected, error.message)
    first = offsets[0]
    return head._replace(
        base_offset=first, last_offset_delta=head.base_offset - first, record_count=len(offsets)
    )


def records(head: BatchHead, payload: bytes, max_bytes: int | None) -> Iterator[Record]:
    """Yield the messages in the entry with `head`, which `opened` returned; check the CRCs of inner messages.

    Raise as `RecordBatch.records`.
    """
    if head.compression is CompressionType.NONE:
        yield Record(head.base_offset, head.base_timestamp_ms, *_content(payload, 0, len(payload)))
        return
    data = _decompressed(head, payload, max_bytes)
    offsets = _offsets(head._replace(base_offset=head.last_offset), data)
    appended_ms = head.max_timestamp_ms if head.is_log_append_time else None
    at = 0
    with memoryview(data) as whole:
        for offset in offsets:
            # `_offsets` has checked the lengths.
            _, length, crc, magic, attributes = _ENTRY.unpack_from(data, at)
            end = at + LENGTH_END + length
            if error := _inner_error(length, magic, attributes):
                raise error
            if (computed := zlib.crc32(whole[at + MAGIC_AT : end])) != crc:
                raise _wrong(None, f"CRC-32 {computed:#010x} of a message in a wrapper", f"{crc:#010x}")
            start, timestamp_ms = at + _ENTRY.size, NO_TIMESTAMP
            if magic:
                timestamp_ms = _INT64.unpack_from(data, start)[0] if appended_ms is None else appended_ms
                start += _INT64.size
            yield Record(offset, timestamp_ms, *_content(data, start, end))
            at = end


def _inner_error(length: int, magic: int, attributes: int) -> CorruptInputError | None:
    """Return an error if the head of a message in a wrapper can't be one; messages do not nest."""
    if not 0 <= magic < MAGIC:
        return _wrong(None, "a message of format 0 or 1 in a wrapper", f"magic {magic}")
    if magic and length < _LENGTH_MIN_OF_1:
        return _wrong(None, f"a length of at least {_LENGTH_MIN_OF_1} in a wrapper", str(length))
    codec = attributes & COMPRESSION_MASK
    if codec > CompressionType.LZ4:
        return _wrong(None, "a compression type from 0 to 3 in a wrapper", str(codec))
    if codec:
        name = CompressionType(codec).name.lower()
        return _wrong(None, "messages in a wrapper that are not compressed", name)
    return None


def candidates(buf: Buffer, start: int, stop: int) -> Iterator[int]:
    """Yield the positions in [start, stop) where a message may begin, by its first 18 bytes."""
    for low in range(start, stop, _CHUNK):
        high = min(low + _CHUNK, stop)
        chunk = buf[low:high]
        # A file system may extend a file by zeros before it writes the data: these are passed over fast.
        if chunk.count(0) == len(chunk):
            continue
        for match in _CANDIDATE.finditer(buf, low, min(high + _ENTRY.size - 1, len(buf))):
            if match.start() < high and is_message(buf, match.start()):
                yield match.start()


def _decompressed(head: BatchHead, payload: bytes, max_bytes: int | None) -> bytes:
    """Return the messages in the wrapper with `head`."""
    _, value = _content(payload, 0, len(payload))
    if value is None:
        raise _wrong(None, "compressed messages", "a null value")
    if head.magic == 0 and head.compression is CompressionType.LZ4:
        # Clients before Kafka 0.10 computed the checksum of the frame's header over the wrong bytes.
        value = with_right_checksum(value)
    return decompress(head.compression, value, max_bytes=max_bytes)


def _offsets(head: BatchHead, data: bytes) -> list[int]:
    """Return the offsets in the log of the messages in `data`, the last of which is that of `head`."""
    found = list(_stored_offsets(data))
    if not found:
        raise _wrong(None, "at least one message in a wrapper", "none")
    # Offsets are relative to the first message since format 1.
    shift = head.base_offset - found[-1] if head.magic else 0
    offsets = [offset + shift for offset in found]
    rising = all(low < high for low, high in pairwise(offsets))
    is_within = 0 <= offsets[0] <= offsets[-1] <= head.base_offset <= offsets[0] + OFFSET_DELTA_MAX
    if not rising or not is_within:
        what = f"offsets that rise from 0 on up to {head.base_offset} in a wrapper"
        raise _wrong(None, what, f"{offsets[0]} to {offsets[-1]}")
    return offsets


def _stored_offsets(data: bytes) -> Iterator[int]:
    """Yield the offset of each message; as Kafka does, leave out one that is cut at the end."""
    at = 0
    most = limits().wrapped_messages
    for _ in range(most):
        if len(data) - at < LENGTH_END:
            return
        offset, length = _OFFSET_AND_LENGTH.unpack_from(data, at)
        if length < MESSAGE_LENGTH_MIN:
            raise _wrong(None, f"a length of at least {MESSAGE_LENGTH_MIN} in a wrapper", str(length))
        if length > len(data) - at - LENGTH_END:
            return
        yield offset
        at += LENGTH_END + length
    raise _wrong(None, at_most(most - 1, "messages in a wrapper"), "more")


def _content(data: Buffer, at: int, end: int) -> tuple[bytes | None, bytes | None]:
    """Return key and value, which fill the bytes [at, end)."""
    key, value = _places(data, at, end)
    return None if key is None else data[key], None if value is None else data[value]


def _places(data: Buffer, at: int, end: int) -> tuple[slice | None, slice | None]:
    """Return the places of key and value in `data`, None for null; raise if they do not fill [at, end)."""
    key, after = _sized(data, at, end)
    value, stop = _sized(data, after, end)
    if stop != end:
        raise _wrong(at, f"a key and a value of {end - at} bytes", str(stop - at))
    return key, value


def _sized(data: Buffer, at: int, end: int) -> tuple[slice | None, int]:
    start = at + _INT32.size
    size = _INT32.unpack_from(data, at)[0] if start <= end else end
    if size < 0:
        return None, start
    if size > end - start:
        raise _wrong(at, f"a length up to {max(end - start, 0)}", str(size))
    return slice(start, start + size), start + size


def _wrong(at: int | None, expected: str, found: str) -> CorruptInputError:
    return CorruptInputError("message", expected=expected, found=found, at=at)
