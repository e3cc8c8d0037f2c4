"""A new field of a metadata record needs changes only in the schema and the model's dataclass."""

import subprocess
import sys

FIELDS = """    txn_index_empty: bool = False
    key_id: int = 0
    note: str = ""
    proof: bytes | None = None
    parts: tuple[tuple[int, int], ...] = ()
    sealed: bool = False
"""
TABLE = """    _KEY_ID := Field("key_id", Fixed.INT64),
    _NOTE := Field("note", Variable.STRING),
    _PROOF := Field("proof", Variable.NULLABLE_BYTES),
    _PARTS := Field("parts", Array(Struct((Field("a", Fixed.INT32), Field("b", Fixed.INT64))))),
    _SEALED := Flag("sealed", 1),
    _CUSTOM_METADATA := """
# By module: a text, its replacement, and how often the text occurs.
EDITS = {
    "tierctl.model.events": (("    txn_index_empty: bool = False\n", FIELDS, 2),),
    "tierctl.wire.metadata.schema": (
        ("    _CUSTOM_METADATA := ", TABLE, 1),
        ("    _CUSTOM_METADATA,\n", "    _CUSTOM_METADATA, _KEY_ID, _NOTE, _PARTS, _PROOF,\n", 1),
        ("(_TXN_INDEX_EMPTY,)", "(_TXN_INDEX_EMPTY, _SEALED)", 2),
    ),
}
CHECK = """
import json
import pyarrow as pa
from dataclasses import replace
from tierctl.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, Uuid
from tierctl.report.formatters.records import Records
from tierctl.report.formatters.json_lines import JsonFormatter
from tierctl.spark.sources.metadata_splits import SCHEMA
from tierctl.wire.metadata.values import decode, encode
from tierctl.wire.metadata import decode as decode_module
from tierctl.wire.metadata.decode import decode_values
from tierctl.wire.metadata.schema import json_fields

first = RemoteLogSegmentMetadata(
    topic="orders", topic_id=Uuid.from_bytes(bytes(16)), partition=0, segment_id=Uuid.from_bytes(bytes(16)),
    start_offset=0, end_offset=9, broker_id=1, max_timestamp_ms=1, event_timestamp_ms=2,
    segment_leader_epochs=((0, 0), (1, 5)), segment_size_in_bytes=7, custom_metadata=b"c",
)
events = [
    replace(first, key_id=n, note="note%d" % (n % 2), proof=None if n % 3 else b"p", sealed=n % 4 == 0,
            parts=tuple((n, i) for i in range(n % 3)))
    for n in range(200)
]
values = pa.array([encode(event) for event in events])
assert [decode(value) for value in values.to_pylist()] == events
one_by_one = []
decode_module.decode = lambda value: one_by_one.append(1) or decode(value)
decoded = decode_values(values)
table = decoded.table()
assert not one_by_one, len(one_by_one)
assert [decoded.event(row) for row in range(200)] == events
for name in ("key_id", "note", "proof", "parts", "sealed"):
    own = [getattr(event, name) for event in events]
    own = [list(map(list, value)) for value in own] if name == "parts" else own
    assert table.column(name).to_pylist() == own, name
assert json_fields(events[5])["note"] == "note1"
numbers = pa.array(range(200), pa.int64())
records = Records(metadata_partition=0, offsets=numbers, timestamps_ms=numbers, values=values)
lines = list(JsonFormatter({}).lines(records))
for event, line in zip(events, lines, strict=True):
    shown = json.loads(line)
    assert {name: shown[name] for name in json_fields(event)} == json_fields(event)
assert {"key_id", "note", "proof", "sealed"} <= set(SCHEMA.names)
print("all derived")
"""
PATCHING = f"""
import importlib.abc, importlib.machinery, sys
EDITS = {EDITS!r}
class Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, name):
        source = self.get_data(self.path).decode()
        for old, new, count in EDITS[name]:
            assert source.count(old) == count, (name, old, source.count(old))
            source = source.replace(old, new)
        return compile(source, self.path, "exec")
class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        spec = importlib.machinery.PathFinder.find_spec(name, path) if name in EDITS else None
        if spec is not None:
            spec.loader = Loader(name, spec.origin)
        return spec
sys.meta_path.insert(0, Finder())
"""


def test_codecs_derive_a_new_field_from_the_schema() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PATCHING + CHECK], capture_output=True, text=True, check=False
    )
    assert done.stdout == "all derived\n", done.stderr[-2000:]
