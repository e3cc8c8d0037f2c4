"""The table of findings: everything that `verify` and `segments --check` can report.

A new finding is a row here and the code that detects it, in the module of the object that is checked:

segments     offsets of a partition, the place of its segments in the log, gaps, overlaps, unfinished copies
             and deletions, retention, leaders that can't be asked
metadata     records of the metadata topic, partition deletes, topics that are gone or recreated, offsets that
             were deleted and not lost
objects      objects of the store: missing, of another size, or of no segment
bytes        a segment's log and indexes, byte by byte (--deep)
deep         segments that a sample did not read
cross_check  the order of all of these, and partitions whose oldest events are gone
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import Annotated, TypedDict

from tierctl.checks.check import Check, CheckTable
from tierctl.errors import CorruptInputError, TierctlError, UnsupportedFormatError
from tierctl.locallog.folders import parse_partition_folder
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.model import RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from tierctl.model.choices import Severity
from tierctl.model.local import LocalLog
from tierctl.report import columns as f
from tierctl.report.columns import JSON_ONLY, Columns, Shown


class Needs(StrEnum):
    """The options without which a run does not examine the data of a finding."""

    METADATA = "--metadata"
    OBJECTS = "--remote"
    BYTES = "--remote and --deep"


@dataclass(frozen=True, slots=True)
class FindingRow(Check):
    """The facts about one kind of finding; `why` is its meaning.

    `command` is the command whose plan repairs the finding, None if tierctl has none. `repair` describes the
    repair of a plan of `verify --plan-out`, None if it has no step. `is_corruption` states that bytes violate
    their format, are missing, or can't be read (exit code 7).
    """

    needs: Needs = Needs.METADATA
    command: str | None = None
    repair: str | None = None
    is_corruption: bool = False


class FindingKind(CheckTable):
    """The registry: one member per kind of finding, which is equal to its name in the output."""

    row: FindingRow

    OFFSETS = FindingRow(
        "offsets",
        Severity.ERROR,
        "The partition's offsets violate KIP-405's invariants (Lz >= Ly >= Lx, Ly >= Ry >= Rx), or its "
        "leader and the metadata disagree on the last copied offset.",
        "look at the partition's checkpoint files; this happens after a broker was restored from a backup",
    )
    GAP = FindingRow(
        "gap",
        Severity.ERROR,
        "Offsets between the log start offset and the local log are in no remote segment.",
        "consumers can't read these offsets: look for the records in another replica or in a backup",
    )
    LOG_START_BEHIND = FindingRow(
        "log_start_behind",
        Severity.INFO,
        "Retention deleted the oldest remote segments, but the log start offset in --log-dir is still lower.",
        "give the --state-dir of the sweep, which has the raised log start offset; a broker raises its own "
        "when it next becomes leader of the partition",
    )
    BEYOND_LOG_END = FindingRow(
        "beyond_log_end",
        Severity.ERROR,
        "A segment of the current lineage ends at or above the log end offset.",
        "the log lost its last records, or --log-dir is an old copy: compare it with the other replicas",
    )
    DOUBLED_SEGMENT = FindingRow(
        "doubled_segment",
        Severity.WARNING,
        "A segment was copied again from the same offset; brokers neither read nor delete the first copy.",
        "sweep deletes it once it lies wholly below the log start offset",
        command="sweep",
    )
    DIVERGENT_SEGMENT = FindingRow(
        "divergent_segment",
        Severity.WARNING,
        "The leader epochs of a segment differ from those of the log: a former leader copied it.",
        "brokers delete it once the log start offset lies in a later leader epoch than its own; from then on "
        "sweep --off-lineage deletes it, too",
        command="sweep --off-lineage",
    )
    CUT_EPOCHS = FindingRow(
        "cut_epochs",
        Severity.ERROR,
        "The leader-epoch checkpoint of a replica lost entries: segments of the log look as if they had "
        "diverged, and a broker that leads with the checkpoint deletes them, or serves no offset below its "
        "first entry.",
        "keep the replica from leading, stop its broker, and put the entries back: rebuild --log-start tier "
        "does it from the tier; if the log start was raised in the last minute, verify again after a minute",
        command="rebuild --log-start tier",
    )
    OVERLAP = FindingRow(
        "overlap",
        Severity.INFO,
        "Two segments of the current lineage have offsets in common.",
        "no action is needed: brokers answer from either segment",
    )
    FAILING_COPIES = FindingRow(
        "failing_copies",
        Severity.WARNING,
        "Copies of a partition were begun and withdrawn (COPY_SEGMENT_STARTED, then DELETE_SEGMENT_STARTED), "
        "and no later one that reaches their start offset has finished: the partition is not tiered further.",
        "look for the error of RemoteLogManager in the log of the broker that made the last attempt; usually "
        "the store refuses writes (rights, quota, disk, endpoint); brokers continue by themselves after that",
    )
    LOCAL_NOT_FREED = FindingRow(
        "local_not_freed",
        Severity.WARNING,
        "Segments that local.retention.ms or local.retention.bytes should have removed from a broker's disk "
        "stay there: the oldest one is not in the tier, or has a timestamp in the future.",
        "run explain, which states why the oldest segment is not copied; for a timestamp in the future set "
        "local.retention.bytes, which deletes it, and check the clock of the producer",
    )
    DANGLING_COPY = FindingRow(
        "dangling_copy",
        Severity.WARNING,
        "A copy was started and did not finish: it hangs, or its broker ended. Only information if it is "
        "less than --copy-limit old (1 hour), or less than a day if a later copy was made.",
        "look at the log of its broker; once the copy is a day old and its broker is gone, verify --plan-out "
        "plans to finish it or to delete its objects; copy --clean-dangling then deletes its objects unless "
        "they may be the only ones, copy at once those of a killed run of tierctl, and sweep those that lie "
        "below the log start offset",
        command="copy --clean-dangling",
        repair="publishes the copy as finished if its objects are complete and the log needs them, otherwise "
        "deletes the objects",
    )
    STUCK_DELETE = FindingRow(
        "stuck_delete",
        Severity.WARNING,
        "The deletion of a segment was started and did not finish; only information if it is less than a day "
        "old.",
        "sweep resumes the deletion; if the topic was deleted, delete resumes it",
        command="sweep",
        repair="resumes the deletion",
    )
    BELOW_LOG_START = FindingRow(
        "below_log_start",
        Severity.INFO,
        "The whole segment lies below the log start offset.",
        "brokers delete it later; sweep deletes it now",
        command="sweep",
    )
    STALLED_RETENTION = FindingRow(
        "stalled_retention",
        Severity.WARNING,
        "The largest timestamp of a segment is in the future, so retention.ms deletes neither "
        "this segment nor later ones; only information if the settings of the topic are unknown.",
        "raise the log start offset above the segment (sweep --log-start-offset, or DeleteRecords), or set "
        "retention.bytes; check the clock of the producer",
    )
    MISSING_OBJECT = FindingRow(
        "missing_object",
        Severity.ERROR,
        "The store lacks objects of a finished segment.",
        "consumers can't read these offsets: look for the records in a replica, or restore the objects; if "
        "only indexes are missing, verify --plan-out plans to derive them from the log",
        repair="derives the missing indexes from the log and stores them, if the log is complete",
        needs=Needs.OBJECTS,
    )
    SIZE_DIFFERS = FindingRow(
        "size_differs",
        Severity.ERROR,
        "The log of a segment has another size in the store than in the metadata.",
        "restore the object, or copy the segment again from a replica that still has it",
        needs=Needs.OBJECTS,
    )
    UNREADABLE_OBJECT = FindingRow(
        "unreadable_object",
        Severity.ERROR,
        "An entry of the store can't be read as an object: it is a link, a pipe, a folder with an object's "
        "name, or an object or folder that tierctl has no permission to read.",
        "correct the entry, or its owner and mode: verify checked neither its bytes nor anything in the "
        "folder",
        needs=Needs.OBJECTS,
        is_corruption=True,
    )
    ARCHIVED_OBJECT = FindingRow(
        "archived_object",
        Severity.ERROR,
        "Objects of a segment are in an archive class (GLACIER, DEEP_ARCHIVE), by the listing: brokers and "
        "tierctl can't read them.",
        "restore the objects (aws s3api restore-object) or copy them to another class, and exclude the tier "
        "from the bucket's lifecycle rules",
        needs=Needs.OBJECTS,
    )
    ORPHAN = FindingRow(
        "orphan",
        Severity.WARNING,
        "Objects of the store belong to no live segment.",
        "make sure that --metadata belongs to this tier before you delete these objects",
        repair="publishes the segment again if its objects are complete and the log needs them; deletes the "
        "objects of other segments if they are older than --orphan-age and two runs, a day apart, saw them "
        "(those of a topic that the metadata never had, if all such topics are as old); "
        "also deletes the objects of a topic with the evidence of its deletion that delete --mark requires",
        needs=Needs.OBJECTS,
    )
    LEAKED = FindingRow(
        "leaked",
        Severity.WARNING,
        "Objects belong to a segment without events, in a partition whose oldest events were deleted by the "
        "retention of the metadata topic; brokers neither read nor delete such objects.",
        "run rebuild first, since the objects may be live data whose events were lost: it plans what to "
        "publish again, and states why it leaves the others; delete those yourself only if retention or "
        "DeleteRecords raised the log start above them; to keep events, set retention.ms of the metadata "
        "topic to -1",
        command="rebuild",
        needs=Needs.OBJECTS,
    )
    INCOMPLETE_HISTORY = FindingRow(
        "incomplete_history",
        Severity.WARNING,
        "The retention of the metadata topic deleted events of the partition, and tierctl can't prove that "
        "the remaining events are sufficient.",
        "run verify with a --state-dir that read the topic earlier, with --log-dir and --remote, or with "
        "--truncated-metadata accept",
        is_corruption=True,
    )
    TEMP_LEFTOVER = FindingRow(
        "temp_leftover",
        Severity.WARNING,
        "A temporary object of a copy that was killed, or of one that runs now; only information if it is "
        "less than a day old.",
        "delete it once no copy is running",
        needs=Needs.OBJECTS,
    )
    CORRUPT_LOG = FindingRow(
        "corrupt_log",
        Severity.ERROR,
        "The log of a segment contains bytes that are not valid record batches (--deep).",
        "restore the object, or copy the segment again from a replica that still has it",
        is_corruption=True,
        needs=Needs.BYTES,
    )
    CORRUPT_INDEX = FindingRow(
        "corrupt_index",
        Severity.ERROR,
        "An index of a segment can't be decoded or contradicts the log.",
        "fetch reads the segment without the index, but brokers fail: verify --deep --plan-out plans to "
        "derive the index from the log; otherwise restore the index from another copy",
        repair="derives the index from the log and stores it again, if the log is complete",
        is_corruption=True,
        needs=Needs.BYTES,
    )
    NOT_UNDERSTOOD = FindingRow(
        "not_understood",
        Severity.ERROR,
        "The log or an index of a segment is encrypted with a key that is not given, or of a version that "
        "tierctl does not know, so that its bytes were not checked.",
        "give the key (--aiven-private-key), or use a tierctl that knows the version; nothing shows that the "
        "object is damaged",
        is_corruption=True,
        needs=Needs.BYTES,
    )
    SEGMENT_OFFSETS = FindingRow(
        "segment_offsets",
        Severity.ERROR,
        "The offsets of a segment's batches differ from those in the metadata, or have holes (--deep).",
        "compare the segment with its neighbours: the object may belong to another segment",
        needs=Needs.BYTES,
    )
    EPOCHS_DIFFER = FindingRow(
        "epochs_differ",
        Severity.ERROR,
        "The leader epochs in a segment's log or leader-epoch index differ from those in the metadata "
        "(--deep).",
        "compare the segment with its neighbours: the object may belong to another segment, and reads by "
        "leader epoch may fail",
        repair="stores the leader-epoch index again, if the log agrees with the metadata",
        needs=Needs.BYTES,
    )
    METADATA_DIFFERS = FindingRow(
        "metadata_differs",
        Severity.WARNING,
        "The largest timestamp in a segment's log differs from the one in the metadata (--deep).",
        "retention uses the timestamp in the metadata, so the segment expires earlier or later than its "
        "records",
        needs=Needs.BYTES,
    )
    DIFFERS_FROM_LOG = FindingRow(
        "differs_from_log",
        Severity.ERROR,
        "A segment differs from the same segment in --log-dir (--deep).",
        "one of the two is damaged: if verify reports no corrupt_log for the segment, it is probably the "
        "local one",
        needs=Needs.BYTES,
    )
    CORRUPT_METADATA = FindingRow(
        "corrupt_metadata",
        Severity.ERROR,
        "A record of the metadata topic can't be used. Unless it is only in the wrong metadata partition, "
        "each broker that reads it ends its consumer there, also after a restart (ConsumerTask): it learns "
        "of no later event of any partition, and its copies fail.",
        "look at the record with tierctl format, and in the brokers' logs for 'Error occurred while "
        "processing the records'; tierctl deletes nothing for its metadata partition until the record is "
        "gone",
        is_corruption=True,
    )
    EMPTY_RECORD = FindingRow(
        "empty_record",
        Severity.ERROR,
        "Records of the metadata topic have no value. tierctl passes over them, but each broker that reads "
        "one ends its consumer there, also after a restart (ConsumerTask): it learns of no later event of "
        "any partition, and its copies fail.",
        "look for 'Error occurred while processing the records' in the brokers' logs, and end the program "
        "that writes such records; if brokers ended there, the metadata partition has to be made anew, as if "
        "it were lost (tierctl-recovery(7))",
    )
    DROPPED_EVENT = FindingRow(
        "dropped_event",
        Severity.WARNING,
        "An event of the metadata topic is not allowed in the state before it, so brokers drop it; only "
        "information if two brokers deleted the same segment, or if earlier events are missing.",
        "look for a second writer, or for a record that was lost",
    )
    UNFINISHED_PARTITION_DELETE = FindingRow(
        "unfinished_partition_delete",
        Severity.ERROR,
        "The deletion of a partition was marked or started and did not finish, or it finished and left "
        "segments.",
        "tierctl delete resumes the deletion",
        command="delete",
        repair="resumes the deletion",
    )
    RECREATED_TOPIC = FindingRow(
        "recreated_topic",
        Severity.WARNING,
        "A topic was deleted and created again under the same name; the tier still has segments of the old "
        "topic.",
        "if the old topic is deleted: tierctl delete --find --mark, then tierctl delete; without a cluster, "
        "--topic-id ID and --all-log-dirs take the place of --find",
        command="delete --find --mark",
    )
    UNKNOWN_TOPIC = FindingRow(
        "unknown_topic",
        Severity.WARNING,
        "No broker has the topic, but the tier has segments of it.",
        "if the topic was deleted: tierctl delete --find --mark, then tierctl delete; without a cluster, "
        "--topic-id ID and --all-log-dirs take the place of --find",
        command="delete --find --mark",
    )
    NOT_READ = FindingRow(
        "not_read",
        Severity.WARNING,
        "Only a sample of the segments was read (--sample, --budget); the bytes of the others were not "
        "checked. Only information if at least one segment was read.",
        "raise --budget if no segment was read; run it again with the same --state-dir: each run prefers "
        "segments that were not read in the last 30 days; verify --deep reads all segments",
        needs=Needs.BYTES,
    )
    UNSAFE_COMMITTED_OFFSET = FindingRow(
        "unsafe_committed_offset",
        Severity.WARNING,
        "A committed offset in _rlmm_committed_offsets of a log directory is higher than the offsets in the"
        " cache files, or than the end of the metadata topic. A broker before Kafka 3.6 never reads the "
        "events below it; later ones do not read the file.",
        "stop the broker, then lower the offset with verify --plan-out or with offsets repair",
        command="offsets repair",
        repair="lowers the offset to the highest safe one, or removes it, while the broker is stopped",
    )
    UNREADABLE_LOG = FindingRow(
        "unreadable_log",
        Severity.ERROR,
        "A log directory, or a partition's folder in it, can't be read.",
        "repair the folder: verify did not use this log for any check",
        is_corruption=True,
    )
    DAMAGED_LOG_END = FindingRow(
        "damaged_log_end",
        Severity.ERROR,
        "Damaged bytes follow the last good batch of a log in --log-dir, which counts as ended there; or its "
        "log start is above its last batch, so that all of it counts as deleted.",
        "compare the log with the other replicas before its broker starts: a broker that starts cuts the log "
        "at the damage",
        is_corruption=True,
    )
    CUT_LOG = FindingRow(
        "cut_log",
        Severity.ERROR,
        "A log in --log-dir ends below its high watermark in replication-offset-checkpoint: the log lost "
        "committed records at its end, or the checkpoint was copied later than the log.",
        "compare the log with the other replicas before its broker starts: if it becomes the leader, the "
        "others cut their logs, too",
    )
    UNSEEN_LEADER = FindingRow(
        "unseen_leader",
        Severity.WARNING,
        "The partition has no leader; or, as information, its leader does not tier and no longer knows the "
        "log start offset.",
        "run verify again when the leader is up and tiers; until then verify takes the lineage from the tier",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding; fields that do not apply are None, offsets are inclusive.

    `key` names the object in the store, or the folder of a log. A finding about a record of the metadata
    topic has the name of that topic, its partition and the record's offset.
    """

    check: FindingKind
    severity: Severity
    topic: str | None = None
    topic_id: Uuid | None = None
    partition: int | None = None
    segment_id: Uuid | None = None
    start_offset: int | None = None
    end_offset: int | None = None
    key: str | None = None
    found: str
    own_fix: str | None = None
    """What to do in this case, where it is not what the registry says."""
    own_command: str | None = None
    """The command in this case, where it is not that of the registry; empty if no command helps now."""

    @property
    def subject(self) -> str:
        """The partition or the topic that the finding is about, otherwise the object; empty without one."""
        if self.topic is None:
            return self.key or ""
        return self.topic if self.partition is None else f"{self.topic}-{self.partition}"

    @property
    def why(self) -> str:
        """What the finding means."""
        return self.check.row.why

    @property
    def fix(self) -> str:
        """What to do."""
        return self.check.row.fix if self.own_fix is None else self.own_fix

    @property
    def command(self) -> str | None:
        """The words after `tierctl` that repair what was found; None if no command does."""
        if self.own_command is not None:
            return self.own_command or None
        command = self.check.row.command
        if command is not None and self.key and self.check is FindingKind.UNSAFE_COMMITTED_OFFSET:
            return f"{command} {quote(self.key)}"
        return command


