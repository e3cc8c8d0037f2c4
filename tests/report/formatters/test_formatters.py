"""Formatters compared with Kafka's classes and the scalar codec, plugins, and bytes that arrive late."""

import io
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tierctl.errors import UsageError
from tierctl.model import RemoteLogSegmentMetadata
from tierctl.model.events import dialect_of
from tierctl.report.formatters.records import Records, load
from tierctl.report.formatters.sources import arriving_bytes
from tierctl.wire.metadata.schema import json_fields
from tierctl.wire.metadata.values import decode, encode

from tests.cli.shell import environment, tierctl_process
from tests.cli.test_format import value
from tests.conftest import vectors
from tests.wire.metadata.java_text import to_string

SERDE = ("serde-kafka.jsonl", "serde-kip405.jsonl")


def records_of(values: Sequence[bytes | None], *, partition: int = 3, start: int = 0) -> Records:
    return Records(
        metadata_partition=partition,
        offsets=pa.array(range(start, start + len(values)), pa.int64()),
        timestamps_ms=pa.array([1_700_000_000_000 + i for i in range(len(values))], pa.int64()),
        values=pa.array(values, pa.binary()),
    )


def values_of(name: str) -> list[bytes]:
    return [bytes.fromhex(vector["hex"]) for vector in vectors(name)]


def lines(style: str, records: Records, **properties: str) -> list[str]:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return list(load(style, named).lines(records))


def test_kafka_is_what_kafkas_classes_print() -> None:
    golden = list(vectors("serde-kafka.jsonl"))
    got = lines("kafka", records_of([bytes.fromhex(v["hex"]) for v in golden]))
    assert got == [f"partition: 3, offset: {i}, value: {v['to_string']}" for i, v in enumerate(golden)]


def test_kafka_prints_leader_epochs_as_a_sorted_map() -> None:
    """Records have epochs in any order; for repeated epochs the last one counts, also alone."""
    value, _ = _of_type("serde-kafka.jsonl", "RemoteLogSegmentMetadata")
    event = decode(value)
    assert isinstance(event, RemoteLogSegmentMetadata)
    lists = [((5, 50), (2, 20)), ((3, 1), (3, 2)), ((3, 1), (3, 2), (0, 0)), ((0, 0), (1, 5))]
    events = [replace(event, segment_leader_epochs=epochs) for epochs in lists]
    pages = [lines("kafka", records_of([encode(each)], start=i)) for i, each in enumerate(events)]
    got = [line for page in pages for line in page]
    assert got == [f"partition: 3, offset: {i}, value: {to_string(each)}" for i, each in enumerate(events)]
    assert "segmentLeaderEpochs={2=20, 5=50}" in got[0]
    assert "segmentLeaderEpochs={0=0, 3=2}" in got[2]


@pytest.mark.parametrize("name", SERDE)
def test_json_is_the_golden_fields(name: str) -> None:
    golden = list(vectors(name))
    values = [bytes.fromhex(v["hex"]) for v in golden]
    for i, line in enumerate(lines("json", records_of(values))):
        event = decode(values[i])
        extra = {
            "dialect": str(dialect_of(event)),
            "metadata_partition": 3,
            "metadata_offset": i,
            "timestamp_ms": 1_700_000_000_000 + i,
        }
        assert json.loads(line) == golden[i]["fields"] | extra
        assert list(json.loads(line)) == [*json_fields(event), *extra]


def _of_type(name: str, wanted: str) -> tuple[bytes, dict[str, Any]]:
    return next(
        (bytes.fromhex(v["hex"]), v["fields"]) for v in vectors(name) if v["fields"]["type"] == wanted
    )


