"""Reasons of decisions as data: kind, Kafka's rule, settings and numbers; their text is made here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self, TypeGuard

from tierctl.model import RemoteLogSegmentState, TopicPartition
from tierctl.model.events import writer_text
from tierctl.model.selection import counted
from tierctl.model.settings import broker, topic
from tierctl.model.times import iso_utc


class ReasonKind(StrEnum):
    """The kind of a reason for a decision about a segment."""

    ROLLED = "rolled"
    NOT_ROLLED = "not_rolled"
    OPEN_TRANSACTION = "open_transaction"
    NOT_REPLICATED = "not_replicated"
    COPY_LAG = "copy_lag"
    COPIED = "copied"
    CUSTOM_METADATA = "custom_metadata"
    NOT_COPYABLE = "not_copyable"
    RETENTION_MS = "retention_ms"
    RETENTION_BYTES = "retention_bytes"
    LOG_START_OFFSET = "log_start_offset"
    UNREFERENCED_EPOCHS = "unreferenced_epochs"
    OFF_LINEAGE = "off_lineage"
    DOUBLED_SEGMENT = "doubled_segment"
    CUT_EPOCHS = "cut_epochs"
    DELETE_STARTED = "delete_started"
    TOPIC_DELETED = "topic_deleted"
    WILL_EXPIRE = "will_expire"
    BEHIND_OLDER = "behind_older"
    STALLED = "stalled"
    NO_LIMIT_REACHED = "no_limit_reached"
    BEHIND_HOLE = "behind_hole"
    COPY_STARTED = "copy_started"
    COPY_MAY_RUN = "copy_may_run"
    LEAKED = "leaked"
    LOCAL_RETENTION_MS = "local_retention_ms"
    LOCAL_RETENTION_BYTES = "local_retention_bytes"
    LOCAL_LOG_START = "local_log_start"
    LOCAL_HELD = "local_held"
    LOCAL_ROLL = "local_roll"
    NOT_TIERED = "not_tiered"
    COPY_DISABLED = "copy_disabled"
    ON_LINEAGE = "on_lineage"
    DUPLICATE_SET = "duplicate_set"
    INCOMPLETE_SET = "incomplete_set"
    BEFORE_HOLE = "before_hole"
    ABOVE_HOLE = "above_hole"
    NOT_SERVED = "not_served"
    NOT_UNDERSTOOD = "not_understood"
    SAME_SEGMENT_ID = "same_segment_id"
    NO_CHAIN = "no_chain"
    ALREADY_KNOWN = "already_known"
    LOG_START_DAMAGED = "log_start_damaged"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """What is the same for every reason of a kind: Kafka's rule, the settings, and how its text is made."""

    rule: str
    text: Callable[[Mapping[str, Any]], str]
    settings: tuple[str, ...] = ()
    numbers: Callable[[Mapping[str, Any]], str] | None = None
    """The numbers that Kafka's rule compared, as text, if `text` does not have them."""


class Reason(str):
    """The reason of a decision: its text, made from `kind` and `facts` (JSON values by name).

    It is a string so that plans can be saved and compared as text; a reason that was read from a saved plan
    has only the text.
    """

    __slots__ = ("facts", "kind")
    kind: ReasonKind
    facts: Mapping[str, Any]

    def __new__(cls, kind: ReasonKind, **facts: Any) -> Self:
        """Return the reason of `kind`; `facts` are those that the text of the kind names."""
        made = super().__new__(cls, _ROWS[kind].text(facts))
        made.kind, made.facts = kind, facts
        return made

    @classmethod
    def of(cls, text: str) -> Self:
        """Return `text` if it is a Reason, otherwise an UNDECIDED reason with `text` as its detail."""
        return text if isinstance(text, cls) else cls(ReasonKind.UNDECIDED, detail=text)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[ReasonKind, dict[str, Any]]]:
        return _made, (self.kind, dict(self.facts))

    def explained(self, *, max_timestamp_ms: int, segment_size_in_bytes: int) -> str:
        """Return the text and, if it lacks them, the numbers of the segment that Kafka's rule compared."""
        numbers = _ROWS[self.kind].numbers
        if numbers is None:
            return str(self)
        of_segment = {"max_timestamp_ms": max_timestamp_ms, "segment_size_in_bytes": segment_size_in_bytes}
        return f"{self}: {numbers({**self.facts, **of_segment})}"

    @property
    def rule(self) -> str:
        """The part of Kafka, or of tierctl, that decides so."""
        return _ROWS[self.kind].rule

    @property
    def settings(self) -> tuple[str, ...]:
        """Names of the settings that decide, of topics or brokers; none where no setting matters."""
        return _ROWS[self.kind].settings