class ReportedFinding(TypedDict):
    """A finding, with the action that is advised."""

    severity: Annotated[str, f.SEVERITY, Shown(0)]
    check: Annotated[str, f.CHECK, Shown(1)]
    subject: Annotated[str, f.SUBJECT, JSON_ONLY]
    found: Annotated[str, f.FOUND, Shown(0)]
    why: Annotated[str, f.WHY, JSON_ONLY]
    fix: Annotated[str, f.FIX, Shown(0, in_table=False)]
    topic: Annotated[str | None, f.TOPIC, Shown(0)]
    topic_id: Annotated[str | None, f.TOPIC_ID]
    partition: Annotated[int | None, f.PARTITION, Shown(0)]
    segment_id: Annotated[str | None, f.SEGMENT_ID, Shown(4)]
    start_offset: Annotated[int | None, f.START_OFFSET, Shown(2)]
    end_offset: Annotated[int | None, f.END_OFFSET, Shown(3)]
    key: Annotated[str | None, f.KEY, Shown(5)]


FINDINGS = Columns(
    ReportedFinding,
    name="findings",
    title="Findings of verify",
    commands="verify, segments --check",
    noun="problem",
    word="severity",
    apart=Severity.INFO,
    notes=("found", "fix"),
    subjects={"key": "topic"},
)


