"""Manifests of Aiven's layout: valid ones, and the errors of invalid ones."""

import json
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tierctl.errors import CorruptInputError, UnsupportedFormatError
from tierctl.model import IndexType
from tierctl.wire.aiven import decode_sizes, encode_sizes, read_manifest, sizes_from_text, sizes_to_text

CHUNKS: dict[str, Any] = {
    "type": "fixed",
    "originalChunkSize": 100,
    "originalFileSize": 250,
    "transformedChunkSize": 110,
    "finalTransformedChunkSize": 60,
}


class TestManifests:
    GOOD: ClassVar[dict[str, Any]] = {
        "version": "1",
        "chunkIndex": CHUNKS,
        "segmentIndexes": {
            name: {"position": 0, "size": 0}
            for name in ("offset", "timestamp", "producerSnapshot", "leaderEpoch")
        }
        | {"transaction": None},
        "compression": False,
    }

    def test_what_is_there_is_read(self) -> None:
        manifest = read_manifest(json.dumps(self.GOOD).encode())
        assert list(manifest.chunk_index.stored_sizes) == [110, 110, 60]
        assert manifest.indexes[IndexType.TRANSACTION] is None

    @pytest.mark.parametrize(
        "change",
        [
            {"version": "2"},
            {"version": 1},
            {"compression": "no"},
            {"chunkIndex": None},
            {"chunkIndex": CHUNKS | {"type": "other"}},
            {"chunkIndex": CHUNKS | {"originalChunkSize": 0}},
            {"chunkIndex": CHUNKS | {"originalFileSize": -1}},
            {"chunkIndex": CHUNKS | {"originalFileSize": 1 << 31}},
            {"chunkIndex": CHUNKS | {"originalFileSize": True}},
            {"chunkIndex": CHUNKS | {"originalChunkSize": 1, "originalFileSize": (1 << 31) - 1}},
            {"chunkIndex": CHUNKS | {"type": "variable", "transformedChunks": "?"}},
            {"chunkIndex": CHUNKS | {"type": "variable", "transformedChunks": sizes_to_text([1])}},
            {"segmentIndexes": {}},
            {"encryption": {"dataKey": "x", "aad": ""}},
            {"encryption": {"dataKey": "x:?", "aad": ""}},
            {"encryption": 1},
            {"segmentFormat": "iceberg"},
        ],
    )
    def test_wrong_members_are_named(self, change: dict[str, Any]) -> None:
        with pytest.raises(CorruptInputError):
            read_manifest(json.dumps({**self.GOOD, **change}).encode())

    @pytest.mark.parametrize("raw", [b"", b"null", b"[]", b"{", b"\xff", b"[" * 100_000])
    def test_what_is_no_manifest(self, raw: bytes) -> None:
        with pytest.raises(CorruptInputError):
            read_manifest(raw)

    def test_iceberg_is_refused_by_name(self) -> None:
        with pytest.raises(UnsupportedFormatError, match="iceberg"):
            read_manifest(b"PFA1" + bytes(20))

    def test_every_truncation_of_a_captured_one(self, capture: Callable[[str], Path]) -> None:
        raw = next((capture("aiven-encrypted") / "bucket").rglob("*.rsm-manifest")).read_bytes()
        for length in range(len(raw)):
            with pytest.raises(CorruptInputError):
                read_manifest(raw[:length])

    @given(st.lists(st.integers(0, (1 << 31) - 1), max_size=40))
    def test_sizes_round_trip(self, sizes: list[int]) -> None:
        assert decode_sizes(encode_sizes(sizes)) == sizes
        assert sizes_from_text(sizes_to_text(sizes)) == sizes

    @given(st.binary(max_size=60))
    def test_any_bytes_are_sizes_or_refused(self, raw: bytes) -> None:
        with suppress(CorruptInputError):
            decode_sizes(raw)

    def test_more_sizes_than_there_are_bytes(self) -> None:
        with pytest.raises(CorruptInputError):
            decode_sizes(struct.pack(">iib", (1 << 31) - 1, 0, 4))