def _made(kind: ReasonKind, facts: dict[str, Any]) -> Reason:
    return Reason(kind, **facts)


def _format(template: str) -> Callable[[Mapping[str, Any]], str]:
    return template.format_map


def _deleted_copy(template: str) -> Callable[[Mapping[str, Any]], str]:
    """Return the text of a deletion, which says so if the copy of the segment was never finished."""
    deleted = _limit(template)

    def text(facts: Mapping[str, Any]) -> str:
        return ("unfinished copy " if facts.get("is_unfinished") else "") + deleted(facts)

    return text


def _log_start_damaged(facts: Mapping[str, Any]) -> str:
    raised, offset = facts["raised"], facts["offset"]
    return (
        f"a broker that knew no segments raised the log start to {raised}; it is put back to {offset}: those "
        f"of the {raised - offset} offsets between that DeleteRecords removed before are served again"
    )


def _already_known(facts: Mapping[str, Any]) -> str:
    text = f"the metadata have it as {facts['state']}"
    if facts["state"] != RemoteLogSegmentState.DELETE_SEGMENT_FINISHED:
        return text
    return f"{text}; verify --plan-out deletes its objects, rebuild to a new metadata folder reads them"


def cleaned_text(broker_id: int | None) -> str:
    """Return what deletes a dangling copy that `broker_id` began, which its broker may still make."""
    gone = f", once {writer_text(broker_id)} is gone" if broker_id is not None and broker_id >= 0 else ""
    return (
        f"copy --clean-dangling deletes it 24 hours after it began{gone}, and sweep once it lies below the "
        "log start"
    )


def _copy_started(facts: Mapping[str, Any]) -> str:
    broker_id, begun = facts["broker_id"], facts["begun"]
    if broker_id is not None and broker_id < 0:
        return (
            f"its copy was begun by tierctl at {begun} and not finished: the run goes on, or it was killed "
            "(the next copy then withdraws the copy, and copies the segment again)"
        )
    by = "an unknown broker" if broker_id is None else f"broker {broker_id}"
    return (
        f"its copy was begun by {by} at {begun} and not finished: the copy is still running, "
        f"or it is dangling ({cleaned_text(broker_id)})"
    )


def _copy_may_run(facts: Mapping[str, Any]) -> str:
    broker_id = facts["broker_id"]
    is_by_broker, by = broker_id is not None and broker_id >= 0, writer_text(broker_id)
    may = "may still run" if is_by_broker else "may still store an object"
    later = f"once a later copy has reached offset {facts['end_offset']}, or " if is_by_broker else ""
    return (
        f"the log does not need it, but its copy, begun by {by} at {facts['begun']}, {may}: sweep deletes it "
        f"{later}24 hours after that time"
    )


def _rolled(facts: Mapping[str, Any]) -> str:
    text = f"rolled, below the last stable offset {facts['last_stable_offset']}"
    return f"{text}; {facts['failed']}" if "failed" in facts else text


def abort_words(partition: TopicPartition, reason: Reason) -> list[str]:
    """Return the words with which kafka-transactions.sh ends the transaction of an OPEN_TRANSACTION."""
    where = ["--topic", partition.topic, "--partition", str(partition.partition)]
    return ["abort", *where, "--start-offset", str(reason.facts["last_stable_offset"])]


def _open_transaction(facts: Mapping[str, Any]) -> str:
    producer, since_ms = facts.get("producer_id"), facts.get("since_ms")
    by = "" if producer is None else f" by producer {producer}"
    since = "" if since_ms is None else f" since {iso_utc(since_ms)}"
    name = "" if facts.get("transactional_id") is None else f", transactional id {facts['transactional_id']}"
    end = f"; this ends it: {facts['end_command']}" if "end_command" in facts else ""
    return (
        f"{_waiting(facts)}: a transaction is open{by}{since} at the last stable offset "
        f"{facts['last_stable_offset']}{name}; run again once the transaction has ended{end}"
    )


