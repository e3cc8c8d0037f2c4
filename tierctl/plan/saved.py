"""A plan in a file: the plan, its identity, what it was decided from, and a digest that detects edits.

The digest, SHA-256 of the canonical JSON, protects against edits by mistake. It is no signature: a program
that edits the plan can compute the digest, too. Therefore `apply` reads no file that others may write.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from tierctl.errors import SafetyRefusal, UsageError
from tierctl.model import ClusterIdentity, EpochEntry, Uuid
from tierctl.model.checked_values import TEXT_OR_NULL, Types, require_types
from tierctl.model.selection import counted
from tierctl.model.times import duration_text, iso_utc
from tierctl.plan.recheck import recheck
from tierctl.plan.steps import (
    CLOCK_SKEW_MS_MAX,
    FILE,
    LOG_DIR,
    SOURCE_SEGMENT_ID,
    WITHOUT_KEYS,
    Action,
    Plan,
    Skip,
    Step,
)
from tierctl.state.tier_state import TierState

PLAN_VERSION = 2
"""The version of the file's format."""
_PLACE: dict[str, Types] = {
    "metadata": str,
    **dict.fromkeys(("cluster_id", "metadata_topic_id", "tier", "layout"), TEXT_OR_NULL),
}
_PLAN_AGAIN = "make the plan again with --plan-out"
_BEGIN = re.compile(rb'\s*\{\s*"command":\s*"[a-z -]+",\s*"steps":\s*\[')


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPlace:
    """A tier and its metadata topic: the addresses by which they were opened, and the ids of the cluster.

    `layout` is the name of the tier's layout. Both are None if no tier was named.
    """

    metadata: str
    cluster: ClusterIdentity
    tier: str | None
    layout: str | None

    def to_json(self) -> dict[str, Any]:
        """Return the place as a flat JSON object."""
        ids = {"cluster_id": self.cluster.cluster_id, "metadata_topic_id": self.cluster.metadata_topic_id}
        return {"metadata": self.metadata, **ids, "tier": self.tier, "layout": self.layout}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Return the object that `to_json` made `raw` from; KeyError or UsageError for another object."""
        require_types(raw, _PLACE, "identity.")
        topic_id = raw["metadata_topic_id"]
        cluster = ClusterIdentity(
            cluster_id=raw["cluster_id"],
            metadata_topic_id=None if topic_id is None else Uuid.parse(topic_id),
        )
        return cls(metadata=raw["metadata"], cluster=cluster, tier=raw["tier"], layout=raw["layout"])


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanIdentity:
    """Identify the plan of one run: its maker, its time, and the cluster and tier that it is for.

    `created_ms` is the clock when the plan was made, and `now_ms` the time as of which it was decided.
    `source` is the tier that is copied from, if there is one. `topic_ids` has the name of each topic that the
    plan changes by its id.
    """

    tierctl_version: str
    created_ms: int
    now_ms: int
    place: PlanPlace
    source: PlanPlace | None
    topic_ids: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return the identity as a JSON object."""
        return {
            "plan_version": PLAN_VERSION,
            "tierctl_version": self.tierctl_version,
            "created_ms": self.created_ms,
            "now_ms": self.now_ms,
            **self.place.to_json(),
            "source": None if self.source is None else self.source.to_json(),
            "topic_ids": dict(self.topic_ids),
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Return the object that `to_json` made `raw` from; KeyError or UsageError for another object."""
        topic_ids = raw["topic_ids"]
        require_types(topic_ids, dict.fromkeys(topic_ids, str), "identity.topic_ids.")
        return cls(
            tierctl_version=raw["tierctl_version"],
            created_ms=int(raw["created_ms"]),
            now_ms=int(raw["now_ms"]),
            place=PlanPlace.from_json(raw),
            source=None if raw["source"] is None else PlanPlace.from_json(raw["source"]),
            topic_ids=dict(topic_ids),
        )


# A rebuild's plan for several hosts: what each writes into its own replicas of the metadata topic.
#
# Brokers whose log directories are on different hosts get the same bytes only if every value in them comes
# from the plan: the plan states the end of each metadata partition before it, the leader epoch and the time
# of its batches, and the fields of its events.


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionBase:
    """A metadata partition before the plan: its offsets, its bytes in their order, and its epoch file.

    `sha256` is that of the first `size_bytes` bytes of its batches, whatever segments they are in. A
    partition that is lost or empty has 0 bytes.
    """

    begin_offset: int
    end_offset: int
    size_bytes: int
    sha256: str
    leader_epochs: tuple[EpochEntry, ...]

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Return the base in `raw`; KeyError, TypeError or ValueError for another object."""
        return cls(
            begin_offset=int(raw["begin_offset"]),
            end_offset=int(raw["end_offset"]),
            size_bytes=int(raw["size_bytes"]),
            sha256=str(raw["sha256"]),
            leader_epochs=_entries(raw["leader_epochs"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedLog:
    """The log of a user partition for which segments were decided: its start, its lineage, the tier's end.

    `next_offset` is the offset after the last segment that the log has in the tier; None without one.
    """

    start_offset: int
    next_offset: int | None
    lineage: tuple[EpochEntry, ...]

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Return the log in `raw`; KeyError, TypeError or ValueError for another object."""
        following = raw["next_offset"]
        return cls(
            start_offset=int(raw["start_offset"]),
            next_offset=None if following is None else int(following),
            lineage=_entries(raw["lineage"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsPlan:
    """What each host of `brokers` writes; the plan was made on the host of broker `made_by`.

    `bases` has every metadata partition by its number, and `logs` the user partitions of the plan's steps by
    topicId:topic-partition. `sha256` identifies all bytes of the metadata partitions after the plan.
    """

    brokers: tuple[int, ...]
    made_by: int
    timestamp_ms: int
    event_broker_id: int
    has_txn_index_empty: bool
    bases: Mapping[int, PartitionBase]
    logs: Mapping[str, DecidedLog]
    sha256: str

    def to_json(self) -> dict[str, Any]:
        """Return the plan's field `hosts` as a JSON object; leader epochs are pairs."""
        return {**asdict(self), "bases": [asdict(base) for _, base in sorted(self.bases.items())]}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Return the object that `to_json` made `raw` from; KeyError, TypeError or ValueError for others."""
        return cls(
            brokers=tuple(int(each) for each in raw["brokers"]),
            made_by=int(raw["made_by"]),
            timestamp_ms=int(raw["timestamp_ms"]),
            event_broker_id=int(raw["event_broker_id"]),
            has_txn_index_empty=bool(raw["has_txn_index_empty"]),
            bases={number: PartitionBase.from_json(each) for number, each in enumerate(raw["bases"])},
            logs={name: DecidedLog.from_json(each) for name, each in raw["logs"].items()},
            sha256=str(raw["sha256"]),
        )


def _entries(raw: Sequence[Sequence[int]]) -> tuple[EpochEntry, ...]:
    return tuple(EpochEntry(int(epoch), int(start)) for epoch, start in raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPlan:
    """A plan with its identity, and the options, settings and log starts from which it was decided.

    `options` are the planning command's own options by the names of its request's fields; `settings` are the
    known settings of the steps' topics by name, and `log_starts` the known log starts of the steps'
    partitions by topicId:topic-partition. All values are JSON values.
    """

    plan: Plan
    identity: PlanIdentity
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    log_starts: Mapping[str, int] = field(default_factory=dict)
    hosts: HostsPlan | None = None
    """What each host writes, if several hosts must carry out the plan."""

    @classmethod
    def of(
        cls,
        plan: Plan,
        identity: PlanIdentity,
        options: Mapping[str, Any],
        hosts: HostsPlan | None = None,
    ) -> Self:
        """Return the plan with what its basis has of the topics and partitions of its steps."""
        partitions = {step.topic_id_partition for step in plan.steps}
        return cls(
            plan=plan,
            identity=identity,
            options=options,
            settings=plan.basis.settings_of({partition.topic for partition in partitions}),
            log_starts=plan.basis.log_starts_of(partitions),
            hosts=hosts,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the file's content as a JSON object."""
        raw = {
            **self.plan.to_json(),
            "identity": self.identity.to_json(),
            "options": dict(self.options),
            "settings": dict(self.settings),
            "log_starts": dict(self.log_starts),
        }
        if self.hosts is not None:
            raw["hosts"] = self.hosts.to_json()
        return {**raw, "digest": digest_of(raw)}

    @property
    def digest(self) -> str:
        """The digest in the file, which identifies the plan and all that it was decided from."""
        return str(self.to_json()["digest"])

    def dumps(self) -> str:
        """Return the file's content, for --plan-out."""
        return json.dumps(self.to_json(), indent=2) + "\n"

    @classmethod
    def loads(cls, text: str) -> Self:
        """Return the object that `dumps` made `text` from.

        UsageError if the text is no plan; SafetyRefusal for a plan that was edited or has another version.
        """
        try:
            raw = json.loads(text)
            _require_unedited(raw)
            return cls(
                plan=Plan.from_json(raw),
                identity=PlanIdentity.from_json(raw["identity"]),
                options=dict(raw["options"]),
                settings=dict(raw["settings"]),
                log_starts=dict(raw["log_starts"]),
                hosts=HostsPlan.from_json(raw["hosts"]) if "hosts" in raw else None,
            )
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as e:
            raise UsageError(
                f"not a plan: {e}", hint="expected the complete file that --plan-out wrote"
            ) from e


def begins_plan(head: bytes) -> bool:
    """Return whether a file that begins with these bytes has a plan, of any version, edited or not."""
    return _BEGIN.match(head) is not None


def digest_of(raw: Mapping[str, Any]) -> str:
    """Return SHA-256, in hexadecimal, of the canonical JSON of `raw` without its field `digest`."""
    content = {name: value for name, value in raw.items() if name != "digest"}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _require_unedited(raw: Any) -> None:
    if not isinstance(raw, dict) or not ("digest" in raw or {"command", "steps"} <= raw.keys()):
        raise ValueError("it is no JSON object with the fields of a plan")
    identity = raw.get("identity")
    version = identity.get("plan_version") if isinstance(identity, dict) else None
    if version != PLAN_VERSION:
        raise refusal("plan_version", expected=PLAN_VERSION, found=version, hint=_PLAN_AGAIN)
    found = digest_of(raw)
    if raw.get("digest") != found:
        raise refusal(
            "digest",
            expected=raw.get("digest"),
            found=found,
            hint=f"the plan was edited after it was made: {_PLAN_AGAIN}, and narrow it with --topic and "
            "--partition",
        )


def refusal(name: str, *, expected: object, found: object, hint: str = _PLAN_AGAIN) -> SafetyRefusal:
    """Return the error for a plan that must not be carried out because of its field `name`."""
    values = ("none" if value is None else str(value) for value in (expected, found))
    return SafetyRefusal("the plan's {}: expected {}, found {}".format(name, *values), hint=hint)


MAX_AGE_MS = 24 * 60 * 60 * 1000
"""Default of --max-age: a plan that is older is refused."""
_FOREIGN = "the plan was made for another cluster or tier: name the one it was made for, or plan again"


def check_times(identity: PlanIdentity, *, clock_ms: int, max_age_ms: int = MAX_AGE_MS) -> None:
    """Raise SafetyRefusal for a plan that is too old, of the future, or decided ahead of its clock."""
    age_ms = clock_ms - identity.created_ms
    if age_ms < -CLOCK_SKEW_MS_MAX:
        raise refusal(
            "created_ms",
            expected=f"at most {iso_utc(clock_ms)}, which is the clock",
            found=iso_utc(identity.created_ms),
            hint="set the clock of this machine, or of the one that made the plan",
        )
    if age_ms > max_age_ms:
        raise refusal(
            "created_ms",
            expected=f"at most {duration_text(max_age_ms)} ago (--max-age)",
            found=f"{iso_utc(identity.created_ms)}, {duration_text(age_ms)} ago",
        )
    if identity.now_ms > identity.created_ms + CLOCK_SKEW_MS_MAX:
        raise refusal(
            "now_ms",
            expected=f"at most {iso_utc(identity.created_ms)}, when the plan was made",
            found=f"{iso_utc(identity.now_ms)}, ahead of the clock",
            hint="a plan made with a later --now is only a preview: plan again without --now",
        )


def check_place(planned: PlanPlace, found: PlanPlace, *, name: str = "") -> None:
    """Raise SafetyRefusal if `found` is not the tier and the metadata topic that the plan was made for.

    Where neither the cluster nor the topic has an id that both know, the address of the topic decides.
    `name` is put before the names of fields.
    """
    fields, others = planned.to_json(), found.to_json()
    compared = ["cluster_id", "metadata_topic_id", "tier", "layout"]
    if planned.cluster.is_same_as(found.cluster) is None:
        compared.append("metadata")
    for key in compared:
        if None not in {fields[key], others[key]} and fields[key] != others[key]:
            raise refusal(f"{name}{key}", expected=fields[key], found=others[key], hint=_FOREIGN)


def check_topic_ids(identity: PlanIdentity, known: Collection[str]) -> None:
    """Raise SafetyRefusal if a topic that the plan changes is not among the `known` topic ids."""
    for topic_id, topic in sorted(identity.topic_ids.items()):
        if topic_id not in known:
            raise refusal(
                "topic_ids", expected=f"{topic_id} ({topic})", found="no topic with this id", hint=_FOREIGN
            )


def check_read(planned: Mapping[int, int], read: Mapping[int, int]) -> None:
    """Raise SafetyRefusal if the metadata end before the offsets `planned` that the plan was decided from.

    `read` are the offsets up to which the metadata partitions were read now.
    """
    if planned and len(read) != len(planned):
        raise refusal(
            "read", expected=counted(len(planned), "metadata partition"), found=len(read), hint=_FOREIGN
        )
    for partition, offset in sorted(planned.items()):
        if read.get(partition, 0) < offset:
            raise refusal(
                "read",
                expected=f"metadata partition {partition} up to offset {offset}",
                found=f"its end at {read.get(partition, 0)}",
                hint=_FOREIGN,
            )


_LOG_START = "new_log_start_offset"
_Key = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StillDecided:
    """The remaining part of a saved plan: `plan`, and whether it `is_void`.

    A plan is void if it had steps, none is left, and the work of at least one of them is not done.
    """

    plan: Plan
    is_void: bool


def still_decided(saved: SavedPlan, current: Plan, state: TierState) -> StillDecided:
    """Return the steps of `saved` that `current` has, too, with the facts of `current`.

    `current` is the plan that the same command decides now, from `state`, for the same partitions. Each other
    step becomes a skip with the reason. A copy also needs every earlier copy of its partition in `current`,
    so that the tier gets no hole. A step raises the log start no further than both plans say.
    """
    checked = recheck(saved.plan, state)
    dropped = {_key(each.step): each.reason for each in checked.dropped}
    now = {_key(step): step for step in current.steps}
    wanted: dict[_Key, Step] = {}
    for step in saved.plan.steps:
        key = _key(step)
        if key not in now:
            dropped.setdefault(key, _why_not_decided(saved, step, current))
        elif _LOG_START in now[key].details and _LOG_START not in step.details:
            offset = now[key].details[_LOG_START]
            dropped.setdefault(key, f"the log must start at {offset} first, which the plan does not say")
        elif key not in dropped:
            wanted[key] = _lower_log_start(now[key], step)
    for step in _after_a_missing_copy(current, wanted):
        dropped[_key(step)] = "an earlier segment of the partition must be copied first: make the plan again"
        del wanted[_key(step)]
    kept = replace(current, steps=tuple(wanted[key] for key in now if key in wanted))
    contiguous = recheck(kept, state)
    dropped |= {_key(each.step): each.reason for each in contiguous.dropped}
    skipped = [
        Skip.of(step.topic_id_partition, dropped[_key(step)], step.segment_id)
        for step in saved.plan.steps
        if _key(step) in dropped
    ]
    # A saved reason is a text; the same one that is decided now has its kind, such as "not understood".
    decided = {skip: skip for skip in current.skipped}
    left = [decided.get(skip, skip) for skip in saved.plan.skipped]
    plan = replace(contiguous.plan, skipped=(*left, *skipped))
    done = sum(each.is_done for each in checked.dropped)
    return StillDecided(plan=plan, is_void=not plan.steps and done < len(saved.plan.steps))


def _key(step: Step) -> _Key:
    """Return what a step does: its action, partition, segment or, of a copy, its offsets, and its file."""
    source = step.details.get(SOURCE_SEGMENT_ID)
    segment: object = step.segment_id or (step.start_offset, step.end_offset, source)
    if LOG_DIR in step.details:
        segment = (segment, step.details[LOG_DIR], step.details.get(WITHOUT_KEYS))
    return (step.action, step.topic_id_partition, segment, step.details.get(FILE))


def _lower_log_start(current: Step, saved: Step) -> Step:
    """Return `current` with the lower of both log starts, if it raises the log start."""
    starts = [step.details[_LOG_START] for step in (current, saved) if _LOG_START in step.details]
    if _LOG_START not in current.details:
        return current
    return replace(current, details={**current.details, _LOG_START: min(starts)})


def _after_a_missing_copy(current: Plan, wanted: Mapping[_Key, Step]) -> Iterator[Step]:
    """Yield the wanted copies that follow, in `current`, a copy of their partition that is not wanted."""
    missing: set[tuple[Uuid, int]] = set()
    for step in current.steps:
        if step.action not in {Action.COPY_SEGMENT, Action.PUBLISH_SEGMENT}:
            continue
        if _key(step) not in wanted:
            missing.add(step.topic_id_partition.key)
        elif step.topic_id_partition.key in missing:
            yield step


def _why_not_decided(saved: SavedPlan, step: Step, current: Plan) -> str:
    """Return why `current` lacks `step`: a change since the plan, or else the skip of its partition."""
    partition = step.topic_id_partition
    own = [skip for skip in current.skipped if skip.topic_id_partition == partition]
    of_segment = [skip.reason for skip in own if skip.segment_id == step.segment_id is not None]
    reasons = of_segment or [
        *_changes(saved, step, current),
        *(skip.reason for skip in own if skip.segment_id is None),
    ]
    other = "the state of the log and of the tier has changed"
    if step.action is Action.MARK_PARTITION:
        other = "the cluster has the topic again, or the metadata has nothing of it any more"
    found = "; ".join(reasons) or other
    return f"{saved.plan.command} does not decide it now: {found}"


def _changes(saved: SavedPlan, step: Step, current: Plan) -> Iterator[str]:
    """Yield the settings of the step's topic, and its partition's log start, that changed since."""
    before: Mapping[str, Any] = saved.settings.get(step.topic, {})
    after = current.basis.settings_of({step.topic}).get(step.topic, {})
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield f"{name} was {before.get(name)} and is {after.get(name)}"
    partition = step.topic_id_partition
    started = saved.log_starts.get(str(partition))
    starts = current.basis.log_starts.get(partition)
    if started != starts:
        yield f"the log started at {started} and starts at {starts}"
