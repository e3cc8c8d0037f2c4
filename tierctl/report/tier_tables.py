"""The rows about a whole tier, as `tables` describes those of other commands."""

from tierctl.report.columns import Columns
from tierctl.report.fields import columns, ranks

REPORT_SIZES = Columns(
    name="report-sizes",
    title="Sizes by topic and age",
    commands="report",
    noun="row",
    word="location",
    size="log_bytes",
    all=columns("topic topic_id location age segments log_bytes oldest_ms? newest_ms?"),
    at_terminal=ranks("topic:0 topic_id:5 location:0 age:0 segments:2 log_bytes:0 oldest_ms:3 newest_ms:4"),
)
REPORT_GROWTH = Columns(
    name="report-growth",
    title="Growth by day",
    commands="report --show growth",
    noun="row",
    all=columns(
        "day topic topic_id copied_segments copied_bytes deleted_segments deleted_bytes expiring_segments "
        "expiring_bytes"
    ),
    at_terminal=ranks(
        "day:0 topic:0 topic_id:5 copied_segments:3 copied_bytes:1 deleted_segments:4 deleted_bytes:1 "
        "expiring_segments:4 expiring_bytes:2"
    ),
)
REPORT_EXPIRATIONS = Columns(
    name="report-expirations",
    title="Next expirations",
    commands="report --show expirations",
    noun="segment",
    size="segment_size_in_bytes",
    all=columns(
        "topic topic_id partition segment_id start_offset end_offset segment_size_in_bytes max_timestamp_ms "
        "due_ms"
    ),
    at_terminal=ranks(
        "due_ms:0 topic:0 partition:0 start_offset:1 end_offset:2 segment_size_in_bytes:1 max_timestamp_ms:3 "
        "segment_id:4 topic_id:5"
    ),
)

KEY_OCCURRENCES = Columns(
    name="key-occurrences",
    title="Records with the keys of an erasure request",
    commands="fetch --erase-report",
    noun="record",
    all=columns("topic topic_id partition offset timestamp_ms key_sha256 segment_id? state? object"),
    at_terminal=ranks(
        "topic:0 topic_id:5 partition:0 offset:0 timestamp_ms:2 key_sha256:5 segment_id:4 state:3 object:1"
    ),
)

TIER_TABLES = (REPORT_SIZES, REPORT_GROWTH, REPORT_EXPIRATIONS, KEY_OCCURRENCES)
