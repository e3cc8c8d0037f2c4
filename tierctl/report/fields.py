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
    "kind": (_K.WORD, "kind of the finding, as tierctl-verify(1) lists them"),
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
    "why": (_K.SENTENCE, "why the step was dropped, or is pending"),
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
    "leader_epoch_checkpoint": (_K.PAIRS, "[leader epoch, start offset] up to the segment's end"),
    "source_segment_id": (_K.TEXT, "id of the segment in the tier that is copied from"),
    "breach": (_K.WORD, "the limit for which the segment is deleted"),
    "follows": (_K.TEXT, "id of the segment that must be deleted before this one"),
    "new_log_start_offset": (_K.NUMBER, "log start offset after the step"),
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
