"""`tierctl format` with captures of brokers, vectors, damaged input, and pipes that never end."""

import io
import json
import os
import re
import struct
import subprocess
import sys
import threading
from binascii import hexlify
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tierctl.report.formatters import sources
from tierctl.report.formatters.sources import from_framed, from_hex
from tierctl.wire.batches.batch_head import Record
from tierctl.wire.batches.record_batch import encode_batch

from tests.cli.shell import environment, tierctl
from tests.cli.shell import rows as rows_of
from tests.conftest import vectors
from tests.support.amounts import examples

AT_TERMINAL = {"TERM": "dumb", "COLUMNS": "80"}
Capture = Callable[[str], Path]
Writable = Callable[[str], Path]

STAGES = [
    ("untiered-broker", "tiered-metadata", "formatter.txt"),
    ("unclean-leader", "after", "5-after-formatter.txt"),
]


def by_partition(lines: Iterable[str]) -> dict[str, list[str]]:
    found = defaultdict(list)
    for line in lines:
        found[line.partition(",")[0]].append(line)
    return found


def topic_folders(stage: Path) -> list[Path]:
    """Return the log directories of a stage that have the metadata topic: one per broker, or one."""
    return [d for d in (stage, *sorted(stage.iterdir())) if next(d.glob("__remote_log_metadata-*/"), None)]


@pytest.mark.parametrize(("name", "stage", "answers"), STAGES)
def test_style_kafka_is_what_kafkas_formatter_printed(
    name: str, stage: str, answers: str, capture: Capture
) -> None:
    expected = by_partition((capture(name) / "answers" / answers).read_text().splitlines())
    folders = topic_folders(capture(name) / stage)
    assert folders
    for folder in folders:
        ran = tierctl("format", "--metadata", folder, "--style", "kafka")
        assert (ran.code, ran.err) == (0, "")
        assert by_partition(ran.lines) == expected


def rows(*args: object, **how: Any) -> list[dict[str, Any]]:
    return rows_of("format", *args, **how)


def test_single_segment_files_say_their_partition_by_their_folder(after: Path) -> None:
    files = sorted(after.glob("__remote_log_metadata-[34]/*.log"))
    expected = rows("--metadata", after, "--metadata-partition", 3, "--metadata-partition", 4)
    assert rows(*files) == expected
    assert {row["metadata_partition"] for row in expected} == {3, 4}


def test_hex_and_framed_values() -> None:
    golden = list(vectors("serde-kafka.jsonl"))
    values = [bytes.fromhex(vector["hex"]) for vector in golden]
    as_hex = rows("--input", "hex", stdin="\n".join(vector["hex"] for vector in golden).encode())
    as_frames = rows("--input", "framed", stdin=b"".join(map(frame, values)))
    assert as_hex == as_frames
    for offset, (row, vector) in enumerate(zip(as_hex, golden, strict=True)):
        assert row.items() >= vector["fields"].items()
        assert (row["metadata_partition"], row["metadata_offset"], row["timestamp_ms"]) == (0, offset, None)


def frame(value: bytes | None) -> bytes:
    """Return a value in the form that `kcat -f '%R%s'` writes."""
    return struct.pack(">i", -1 if value is None else len(value)) + (value or b"")


def value(name: str = "serde-kafka.jsonl") -> str:
    return str(next(iter(vectors(name)))["hex"])


@pytest.mark.parametrize(
    ("stdin", "code", "shown"),
    [
        (b"", 0, []),
        (b"\xff\xff\xff\xff", 0, ["value: null"]),
        (b"\0\0", 7, ["error: torn frame: expected 4 bytes of length, found 2"]),
        (b"\0\0\0\x05abc", 7, ["error: torn frame: expected 5 bytes, found 3: 616263"]),
        (b"\x7f\xff\xff\xff", 7, ["error: a frame of 2147483647 bytes: expected 0 to 67108864, or -1"]),
        (b"\xff\xff\xff\xferest", 7, ["error: a frame of -2 bytes: expected 0 to 67108864, or -1"]),
        (b"\0\0\0\0", 7, ["error: frame version at byte 0: expected 1 byte, found 0 before the end"]),
    ],
)
def test_frames_that_are_cut_or_absurd(stdin: bytes, code: int, shown: list[str]) -> None:
    ran = tierctl("format", "--input", "framed", stdin=stdin)
    head = "partition: 0, offset: 0, "
    assert (ran.code, ran.lines) == (code, [f"{head}{text}{', bytes: ' * bool(code)}" for text in shown])


