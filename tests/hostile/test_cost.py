"""Small input costs little: what is too large is reported where it is, and all the rest is read."""

import base64
import gzip
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tierctl.storage.layouts.aiven.layout import AivenLayout, AivenSettings
from tierctl.wire.batches.batch_head import CompressionType, Record, compress
from tierctl.wire.batches.record_batch import write_varint
from tierctl.wire.metadata.values import encode

from tests.cli.shell import environment, tierctl
from tests.hostile.worlds import (
    RSS_MAX,
    SECONDS_MAX,
    Cost,
    World,
    batch_of,
    joined,
    measured,
    plain_batch,
    record_bytes,
    same_batches,
)
from tests.storage.segments import metadata_of
from tests.support.amounts import rest_in_matrix
from tests.support.formatted import formatted_node
from tests.wire.batches.messages import wrapper

K = CompressionType
BOMB_BYTES = 60 << 20
TIME_MS = 1_700_000_000_000


def _cut_off() -> Iterator[bytes]:
    stored = {kind: compress(kind, bytes(BOMB_BYTES))[:-8] for kind in (K.LZ4, K.ZSTD)}
    for offset in range(50):
        kind = K.ZSTD if offset % 2 else K.LZ4
        yield batch_of(b"", kind, offset=offset, stored=stored[kind])


def _members() -> Iterator[bytes]:
    yield batch_of(b"", K.GZIP, offset=0, stored=gzip.compress(b"") * 200_000)


def _too_large() -> list[bytes]:
    return same_batches(record_bytes(bytes(70 << 20)), 20)


def _headers() -> Iterator[bytes]:
    count = 30_000_000
    body = bytearray(1)
    for field in (0, 0, -1, 0, count):
        write_varint(body, field)
    body += bytes([0, 1]) * count
    record = bytearray()
    write_varint(record, len(body))
    yield batch_of(bytes(record + body), K.GZIP, offset=0)


def _values(count: int) -> list[bytes]:
    return same_batches(record_bytes(bytes(BOMB_BYTES)), count)


DAMAGED = {"cut off": _cut_off, "gzip members": _members, "headers": _headers, "too large": _too_large}


def assert_cheap(cost: Cost) -> None:
    assert cost.seconds < SECONDS_MAX, (cost.seconds, cost.err)
    assert cost.rss < RSS_MAX, (cost.rss >> 20, cost.err)


@pytest.mark.parametrize(
    ("name", "output"),
    [*((name, "jsonl") for name in DAMAGED), pytest.param("headers", "json", marks=pytest.mark.matrix)],
)
def test_a_bad_batch_is_reported_and_the_next_ones_are_read(tmp_path: Path, name: str, output: str) -> None:
    world = World(tmp_path)
    bad = list(DAMAGED[name]())
    log = joined([*bad, plain_batch(len(bad), b"a", b"b", b"c", b"d")])
    world.segment(0, log, end_offset=len(bad) + 3)
    cost = measured(tmp_path, "fetch", *world.where, "--limit", "3", "-o", output)
    assert_cheap(cost)
    rows = json.loads(cost.out) if output == "json" else cost.rows
    assert [row["value"] for row in rows] == ["a", "b", "c"]
    assert cost.code == 7
    assert "offsets 0 to 0 may be lost there" in cost.err


