"""A plan in a file: the plan, its identity, what it was decided from, and a digest that detects edits.

The digest, SHA-256 of the canonical JSON, protects against edits by mistake. It is no signature: a program
that edits the plan can compute the digest, too. Therefore `apply` reads no file that others may write.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from tierctl.errors import SafetyRefusal, UsageError
from tierctl.model import ClusterIdentity, Uuid
from tierctl.plan.rebuild.hosts import HostsPlan
from tierctl.plan.steps import Plan

PLAN_VERSION = 2
"""The version of the file's format."""

_PLAN_AGAIN = "make the plan again with --plan-out"


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
    `source` is the tier that is copied from, if there is one. `topic_ids` has the name of each topic of the
    plan's steps by its id.
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
        return cls(
            tierctl_version=raw["tierctl_version"],
            created_ms=int(raw["created_ms"]),
            now_ms=int(raw["now_ms"]),
            place=PlanPlace.from_json(raw),
            source=None if raw["source"] is None else PlanPlace.from_json(raw["source"]),
            topic_ids=dict(raw["topic_ids"]),
        )


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
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
            raise UsageError(
                f"not a plan: {e}", hint="expected the complete file that --plan-out wrote"
            ) from e


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
