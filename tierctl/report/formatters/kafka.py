"""`--style kafka`: the lines of Kafka's own formatter, RemoteLogMetadataSerde.RemoteLogMetadataFormatter.

The property kafka.version names the version of Kafka; default: the latest.

`partition: P, offset: O, value: ` and Java's toString of the event. Records of the kip405 dialect, which
Kafka can't read, print their leader epoch (or epoch) where Kafka's have the broker id.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tierctl.errors import UsageError
from tierctl.model.events import Dialect
from tierctl.model.settings.scopes import LATEST, KafkaVersion
from tierctl.report.formatters.records import Record
from tierctl.report.formatters.templates import (
    POSITION,
    ChosenRows,
    Template,
    TemplateFormatter,
    Text,
    join,
    number_text,
    pairs_text,
    require_known,
    template,
    with_null,
)
from tierctl.report.table import printable

_HEAD = "partition: <metadata_partition>, offset: <metadata_offset>, value: "
_PARTITION = "<topic_id>:<topic>-<partition>"
_SEGMENT_ID = "remoteLogSegmentId=RemoteLogSegmentId{topicIdPartition=" + _PARTITION + ", id=<segment_id>}"
_SIZES = "segmentLeaderEpochs={<epochs>}, segmentSizeInBytes=<segment_size_in_bytes>"

_KAFKA = {
    "RemoteLogSegmentMetadata": "RemoteLogSegmentMetadata{" + _SEGMENT_ID + ", startOffset=<start_offset>,"
    " endOffset=<end_offset>, brokerId=<broker_id>, maxTimestampMs=<max_timestamp_ms>,"
    " eventTimestampMs=<event_timestamp_ms>, " + _SIZES + ", customMetadata=<optional>, state=<state>,"
    " txnIdxEmpty=<txn_index_empty>}",
    "RemoteLogSegmentMetadataUpdate": "RemoteLogSegmentMetadataUpdate{" + _SEGMENT_ID + ","
    " customMetadata=<optional>, state=<state>, eventTimestampMs=<event_timestamp_ms>, brokerId=<broker_id>}",
    "RemotePartitionDeleteMetadata": "RemotePartitionDeleteMetadata{topicPartition=" + _PARTITION + ","
    " state=<state>, eventTimestampMs=<event_timestamp_ms>, brokerId=<broker_id>}",
    "RemoteLogSegmentMetadataSnapshot": "RemoteLogSegmentMetadataSnapshot{segmentId=<segment_id>,"
    " startOffset=<start_offset>, endOffset=<end_offset>, maxTimestampMs=<max_timestamp_ms>, " + _SIZES + ","
    " customMetadata=<optional>, state=<state>, txnIdxEmpty=<txn_index_empty>}",
}
_WRITER = "brokerId=<broker_id>"
_TXN_INDEX_EMPTY = ", txnIdxEmpty=<txn_index_empty>"
VERSION = "kafka.version"


def _text(event_type: str, dialect: Dialect, version: KafkaVersion) -> str:
    text = _KAFKA[event_type]
    if not version.has_txn_index_empty:
        text = text.replace(_TXN_INDEX_EMPTY, "")
    if dialect is Dialect.KAFKA:
        return text
    is_delete = event_type == "RemotePartitionDeleteMetadata"
    return text.replace(_WRITER, "epoch=<epoch>" if is_delete else "leaderEpoch=<leader_epoch>")


def _java_map(rows: ChosenRows) -> pa.StringArray:
    """Return leader epochs as Java prints a TreeMap: sorted by epoch, the last entry of an epoch wins."""
    column = rows.column("segment_leader_epochs")
    if not _ascending(column):
        maps = (sorted(dict(pairs).items()) for pairs in column.to_pylist())
        column = pa.array([[list(pair) for pair in pairs] for pairs in maps], column.type)
    return pairs_text(column, between=", ", pair=("", "=", ""))


def _ascending(column: pa.ListArray) -> bool:
    epochs = column.flatten().flatten().to_numpy()[::2]
    starts = column.offsets.to_numpy()
    first_of_list = np.zeros(len(epochs) + 1, dtype=bool)
    first_of_list[starts - starts[0]] = True
    return bool(((np.diff(epochs) > 0) | first_of_list[1:-1]).all()) if len(epochs) > 1 else True


def _optional(rows: ChosenRows) -> Text:
    """Return custom metadata as Java prints an Optional of CustomMetadata."""
    return with_null(_custom_metadata, "Optional.empty", rows.column("custom_metadata"))


def _custom_metadata(column: pa.BinaryArray) -> pa.StringArray:
    lengths = number_text(pc.binary_length(column))
    return join(["Optional[CustomMetadata{", lengths, " bytes}]"], len(column))


def _txn_index_empty(rows: ChosenRows) -> Text:
    return with_null(number_text, "false", rows.column("txn_index_empty"))


class KafkaFormatter(TemplateFormatter):
    """Formats records byte for byte as the console consumer of a version of Kafka prints them."""

    makers = POSITION | {
        "epochs": _java_map,
        "optional": _optional,
        "txn_index_empty": _txn_index_empty,
    }

    def __init__(self, properties: Mapping[str, str]) -> None:
        version = properties.get(VERSION, str(LATEST))
        require_known("kafka", properties, (VERSION,))
        if version != version.strip():
            raise UsageError(f"{VERSION}={printable(version)}: blanks around the version", hint="as 3.9")
        self._version = KafkaVersion.parse(version)

    def template(self, event_type: str, dialect: Dialect) -> Template:
        """Implement `TemplateFormatter.template`: partition and offset, then Java's toString of the event."""
        return template(_HEAD + _text(event_type, dialect, self._version))

    def other_line(self, record: Record) -> str:
        """Implement `TemplateFormatter.other_line`: `value: null`, or the error and the value's start."""
        head = f"partition: {record.metadata_partition}, offset: {record.metadata_offset}, "
        if record.error is None:
            return f"{head}value: null"
        return f"{head}error: {record.printable_error}, bytes: {record.value_hex}"