def _not_replicated(facts: Mapping[str, Any]) -> str:
    return (
        f"{_waiting(facts)}: the last stable offset is the high watermark {facts['high_watermark']}; run "
        "again once more replicas have the records"
    )


def _waiting(facts: Mapping[str, Any]) -> str:
    segments = counted(facts["segments"], "segment")
    return f"{segments} (from offset {facts['from_offset']}) not copied yet"


def _copy_lag(facts: Mapping[str, Any]) -> str:
    limits = []
    if facts["lag_ms"] is not None:
        age_ms, lag_ms = facts["age_ms"], facts["lag_ms"]
        limits.append(
            f"its newest record is {age_ms} ms old, the limit by {topic.COPY_LAG_MS.name} is {lag_ms}"
        )
    if facts["lag_bytes"] is not None:
        following, lag_bytes = facts["following_bytes"], facts["lag_bytes"]
        limits.append(f"{following} bytes follow it, the limit by {topic.COPY_LAG_BYTES.name} is {lag_bytes}")
    waiting = " and ".join(limits) or "both copy lags are unlimited, so no segment is ever copied"
    return f"segments from offset {facts['from_offset']} on wait for the copy lag of that segment: {waiting}"


def _doubled(facts: Mapping[str, Any]) -> str:
    again_as = "" if facts["again_as"] is None else f" as {facts['again_as']}"
    return (
        f"copied again from the same offset{again_as}: brokers keep this copy until the topic is deleted; "
        f"{facts['sweep']}"
    )


def _resumed(facts: Mapping[str, Any]) -> str:
    later = f" by sweep; brokers delete it only once {facts['later']}" if "later" in facts else ""
    return f"resume of DELETE_SEGMENT_STARTED{later}"


def _will_expire(facts: Mapping[str, Any]) -> str:
    held = facts.get("held_by")
    text = f"expires at {iso_utc(facts['expires_at_ms'])}: "
    if held is not None:
        own = iso_utc(facts["own_expiry_ms"])
        return f"{text}by itself it would expire at {own}, but the older segment {held} must be deleted first"
    return (
        f"{text}its newest record is of {iso_utc(facts['max_timestamp_ms'])}, "
        f"{topic.RETENTION_MS.name} is {facts['retention_ms']}{_size_part(facts)}"
    )


def _age_numbers(facts: Mapping[str, Any]) -> str:
    newest_ms, cutoff = facts["max_timestamp_ms"], iso_utc(facts["cutoff_ms"])
    if newest_ms <= 0:
        return f"its largest timestamp {newest_ms} is before {cutoff}"
    return f"its newest record is of {iso_utc(newest_ms)}, before {cutoff}"


def _size_numbers(facts: Mapping[str, Any]) -> str:
    at_least = "" if facts.get("is_size_known", True) else "at least "
    return (
        f"the log has {at_least}{facts['excess_bytes']} bytes above the limit, the segment "
        f"{facts['segment_size_in_bytes']} bytes"
    )


def _limit(template: str) -> Callable[[Mapping[str, Any]], str]:
    """Return the text of a deletion, which says so if only brokers delete the segment."""

    def text(facts: Mapping[str, Any]) -> str:
        only = f"; brokers delete it, sweep does not: {facts['sweep']}" if "sweep" in facts else ""
        return template.format_map(facts) + only

    return text


SIZE_NOT_KNOWN = (
    "the size of the log is not known without its local part, which --log-dir or --bootstrap-server shows"
)


def _size_part(facts: Mapping[str, Any]) -> str:
    limit = facts.get("retention_bytes")
    if limit is None:
        return ""
    excess = facts.get("excess_bytes")
    if excess is None:
        return f"; whether {topic.RETENTION_BYTES.name} {limit} deletes it is open: {SIZE_NOT_KNOWN}"
    size = facts["segment_size_in_bytes"]
    return (
        f"; the log has {excess} bytes above {topic.RETENTION_BYTES.name} {limit}, the segment {size} bytes"
    )