def test_a_value_that_is_cut_by_the_end_has_its_line() -> None:
    sent = [frame(bytes.fromhex(value())), frame(None), frame(b"123456")[:-2]]
    ran = tierctl("format", "--input", "framed", stdin=b"".join(sent))
    assert [line.split(",")[1:] for line in ran.lines[1:]] == [
        [" offset: 1", " value: null"],
        [" offset: 2", " error: torn frame: expected 6 bytes", " found 4: 31323334", " bytes: "],
    ]
    assert (ran.code, ran.err) == (7, "warning: 1 record could not be read\n")


@given(st.binary(max_size=200))
@examples(200)
def test_any_bytes_are_frames_of_a_kind(data: bytes) -> None:
    assert sum(len(records) for records in from_framed(io.BytesIO(data))) <= len(data) // 4 + 1


@given(st.lists(st.binary(max_size=20), max_size=20))
@examples(100)
def test_every_line_of_hex_is_one_record(values: Sequence[bytes]) -> None:
    text = "".join(f"{value.hex()}\n" for value in values).encode()
    records = list(from_hex(io.BytesIO(text)))
    found = [value for page in records for value in page.values.to_pylist()]
    assert found == [value for value in values if value]


class Arriving(io.BytesIO):
    """A stream that has a few bytes at a time, and counts them."""

    def read1(self, _size: int | None = -1, /) -> bytes:
        return self.read(3)