def test_three_records_decode_three(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.segment(0, joined(_values(100)), end_offset=99)
    cost = measured(tmp_path, "fetch", *world.where, "--limit", "3", "--binary", "sha256")
    assert_cheap(cost)
    assert [row["offset"] for row in cost.rows] == [0, 1, 2]


def _wrappers(magic: int, kind: CompressionType) -> Iterator[bytes]:
    return (wrapper([Record(at, TIME_MS, None, bytes(BOMB_BYTES))], magic, kind) for at in range(6))


LARGE = {
    "values": ("jsonl", lambda: _values(3)),
    "gzip messages of format 0": ("csv", lambda: _wrappers(0, K.GZIP)),
    "lz4 messages of format 1": ("table", lambda: _wrappers(1, K.LZ4)),
}
"""Formats of rows, and functions that make batches with large values."""


@pytest.mark.parametrize("name", rest_in_matrix(LARGE))
def test_records_too_large_for_text_are_printed_as_digests(tmp_path: Path, name: str) -> None:
    world = World(tmp_path)
    output, made = LARGE[name]
    large = list(made())
    world.segment(0, joined([*large, plain_batch(len(large), b"a")]), end_offset=len(large))
    columns = "--columns", "offset,value,value_encoding"
    cost = measured(tmp_path, "fetch", *world.where, "-o", output, *columns)
    assert_cheap(cost)
    assert cost.out.count(hashlib.sha256(bytes(BOMB_BYTES)).hexdigest()) == cost.out.count("sha256")
    assert cost.out.count("sha256") == len(large)
    assert cost.out.count("utf8") == 1
    assert cost.code == 7
    assert (
        "record at offset 0 of orders-0: expected at most 8388608 bytes to print (--limit-factor" in cost.err
    )


@pytest.mark.parametrize("output", rest_in_matrix(["json", "csv"]))
def test_values_of_escapes_are_printed_in_pieces(tmp_path: Path, output: str) -> None:
    """The last character makes each character of the text take four bytes."""
    value = bytes((8 << 20) - 64) + "\U0001f600".encode()
    world = World(tmp_path)
    world.segment(0, joined(same_batches(record_bytes(value), 3)), end_offset=2)
    cost = measured(tmp_path, "fetch", *world.where, "-o", output)
    assert_cheap(cost)
    assert cost.code == 0
    escape = "\\u0000" if output.startswith("json") else "\\x00"
    assert cost.out.count(escape) == 3 * ((8 << 20) - 64)


@pytest.mark.parametrize(
    "options", rest_in_matrix([("-o", "jsonl"), ("-o", "csv"), ("--order", "time"), ("--style", "kip")])
)
def test_unreadable_values_of_metadata_are_printed_by_their_first_bytes(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    log = tmp_path / f"{0:020d}.log"
    log.write_bytes(joined(same_batches(record_bytes(bytes((8 << 20) - 64)), 7)))
    cost = measured(tmp_path, "format", log, *options)
    assert_cheap(cost)
    assert (cost.code, cost.out.count("00" * 1024)) == (7, 7)
    assert len(cost.out) < 20_000


@pytest.mark.parametrize(
    "options", rest_in_matrix([("-o", "table"), ("--style", "kip", "--print-all-event-value-fields")])
)
def test_large_custom_metadata_is_formatted_record_by_record(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    events = [replace(metadata_of(number), custom_metadata=bytes(7 << 20)) for number in range(7)]
    log = tmp_path / f"{0:020d}.log"
    payloads = [record_bytes(encode(event)) for event in events]
    log.write_bytes(joined([batch_of(each, K.ZSTD, offset=at) for at, each in enumerate(payloads)]))
    cost = measured(tmp_path, "format", log, *options)
    assert_cheap(cost)
    assert (cost.code, len(cost.out.splitlines()) - ("table" in options)) == (0, 7)


def test_limit_factor_raises_every_limit_of_data(tmp_path: Path) -> None:
    size = 9 << 20
    world = World(tmp_path)
    world.segment(0, batch_of(record_bytes(b"x" * size), K.ZSTD, offset=0), end_offset=0)
    fetch = ("fetch", *world.where)
    refused = tierctl(*fetch)
    assert (refused.code, refused.rows[0]["value_encoding"]) == (7, "sha256")
    read = tierctl(*fetch, "--limit-factor", "2")
    assert (read.code, read.rows[0]["value"]) == (0, "x" * size)
    settings = tmp_path / "settings.toml"
    settings.write_text("[profiles.default]\nlimit-factor = 2\n")
    assert tierctl(*fetch, "--config-file", settings).code == 0
    env = environment(TIERCTL_LIMIT_FACTOR="2")
    assert tierctl(*fetch, env=env).code == 0
    assert tierctl("--limit-factor", "1", *fetch, env=env).code == 7


def test_large_values_of_metadata_are_reported_and_the_others_are_used(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.segment(0, plain_batch(0, b"good"), end_offset=0)
    logs = sorted(world.metadata.glob("__remote_log_metadata-*/*.log"))
    empty = next(log for log in logs if not log.stat().st_size)
    empty.write_bytes(joined(_values(100)))
    cost = measured(tmp_path, "segments", *world.where, "-o", "jsonl")
    assert_cheap(cost)
    assert [row["start_offset"] for row in cost.rows] == [0]
    assert cost.code == 7
    assert "offset 0: expected at most 16777216 bytes of records" in cost.err


def _one_chunk_of_all(document: dict[str, Any]) -> bytes:
    stored = compress(K.ZSTD, bytes(1 << 30))
    size = (1 << 31) - 1
    document["chunkIndex"] = _fixed(size, size, len(stored), len(stored))
    return stored


def _small_chunks(document: dict[str, Any]) -> bytes:
    document["chunkIndex"] = _fixed(128, 1 << 27, 30, 30)
    return b""


def _many_small_chunks(document: dict[str, Any]) -> bytes:
    sizes = (1 << 20).to_bytes(4, "big") + bytes(4) + b"\1" + bytes((1 << 20) - 1) + bytes(4)
    text = base64.b64encode(compress(K.ZSTD, sizes)).decode()
    document["chunkIndex"] = {
        "type": "variable",
        "originalChunkSize": 128,
        "originalFileSize": 1 << 27,
        "transformedChunks": text,
    }
    return b""


def _no_ascii(document: dict[str, Any]) -> bytes:
    document["chunkIndex"]["transformedChunks"] += "é"
    return b""


def _fixed(chunk: int, file: int, stored: int, last: int) -> dict[str, Any]:
    return {
        "type": "fixed",
        "originalChunkSize": chunk,
        "originalFileSize": file,
        "transformedChunkSize": stored,
        "finalTransformedChunkSize": last,
    }


MANIFESTS: dict[str, Callable[[dict[str, Any]], bytes]] = {
    "a chunk of 2^31 bytes": _one_chunk_of_all,
    "chunks of 128 bytes": _small_chunks,
    "many chunk sizes": _many_small_chunks,
    "not ASCII": _no_ascii,
}


@pytest.mark.parametrize("name", rest_in_matrix(MANIFESTS))
def test_a_bad_manifest_is_reported_and_the_other_segments_are_read(tmp_path: Path, name: str) -> None:
    world = World(tmp_path)
    layout = AivenLayout(AivenSettings(compression=True))
    for number in range(2):
        log = joined([plain_batch(offset, b"value") for offset in range(50)])
        world.segment(number, log, end_offset=49, partition=number, layout=layout)
    manifest = min(world.remote.rglob("*.rsm-manifest"))
    document = json.loads(manifest.read_text())
    stored = MANIFESTS[name](document)
    manifest.write_text(json.dumps(document, ensure_ascii=False))
    if stored:
        manifest.with_suffix(".log").write_bytes(stored)

    read = measured(tmp_path, "fetch", *world.where, "--layout", "aiven")
    assert_cheap(read)
    assert [row["partition"] for row in read.rows] == [1] * 50
    assert (read.code, "hint: " in read.err and "offsets 0 to 49 " in read.err) == (7, True)

    verified = measured(tmp_path, "verify", *world.where, "--layout", "aiven", "--deep", "-o", "jsonl")
    assert_cheap(verified)
    assert verified.code == 7
    assert "100% of the bytes" not in verified.err

    rebuilt = measured(
        tmp_path, "rebuild", "--metadata", tmp_path / "none", "--remote", world.remote, "--layout", "aiven"
    )
    assert_cheap(rebuilt)
    assert "internal:" not in rebuilt.err
    assert "1 publish_segment" in rebuilt.err or "2 publish_segment" in rebuilt.err


def test_aliases_in_a_file_of_topics_are_refused(tmp_path: Path) -> None:
    topic = "    topic_id: 2QZ5FAXaQrqgUzsReWnweA\n    partitions: 1\n"
    settings = "".join(f"      k{number}: v\n" for number in range(5000))
    aliases = "".join(f"  t{number}:\n{topic}    settings: *s\n" for number in range(5000))
    file = tmp_path / "topics.yaml"
    file.write_text(f"version: 1\ntopics:\n  a:\n{topic}    settings: &s\n{settings}{aliases}")
    node = formatted_node(tmp_path / "node")
    (tmp_path / "remote").mkdir()
    cost = measured(
        tmp_path,
        *("restore", "into", node, "--log-dir", node, "--remote", tmp_path / "remote"),
        *("--topics-file", file),
    )
    assert_cheap(cost)
    assert cost.code == 2
    assert "line 5010: no YAML: expected no alias, found one" in cost.err