AGE_NOT_STATED = (
    f"{topic.RETENTION_MS.name} is not stated: tierctl deletes nothing by age (brokers: "
    f"{broker.LOG_RETENTION_MS.name}, 7 days by default)"
)


def _no_limit(facts: Mapping[str, Any]) -> str:
    if facts.get("retention_bytes") is not None and "excess_bytes" not in facts:
        kept = _size_part(facts).removeprefix("; ")
    elif facts.get("retention_bytes") is not None:
        kept = f"stays until the log grows{_size_part(facts)}"
    elif facts.get("is_age_stated", True):
        return f"neither {topic.RETENTION_MS.name} nor {topic.RETENTION_BYTES.name} limits the topic"
    else:
        kept = f"{topic.RETENTION_BYTES.name} does not limit the topic"
    return kept if facts.get("is_age_stated", True) else f"{kept}; {AGE_NOT_STATED}"


def no_age_text(timestamp_ms: int, is_in_future: bool) -> str:
    """Return as text why the largest timestamp of a segment does not show its age."""
    wrong = f"{iso_utc(timestamp_ms)} is in the future" if is_in_future else f"{timestamp_ms} is no time"
    return f"largest timestamp {wrong}"


def _stalled(facts: Mapping[str, Any]) -> str:
    what = f"segment {facts['held_by']} from offset {facts['held_by_offset']}"
    whose = "its" if facts.get("is_holder") else f"held by {what}: its"
    return (
        f"{whose} {no_age_text(facts['timestamp_ms'], is_in_future=True)}, so neither "
        f"{'it' if facts.get('is_holder') else 'that segment'} nor any behind it expires by "
        f"{topic.RETENTION_MS.name}"
    )


def _behind_older(facts: Mapping[str, Any]) -> str:
    stays = "which stays until the log grows: " if facts.get("is_size_known", True) else f"{SIZE_NOT_KNOWN}; "
    return f"behind segment {facts['held_by']}, {stays}brokers delete the oldest segments first"


def _local_held(facts: Mapping[str, Any]) -> str:
    by = "" if facts["is_holder"] else f"behind the segment from offset {facts['held_by_offset']}: "
    return f"should be gone from the disk ({facts['breach']}), but stays: {by}{facts['why']}"


def _local_age(facts: Mapping[str, Any]) -> str:
    return (
        f"{facts['setting']} {facts['retention_ms']}: the newest record is of {iso_utc(facts['newest_ms'])}"
    )