def test_a_line_of_hex_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that never ends must not fill the memory; the lines after a long one are records again."""
    monkeypatch.setattr(sources, "_HEX_LINE_BYTES_MAX", 10)
    kept: list[int] = []
    convert = sources._from_hex_line

    def from_line(line: bytes) -> object:
        kept.append(len(line))
        return convert(line)

    monkeypatch.setattr(sources, "_from_hex_line", from_line)
    text = b"0011223344\n" + b"00" * 500 + b"\n\n66\n" + b"77" * 500
    pages = list(from_hex(Arriving(text)))
    values = [value for page in pages for value in page.values.to_pylist()]
    errors = [error for page in pages for error in page.errors.values()]
    assert values == [bytes.fromhex("0011223344"), None, b"f", None]
    assert errors == ["a line too long: expected at most 10 bytes"] * 2
    assert kept == [10, 11, 2, 11]


def log(folder: Path, values: Sequence[bytes | None], *, offsets: Sequence[int] | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    at = offsets or range(len(values))
    batches = [
        encode_batch([Record(offset, 1_700_000_000_000 + offset, None, value, ())])
        for offset, value in zip(at, values, strict=True)
    ]
    file = folder / "00000000000000000000.log"
    file.write_bytes(b"".join(batches))
    return file


def test_a_damaged_batch_has_its_line_and_the_rest_goes_on(tmp_path: Path) -> None:
    """Kafka's formatter does not report the gaps of compaction. Bytes before record 3 have no offset."""
    good = bytes.fromhex(value())
    log(tmp_path / "__remote_log_metadata-2", [None, good], offsets=[3, 9])
    file = log(tmp_path / "__remote_log_metadata-0", [good] * 4)
    data, size = bytearray(file.read_bytes()), file.stat().st_size // 4
    data[size + size // 2] ^= 1
    file.write_bytes(data[: 3 * size] + b"\xff" * 70 + data[3 * size :])
    ran = tierctl("format", "--metadata", tmp_path)
    assert ran.code == 7
    places = [(0, 0), (0, 1), (0, 2), (0, 3), (0, 3), (2, 3), (2, 9)]
    assert [line[:25] for line in ran.lines] == [f"partition: {n}, offset: {i}, " for n, i in places]
    assert "error: offsets 1 to 1: " in ran.lines[1]
    assert "error: before offset 3: " in ran.lines[3]
    assert ran.lines[5].endswith("value: null")
    # A filter of events lets records pass that can't be read.
    assert [row["metadata_offset"] for row in rows("--metadata", tmp_path, "--until", 2, code=7)] == [0, 1]
    selected = rows("--metadata", tmp_path, "--topic", "_internal", "--segment-id", "A" * 21 + "Q", code=7)
    assert [row["metadata_offset"] for row in selected] == [1, 3]


@pytest.mark.parametrize(
    ("words", "offsets"),
    [
        ("", [0, 1, 5]),
        ("--until 1", [0]),
        ("--until 2", [0, 1]),
        ("--from-offset 2 --until 4", [2]),
        ("--from-offset 4", [4, 5]),
        ("--from-offset 4 --limit 1", [4]),
        ("--from-offset 5", [5]),
    ],
)
@pytest.mark.parametrize("source", ["topic", "file", "follow"])
def test_a_damaged_range_has_its_line_at_its_first_wanted_offset(
    source: str, words: str, offsets: list[int], tmp_path: Path
) -> None:
    file = log(tmp_path / "__remote_log_metadata-0", [bytes.fromhex(value())] * 6)
    data, size = bytearray(file.read_bytes()), file.stat().st_size // 6
    for at in range(1, 5):
        data[at * size + 40] ^= 1
    file.write_bytes(data)
    args = [file] if source == "file" else ["--metadata", tmp_path]
    more = ["--follow", "--interval", "10ms", "--timeout-ms", 0] if source == "follow" else []
    ran = tierctl("format", *args, *more, *words.split(), "--style", "json")
    found = [json.loads(line) for line in ran.lines]
    assert [row["metadata_offset"] for row in found] == offsets
    bad = [row["error"] for row in found if "error" in row]
    is_met = bool({1, 2, 4} & {*offsets})
    assert (ran.code, len(bad)) == (7 if is_met else 0, int(is_met))
    assert all(error.startswith("offsets 1 to 4: ") for error in bad)


def test_a_torn_tail_is_no_record(tmp_path: Path) -> None:
    file = log(tmp_path / "__remote_log_metadata-0", [bytes.fromhex(value())] * 3)
    whole = file.read_bytes()
    at = len(whole) // 3 * 2
    file.write_bytes(whole[:-5])
    note = f"note: {file} ends in {len(whole) - 5 - at} bytes, from byte {at} on, of a batch that was not"
    for command in (("format", "--metadata", str(tmp_path)), ("format", str(file))):
        ran = tierctl(*command)
        assert (ran.code, len(ran.lines)) == (0, 2)
        assert [line[: len(note)] for line in ran.err.splitlines()] == [note]
    # The warning is printed once, however often the log is read.
    for more in (("segments",), ("verify", "--remote", str(tmp_path))):
        ran = tierctl(*more, "--metadata", tmp_path)
        assert ran.err.count(note) == 1, (ran.out, ran.err)
    # Preallocated bytes are not lost records.
    file.write_bytes(whole + bytes(1 << 16))
    assert tierctl("format", file).err == ""


FILTERS = [
    (["--topic", "orders", "--topic", "clicks"], lambda row: row["topic"] in {"orders", "clicks"}),
    (
        ["--topic", "orders", "--partition", "1"],
        lambda row: (row["topic"], row["partition"]) == ("orders", 1),
    ),
    (["--partition", "orders-1"], lambda row: (row["topic"], row["partition"]) == ("orders", 1)),
    (["--topic", "o*", "--topic", "pay[lm]ents"], lambda row: row["topic"] in {"orders", "payments"}),
    (["--state", "delete_segment_started"], lambda row: row["state"] == "DELETE_SEGMENT_STARTED"),
    (["--type", "RemoteLogSegmentMetadata"], lambda row: row["type"] == "RemoteLogSegmentMetadata"),
    (["--metadata-partition", "0"], lambda row: row["metadata_partition"] == 0),
    (["--from-offset", "5", "--until", "8"], lambda row: 5 <= row["metadata_offset"] <= 7),
    (
        ["--from-time", "1795257001894", "--to-time", "2026-11-21T10:31:01.186Z"],
        lambda row: 1795257001894 <= row["event_timestamp_ms"] <= 1795257061186,
    ),
    (["--topic-id", "u6uHqOrgTh-HLODx2Wo0EA"], lambda row: row["topic"] == "shortlived"),
    (["--segment-id", "keuG_ua5RUGKHRPv-qzhOw"], lambda row: row["segment_id"] == "keuG_ua5RUGKHRPv-qzhOw"),
    (["--segment-id", "AAAAAAAAAAAAAAAAAAAAAQ"], lambda _row: False),
]


@pytest.mark.parametrize(("args", "matches"), FILTERS, ids=[" ".join(args) for args, _ in FILTERS])
def test_filters(args: list[str], matches: Callable[[dict[str, object]], bool], after: Path) -> None:
    everything = rows("--metadata", after)
    expected = [row for row in everything if matches(row)]
    assert rows("--metadata", after, *args) == expected
    assert len(expected) < len(everything)
    assert bool(expected) == ("AAAAAAAAAAAAAAAAAAAAAQ" not in args)


def test_an_unknown_metadata_partition_is_not_found(after: Path) -> None:
    ran = tierctl("format", "--metadata", after, "--metadata-partition", 0, "--metadata-partition", 99)
    assert (ran.code, ran.out) == (10, "")
    assert "the metadata topic has no partition 99" in ran.err
    assert "known partitions: 0-4" in ran.err


def test_a_topic_that_no_record_names_is_not_found(after: Path, tmp_path: Path) -> None:
    """The error needs that all records were read."""
    segment = next(after.glob("__remote_log_metadata-0/*.log"))
    whole: list[list[object]] = [["--metadata", after], ["--metadata", after, "--order", "time"], [segment]]
    for source in whole:
        ran = tierctl("format", *source, "--topic", "orders", "--topic", "oders", "--style", "json")
        assert ran.code == 10, ran.err
        assert 'unknown topic "oders"' in ran.err
        assert all(json.loads(line)["topic"] == "orders" for line in ran.lines)
    for name in ("--topic=\udcff", "--partition=\udcff-0"):
        ran = tierctl("format", "--metadata", after, name)
        assert (ran.code, ran.out, r'unknown topic "\udcff"' in ran.err) == (10, "", True), ran.err
    for part in (["--from-offset", "3"], ["--until", "4"], ["--metadata-partition", "0"]):
        assert rows("--metadata", after, "--topic", "nobody", *part) == []
    assert len(rows("--metadata", after, "--topic", "orders", "--topic", "nobody", "--limit", "1")) == 1


@pytest.mark.parametrize("output", ["table", "json", "jsonl", "csv"])
@pytest.mark.parametrize(("kind", "code"), [("missing", 10), ("folder", 2), ("pipe", 2)])
def test_files_are_opened_before_the_first_record_is_printed(
    kind: str, code: int, output: str, after: Path, tmp_path: Path
) -> None:
    """A pipe is refused: to open it would wait for a writer."""
    wrong = tmp_path / "00000000000000000000.log"
    if kind != "missing":
        (os.mkfifo if kind == "pipe" else os.mkdir)(wrong)
    segment = next(after.glob("__remote_log_metadata-0/*.log"))
    ran = tierctl("format", segment, wrong, "--output", output)
    header = int(output == "csv")
    assert (ran.code, len(ran.lines), str(wrong) in ran.err) == (code, header, True)


def test_indexes_are_no_segments(after: Path) -> None:
    """A pattern such as __remote_log_metadata-0/* names them, too."""
    files = sorted(after.glob("__remote_log_metadata-0/0*"))
    assert {file.suffix for file in files} > {".log", ".index", ".timeindex"}
    for file in files:
        ran = tierctl("format", file)
        is_segment = file.suffix == ".log"
        assert (ran.code, f"{file} is no segment" in ran.err) == (0 if is_segment else 2, not is_segment)


def test_a_file_of_another_kind_is_not_an_unfinished_write(after: Path, tmp_path: Path) -> None:
    """Its bytes are not understood; those of a batch that was cut may be few, too."""
    folder = after / "__remote_log_metadata-0"
    (tmp_path / "hello").write_text("hello\n")
    for file in (folder / "partition.metadata", folder / "leader-epoch-checkpoint", tmp_path / "hello"):
        ran = tierctl("format", file)
        assert (ran.code, len(ran.lines), f"{file}: expected " in ran.out) == (7, 1, True), ran.err
    (tmp_path / "cut").write_bytes(next(folder.glob("*.log")).read_bytes()[:40])
    ran = tierctl("format", tmp_path / "cut")
    assert (ran.code, ran.out, "not written to its end" in ran.err) == (0, "", True)


def test_by_time_across_partitions(after: Path) -> None:
    got = rows("--metadata", after, "--order", "time")
    latest: dict[object, int] = defaultdict(int)
    times = []
    for row in got:
        # Within a partition, records are ordered by offset, because the clocks of producers may disagree.
        partition, timestamp_ms = row["metadata_partition"], row["timestamp_ms"]
        latest[partition] = max(latest[partition], timestamp_ms)
        times.append(latest[partition])
    assert times == sorted(times)
    everything = rows("--metadata", after)
    assert sorted(map(json.dumps, got)) == sorted(map(json.dumps, everything))


def test_console_consumer_properties_are_flags_too(after: Path) -> None:
    flags = ["--print-partition", "--print-message-offset", "--print-version", "--sep", ";", "--vs", " "]
    properties = ["print.partition=true", "print.message.offset=true", "print.version=true", "sep=;", "vs= "]
    one = tierctl("format", "--metadata", after, "--style", "kip", *flags)
    other = tierctl(
        "format", "--metadata", after, "--style", "kip", *(w for p in properties for w in ("--property", p))
    )
    assert one.out == other.out
    assert one.lines[0].startswith(
        "partition:0;message-offset:0;type:RemoteLogSegmentMetadata;version:0 event-value:{"
    )


def test_the_property_format_may_repeat_the_style() -> None:
    line = ("format", "--input", "hex", "--style", "kafka", "--kafka-version", "3.6")
    ran = tierctl(*line, "--property", "format=kafka", stdin=value().encode())
    assert (ran.code, ran.out) == (0, tierctl(*line, stdin=value().encode()).out)


@pytest.mark.parametrize(
    ("variables", "words", "same_as"),
    [
        ("STYLE=kip", "", "--style kip"),
        ("STYLE=kip PRINT_VERSION=true", "-o csv", "-o csv"),
        ("OUTPUT=csv", "--print-version", "--print-version"),
        ("KAFKA_VERSION=3.6", "", "-o table"),
        ("KAFKA_VERSION=3.6", "--style kafka", "--kafka-version 3.6"),
        ("KAFKA_VERSION=3.6", "--property format=kafka --property kafka.version=4.4", "--style kafka"),
        ("", "--style kafka --property kafka.version=3.6 --kafka-version 4.4", "--style kafka"),
    ],
)
def test_typed_options_replace_other_settings(variables: str, words: str, same_as: str, after: Path) -> None:
    where = ("format", "--metadata", after)
    here = dict(f"TIERCTL_{each}".split("=") for each in variables.split())
    ran = tierctl(*where, *words.split(), env=environment(**here, **AT_TERMINAL), is_at_terminal=True)
    expected = tierctl(*where, *same_as.split(), env=environment(**AT_TERMINAL), is_at_terminal=True)
    assert (ran.code, ran.out) == (0, expected.out), ran.err


@pytest.mark.parametrize("end", ["--limit 1", "--timeout-ms 1", "--timeout-ms 1 --sort -metadata_offset"])
def test_a_table_of_followed_records_needs_an_end(end: str, after: Path) -> None:
    ran = tierctl("format", "--metadata", after, "--metadata-partition", 4, "-f", "-o", "table", *end.split())
    offset = ran.lines[1].split()[1]
    assert (ran.code, len(ran.lines), offset) == (
        0,
        2 if "limit" in end else 9,
        "7" if "sort" in end else "0",
    )


def test_follow_prints_what_is_appended(writable: Writable) -> None:
    folder = writable("tiered-cluster/after")
    file = next(folder.glob("__remote_log_metadata-4/*.log"))
    args = ["format", "--metadata", folder, "--follow", "--interval", "20ms", "--metadata-partition", "4"]
    with subprocess.Popen(
        [sys.executable, "-m", "tierctl", *args, "--limit", "10"],
        stdout=subprocess.PIPE,
        env=environment(),
        text=True,
    ) as process:
        assert process.stdout is not None
        seen = [process.stdout.readline() for _ in range(8)]
        batch = encode_batch([Record(8 + i, 5, None, bytes.fromhex(value()), ()) for i in range(2)])
        with file.open("ab") as log_file:
            # An unfinished batch is not read yet.
            log_file.write(batch[:-20])
            log_file.flush()
            log_file.write(batch[-20:])
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert all(line.startswith("partition: 4, offset: ") for line in seen)
    assert [line.split(",")[1] for line in out.splitlines()] == [" offset: 8", " offset: 9"]


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["--metadata", "x", "--input", "hex"], 2, "can't be used with files"),
        (["--follow", "--input", "hex"], 2, "--follow needs --metadata"),
        *(
            ([*source.split(), *words.split()], 2, f"{option} can't be used with {source.split()[0]}")
            for source in ("--bootstrap-server h:1", "--follow --metadata x")
            for words, option in (
                ("--sort state -o jsonl", "--sort"),
                ("--sort state -o table --limit 3", "--sort"),
                ("-o table", "--output table"),
            )
        ),
        (["-"], 2, "segments can't be read from stdin"),
        (["--metadata", "missing"], 10, "no such folder"),
        (
            ["--input", "hex", "--style", "kip", "--output", "csv"],
            2,
            "--output can only be used with --style json\nhint: leave --style out",
        ),
        (
            ["--input", "hex", "--property", "format=kafka", "--output", "csv"],
            2,
            "--output can only be used with --style json\nhint: leave --property format out",
        ),
        (
            ["--input", "hex", "--style", "kafka", "--sep", ";"],
            2,
            "--style kafka has no property 'sep'\nhint: it has kafka.version",
        ),
        (
            ["--input", "hex", "--style", "json", "--property", "format=kafka"],
            2,
            "--style json has no property 'format'\nhint: it has none",
        ),
        (["--input", "hex", "--style", "kip", "--property", "sep"], 2, "expected NAME=VALUE"),
        (["--input", "hex", "--property", "nope=1"], 2, "--style kip has no property 'nope'"),
        (["--input", "hex", "--type", "nope"], 2, "RemotePartitionDeleteMetadata"),
    ],
)
def test_what_makes_no_sense_is_refused(args: list[str], code: int, message: str, tmp_path: Path) -> None:
    ran = tierctl("format", *args, cwd=tmp_path)
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err


