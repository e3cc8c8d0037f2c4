"""Values for the formatter: golden, malicious and damaged ones."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tierctl.model import RemotePartitionDeleteMetadata
from tierctl.model.events import Dialect, dialect_of
from tierctl.report.table import UNSAFE
from tierctl.wire.metadata.values import decode, encode

from tests.wire.metadata.samples import golden

SEED = 20_250_301

HOSTILE = (
    "../../etc/passwd",
    "a\x1b[31mred\x1b[0m",
    'quote"back\\slash',
    "line\nbreak\r\ttab",
    "<topic>",
    "\u202egnp.exe",
    "zero\u200bwidth\ufeff",
    "café \u00ad \x7f \x9f",
    "emoji 😀 and 漢字",
    "",
    "a" * 249,
    "é" * 100,
    "é" * 200,
    "topic,partition:3",
    # The first and the last character of every range that is escaped, and the next one.
    "".join(chr(n) for range_ in UNSAFE for n in (*range_, range_[1] + 1) if not 0xD800 <= n <= 0xDFFF),
)


def hostile() -> Iterator[bytes]:
    """Return records of both dialects about topics with illegal names."""
    for dialect in Dialect:
        for value in golden(dialect)[:40]:
            event = decode(value)
            if not hasattr(event, "topic"):
                continue
            for name in HOSTILE:
                yield encode(replace(event, topic=name), dialect)


def tagged() -> Iterator[bytes]:
    """Return records with unknown tagged fields in every place that can have them."""
    for value in golden("kafka")[:60]:
        event: Any = decode(value)
        event = replace(event, unknown_tags=((5, b"\x01\x02"), (1 << 20, b"")))
        if isinstance(event, RemotePartitionDeleteMetadata):
            event = replace(event, nested_tags=(("topic_id_partition", ((7, b"x"),)),))
        elif hasattr(event, "topic"):
            event = replace(event, nested_tags=(("remote_log_segment_id", ((7, b"x"),)),))
        yield encode(event, dialect_of(event))


def unusual() -> Iterator[bytes]:
    """Return records with extreme numbers, unordered and repeated epochs, and empty custom metadata."""
    for dialect in Dialect:
        for value in golden(dialect)[:200]:
            event: Any = decode(value)
            if not hasattr(event, "segment_leader_epochs"):
                continue
            epochs = ((5, 1), (3, (1 << 63) - 1), (5, 9), (-1, -(1 << 63)))
            extremes = {
                "max_timestamp_ms": -(1 << 63),
                "segment_size_in_bytes": -1,
                "end_offset": (1 << 63) - 1,
            }
            event = replace(event, segment_leader_epochs=epochs, **extremes)
            if dialect is Dialect.KAFKA:
                event = replace(event, custom_metadata=b"", broker_id=-(1 << 31), txn_index_empty=True)
            yield encode(event, dialect)


def broken(count: int, seed: int = SEED) -> Iterator[bytes]:
    """Return values that are cut, extended or overwritten, and random bytes."""
    rng = random.Random(seed)
    good = [value for dialect in Dialect for value in golden(dialect) if len(value) < 400]
    good += list(hostile())
    for _ in range(count):
        yield _broken(rng, bytearray(rng.choice(good)))


def _broken(rng: random.Random, value: bytearray) -> bytes:
    at = rng.randrange(len(value))
    match rng.randrange(7):
        case 0:
            del value[at:]
        case 1:
            value += rng.randbytes(rng.randrange(1, 9))
        case 2:
            value[at : at + rng.randrange(4)] = rng.randbytes(rng.randrange(4))
        case 3:
            value[rng.randrange(min(len(value), 8))] = rng.randrange(256)
        case 4:
            value[-1:] = bytes(rng.choices((0, 1, 2, 5, 7, 0x80), k=rng.randrange(1, 8)))
        case 5:
            return rng.randbytes(rng.randrange(60))
        case _:
            for _ in range(rng.randrange(1, 4)):
                value[rng.randrange(len(value))] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    return bytes(value)


# Values that random damage does not produce.
ODD: Sequence[bytes | None] = (
    None,
    b"",
    b"\x00",
    b"\x01",
    b"\x01\x00",
    b"\x01\x00\x00",
    b"\x02\x00\x00",
    b"\x80\x80\x80\x80\x80\x01",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x1f",
    b"\x81\x00\x00",
    b"\x01\x00\x00\xff\xff\xff\xff\x0f",
    b"\x01\x04\x00",
    b"\x00\x00\xff\xff",
    b"\xff" * 1024,
    b"\xff" * 1025,
    b"\xff" * 5000,
)
