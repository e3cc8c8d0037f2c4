"""A rebuild on brokers whose log directories are on several hosts: one saved plan, applied on each of them.

Every host must write the same bytes before any broker starts: one without the events would lead first,
truncate those of the others, and raise log starts.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote

from tierctl.apply.outcome import Outcome, Status
from tierctl.apply.run import Acts
from tierctl.apply.to_metadata import WRITTEN, HostRecords, bases_of, planned_digest, rebuild_acts
from tierctl.commands.change import Change
from tierctl.commands.metadata_folder import brokers_of_all_hosts, folder_of, node_of
from tierctl.commands.mutation import Mutation
from tierctl.commands.recovery.logs import require_read_logs
from tierctl.commands.recovery.refused_partitions import refusal_of
from tierctl.commands.recovery.tier_sets import TierSets
from tierctl.commands.request import MutationRequest
from tierctl.errors import SafetyRefusal, UsageError
from tierctl.locallog import ensure_stopped, read_registration
from tierctl.model import LocalLog, TopicIdPartition
from tierctl.plan.rebuild.partition_choice import DISK
from tierctl.plan.rebuild.plan import DecidedLog, HostsPlan, RebuildPlan, checkpoint_steps
from tierctl.plan.retention.expiry import why_diverged
from tierctl.plan.saved import SavedPlan, refusal
from tierctl.plan.steps import REBUILD, Action, Plan, Step
from tierctl.state.lineage import Lineage
from tierctl.state.log_start import replica_start


def plan_for_hosts(
    run: Mutation,
    request: MutationRequest,
    plan: Plan,
    found: RebuildPlan,
    deleted: Collection[TopicIdPartition],
) -> HostsPlan | None:
    """Return what each host writes; None if this host has the log directories of all replicas' brokers.

    Raise SafetyRefusal if one of the `deleted` topics, of which this host has no folder, exists elsewhere.
    """
    folder = folder_of(request.metadata)
    brokers = brokers_of_all_hosts(request) if request.plan_out is not None and not request.apply else ()
    if folder is None or not brokers:
        return None
    _require_deleted([folder, *request.log_dir], deleted)
    read = run.metadata.state.read
    bases = bases_of(folder, len(read))
    if {number: base.end_offset for number, base in bases.items()} != dict(read):
        raise SafetyRefusal(f"{folder} changed while the plan was made", hint="stop the brokers")
    hosts = HostsPlan(
        brokers=brokers,
        made_by=int(node_of(folder)),
        timestamp_ms=request.clock_ms(),
        event_broker_id=request.broker_id,
        has_txn_index_empty=run.resources.kafka_version.has_txn_index_empty,
        bases=bases,
        logs=dict(_decided_logs(plan, found)),
        sha256="",
    )
    return replace(hosts, sha256=planned_digest(folder, hosts, plan.steps))


def _decided_logs(plan: Plan, found: RebuildPlan) -> Mapping[str, DecidedLog]:
    logs = {}
    for partition in {step.topic_id_partition for step in plan.steps}:
        decision = found.decisions[partition]
        chain = decision.choice.chain
        logs[str(partition)] = DecidedLog(
            start_offset=decision.start_offset,
            next_offset=chain[-1].end_offset + 1 if chain else None,
            lineage=tuple(decision.lineage.entries),
        )
    return dict(sorted(logs.items()))


def _require_deleted(folders: Sequence[Path], deleted: Collection[TopicIdPartition]) -> None:
    """Raise SafetyRefusal if the cluster's metadata in `folders` have the topic of one of `deleted`."""
    for topic, topic_id in sorted({(each.topic, each.topic_id) for each in deleted}):
        registrations = (read_registration(folder, topic) for folder in folders)
        if any(found is not None and found.topic_id == topic_id for found in registrations):
            raise SafetyRefusal(
                f"{topic} ({topic_id}) exists, and no log directory here has a partition of it: where its "
                "logs start is unknown",
                hint="name a log directory of each topic's replicas with --log-dir (mounted or copied), or "
                "choose other topics with --topic",
            )