WAIT_S = 30


VALUES = [bytes.fromhex(vector["hex"]) for vector in islice(vectors("serde-kafka.jsonl"), 3)]


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        ("--input framed --limit 3", list(map(frame, VALUES))),
        *((f"--input hex {more}", [b"%s\n" % hexlify(each) for each in VALUES]) for more in ("", "-o jsonl")),
    ],
)
def test_values_are_printed_as_they_come(words: str, sent: Sequence[bytes]) -> None:
    """With --limit the run ends though the pipe stays open."""
    with subprocess.Popen(
        [sys.executable, "-m", "tierctl", "format", *words.split()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        # A process that waits for another line then reads the end of stdin.
        watchdog = threading.Timer(WAIT_S, process.kill)
        watchdog.start()
        for number, data in enumerate(sent):
            # The end of a value may arrive later than its start.
            for part in (data[:7], data[7:]):
                process.stdin.write(part)
                process.stdin.flush()
            assert re.search(rb'(metadata_|, )offset"?: %d, ' % number, process.stdout.readline())
        if "--limit" not in words:
            process.stdin.close()
        assert process.wait(timeout=WAIT_S) == 0
        watchdog.cancel()
        assert (process.stdout.read(), process.stderr.read()[:18]) == (b"", b"format: 3 records ")
