"""Descriptions of the rows about a whole tier, in the form of `tables`."""

from tierctl.report.columns import Columns
from tierctl.report.fields import columns, names, ranks

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
    noun="segment to expire/segments to expire",
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

WHAT_IF = Columns(
    name="what-if",
    title="Tier under the changed settings, by topic",
    commands="report --what-if",
    noun="row",
    all=columns(
        "topic topic_id? partitions undecided_partitions now_segments now_bytes now_objects? now_requests? "
        "now_cost? changed_segments? changed_bytes? changed_objects? changed_requests? changed_cost? "
        "later_segments? later_bytes? later_objects? later_requests? later_cost? unchanged_later_bytes? "
        "unchanged_later_cost? growth_bytes_per_day? growth_since_ms? local_now_bytes? local_changed_bytes? "
        "local_later_bytes?"
    ),
    at_terminal=ranks(
        "topic:0 now_bytes:0 changed_bytes:0 later_bytes:0 now_cost:1 changed_cost:1 later_cost:1 "
        "local_now_bytes:2 local_changed_bytes:2 local_later_bytes:2 growth_bytes_per_day:3 "
        "undecided_partitions:4 now_segments:5 changed_segments:5 later_segments:5 now_requests:6 "
        "changed_requests:6 later_requests:6 now_objects:7 changed_objects:7 later_objects:7 partitions:8 "
        "unchanged_later_bytes:9 unchanged_later_cost:9 growth_since_ms:9 topic_id:9"
    ),
)
GROUP_LOSSES = Columns(
    name="group-losses",
    title="Consumer groups that would lose records",
    commands="report --what-if --show groups",
    noun="loss/losses",
    all=columns("group topic topic_id partition committed_offset new_log_start_offset lost_records"),
    at_terminal=ranks(
        "group:0 topic:0 topic_id:5 partition:0 committed_offset:1 new_log_start_offset:1 lost_records:0"
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

RESTORE_CHECKS = Columns(
    name="restore-checks",
    title="Results of the checks after a restore",
    commands="restore --check",
    noun="result",
    word="verdict",
    all=columns("verdict check topic? partition? found why? fix?"),
    at_terminal=ranks("verdict:0 check:0 topic:0 partition:0 found:0 why:0 fix:0"),
    below=names("found why fix"),
    is_worst_first=True,
)

TIER_TABLES = (
    REPORT_SIZES,
    REPORT_GROWTH,
    REPORT_EXPIRATIONS,
    WHAT_IF,
    GROUP_LOSSES,
    KEY_OCCURRENCES,
    RESTORE_CHECKS,
)