SEGMENT = (
    "remote-log-segment-id:{{id:{segment_id},topicId:{topic_id},topicName:{topic},partition:{partition}}}"
)
PARTITION = "topic-id-partition:{{topicId:{topic_id},topicName:{topic},partition:{partition}}}"
KIP = [
    (
        "serde-kip405.jsonl",
        "RemoteLogSegmentMetadata",
        "type:RemoteLogSegmentMetadata,event-value:{{" + SEGMENT + ",start-offset:{start_offset},"
        "end-offset:{end_offset},leader-epoch:{leader_epoch},remote-log-segment-state:{state}}}",
    ),
    (
        "serde-kip405.jsonl",
        "RemoteLogSegmentMetadataUpdate",
        "type:RemoteLogSegmentMetadataUpdate,event-value:{{" + SEGMENT + ",leader-epoch:{leader_epoch},"
        "remote-log-segment-state:{state}}}",
    ),
    (
        "serde-kip405.jsonl",
        "RemotePartitionDeleteMetadata",
        "type:DeletePartitionState,event-value:{{" + PARTITION + ",epoch:{epoch},"
        "remote-partition-delete-state:{state}}}",
    ),
    (
        "serde-kafka.jsonl",
        "RemoteLogSegmentMetadata",
        "type:RemoteLogSegmentMetadata,event-value:{{" + SEGMENT + ",start-offset:{start_offset},"
        "end-offset:{end_offset},broker-id:{broker_id},remote-log-segment-state:{state}}}",
    ),
    (
        "serde-kafka.jsonl",
        "RemotePartitionDeleteMetadata",
        "type:DeletePartitionState,event-value:{{" + PARTITION + ",broker-id:{broker_id},"
        "remote-partition-delete-state:{state}}}",
    ),
]


@pytest.mark.parametrize(("name", "kind", "expected"), KIP)
def test_kip_short_form(name: str, kind: str, expected: str) -> None:
    value, fields = _of_type(name, kind)
    assert lines("kip", records_of([value])) == [expected.format(**fields)]


@pytest.mark.parametrize(
    ("properties", "head"),
    [
        ({}, "type:RemoteLogSegmentMetadataUpdate,event-value:{"),
        (
            {"print.message.offset": "true"},
            "message-offset:7,type:RemoteLogSegmentMetadataUpdate,event-value:{",
        ),
        (
            {"print.version": "true", "vs": "\t"},
            "type:RemoteLogSegmentMetadataUpdate,version:0\tevent-value:{",
        ),
        (
            {
                "print.partition": "TRUE",
                "print.message.offset": "true",
                "print.version": "true",
                "sep": " | ",
            },
            "partition:3 | message-offset:7 | type:RemoteLogSegmentMetadataUpdate | version:0 | event-value:",
        ),
        ({"sep": "<topic>"}, "type:RemoteLogSegmentMetadataUpdate<topic>event-value:{"),
    ],
)
def test_kip_head(properties: dict[str, str], head: str) -> None:
    value, _ = _of_type("serde-kafka.jsonl", "RemoteLogSegmentMetadataUpdate")
    (line,) = load("kip", properties).lines(records_of([value], start=7))
    assert line.startswith(head)


@pytest.mark.parametrize("name", SERDE)
def test_kip_with_all_fields_says_every_field(name: str) -> None:
    values = values_of(name)
    got = lines("kip", records_of(values), print_all_event_value_fields="true")
    for vector, line in zip(vectors(name), got, strict=True):
        fields = vector["fields"]
        for key in fields.keys() - {
            "type",
            "state",
            "segment_leader_epochs",
            "txn_index_empty",
            "custom_metadata",
        }:
            assert f":{fields[key]}" in line
        for epoch, offset in fields.get("segment_leader_epochs", []):
            assert f"{{leader-epoch:{epoch},offset:{offset}}}" in line
        if "custom_metadata" in fields:
            custom = fields["custom_metadata"]
            assert f"custom-metadata:{'null' if custom is None else custom}," in line
        assert line.count("{") == line.count("}")