def kind_of(error: CorruptInputError, damage: FindingKind) -> FindingKind:
    """Return `damage`, the kind of a finding about damaged bytes, unless the bytes are not understood."""
    return FindingKind.NOT_UNDERSTOOD if isinstance(error, UnsupportedFormatError) else damage


def finding_of(
    partition: TopicIdPartition,
    check: FindingKind,
    severity: Severity,
    found: str,
    segment: RemoteLogSegmentMetadata | None = None,
) -> Finding:
    """Return a finding about `partition`, or about one segment of it."""
    return Finding(
        check=check,
        severity=severity,
        topic=partition.topic,
        topic_id=partition.topic_id,
        partition=partition.partition,
        segment_id=segment.segment_id if segment else None,
        start_offset=segment.start_offset if segment else None,
        end_offset=segment.end_offset if segment else None,
        found=found,
    )


def metadata_finding(
    check: FindingKind,
    severity: Severity,
    found: str,
    metadata_partition: int | None = None,
    offsets: tuple[int, int] | None = None,
    *,
    key: str | None = None,
) -> Finding:
    """Return a finding about the metadata topic, or about a metadata partition of it and these offsets.

    Both offsets are inclusive.
    """
    first, last = offsets or (None, None)
    return Finding(
        check=check,
        severity=severity,
        topic=METADATA_TOPIC,
        partition=metadata_partition,
        start_offset=first,
        end_offset=last,
        key=key,
        found=found,
    )


