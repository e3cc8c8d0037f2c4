"""Every kind of rows that a command prints: its columns, and those that a table and a terminal show.

This is the only description of them: csv, tables, `--columns`, `--sort` and the JSON schemas follow from it.
"""

from tierctl.report.columns import Columns, Kind
from tierctl.report.fields import columns, names, ranks
from tierctl.report.tier_tables import TIER_TABLES

_SEGMENT = "topic topic_id partition segment_id start_offset end_offset"
_FOUND = "topic? topic_id? partition? segment_id? start_offset? end_offset?"


SEGMENTS = Columns(
    name="segments",
    title="Remote segments",
    commands="segments",
    noun="segment",
    size="segment_size_in_bytes",
    all=columns(
        f"{_SEGMENT} broker_id? max_timestamp_ms? event_timestamp_ms? segment_leader_epochs? "
        "segment_size_in_bytes? custom_metadata? state txn_index_empty?"
    ),
    in_table=names(
        "topic partition segment_id start_offset end_offset segment_leader_epochs segment_size_in_bytes state"
    ),
    at_terminal=ranks(
        "topic:0 partition:0 segment_id:5 start_offset:0 end_offset:1 segment_leader_epochs:6 "
        "segment_size_in_bytes:2 max_timestamp_ms:3 event_timestamp_ms:7 broker_id:8 state:4"
    ),
)
TOPIC_SIZES = Columns(
    name="sizes",
    title="Sizes by topic",
    commands="segments --sizes",
    noun="topic",
    size="log_bytes",
    all=columns(
        "topic topic_id partitions segments log_bytes copying_segments copying_bytes deleting_segments "
        "deleting_bytes objects? object_bytes?"
    ),
    in_table=names("topic partitions segments log_bytes copying_segments deleting_segments object_bytes"),
    at_terminal=ranks(
        "topic:0 topic_id:8 partitions:3 segments:1 log_bytes:0 copying_segments:4 copying_bytes:6 "
        "deleting_segments:5 deleting_bytes:7 object_bytes:2"
    ),
)
PARTITION_OFFSETS = Columns(
    name="offsets",
    title="Offsets by partition",
    commands="segments --offsets",
    noun="partition",
    all=columns(
        "topic topic_id partition earliest? earliest_local? latest_tiered? earliest_pending_upload? latest?"
    ),
    at_terminal=ranks(
        "topic:0 topic_id:5 partition:0 earliest:1 earliest_local:3 latest_tiered:2 "
        "earliest_pending_upload:4 latest:1"
    ),
)
_FINDING_RANKS = ranks(
    "severity:0 kind:1 topic:0 partition:0 segment_id:4 start_offset:2 end_offset:3 message:0"
)
SEGMENT_FINDINGS = Columns(
    name="segment-findings",
    title="Findings about offsets and segments",
    commands="segments --check",
    noun="problem",
    word="severity",
    all=columns(f"severity kind {_FOUND} key!? message advice!?"),
    in_table=names("severity kind topic partition segment_id start_offset end_offset message"),
    at_terminal=_FINDING_RANKS,
    notes=names("message"),
)
FINDINGS = Columns(
    name="findings",
    title="Findings of verify",
    commands="verify",
    noun="problem",
    word="severity",
    all=columns(f"severity kind {_FOUND} key? message hint"),
    in_table=names("severity kind topic partition segment_id start_offset end_offset key message"),
    at_terminal=ranks(
        "severity:0 kind:1 topic:0 partition:0 segment_id:4 start_offset:2 end_offset:3 key:5 message:0 "
        "hint:0"
    ),
    notes=names("message hint"),
    subjects={"key": "topic"},
)
_EVENT = (
    "topic~ topic_id~ partition~ segment_id~ start_offset~ end_offset~ broker_id~ leader_epoch~ epoch~ "
    "max_timestamp_ms~ event_timestamp_ms~ segment_leader_epochs~ segment_size_in_bytes~ custom_metadata~? "
    "state~ txn_index_empty~ type?"
)
EVENTS = Columns(
    name="events",
    title="Records of the metadata topic",
    commands="format",
    noun="record",
    all=columns(f"{_EVENT} dialect? metadata_partition? metadata_offset? timestamp_ms? error~ value~"),
    in_table=names(
        "metadata_partition metadata_offset timestamp_ms type topic partition segment_id start_offset "
        "end_offset state error"
    ),
    at_terminal=ranks(
        "metadata_partition:4 metadata_offset:3 timestamp_ms:5 type:7 topic:0 partition:0 segment_id:6 "
        "start_offset:1 end_offset:2 state:0 error:8"
    ),
)
RECORDS = Columns(
    name="records",
    title="Records of topics",
    commands="fetch",
    noun="record",
    all=columns(
        "topic topic_id partition offset timestamp_ms timestamp_type leader_epoch? key? key_encoding? value? "
        "value_encoding? headers",
        key=Kind.CONTENT,
        value=Kind.CONTENT,
    ),
    in_table=names("topic partition offset timestamp_ms leader_epoch key value headers"),
    at_terminal=ranks("topic:1 partition:0 offset:0 timestamp_ms:2 leader_epoch:4 key:3 value:0 headers:5"),
)
INDEXES = {
    kind: Columns(
        name=f"{kind}-index",
        title=f"Entries of the {kind} index",
        commands=f"fetch --index {kind}",
        noun="entry/entries",
        all=columns(" ".join(ranks(fields))),
        at_terminal=ranks(fields),
    )
    for kind, fields in {
        "offset": "offset:0 position:0",
        "timestamp": "timestamp_ms:0 offset:0",
        "transaction": "producer_id:0 first_offset:0 last_offset:0 last_stable_offset:0",
        "producer-snapshot": "producer_id:0 epoch:0 last_sequence:1 last_offset:0 offset_delta:4 "
        "timestamp_ms:2 coordinator_epoch:5 current_txn_first_offset:3",
        "leader-epoch": "epoch:0 start_offset:0",
    }.items()
}
"""By the name of the index, as --index takes it."""
CACHE_ENTRIES = Columns(
    name="cache-entries",
    title="Headers and entries of cache files",
    commands="cache show",
    noun="row",
    all=columns(
        "file position? type? form~ topic~? topic_id~? partition~? metadata_partition~? "
        "metadata_topic_offset~ segment_id~ start_offset~ end_offset~ broker_id~ leader_epoch~ epoch~ "
        "max_timestamp_ms~ event_timestamp_ms~ segment_leader_epochs~ segment_size_in_bytes~ "
        "custom_metadata~? state~ txn_index_empty~ metadata_offset~ timestamp_ms~ dialect~ error~ value!~"
    ),
    in_table=names("file position type topic partition segment_id start_offset end_offset state error"),
    at_terminal=ranks(
        "file:6 position:3 type:0 topic:2 partition:2 segment_id:5 start_offset:2 end_offset:4 state:1 "
        "error:7"
    ),
)
CACHE_CHECKS = Columns(
    name="cache-checks",
    title="Good cache files, and each problem of bad ones",
    commands="cache verify",
    noun="result",
    word="status",
    all=columns("file status form~? entries~? size_bytes~ position~? detail?"),
    at_terminal=ranks("file:0 status:0 form:2 entries:3 size_bytes:4 position:5 detail:1"),
)
CACHE_FILES = Columns(
    name="cache-files",
    title="Cache files that were built",
    commands="cache build",
    noun="file",
    size="size_bytes",
    all=columns("file topic topic_id partition metadata_partition last_offset? entries size_bytes"),
    at_terminal=ranks(
        "file:5 topic:0 topic_id:6 partition:0 metadata_partition:4 last_offset:3 entries:2 size_bytes:1"
    ),
)
CACHE_REWRITES = Columns(
    name="cache-rewrites",
    title="Plan of a compaction",
    commands="cache compact",
    noun="file",
    word="action",
    all=columns("action file entries? kept? size_bytes new_size_bytes reason"),
    at_terminal=ranks("action:0 file:0 entries:4 kept:3 size_bytes:2 new_size_bytes:2 reason:1"),
)
COMMITTED_OFFSETS = Columns(
    name="committed-offsets",
    title="Committed offsets",
    commands="offsets show",
    noun="offset",
    all=columns("metadata_partition committed_offset form"),
    at_terminal=ranks("metadata_partition:0 committed_offset:0 form:1"),
)
UNSAFE_OFFSETS = Columns(
    name="unsafe-offsets",
    title="Committed offsets that would lose segments",
    commands="offsets check",
    noun="unsafe offset",
    word="problem",
    all=columns("metadata_partition committed_offset problem limit? detail"),
    at_terminal=ranks("metadata_partition:0 committed_offset:0 problem:1 limit:1 detail:0"),
)
OFFSET_REPAIRS = Columns(
    name="offset-repairs",
    title="Plan of a repair",
    commands="offsets repair",
    noun="change",
    word="action",
    all=columns("action metadata_partition? from_offset? to_offset? reason"),
    at_terminal=ranks("action:0 metadata_partition:0 from_offset:1 to_offset:1 reason:0"),
)
COMMITS = Columns(
    name="commits",
    title="Commits of the pipeline",
    commands="pipeline run",
    noun="commit",
    all=columns("commit metadata_partitions offsets events warehouse"),
    at_terminal=ranks("commit:0 metadata_partitions:2 offsets:1 events:1 warehouse:1"),
)
LEAKED_TOPICS = Columns(
    name="leaked-topics",
    title="Topics that the cluster does not have any more",
    commands="delete --find",
    noun="leaked topic",
    size="log_bytes",
    all=columns("topic topic_id partitions segments log_bytes delete_state?"),
    at_terminal=ranks("topic:0 topic_id:0 partitions:2 segments:1 log_bytes:0 delete_state:3"),
)
STATUS = Columns(
    name="status",
    title="Status by topic",
    commands="status",
    noun="topic",
    size="log_bytes",
    all=columns(
        "topic topic_id partitions segments log_bytes first_offset_in_tier? first_record_ms? "
        "last_offset_in_tier? last_record_ms? lag_segments? lag_bytes? lag_since_ms? dangling_copies "
        "stuck_deletes problems"
    ),
    at_terminal=ranks(
        "topic:0 topic_id:12 partitions:9 segments:2 log_bytes:1 first_offset_in_tier:7 first_record_ms:5 "
        "last_offset_in_tier:8 last_record_ms:4 lag_segments:0 lag_bytes:6 lag_since_ms:3 "
        "dangling_copies:10 stuck_deletes:11 problems:0"
    ),
)
STATUS_PROBLEMS = Columns(
    name="status-problems",
    title="Problems that an operator must act on",
    commands="status --show problems",
    noun="problem",
    word="severity",
    all=columns("severity kind findings message hint"),
    at_terminal=ranks("severity:0 kind:0 findings:0 message:0 hint:0"),
    below=names("message hint"),
)
CHECKS = Columns(
    name="checks",
    title="Results of doctor",
    commands="doctor",
    noun="result",
    word="outcome",
    all=columns("outcome check subject found why? fix?"),
    at_terminal=ranks("outcome:0 check:0 subject:0 found:0 why:0 fix:0"),
    below=names("found why fix"),
    is_worst_first=True,
)
LAST_RUNS = Columns(
    name="last-runs",
    title="Last successful runs",
    commands="status --show runs",
    noun="command",
    all=columns("command ended_ms"),
    at_terminal=ranks("command:0 ended_ms:0"),
)
SETTINGS = Columns(
    name="settings",
    title="Settings in force",
    commands="config show",
    noun="setting",
    word="source",
    all=columns("scope topic? setting value source place? file!? line!? command? use", value=Kind.SENTENCE),
    in_table=names("scope topic setting value source place command"),
    at_terminal=ranks("scope:2 topic:0 setting:0 value:0 place:0 command:1 use:3"),
    subjects={"command": "topic"},
    substitutes={"place": "source"},
)
SETTING_PROBLEMS = Columns(
    name="setting-problems",
    title="Problems in files of settings",
    commands="config check",
    noun="problem",
    word="severity",
    all=columns("severity kind file? line? setting? message expected found hint"),
    in_table=names("severity kind file line setting message hint"),
    at_terminal=ranks("severity:0 kind:0 file:0 line:0 message:0 hint:0"),
    below=names("message hint"),
)
EXPLANATIONS = Columns(
    name="explanations",
    title="Next actions of brokers",
    commands="explain",
    noun="segment",
    word="next_action",
    word_texts={"copy": "to copy", "delete": "to delete", "none": "to keep for now"},
    size="segment_size_in_bytes",
    all=columns(
        "topic topic_id partition location segment_id? start_offset end_offset? segment_size_in_bytes "
        "max_timestamp_ms state? next_action reason_kind reason decided_by rule! settings! expires_at_ms? "
        "facts!"
    ),
    in_table=names(
        "location segment_id start_offset end_offset segment_size_in_bytes max_timestamp_ms next_action "
        "reason decided_by"
    ),
    at_terminal=ranks(
        "location:0 start_offset:0 end_offset:2 segment_size_in_bytes:3 max_timestamp_ms:5 next_action:0 "
        "reason:0 decided_by:0 expires_at_ms:4 segment_id:6"
    ),
    notes=names("reason decided_by"),
)
SAVED_TOPICS = Columns(
    name="saved-topics",
    title="Saved topics",
    commands="backup-config",
    noun="topic",
    all=columns("topic topic_id partitions own_settings"),
    at_terminal=ranks("topic:0 topic_id:1 partitions:0 own_settings:2"),
)
_STEP = "action reason topic topic_id partition segment_id? start_offset? end_offset?"
_DETAILS = (
    "state~ segment_size_in_bytes~ max_timestamp_ms~ segment_leader_epochs~ metadata_partition~? "
    "lineage_epoch~ next_base_offset~ leader_epoch_checkpoint~ txn_index_empty~? source_segment_id~ breach~ "
    "follows~ new_log_start_offset~ delete_marked_offset~? segments~ states~ custom_metadata~? log_dir~ "
    "raised_log_start_offset~ as_topic~ as_topic_id~ room_bytes~ segment_parts~"
)
_STEP_TABLE = "action topic partition start_offset end_offset segment_id"
STEPS = Columns(
    name="steps",
    title="Steps of a plan",
    commands="copy, sweep, delete, rebuild, restore, apply (jsonl and csv; json prints a plan)",
    noun="step",
    word="action",
    size="segment_size_in_bytes",
    all=columns(f"{_STEP} {_DETAILS}"),
    in_table=names(f"{_STEP_TABLE} reason"),
    at_terminal=ranks(
        "action:1 topic:0 partition:0 start_offset:0 end_offset:2 segment_size_in_bytes:3 "
        "max_timestamp_ms:4 segment_id:5 reason:1"
    ),
    notes=names("reason"),
    is_open=True,
)
OUTCOMES = Columns(
    name="outcomes",
    title="Outcomes of a plan's steps",
    commands="copy, sweep, delete, rebuild, restore, apply, with --apply (jsonl and csv; json prints a plan)",
    noun="step",
    word="status",
    size="segment_size_in_bytes",
    all=columns(f"{_STEP} {_DETAILS} status error? why?"),
    in_table=names(f"status {_STEP_TABLE} error why"),
    at_terminal=ranks(
        "status:0 action:1 topic:0 partition:0 start_offset:0 end_offset:2 segment_size_in_bytes:3 "
        "segment_id:4 error:1 why:2"
    ),
    notes=names("error why"),
    is_open=True,
)
ALL = (
    *(SEGMENTS, TOPIC_SIZES, PARTITION_OFFSETS, SEGMENT_FINDINGS, FINDINGS, EVENTS, RECORDS),
    *INDEXES.values(),
    *(CACHE_ENTRIES, CACHE_CHECKS, CACHE_FILES, CACHE_REWRITES),
    *(COMMITTED_OFFSETS, UNSAFE_OFFSETS, OFFSET_REPAIRS, COMMITS, LEAKED_TOPICS),
    *(STATUS, STATUS_PROBLEMS, LAST_RUNS, SETTINGS, SETTING_PROBLEMS, EXPLANATIONS, CHECKS),
    *TIER_TABLES,
    *(SAVED_TOPICS, STEPS, OUTCOMES),
)