@pytest.mark.parametrize(
    ("style", "tombstone", "bad"),
    [
        ("kafka", "partition: 3, offset: 0, value: null", "partition: 3, offset: 1, error: "),
        ("kip", "type:Tombstone,event-value:null", "type:Error,event-value:{error:"),
    ],
)
def test_what_is_no_event_has_a_line_too(style: str, tombstone: str, bad: str) -> None:
    good, _ = _of_type("serde-kafka.jsonl", "RemotePartitionDeleteMetadata")
    got = lines(style, records_of([None, b"\xff\x1b[31m", good]))
    assert got[0] == tombstone
    assert got[1].startswith(bad)
    assert "ff1b5b33316d" in got[1]
    assert got[1].isprintable()
    assert "DELETE_PARTITION" in got[2]


def test_json_marks_what_is_no_event() -> None:
    got = [json.loads(line) for line in lines("json", records_of([None, b"\xff"]))]
    assert got[0] == {
        "type": None,
        "dialect": None,
        "metadata_partition": 3,
        "metadata_offset": 0,
        "timestamp_ms": 1_700_000_000_000,
    }
    assert got[1]["error"]
    assert got[1]["value"] == "ff"


@pytest.mark.parametrize(
    ("style", "properties"),
    [
        ("kip", {"nope": "1"}),
        ("kip", {"print.partition": "yes"}),
        ("kip", {"sep": "\udcff"}),
        ("kip", {"vs": "a\udc80"}),
        ("json", {"sep": ";"}),
        ("kafka", {"sep": ";"}),
        *(("kafka", {"kafka.version": text}) for text in (" 3.9", "3.9 ", "3.09", "3.5", "")),
    ],
)
def test_unknown_properties_are_refused(style: str, properties: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        load(style, properties)


def install(folder: Path, code: str, *, names: Sequence[str] = ("shout",)) -> None:
    """Write a package with formatters, as it is installed."""
    (folder / "plugged.py").write_text(code)
    info = folder / "plugged-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 1.0\n")
    points = "".join(f"{name} = plugged:make\n" for name in names)
    (info / "entry_points.txt").write_text(f"[tierctl.formatters]\n{points}")


def test_a_formatter_of_a_plugin(tmp_path: Path) -> None:
    install(
        tmp_path,
        "class Shout:\n"
        "    def __init__(self, properties):\n"
        "        self.end = properties.get('sep', '!')\n"
        "    def lines(self, records):\n"
        "        for record in records.rows():\n"
        "            yield f'{record.metadata_offset}{self.end} {record.event.topic.upper()}'\n"
        "make = Shout\n",
    )
    line = ("format", "--input", "hex", "--style", "shout", "--sep", "?")
    ran = tierctl_process(*line, stdin=value().encode(), env=environment(PYTHONPATH=str(tmp_path)))
    assert ran.out == "0? _INTERNAL\n"


LINES = "class make:\n    def __init__(self, _): pass\n    def lines(self, records): return "


@pytest.mark.parametrize(
    ("code", "names", "message"),
    [
        ("def make(properties): raise KeyError('x')\n", ["shout"], "can't be loaded: KeyError"),
        ("def make(properties): return 3\n", ["shout"], "is no formatter"),
        ("make = None\n", ["kafka"], "is claimed by plugged, tierctl"),
        (LINES + "[str(i) for i in range(1)]", ["shout"], "made 1 line of 2 records"),
        (LINES + "[str(i) for i in range(3)]", ["shout"], "made 3 lines of 2 records"),
        (LINES + "[each.event.topic for each in records.rows()]", ["shout"], "failed: AttributeError: 'None"),
        (LINES + "None", ["shout"], "failed: TypeError: 'None"),
        (LINES + "[b'a', b'b']", ["shout"], "made b'a': expected text without a line break"),
        (LINES + "['a', 'b\\n']", ["shout"], r"made 'b\n': expected text without a line break"),
    ],
)
def test_a_broken_plugin_is_named(
    code: str, names: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, code, names=names)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "plugged", raising=False)
    with pytest.raises(UsageError, match="plugged") as refused:
        lines(names[0], records_of([None, b"\xff"]))
    assert message in str(refused.value)


@pytest.mark.parametrize("size", [0, 1, 1 << 20])
def test_all_bytes_of_a_stream_without_a_descriptor(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    assert b"".join(arriving_bytes(io.BytesIO(data[:size]))) == data[:size]