def damaged_log_ends(logs: Iterable[LocalLog]) -> Iterator[Finding]:
    """Yield a finding for each log that ends before damaged bytes."""
    for log in logs:
        if log.damaged_end is not None:
            found = f"{log.damaged_end.message}; the log ends at offset {log.log_end_offset}"
            finding = finding_of(log.topic_id_partition, FindingKind.DAMAGED_LOG_END, Severity.ERROR, found)
            yield replace(finding, own_fix=log.damaged_end.hint)


def cut_logs(logs: Iterable[LocalLog]) -> Iterator[Finding]:
    """Yield a finding for each log that lacks records below its high watermark, and has no damaged end."""
    for log in logs:
        end, committed = log.log_end_offset, log.checkpointed_high_watermark
        if log.damaged_end is None and end < committed:
            found = f"{log.directory} ends at offset {end}, and its high watermark was {committed}"
            finding = finding_of(log.topic_id_partition, FindingKind.CUT_LOG, Severity.ERROR, found)
            yield replace(finding, start_offset=end, end_offset=committed - 1)


def unreadable_log(folder: Path, error: TierctlError) -> Finding:
    """Return the finding about a log directory, or a partition's folder in it, that could not be read."""
    place = parse_partition_folder(folder.name)
    return Finding(
        check=FindingKind.UNREADABLE_LOG,
        severity=Severity.ERROR,
        topic=place.topic if place else None,
        partition=place.partition if place else None,
        key=str(folder),
        found=error.message,
        own_fix=None if error.hint is None else f"{error.hint}; verify did not use this log for any check",
    )