_COPY = "RLMCopyTask"
_CANDIDATES = "RLMCopyTask, candidate segments"
_EXPIRE = "RLMExpirationTask"
_BY_TIME = "RLMExpirationTask, by retention time"
_BY_SIZE = "RLMExpirationTask, by retention size"
_OF_LINEAGE = "RemoteLogManager: the segments of the log's leader epochs"
_ONE_PER_OFFSET = "RemoteLogLeaderEpochState: one segment per offset"
_CONTIGUOUS = "RemoteLogManager: readers go from segment to segment"
_DISK_BY_TIME = "UnifiedLog.deleteRetentionMsBreachedSegments"
_DISK_BY_SIZE = "UnifiedLog.deleteRetentionSizeBreachedSegments"
_LOCAL_MS = (topic.LOCAL_RETENTION_MS.name, topic.RETENTION_MS.name)
_LOCAL_BYTES = (topic.LOCAL_RETENTION_BYTES.name, topic.RETENTION_BYTES.name)
_LIMITS = (topic.RETENTION_MS.name, topic.RETENTION_BYTES.name)
_K = ReasonKind
_ROWS: dict[ReasonKind, _Row] = {
    _K.ROLLED: _Row(
        rule=_COPY,
        text=_rolled,
        settings=(topic.REMOTE_STORAGE_ENABLE.name,),
    ),
    _K.NOT_ROLLED: _Row(
        rule=_CANDIDATES,
        text=_format("the active segment is not rolled yet: {size_bytes} bytes"),
        settings=(topic.SEGMENT_BYTES.name, topic.SEGMENT_MS.name),
    ),
    _K.OPEN_TRANSACTION: _Row(rule=_CANDIDATES, text=_open_transaction),
    _K.NOT_REPLICATED: _Row(rule=_CANDIDATES, text=_not_replicated),
    _K.COPY_LAG: _Row(
        rule=_CANDIDATES, text=_copy_lag, settings=(topic.COPY_LAG_MS.name, topic.COPY_LAG_BYTES.name)
    ),
    _K.COPIED: _Row(rule=_COPY, text=_format("below offset {from_offset}, where brokers continue copying")),
    _K.CUSTOM_METADATA: _Row(
        rule=f"{_COPY}, limit of custom metadata (KIP-917)",
        text=_format(
            "the segment from offset {from_offset} had {size_bytes} bytes of custom metadata in an earlier "
            f"run, more than {broker.CUSTOM_METADATA_MAX_BYTES.name}={{limit_bytes}}: it is not uploaded "
            "again until the limit or the layout changes"
        ),
        settings=(broker.CUSTOM_METADATA_MAX_BYTES.name,),
    ),
    _K.NOT_COPYABLE: _Row(rule=_COPY, text=_format("{detail}; nothing from {from_offset} on is copied")),
    _K.RETENTION_MS: _Row(
        rule=_BY_TIME,
        text=_limit(f"{topic.RETENTION_MS.name} {{retention_ms}}"),
        settings=(topic.RETENTION_MS.name,),
        numbers=_age_numbers,
    ),
    _K.RETENTION_BYTES: _Row(
        rule=_BY_SIZE,
        text=_limit(f"{topic.RETENTION_BYTES.name} {{retention_bytes}}"),
        settings=(topic.RETENTION_BYTES.name,),
        numbers=_size_numbers,
    ),
    _K.LOG_START_OFFSET: _Row(
        rule="RLMExpirationTask, by log start offset",
        text=_deleted_copy("below the log start offset {log_start_offset}"),
    ),
    _K.UNREFERENCED_EPOCHS: _Row(
        rule="RLMExpirationTask, by truncated leader epochs",
        text=_deleted_copy(
            "of unreferenced epochs: its epochs are older than {earliest_epoch}, the log's earliest"
        ),
    ),
    _K.OFF_LINEAGE: _Row(
        rule="RLMExpirationTask, within leader epochs",
        text=_format("off the lineage: its epochs {detail}"),
    ),
    _K.DOUBLED_SEGMENT: _Row(rule=_ONE_PER_OFFSET, text=_doubled),
    _K.CUT_EPOCHS: _Row(rule="RLMExpirationTask, by truncated leader epochs", text=_format("{detail}")),
    _K.DELETE_STARTED: _Row(rule=_EXPIRE, text=_resumed),
    _K.TOPIC_DELETED: _Row(rule="RemotePartitionRemover (KIP-405)", text=_format("its partition is deleted")),
    _K.WILL_EXPIRE: _Row(rule=_BY_TIME, text=_will_expire, settings=_LIMITS),
    _K.BEHIND_OLDER: _Row(
        rule=_EXPIRE,
        text=_behind_older,
        settings=_LIMITS,
    ),
    _K.STALLED: _Row(rule=_BY_TIME, text=_stalled, settings=(topic.RETENTION_MS.name,)),
    _K.NO_LIMIT_REACHED: _Row(rule=_EXPIRE, text=_no_limit, settings=_LIMITS),
    _K.BEHIND_HOLE: _Row(
        rule="tierctl: a run ends at a hole",
        text=_format(
            "the tier has a hole {hole}: nothing beyond it expires in this run; to delete more, raise "
            "the log start above the hole (--log-start-offset)"
        ),
    ),
    _K.COPY_STARTED: _Row(
        rule="RemoteLogMetadataCache: only finished copies count",
        text=_copy_started,
    ),
    _K.COPY_MAY_RUN: _Row(
        rule="RLMExpirationTask: segments that are being copied stay",
        text=_copy_may_run,
    ),
    _K.LEAKED: _Row(rule="RemoteLogManager: only partitions of the broker", text=_format("{detail}")),
    _K.LOCAL_RETENTION_MS: _Row(rule=_DISK_BY_TIME, text=_local_age, settings=_LOCAL_MS),
    _K.LOCAL_RETENTION_BYTES: _Row(
        rule=_DISK_BY_SIZE,
        text=_format("{setting} {retention_bytes}: {local_bytes} bytes on the disk from this segment on"),
        settings=_LOCAL_BYTES,
    ),
    _K.LOCAL_LOG_START: _Row(
        rule="UnifiedLog.deleteLogStartOffsetBreachedSegments",
        text=_format("below the log start offset {log_start_offset}"),
    ),
    _K.LOCAL_HELD: _Row(
        rule="UnifiedLog.deletableSegments", text=_local_held, settings=(*_LOCAL_MS, *_LOCAL_BYTES)
    ),
    _K.LOCAL_ROLL: _Row(
        rule="UnifiedLog.deletableSegments",
        text=_format(
            "the active segment is not rolled yet: {size_bytes} bytes; brokers roll it at their next "
            "retention check ({breach})"
        ),
        settings=(*_LOCAL_MS, *_LOCAL_BYTES),
    ),
    _K.NOT_TIERED: _Row(
        rule="UnifiedLog.isRemoteLogEnabled",
        text=_format("{detail}"),
        settings=(topic.REMOTE_STORAGE_ENABLE.name, topic.CLEANUP_POLICY.name),
    ),
    _K.COPY_DISABLED: _Row(
        rule="RLMCopyTask (KIP-950)",
        text=_format(f"{topic.COPY_DISABLE.name}=true"),
        settings=(topic.COPY_DISABLE.name,),
    ),
    _K.ON_LINEAGE: _Row(rule=_OF_LINEAGE, text=_format("serves its offsets of the log{detail}")),
    _K.DUPLICATE_SET: _Row(
        rule=_ONE_PER_OFFSET,
        text=_format("segment {kept} serves its offsets"),
    ),
    _K.INCOMPLETE_SET: _Row(
        rule="RLMCopyTask: a copy counts when it has finished", text=_format("incomplete: {detail}")
    ),
    _K.BEFORE_HOLE: _Row(
        rule=_CONTIGUOUS,
        text=_format("below a hole: no set has offsets {first} to {last}, which no reader can pass{detail}"),
    ),
    _K.ABOVE_HOLE: _Row(
        rule=_CONTIGUOUS,
        text=_format(
            "above a hole: no set has offsets {first} to {last}; the local log has, and brokers copy it from "
            "{first} on again"
        ),
    ),
    _K.NOT_SERVED: _Row(
        rule="tierctl: nothing is given up that may be the only copy",
        text=_format(
            "{detail}; no other set and no given log has offset {start_offset}, so it may be the "
            "only copy: nothing is published about it"
        ),
    ),
    _K.NOT_UNDERSTOOD: _Row(
        rule="tierctl: unread data decide nothing", text=_format("not understood: {detail}")
    ),
    _K.SAME_SEGMENT_ID: _Row(
        rule="RemoteLogMetadataCache: a segment id has one state",
        text=_format(
            "objects at offset {start_offset}, but objects of this segment id at another offset are "
            "published: look at them, brokers do not delete these"
        ),
    ),
    _K.NO_CHAIN: _Row(rule=_OF_LINEAGE, text=_format("no complete set serves this log; this one: {detail}")),
    _K.ALREADY_KNOWN: _Row(rule="RemoteLogMetadataCache: states only rise", text=_already_known),
    _K.LOG_START_DAMAGED: _Row(
        rule="RLMCopyTask: the log start follows the segments that the metadata have",
        text=_log_start_damaged,
    ),
    _K.UNDECIDED: _Row(rule="tierctl: incomplete data decide nothing", text=_format("{detail}")),
}
RESUMED = Reason(ReasonKind.DELETE_STARTED)
"""The reason of every step that finishes a deletion which was started before."""


def note_of(text: str) -> Reason:
    """Return a note about a partition that is decided: why no more of it is deleted now."""
    return Reason(ReasonKind.UNDECIDED, detail=text, is_note=True)


def is_not_understood(reason: str | None) -> TypeGuard[Reason]:
    """Return whether `reason` is that something could not be interpreted or read."""
    return isinstance(reason, Reason) and reason.kind is ReasonKind.NOT_UNDERSTOOD