def recipe(hosts: HostsPlan, request: MutationRequest) -> list[str]:
    """Return the operator's steps after the plan was written to `request.plan_out`, a line each."""
    names = ", ".join(map(str, hosts.brokers))
    others = ", ".join(str(each) for each in hosts.brokers if each != hosts.made_by)
    plan = quote(str(request.plan_out))
    where = f"--metadata LOG_DIR --log-dir LOG_DIR --remote {quote(str(request.remote))}"
    apply = f"tierctl apply {plan} {where} --apply"
    return [
        f"brokers {names} have replicas of the metadata topic: start none of them before step 4",
        f"1. copy {plan} to the hosts of brokers {others}",
        f"2. on the host of each of brokers {names}, with its own log directory LOG_DIR: {apply}",
        f"3. compare: each apply prints the digest of the metadata partitions, {hosts.sha256}",
        f"4. when the hosts of brokers {names} have all printed it: start the brokers",
    ]


def require_host(saved: SavedPlan, request: MutationRequest) -> None:
    """Raise SafetyRefusal unless `request` is about the log directory of a broker that the plan names.

    Raise UsageError for a part of the plan, which other hosts would not choose.
    """
    if saved.hosts is None:
        return
    folder = folder_of(request.metadata)
    if folder is None or request.has_cluster:
        raise UsageError(
            "the plan is for the log directories of stopped brokers",
            hint="name the one of this host with --metadata and --log-dir, and no cluster",
        )
    if request.topic or request.topic_id or request.partition:
        raise UsageError(
            "a plan for several hosts can't be narrowed: each must write the same",
            hint="make the plan again with --topic and --partition",
        )
    node, brokers = node_of(folder), [str(each) for each in saved.hosts.brokers]
    if node not in brokers:
        raise refusal(
            "brokers",
            expected=", ".join(brokers),
            found=f"{node}, in the meta.properties of {folder}",
            hint="the broker has no replica of the metadata topic: apply the plan on the hosts of the others",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _OwnLogs:
    """The steps that put back checkpoints of this host's replicas, and the replicas that forbid the plan."""

    steps: Sequence[Step]
    refused: Sequence[tuple[TopicIdPartition, str]]

    @classmethod
    def of(cls, logs: Sequence[LocalLog], saved: SavedPlan, hosts: HostsPlan) -> "_OwnLogs":
        puts_back = saved.options.get("log_start") not in {None, DISK}
        steps: list[Step] = []
        refused = []
        for log in logs:
            partition = log.topic_id_partition
            decided = hosts.logs.get(str(partition))
            if decided is None:
                continue
            reason = _why_other(log, decided)
            if puts_back:
                start = decided.start_offset
                steps += checkpoint_steps(partition, [log], decided.lineage, start_offset=start)
            else:
                reason = reason or _why_raised(log, saved.plan.steps)
            if reason is not None:
                refused.append((partition, reason))
        return cls(steps=steps, refused=refused)


def _why_other(log: LocalLog, decided: DecidedLog) -> str | None:
    """Return why the plan was not decided for this replica; None if it may lead with the plan's events."""
    lineage = Lineage(decided.lineage)
    if log.leader_epochs:
        # A broker that raised the log start has cut the first epochs.
        lineage = lineage.truncate_from_start(log.leader_epochs[0].start_offset)
    reason = why_diverged(Lineage(log.leader_epochs), lineage, log.log_end_offset)
    if reason is not None:
        return f"{reason}, which is the log that the plan was decided from"
    local = log.local_log_start_offset
    if decided.next_offset is not None and log.log_end_offset > local > decided.next_offset:
        return f"the local log begins at {local}, and the tier ends at {decided.next_offset}"
    return None


def _why_raised(log: LocalLog, steps: Sequence[Step]) -> str | None:
    """Return why a leader with this replica would delete segments that `steps` publish; None if none."""
    start = replica_start(log)
    below = [
        step
        for step in steps
        if step.topic_id_partition == log.topic_id_partition
        and step.action is Action.PUBLISH_SEGMENT
        and (step.end_offset or 0) < start
    ]
    if not below:
        return None
    return f"the log start is {start} here, and a leader would delete {len(below)} segments of the plan"


class RebuildOnHost(Change[MutationRequest]):
    """One run that carries out all of a saved plan for several hosts on this host, or none of it.

    Nothing is decided again: this host may lack the logs that the plan was decided from, and other steps
    would be other bytes. What forbids the plan is checked before the first write: metadata partitions that
    are not as the plan states, replicas for which it was not decided, and segments that the tier no longer
    has.
    """

    command = REBUILD
    changes_tier = False

    def __init__(self, run: Mutation, saved: SavedPlan, hosts: HostsPlan) -> None:
        super().__init__(run, run.request)
        self.hosts = self._for_hosts = hosts
        self._folder = folder_of(run.request.metadata) or Path()
        self._own = _OwnLogs.of(run.read_logs(), saved, hosts)
        self._plan = saved.plan
        self._planned = [step for step in saved.plan.steps if step.action is not Action.WRITE_CHECKPOINTS]
        self._records = HostRecords(self._folder, hosts, self._planned)

    def decide(self) -> Plan:
        """Implement `Change.decide`."""
        return replace(self._plan, steps=(*self._own.steps, *self._planned))

    def check(self, plan: Plan) -> None:
        """Implement `Change.check`."""
        del plan
        _check(self.run, self._own, self._records, self._planned)

    def fence(self, partitions: Collection[TopicIdPartition]) -> None:
        """Implement `Change.fence`: the locks of the log directories keep brokers out."""

    def acts(self) -> Acts:
        """Implement `Change.acts`."""
        return rebuild_acts(self._records)

    def conclude(self, outcomes: Sequence[Outcome]) -> str:
        """Implement `Change.conclude`: the other hosts must have the same digest."""
        if any(outcome.status is not Status.DONE for outcome in outcomes):
            return "not complete: start no broker, and apply the plan again"
        self._records.require_written()
        hosts, progress = self._for_hosts, self.run.progress
        names = ", ".join(map(str, hosts.brokers))
        if all(outcome.reason == WRITTEN for outcome in outcomes):
            progress.say("nothing was written: this host's metadata partitions have the whole plan already")
        progress.say(
            f"the metadata partitions of broker {node_of(self._folder)} have the planned digest "
            f"{hosts.sha256}"
        )
        return f"start no broker before the hosts of brokers {names} have all printed this digest"


def _check(run: Mutation, own: _OwnLogs, records: HostRecords, steps: Sequence[Step]) -> None:
    require_read_logs(run)
    if own.refused:
        hint = (
            "make the plan on the host with the newest logs; if brokers raised a log start, with --log-start"
        )
        raise refusal_of(own.refused, hint)
    records.digest()
    _require_objects(run, steps)
    for folder in run.request.log_dir:
        ensure_stopped(folder)


def _require_objects(run: Mutation, steps: Sequence[Step]) -> None:
    """Raise SafetyRefusal if the tier has no object of a segment that `steps` publish."""
    published = [step for step in steps if step.action is Action.PUBLISH_SEGMENT]
    if not published:
        return
    listed = TierSets.to_change(run).listed_of({step.topic_id_partition.key for step in published})
    there = {(each.partition.key, each.segment_id) for each in listed}
    gone = [
        (step.topic_id_partition, f"segment {step.segment_id} has no object in the tier any more")
        for step in published
        if (step.topic_id_partition.key, step.segment_id) not in there
    ]
    if gone:
        raise refusal_of(gone, "make the plan again")
