"""The table of findings: everything that `verify` and `segments --check` can report.

A new finding is a row here and the code that detects it, in the module of the object that is checked:

offsets        a partition's offsets: KIP-405's invariants
segments       a partition's segments: their place in the log, gaps, overlaps, unfinished copies and deletions
retention      segments that stop retention.ms
partition      all of these, for one partition
histories      partitions whose oldest events are gone
events         records of the metadata topic, partition deletes, topics that are gone or recreated
objects        objects of the store: missing, of another size, or of no segment
sample         segments that a sample did not read
segment_bytes  a segment's log and indexes, byte by byte (--deep)
deleted_prefix offsets that were deleted, not lost
cluster        partitions whose leader can't be asked
committed_offsets  files of committed offsets in log directories
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tierctl.errors import TierctlError
from tierctl.locallog.files import parse_partition_folder
from tierctl.model import RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from tierctl.model.severity import Severity
from tierctl.row_enum import RowEnum


class FoundIn(StrEnum):
    """What a run must examine to find something."""

    METADATA = "metadata"
    OBJECTS = "objects"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class Row:
    """The facts about one kind of finding.

    `severity` is that of the worst case. `command` is the command whose plan repairs the finding, None if
    tierctl has none. `repair` is what a plan of `verify --plan-out` does about it, None if it has no step.
    `is_corruption` states that bytes violate their format or are missing (exit code 7). `found_in` is what
    must be examined: metadata and logs, also the store's objects, or also the bytes of segments (--deep).
    """

    name: str
    severity: Severity
    meaning: str
    advice: str
    command: str | None = None
    repair: str | None = None
    is_corruption: bool = False
    found_in: FoundIn = FoundIn.METADATA


class FindingKind(RowEnum):
    """The table: one member per kind of finding, which is equal to its name in the output."""

    row: Row

    OFFSETS = Row(
        "offsets",
        Severity.ERROR,
        "The partition's offsets violate KIP-405's invariants (Lz >= Ly >= Lx, Ly >= Ry >= Rx), or its "
        "leader and the metadata disagree on the last offset that was copied.",
        "look at the partition's checkpoints; a broker that was restored from a backup shows this",
    )
    GAP = Row(
        "gap",
        Severity.ERROR,
        "No remote segment holds offsets between the log start and the local log.",
        "these offsets can't be read any more: look for them in another replica, or in a backup",
    )
    LOG_START_BEHIND = Row(
        "log_start_behind",
        Severity.INFO,
        "Retention deleted the oldest remote segments, but the log start in --log-dir lies below them.",
        "give the --state-dir of the sweep, which has the raised log start; a broker raises its own when it "
        "leads the partition again",
    )
    BEYOND_LOG_END = Row(
        "beyond_log_end",
        Severity.ERROR,
        "A segment of the current lineage ends at or above the log end offset.",
        "the log lost its end, or --log-dir is an old copy",
    )
    DOUBLED_SEGMENT = Row(
        "doubled_segment",
        Severity.WARNING,
        "A segment was copied again from the same offset; brokers neither read nor delete the first copy.",
        "sweep --off-lineage deletes it",
        command="sweep --off-lineage",
    )
    DIVERGENT_SEGMENT = Row(
        "divergent_segment",
        Severity.WARNING,
        "A segment's leader epochs are not those of the log: a former leader copied it.",
        "brokers delete it in time; sweep --off-lineage deletes it now",
        command="sweep --off-lineage",
    )
    OVERLAP = Row(
        "overlap",
        Severity.INFO,
        "Two current segments hold the same offsets.",
        "no action is needed: brokers answer from either segment",
    )
    DANGLING_COPY = Row(
        "dangling_copy",
        Severity.WARNING,
        "A copy was started and not finished; information while less than a day old.",
        "verify --plan-out plans to finish it or to delete its objects; copy --clean-dangling deletes the "
        "objects that it left, and sweep those below the log start",
        command="copy --clean-dangling",
        repair="publishes the copy as finished if its objects are whole and serve the log, otherwise "
        "deletes them",
    )
    STUCK_DELETE = Row(
        "stuck_delete",
        Severity.WARNING,
        "The deletion of a segment was started and not finished; information while less than a day old.",
        "sweep resumes the deletion; if the topic was deleted, delete does",
        command="sweep",
        repair="resumes the deletion",
    )
    BELOW_LOG_START = Row(
        "below_log_start",
        Severity.INFO,
        "A segment lies wholly below the log start offset.",
        "brokers delete it in time; sweep deletes it now",
        command="sweep",
    )
    STALLED_RETENTION = Row(
        "stalled_retention",
        Severity.WARNING,
        "The largest timestamp of a segment is 0 or less, or in the future, so retention.ms deletes neither "
        "the segment nor any behind it; information if the settings of the topic are not known.",
        "raise the log start above the segment (sweep --log-start-offset, or DeleteRecords), or set "
        "retention.bytes; check the clock of the producer",
    )
    MISSING_OBJECT = Row(
        "missing_object",
        Severity.ERROR,
        "The store lacks objects of a finished segment.",
        "these offsets can't be read: look for them in a replica, or restore the objects; if only indexes "
        "are missing, verify --plan-out plans to derive them from the log",
        repair="stores the missing indexes, derived from the log, if the log is whole",
        found_in=FoundIn.OBJECTS,
    )
    SIZE_DIFFERS = Row(
        "size_differs",
        Severity.ERROR,
        "The log of a segment has another size in the store than in the metadata.",
        "restore the object, or copy the segment again from a replica that still has it",
        found_in=FoundIn.OBJECTS,
    )
    UNREADABLE_OBJECT = Row(
        "unreadable_object",
        Severity.ERROR,
        "An entry of the store can't be read as an object: a link, a pipe, a folder in an object's place, or "
        "an object or folder that may not be read.",
        "look at the entry and at its owner and mode: its bytes, or all below the folder, were not checked",
        found_in=FoundIn.OBJECTS,
    )
    ORPHAN = Row(
        "orphan",
        Severity.WARNING,
        "Objects of the store belong to no live segment.",
        "make sure that --metadata belongs to this tier before you delete them",
        repair="publishes a segment again whose objects are whole and serve the log; deletes the objects of "
        "other segments if they are older than --orphan-age and were seen twice, a day apart; also "
        "those of a topic for whose deletion there is the evidence that delete --mark requires",
        found_in=FoundIn.OBJECTS,
    )
    LEAKED = Row(
        "leaked",
        Severity.WARNING,
        "Objects of a segment without events, in a partition whose oldest events the metadata topic's "
        "retention deleted: brokers neither read nor delete them.",
        "they stay until you delete them; to keep events, set the metadata topic's retention.ms to -1",
        found_in=FoundIn.OBJECTS,
    )
    INCOMPLETE_HISTORY = Row(
        "incomplete_history",
        Severity.WARNING,
        "The metadata topic's retention deleted events of the partition, and nothing shows that the "
        "remaining events suffice.",
        "verify with a --state-dir that read the topic before, with --log-dir and --remote, or with "
        "--truncated-metadata accept",
        is_corruption=True,
    )
    TEMP_LEFTOVER = Row(
        "temp_leftover",
        Severity.WARNING,
        "A temporary object of a copy that was killed; information while it is less than a day old.",
        "delete it once no copy is running",
        found_in=FoundIn.OBJECTS,
    )
    CORRUPT_LOG = Row(
        "corrupt_log",
        Severity.ERROR,
        "Bytes of a segment's log are no valid record batches (--deep).",
        "restore the object, or copy the segment again from a replica that still has it",
        is_corruption=True,
        found_in=FoundIn.BYTES,
    )
    CORRUPT_INDEX = Row(
        "corrupt_index",
        Severity.ERROR,
        "An index of a segment can't be decoded or contradicts the log.",
        "fetch reads the segment without the index, brokers fail: verify --deep --plan-out plans to derive "
        "the index from the log; otherwise restore it from another copy",
        repair="stores the index again, derived from the log, if the log is whole",
        is_corruption=True,
        found_in=FoundIn.BYTES,
    )
    SEGMENT_OFFSETS = Row(
        "segment_offsets",
        Severity.ERROR,
        "The offsets of a segment's batches are not those in the metadata, or have holes (--deep).",
        "compare it with its neighbours: the object may belong to another segment",
        found_in=FoundIn.BYTES,
    )
    EPOCHS_DIFFER = Row(
        "epochs_differ",
        Severity.ERROR,
        "The leader epochs in a segment's log or leader-epoch index are not those in the metadata (--deep).",
        "seeks by leader epoch may go wrong: the object may belong to another segment",
        repair="stores the leader-epoch index again, if it is the index that differs",
        found_in=FoundIn.BYTES,
    )
    METADATA_DIFFERS = Row(
        "metadata_differs",
        Severity.WARNING,
        "The largest timestamp of a segment's log is not the one in the metadata (--deep).",
        "retention follows the metadata: expect the segment to be deleted earlier or later",
        found_in=FoundIn.BYTES,
    )
    DIFFERS_FROM_LOG = Row(
        "differs_from_log",
        Severity.ERROR,
        "A segment differs from the same segment in --log-dir (--deep).",
        "one of them is damaged: if there is no corrupt_log for the segment, suspect the local one",
        found_in=FoundIn.BYTES,
    )
    CORRUPT_METADATA = Row(
        "corrupt_metadata",
        Severity.ERROR,
        "A record of the metadata topic can't be used.",
        "look at the record with tierctl format; until then nothing is deleted for its metadata partition",
        is_corruption=True,
    )
    DROPPED_EVENT = Row(
        "dropped_event",
        Severity.WARNING,
        "An event of the metadata topic does not follow from the state before it, so brokers drop it; "
        "information if two brokers deleted the same segment, or if the events before it are gone.",
        "brokers drop it, too: look for a second writer, or for a record that was lost",
    )
    UNFINISHED_PARTITION_DELETE = Row(
        "unfinished_partition_delete",
        Severity.ERROR,
        "The deletion of a partition was marked or started and not finished, or finished with segments left.",
        "tierctl delete resumes the deletion",
        command="delete",
        repair="resumes the deletion",
    )
    RECREATED_TOPIC = Row(
        "recreated_topic",
        Severity.WARNING,
        "A topic was deleted and created again under the same name; segments of the old one are left.",
        "if the old topic is gone: tierctl delete --mark --topic-id, then tierctl delete",
        command="delete --mark",
    )
    UNKNOWN_TOPIC = Row(
        "unknown_topic",
        Severity.WARNING,
        "No broker has the topic; segments of it are left.",
        "if the topic was deleted: tierctl delete --mark --topic-id, then tierctl delete",
        command="delete --mark",
    )
    NOT_READ = Row(
        "not_read",
        Severity.INFO,
        "A sample of the segments was read (--sample, --budget): the bytes of all others were not checked.",
        "run it again: each run prefers segments that were not read in the last 30 days, if it is given the "
        "same --state-dir; verify --deep reads all of them",
        found_in=FoundIn.BYTES,
    )
    UNSAFE_COMMITTED_OFFSET = Row(
        "unsafe_committed_offset",
        Severity.WARNING,
        "A committed offset in _rlmm_committed_offsets of a log directory is higher than the cache files or "
        "the metadata topic admit: a broker before Kafka 3.8 would never read the events below it.",
        "stop the broker; verify --plan-out plans to lower the offset, and so does offsets repair",
        command="offsets repair",
        repair="lowers the offset to the highest safe one, or removes it, while the broker is stopped",
    )
    UNREADABLE_LOG = Row(
        "unreadable_log",
        Severity.ERROR,
        "A log directory, or a partition's folder in it, can't be read.",
        "repair the folder: no check used this log",
        is_corruption=True,
    )
    UNSEEN_LEADER = Row(
        "unseen_leader",
        Severity.WARNING,
        "The partition has no leader, or its leader does not tier and forgot the log start (information).",
        "verify again when the leader is up and tiers; until then the lineage comes from the tier",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding; fields that do not apply are None, offsets are inclusive.

    `key` names the object in the store, or the folder of a log. A finding about a record of the metadata
    topic has the name of that topic, its partition and the record's offset.
    """

    kind: FindingKind
    severity: Severity
    topic: str | None
    topic_id: Uuid | None
    partition: int | None
    segment_id: Uuid | None = None
    start_offset: int | None = None
    end_offset: int | None = None
    key: str | None = None
    message: str
    advice: str | None = None
    """The action in this case, where it differs from the advice in the table."""

    @property
    def hint(self) -> str:
        """The action that is advised for this finding."""
        return self.kind.row.advice if self.advice is None else self.advice


def finding_of(
    partition: TopicIdPartition,
    kind: FindingKind,
    severity: Severity,
    message: str,
    segment: RemoteLogSegmentMetadata | None = None,
    *,
    key: str | None = None,
) -> Finding:
    """Return a finding about `partition`, or about one segment of it."""
    return Finding(
        kind=kind,
        severity=severity,
        topic=partition.topic,
        topic_id=partition.topic_id,
        partition=partition.partition,
        segment_id=segment.segment_id if segment else None,
        start_offset=segment.start_offset if segment else None,
        end_offset=segment.end_offset if segment else None,
        key=key,
        message=message,
    )


def unreadable_log(folder: Path, error: TierctlError) -> Finding:
    """Return the finding about a log directory, or a partition's folder in it, that could not be read."""
    place = parse_partition_folder(folder.name)
    return Finding(
        kind=FindingKind.UNREADABLE_LOG,
        severity=Severity.ERROR,
        topic=place.topic if place else None,
        topic_id=None,
        partition=place.partition if place else None,
        key=str(folder),
        message=error.message,
    )
