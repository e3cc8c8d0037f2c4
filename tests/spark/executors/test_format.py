"""`format --engine spark` prints what `format` prints, byte for byte."""

from pathlib import Path

import pytest
from tierctl.metadata.topic import MetadataSplit
from tierctl.spark.executors import rendered_text as spark_format

from tests.cli.shell import tierctl
from tests.spark.executors.bulk import METADATA, Capture, assert_same, damaged, small_pieces, within
from tests.support.amounts import rest_in_matrix

__all__ = ["small_pieces"]

pytestmark = pytest.mark.usefixtures("spark", "small_pieces")

AFTER = "tiered-cluster/after"
WAYS = (
    ("--style", "kip"),
    ("--style", "json", "--order", "time"),
    ("--property", "print.partition=true", "--property", "sep=|", "--state", "DELETE_SEGMENT_FINISHED"),
    ("--output", "csv", "--topic", "clicks", "--from-offset", "3", "--until", "12"),
    ("--order", "time", "--metadata-partition", "0", "--metadata-partition", "4"),
    ("--limit", "10"),
    ("--limit", "33", "--order", "time", "--type", "RemoteLogSegmentMetadataUpdate"),
)


@pytest.mark.parametrize("place", rest_in_matrix(METADATA))
def test_captures(place: str, capture: Capture) -> None:
    assert assert_same("format", "--metadata", within(capture, place)).lines


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_every_way_to_print(way: tuple[str, ...], capture: Capture) -> None:
    assert assert_same("format", "--metadata", within(capture, AFTER), *way).lines


@pytest.mark.parametrize(
    ("records", "way"),
    [(1, ()), (2, ("--order", "time")), (3, ("--limit", "2")), (5, ("--from-offset", "9"))],
)
def test_damage_has_its_line_once(
    records: int, way: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_format, "RECORDS_PER_SPLIT_MIN", records)
    monkeypatch.setattr(spark_format, "RECORDS_PER_SPLIT_MAX", records)
    said = assert_same("format", "--metadata", damaged(tmp_path), *way)
    assert said.code == 7
    assert "could not be read" in said.err
    assert "not written to its end" in said.err or "--limit" in way


def test_few_messages_need_few_splits(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    splits: list[MetadataSplit] = []
    run = spark_format.Executors.run

    def counted(self: object, do: object, pieces: list[MetadataSplit], **how: object) -> object:
        splits.extend(pieces)
        return run(self, do, pieces, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(spark_format.Executors, "run", counted)
    assert_same("format", "--metadata", within(capture, AFTER), "--limit", "20")
    assert 0 < sum(split.end_offset - split.start_offset for split in splits) <= 3 * 20


@pytest.mark.parametrize(
    "words",
    [
        ("--follow", "--metadata", "."),
        ("00000000000000000000.log",),
        ("--input", "hex"),
        ("--bootstrap-server", "localhost:1"),
    ],
    ids=" ".join,
)
def test_what_comes_bit_by_bit_needs_no_executors(words: tuple[str, ...]) -> None:
    said = tierctl("format", *words, "--engine", "spark")
    assert said.code == 2
    assert "--engine spark can only print the existing records of --metadata" in said.err


def test_a_plugin_s_style_is_loaded_there(capture: Capture) -> None:
    said = tierctl("format", "--metadata", within(capture, AFTER), "--style", "none", "--engine", "spark")
    assert (said.code, said.out) == (2, "")
    assert "no style 'none'" in said.err
