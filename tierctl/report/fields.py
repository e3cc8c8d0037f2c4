"""The fields of rows: what each name means everywhere in tierctl's output.

A field has the same kind and meaning in every kind of rows; `tables` lists the fields of each.
"""

from tierctl.report.columns import Column, Kind

_K = Kind
_FIELDS: dict[str, tuple[Kind, str, str] | tuple[Kind, str]] = {
    "topic": (_K.NAME, "name of the topic"),
    "topic_id": (_K.TEXT, "id of the topic, base64url"),
    "partition": (_K.NUMBER, "number of the partition"),
    "segment_id": (_K.TEXT, "id of the remote segment, base64url"),
    "start_offset": (_K.NUMBER, "first offset of the segment", "start"),
    "end_offset": (_K.NUMBER, "last offset of the segment, inclusive", "end"),
    "broker_id": (_K.NUMBER, "id of the broker that wrote the event"),
    "leader_epoch": (_K.NUMBER, "leader epoch"),
    "epoch": (_K.NUMBER, "leader epoch; in a producer snapshot the producer's epoch"),
    "max_timestamp_ms": (_K.TIME, "largest timestamp of the segment's records", "newest_record"),
    "event_timestamp_ms": (_K.TIME, "time of the segment's last metadata event", "event_time"),
    "segment_leader_epochs": (_K.PAIRS, "[leader epoch, its first offset in the segment]", "epochs"),
    "segment_size_in_bytes": (_K.BYTES, "size of the segment's log", "size"),
    "custom_metadata": (_K.TEXT, "custom metadata of the plugin, hex"),
    "state": (_K.WORD, "state of the segment, or of the partition's deletion, by Kafka's name"),
    "txn_index_empty": (_K.FLAG, "whether the segment has no transaction index"),
    "object": (_K.NAME, "URI of the object, or path of the file, that holds the record"),
    "key_sha256": (_K.TEXT, "SHA-256 of the record's key, hex"),
    "partitions": (_K.NUMBER, "number of partitions"),
    "segments": (_K.NUMBER, "number of segments; in a row of sizes those with COPY_SEGMENT_FINISHED"),
    "log_bytes": (_K.BYTES, "size of these segments' logs", "size"),
    "copying_segments": (_K.NUMBER, "segments with COPY_SEGMENT_STARTED", "copying"),
    "copying_bytes": (_K.BYTES, "size of their logs", "copying_size"),
    "deleting_segments": (_K.NUMBER, "segments with DELETE_SEGMENT_STARTED", "deleting"),
    "deleting_bytes": (_K.BYTES, "size of their logs", "deleting_size"),
    "objects": (_K.NUMBER, "objects in the store of all these segments"),
    "object_bytes": (_K.BYTES, "size of these objects", "stored"),
    "earliest": (_K.NUMBER, "first offset that can be read"),
    "earliest_local": (_K.NUMBER, "first offset of the local log"),
    "latest_tiered": (_K.NUMBER, "last offset that was copied"),
    "earliest_pending_upload": (_K.NUMBER, "first offset that is still to be copied", "pending"),
    "latest": (_K.NUMBER, "offset after the last record that consumers can read"),
    "severity": (_K.WORD, "info, warning or error"),
    "kind": (_K.WORD, "kind of the finding, as tierctl-verify(1) and tierctl-config-check(1) list them"),
    "key": (_K.NAME, "key of the record; of a finding the object in the store, or the folder of a log"),
    "message": (_K.SENTENCE, "what was found"),
    "hint": (_K.SENTENCE, "what to do"),
    "advice": (_K.SENTENCE, "what to do in this case, where it is not what tierctl-verify(1) says"),
    "type": (_K.WORD, "type of the metadata event; null for tombstones and unreadable records"),
    "dialect": (_K.WORD, "kafka or kip405: the schema of the record"),
    "metadata_partition": (_K.NUMBER, "partition of the metadata topic"),
    "metadata_offset": (_K.NUMBER, "offset in that partition"),
    "timestamp_ms": (_K.TIME, "timestamp of the record", "time"),
    "timestamp_type": (_K.WORD, "CreateTime or LogAppendTime"),
    "error": (_K.SENTENCE, "why it failed, or can't be read"),
    "value": (_K.TEXT, "value of the record"),
    "offset": (_K.NUMBER, "offset of the record"),
    "key_encoding": (_K.WORD, "how the key is written as text"),
    "value_encoding": (_K.WORD, "how the value is written as text"),
    "headers": (_K.LIST, "headers of the record: objects with key, value and value_encoding"),
    "position": (_K.NUMBER, "position in the file, in bytes"),
    "producer_id": (_K.NUMBER, "id of the producer"),
    "first_offset": (_K.NUMBER, "first offset of the transaction"),
    "last_offset": (_K.NUMBER, "last offset"),
    "last_stable_offset": (_K.NUMBER, "last stable offset when the marker was appended"),
    "last_sequence": (_K.NUMBER, "last sequence number of the last batch"),
    "offset_delta": (_K.NUMBER, "last minus first offset of the last batch"),
    "coordinator_epoch": (_K.NUMBER, "epoch of the coordinator of the last transaction marker"),
    "current_txn_first_offset": (_K.NUMBER, "first offset of the open transaction; -1 for none"),
    "file": (_K.NAME, "path of the file"),
    "form": (_K.WORD, "format of the file"),
    "metadata_topic_offset": (_K.NUMBER, "last metadata offset that the header states; -1 for none"),
    "entries": (_K.NUMBER, "entries of the file"),
    "size_bytes": (_K.BYTES, "size of the file", "size"),
    "status": (_K.WORD, "outcome of the step, or of the check of the file"),
    "detail": (_K.SENTENCE, "what is wrong"),
    "action": (_K.WORD, "what the step does"),
    "kept": (_K.NUMBER, "entries of the new file"),
    "new_size_bytes": (_K.BYTES, "size of the new file", "new_size"),
    "reason": (_K.SENTENCE, "why"),
    "why": (_K.SENTENCE, "why the step was dropped, or is pending; of a check, why it matters"),
    "outcome": (_K.WORD, "outcome of the check: problem, warning, not_checked or ok"),
    "check": (_K.WORD, "what was checked, as tierctl-doctor(1) lists it"),
    "subject": (_K.NAME, "the broker, topic, store or file that was checked; empty for all of them"),
    "fix": (_K.SENTENCE, "what to do"),
    "first_offset_in_tier": (_K.NUMBER, "lowest offset of the topic in the tier", "first"),
    "first_record_ms": (_K.TIME, "largest timestamp of the oldest segment in the tier", "oldest"),
    "last_offset_in_tier": (_K.NUMBER, "highest offset of the topic in the tier", "last"),
    "last_record_ms": (_K.TIME, "largest timestamp of the newest segment in the tier", "newest"),
    "lag_segments": (_K.NUMBER, "rolled segments that are not in the tier yet", "behind"),
    "lag_bytes": (_K.BYTES, "size of these segments", "behind_size"),
    "lag_since_ms": (_K.TIME, "largest timestamp of the oldest of these segments", "behind_since"),
    "dangling_copies": (_K.NUMBER, "copies that were begun and never finished", "dangling"),
    "stuck_deletes": (_K.NUMBER, "deletions that were begun and never finished", "stuck"),
    "problems": (_K.NUMBER, "findings of verify that are more than information"),
    "findings": (_K.NUMBER, "findings of this kind"),
    "command": (_K.WORD, "command of tierctl"),
    "ended_ms": (_K.TIME, "time when the last successful run ended", "last_success"),
    "location": (_K.WORD, "where the segment is: tier, or local for the log of a broker"),
    "next_action": (_K.WORD, "what brokers do next with the segment: copy, delete or none", "next"),
    "reason_kind": (_K.WORD, "kind of the reason", "why"),
    "decided_by": (_K.SENTENCE, "the rule, and the settings that decide with their values and sources"),
    "rule": (
        _K.SENTENCE,
        "the task of Kafka's RemoteLogManager, or the rule of tierctl, that decides",
    ),
    "settings": (_K.LIST, "settings that decide: objects with name, value and source"),
    "own_settings": (_K.LIST, "settings that were set for the topic itself: objects with name and value"),
    "facts": (_K.LIST, "facts of the reason: objects with name and value"),
    "expires_at_ms": (_K.TIME, "time at which retention.ms deletes the segment", "expires"),
    "scope": (
        _K.WORD,
        "option of tierctl; or broker, metadata manager, plugin, client or topic of Kafka",
    ),
    "setting": (_K.NAME, "name of the setting or option"),
    "source": (_K.WORD, "kind of place that the value came from"),
    "place": (_K.NAME, "FILE:LINE, variable or option that states the value", "from"),
    "line": (_K.NUMBER, "number of the line in the file, from 1"),
    "use": (_K.SENTENCE, "what tierctl does with the setting"),
    "expected": (_K.SENTENCE, "what was expected"),
    "found": (_K.SENTENCE, "what was found; of a check also why it was not made"),
    "age": (_K.WORD, "age of the segments' newest records; unknown without a timestamp"),
    "oldest_ms": (_K.TIME, "lowest of the segments' largest timestamps", "oldest"),
    "newest_ms": (_K.TIME, "highest of the segments' largest timestamps", "newest"),
    "day": (_K.TEXT, "day in UTC, as 2026-11-21"),
    "copied_segments": (_K.NUMBER, "segments whose copy finished on this day", "copied"),
    "copied_bytes": (_K.BYTES, "size of their logs", "copied_size"),
    "deleted_segments": (_K.NUMBER, "segments whose deletion finished on this day", "deleted"),
    "deleted_bytes": (_K.BYTES, "size of their logs", "deleted_size"),
    "expiring_segments": (_K.NUMBER, "segments that brokers may delete from this day on", "expiring"),
    "expiring_bytes": (_K.BYTES, "size of their logs", "expiring_size"),
    "due_ms": (_K.TIME, "time from which brokers may delete the segment", "due"),
    "committed_offset": (_K.NUMBER, "last metadata offset that was consumed"),
    "problem": (_K.WORD, "why the offset can't be right"),
    "limit": (_K.NUMBER, "highest safe offset; null if the entry must be removed"),
    "from_offset": (_K.NUMBER, "offset before the repair"),
    "to_offset": (_K.NUMBER, "offset after the repair"),
    "what": (_K.TEXT, "what is predicted"),
    "unit": (_K.WORD, "unit of the value"),
    "from": (_K.SENTENCE, "what the prediction follows from"),
    "commit": (_K.NUMBER, "number of the last commit"),
    "metadata_partitions": (_K.NUMBER, "metadata partitions with new events"),
    "offsets": (_K.NUMBER, "metadata offsets that were read"),
    "events": (_K.NUMBER, "events that are new in the tables"),
    "warehouse": (_K.NAME, "folder of the tables"),
    "delete_state": (_K.WORD, "states of the partitions' deletions, commas between"),
    "lineage_epoch": (_K.NUMBER, "latest leader epoch of the lineage from which the step was decided"),
    "next_base_offset": (_K.NUMBER, "offset after the segment"),
    "leader_epoch_checkpoint": (
        _K.PAIRS,
        "[leader epoch, start offset] of the log, of a copy up to its end",
    ),
    "source_segment_id": (_K.TEXT, "id of the segment in the tier that is copied from"),
    "breach": (_K.WORD, "the limit for which the segment is deleted"),
    "follows": (_K.TEXT, "id of the segment that must be deleted before this one"),
    "new_log_start_offset": (_K.NUMBER, "log start offset after the step"),
    "states": (_K.WORD, "states that are published, in order, commas between"),
    "log_dir": (_K.NAME, "log directory in which files are written"),
    "as_topic": (_K.NAME, "name of the topic that the records are restored as"),
    "as_topic_id": (_K.TEXT, "id of the topic that the records are restored as"),
    "room_bytes": (_K.BYTES, "bytes that the files of the log need on the disk", "room"),
    "segment_parts": (
        _K.LIST,
        "segments: objects with segment_id, and the start_offset and end_offset taken",
    ),
    "raised_log_start_offset": (_K.NUMBER, "log start offset that is put back"),
    "delete_marked_offset": (_K.NUMBER, "metadata offset of DELETE_PARTITION_MARKED"),
}
"""Kind, meaning, and the heading at a terminal where it is not the name."""


def columns(text: str, **kinds: Kind) -> tuple[Column, ...]:
    """Return the columns that `text` names.

    The value of `name?` may be null, the key of `name~` may be missing, and `name!` is in JSON only.

    `kinds` replaces the kinds of fields that are something else in these rows.
    """
    return tuple(_column(word, kinds) for word in text.split())


def _column(word: str, kinds: dict[str, Kind]) -> Column:
    name = word.rstrip("?~!")
    kind, meaning, *heading = _FIELDS[name]
    return Column(
        name=name,
        kind=kinds.get(name, kind),
        meaning=meaning,
        heading=heading[0] if heading else name,
        is_nullable="?" in word,
        is_optional="~" in word,
        is_in_csv="!" not in word,
    )


def names(text: str) -> tuple[str, ...]:
    """Return the names of fields that `text` lists."""
    return tuple(text.split())


def ranks(text: str) -> dict[str, int]:
    """Return the ranks of fields that `text` states as `name:rank`, in its order."""
    words = (word.partition(":") for word in text.split())
    return {name: int(rank) for name, _, rank in words}
