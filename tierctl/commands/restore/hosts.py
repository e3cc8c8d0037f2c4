"""The acts of a rebuild: checkpoint files of stopped brokers first, then metadata events.

Both files of a replica, with its log start and its leader epochs, are written before any event is published:
if one of them is missing, a broker deletes the segments that are published. Nothing here writes or deletes an
object of a tier.

If the brokers' log directories are on several hosts, one saved plan is applied on each of them. Every host
must write the same bytes before any broker starts: one without the events would lead first, truncate those of
the others, and raise log starts. Each host must end with the same bytes, after a crash, too: what lies behind
the end that the plan states must be the beginning of what the plan writes.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

from tierctl.apply.run import Acts, EventFields, Run, publish_in_waves, segment_events
from tierctl.apply.run_context import Outcome, RunContext, Status, Stop, effect
from tierctl.commands.change import Change
from tierctl.commands.metadata_folder import brokers_of_all_hosts, folder_of, node_of
from tierctl.commands.mutation import Mutation
from tierctl.commands.request import MutationRequest
from tierctl.commands.restore.inventory import TierSets, require_read_logs
from tierctl.commands.restore.new_logs import (
    attempted_by_dir,
    merge_offsets,
    refusal_of,
    replace_changed,
    until_stopped,
)
from tierctl.errors import MetadataError, SafetyRefusal, UsageError
from tierctl.files import FileBytes, exists, open_itself, read_decoded
from tierctl.locallog import ensure_stopped, read_registration
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.metadata.topic.base import PartitionLog, translated
from tierctl.metadata.topic.folder import logs_in
from tierctl.metadata.topic.folder_writer import TopicPlacement
from tierctl.model import EpochEntry, LocalLog, MetadataEvent, TopicIdPartition, TopicPartition
from tierctl.model.progress import Progress
from tierctl.model.selection import counted
from tierctl.plan.choose_sets import merge_lineage
from tierctl.plan.partition_choice import DISK, PartitionDecision
from tierctl.plan.reasons import Reason, ReasonKind
from tierctl.plan.recheck import introduces
from tierctl.plan.saved import DecidedLog, HostsPlan, PartitionBase, SavedPlan, refusal
from tierctl.plan.steps import LOG_DIR, REBUILD, Action, Plan, Step
from tierctl.plan.views import why_diverged
from tierctl.state.lineage import Lineage
from tierctl.state.log_start import replica_start
from tierctl.wire.batches.batch_head import Record
from tierctl.wire.batches.record_batch import encode_batch
from tierctl.wire.files.checkpoints import (
    LEADER_EPOCHS_FILE,
    LOG_STARTS_FILE,
    read_leader_epoch_checkpoint,
    write_leader_epoch_checkpoint,
)
from tierctl.wire.metadata.values import encode, metadata_partition


def checkpoint_steps(
    partition: TopicIdPartition,
    replicas: Sequence[LocalLog],
    lineage: Sequence[EpochEntry],
    *,
    start_offset: int,
) -> Iterator[Step]:
    """Yield a step per replica whose log start or first leader epoch is above `start_offset`.

    Each step has both files: a leader deletes the published segments that end below either.
    """
    for log in replicas:
        raised = replica_start(log)
        if raised <= start_offset:
            continue
        entries = merge_lineage(log.leader_epochs, [lineage]).truncate_from_start(start_offset).entries
        yield Step(
            action=Action.WRITE_CHECKPOINTS,
            reason=Reason(ReasonKind.LOG_START_DAMAGED, raised=raised, offset=start_offset),
            topic=partition.topic,
            topic_id=partition.topic_id,
            partition=partition.partition,
            start_offset=start_offset,
            details={
                LOG_DIR: str(log.directory.parent),
                "leader_epoch_checkpoint": [list(entry) for entry in entries],
                "raised_log_start_offset": raised,
            },
        )


def _write_checkpoints(stop: Stop, folder: Path, steps: Sequence[Step]) -> None:
    """Write the leader epochs of each step's replica, then the log starts of the log directory `folder`.

    The caller holds the broker's lock on it. Every file is replaced atomically, and keeps its former content
    as `.bak`. Raise SafetyRefusal if one is a link, before any is replaced, and OSError.
    """
    paths = [folder / f"{step.topic}-{step.partition}" / LEADER_EPOCHS_FILE for step in steps]
    for path in (*paths, folder / LOG_STARTS_FILE):
        if exists(path):
            open_itself(path).close()
    for path, step in until_stopped(zip(paths, steps, strict=True), stop):
        entries = [EpochEntry(epoch, start) for epoch, start in step.details["leader_epoch_checkpoint"]]
        with effect("rebuild.epochs.write"):
            replace_changed(path, write_leader_epoch_checkpoint(entries))
    with effect("rebuild.log_starts.write"):
        merge_offsets(
            folder / LOG_STARTS_FILE,
            {TopicPartition(step.topic, step.partition): step.start_offset or 0 for step in steps},
        )


_CHUNK_BYTES = 1 << 20


class LogContent:
    """The valid batches of a partition, in the order of offsets, without an unfinished write at the end.

    Raises the damage of a log whose last bytes are neither.
    """

    def __init__(self, log: PartitionLog) -> None:
        tail = log.tail()
        if tail.damage is not None:
            raise tail.damage
        self.begin_offset = log.beginning_offset()
        self.end_offset = log.end_offset()
        self._folder = log.folder
        self._segments = [
            (path, tail.position if base == tail.segment_base else path.stat().st_size)
            for base, path in ((base, log.path(base)) for base in log.segments())
        ]
        self.size_bytes = sum(size_bytes for _, size_bytes in self._segments)

    def chunks(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes from position `start` to `end`, exclusive, or to the end of the log."""
        at = 0
        for path, size_bytes in self._segments:
            position, stop = max(start - at, 0), min(end - at, size_bytes)
            at += size_bytes
            if position >= stop:
                continue
            with FileBytes(path) as file:
                while position < stop and (data := file.read(position, min(_CHUNK_BYTES, stop - position))):
                    yield data
                    position += len(data)

    def digest(self, size_bytes: int) -> Any:
        """Return SHA-256 of the first `size_bytes` bytes, as an object that takes more bytes."""
        found = hashlib.sha256()
        for data in self.chunks(0, size_bytes):
            found.update(data)
        return found

    def base(self) -> PartitionBase:
        """Return what a plan states about the partition as it is now."""
        path = self._folder / LEADER_EPOCHS_FILE
        entries = read_decoded(path, read_leader_epoch_checkpoint)
        return PartitionBase(
            begin_offset=self.begin_offset,
            end_offset=self.end_offset,
            size_bytes=self.size_bytes,
            sha256=self.digest(self.size_bytes).hexdigest(),
            leader_epochs=entries or (EpochEntry(0, self.end_offset),),
        )


@contextmanager
def opened_contents(placement: TopicPlacement) -> Iterator[Mapping[int, LogContent]]:
    """Open the partitions of the topic by number; one without a folder is empty."""
    with translated("reading the metadata partitions"):
        yield {number: LogContent(log) for number, log in logs_in(placement).items()}


_SHOWN_MAX = 5
WRITTEN = "this host's metadata partitions have it already"


class HostRecords:
    """The records of `steps`, in the order in which a rebuild publishes them, for the folders of one host."""

    def __init__(self, placement: TopicPlacement, hosts: HostsPlan, steps: Sequence[Step]) -> None:
        self._placement = placement
        self._hosts = hosts
        self._steps = [
            step
            for action in (Action.PUBLISH_SEGMENT, Action.DISCARD_SEGMENT)
            for step in steps
            if step.action is action
        ]
        self._fields = EventFields(
            broker_id=hosts.event_broker_id,
            timestamp_ms=hosts.timestamp_ms,
            has_txn_index_empty=hosts.has_txn_index_empty,
        )
        self._present: dict[int, int] = {}
        """The records of each metadata partition that an earlier run wrote, before any is published."""

    def digest(self) -> str:
        """Return SHA-256 over all metadata partitions once they have all records of the plan.

        Raise SafetyRefusal, which names every partition that is not as the plan states it, if one has other
        bytes at its beginning, or others than the planned ones after them.
        """
        with opened_contents(self._placement) as contents:
            logs = {number: _Log(base, contents[number]) for number, base in self._hosts.bases.items()}
            for step in self._steps:
                for number, event in self._events(step):
                    logs[number].add(encode(event), self._hosts.timestamp_ms)
            reasons = [
                f"{METADATA_TOPIC}-{number} {reason}"
                for number, log in sorted(logs.items())
                if (reason := log.why_other()) is not None
            ]
            if reasons:
                raise self._refusal(reasons)
        self._present = {number: log.present for number, log in logs.items()}
        return _digest(log.digest.hexdigest() for _, log in sorted(logs.items()))

    def publish(self, context: RunContext, steps: Sequence[Step]) -> list[Outcome]:
        """Append the records of `steps` that the partitions lack; return one outcome per step.

        `digest` was called before; the steps of all calls have its order. The batches get the time and the
        leader epochs of the folder's settings, which are the plan's.
        """
        events: list[MetadataEvent] = []
        outcomes = []
        for step in steps:
            lacking = [event for number, event in self._events(step) if not self._take_present(number)]
            events += lacking
            reason = None if lacking else WRITTEN
            outcomes.append(Outcome(step=step, status=Status.DONE, reason=reason))
        with effect("rebuild.segments.publish"):
            context.publish(events)
        return outcomes

    def require_written(self) -> None:
        """Raise MetadataError unless the partitions on the disk have the bytes that the plan states."""
        with opened_contents(replace(self._placement, damaged={})) as contents:
            ended = _digest(each.digest(each.size_bytes).hexdigest() for _, each in sorted(contents.items()))
        if ended != self._hosts.sha256:
            raise MetadataError(
                f"the metadata partitions in {self._place} have SHA-256 {ended}, expected "
                f"{self._hosts.sha256}",
                hint="start no broker; another program wrote there: put the folders back, and apply again",
            )

    def _events(self, step: Step) -> Iterator[tuple[int, MetadataEvent]]:
        number = metadata_partition(step.topic_id, step.partition, len(self._hosts.bases))
        for event in segment_events(step, self._fields, is_known=not introduces(step)):
            yield number, event

    def _take_present(self, number: int) -> bool:
        """Return whether the next record of a partition is there already."""
        left = self._present[number]
        self._present[number] = max(left - 1, 0)
        return left > 0

    @property
    def _place(self) -> str:
        return ", ".join(map(str, dict.fromkeys(self._placement.homes.values())))

    def _refusal(self, reasons: Sequence[str]) -> SafetyRefusal:
        maker = self._hosts.made_by
        more = f"; and {len(reasons) - _SHOWN_MAX} more" if len(reasons) > _SHOWN_MAX else ""
        return SafetyRefusal(
            f"in {self._place}, {'; '.join(reasons[:_SHOWN_MAX])}{more}: nothing was written",
            hint=f"replace these folders by those of the host of broker {maker}, where the plan was made, "
            "and apply again; if the logs here are longer and whole, make the plan on this host instead",
        )


class _Log:
    """A metadata partition on this host, compared with the batches that the plan adds to its base."""

    def __init__(self, base: PartitionBase, content: LogContent) -> None:
        self._base = base
        self._content = content
        self._position = base.size_bytes
        self._offset = base.end_offset
        self._is_other = False
        self.digest = content.digest(base.size_bytes)
        self._has_base = (content.begin_offset, self.digest.hexdigest()) == (base.begin_offset, base.sha256)
        self.present = 0

    def add(self, value: bytes, timestamp_ms: int) -> None:
        """Add the next record of the plan."""
        record = Record(self._offset, timestamp_ms, None, value)
        batch = encode_batch([record], partition_leader_epoch=self._base.leader_epochs[-1].epoch)
        self._offset += 1
        self.digest.update(batch)
        if self._position < self._content.size_bytes:
            here = self._content.chunks(self._position, self._position + len(batch))
            self._is_other |= b"".join(here) != batch
            self.present += 1
        self._position += len(batch)

    def why_other(self) -> str | None:
        """Return why the partition is not as the plan found it, or partly wrote it; None if it is."""
        here, base = self._content, self._base
        if not self._has_base or here.end_offset < base.end_offset:
            return (
                f"has {here.size_bytes} bytes, offsets {here.begin_offset} to {here.end_offset}, expected "
                f"{base.size_bytes} bytes, offsets {base.begin_offset} to {base.end_offset}, with SHA-256 "
                f"{base.sha256[:16]}"
            )
        if self._is_other or here.size_bytes > self._position:
            return f"has other records than the plan from offset {base.end_offset} on, to {here.end_offset}"
        return None


def _digest(digests: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def rebuild_acts(records: HostRecords | None = None) -> Acts:
    """Return the acts of a rebuild; with `records`, of a plan for several hosts."""

    def put_back(run: Run, steps: Sequence[Step]) -> None:
        run.attempt(steps, partial(attempted_by_dir, do=partial(_write_checkpoints, run.context.stop)))
        # A partition without its files gets no events.
        run.break_undone()
        if records is not None:
            # A host without the events of one partition would not have the bytes of the others.
            run.require_all_done()

    def publish(run: Run, steps: Sequence[Step]) -> None:
        if records is None:
            publish_in_waves(run, steps)
            return
        for wave in run.context.delete_waves(steps):
            run.attempt(wave, lambda each: records.publish(run.context, each))

    def end(run: Run, steps: Sequence[Step]) -> None:
        publish(run, steps)
        if not run.plan.steps and run.may_begin():
            # An empty append completes the replicas that an interrupted run did not write to their ends.
            run.context.metadata.publish(())

    return {
        Action.WRITE_CHECKPOINTS: put_back,
        Action.PUBLISH_SEGMENT: publish,
        Action.DISCARD_SEGMENT: end,
    }


def plan_for_hosts(
    run: Mutation,
    request: MutationRequest,
    plan: Plan,
    decisions: Mapping[TopicIdPartition, PartitionDecision],
    deleted: Collection[TopicIdPartition],
) -> HostsPlan | None:
    """Return what each host writes; None if this host has the log directories of all replicas' brokers.

    Raise SafetyRefusal if one of the `deleted` topics, of which this host has no folder, exists elsewhere.
    """
    folder = folder_of(request.metadata)
    brokers = brokers_of_all_hosts(request) if request.plan_out is not None and not request.apply else ()
    if folder is None or run.placement is None or not brokers:
        return None
    _require_deleted([folder, *request.log_dir], deleted)
    read = run.metadata.state.read
    with opened_contents(run.placement) as contents:
        bases = {number: content.base() for number, content in contents.items()}
    if {number: base.end_offset for number, base in bases.items()} != dict(read):
        raise SafetyRefusal(f"{folder} changed while the plan was made", hint="stop the brokers")
    hosts = HostsPlan(
        brokers=brokers,
        made_by=int(node_of(folder)),
        timestamp_ms=request.clock_ms(),
        event_broker_id=request.broker_id,
        has_txn_index_empty=run.resources.kafka_version.has_txn_index_empty,
        bases=bases,
        logs=dict(_decided_logs(plan, decisions)),
        sha256="",
    )
    return replace(hosts, sha256=HostRecords(run.placement, hosts, plan.steps).digest())


def _decided_logs(
    plan: Plan, decisions: Mapping[TopicIdPartition, PartitionDecision]
) -> Mapping[str, DecidedLog]:
    logs = {}
    for partition in {step.topic_id_partition for step in plan.steps}:
        decision = decisions[partition]
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


def report_steps(hosts: HostsPlan, request: MutationRequest, progress: Progress) -> None:
    """Report the operator's steps after the plan was written to `request.plan_out`, a line each."""
    names = ", ".join(map(str, hosts.brokers))
    others = ", ".join(str(each) for each in hosts.brokers if each != hosts.made_by)
    plan = quote(str(request.plan_out))
    where = f"--metadata LOG_DIR --log-dir LOG_DIR --remote {quote(str(request.remote))}"
    progress.say(f"brokers {names} have replicas of the metadata topic: start none of them before step 4")
    progress.say(f"1. copy {plan} to the hosts of brokers {others}")
    progress.say(f"2. on the host of each of brokers {names}, with its own log directory LOG_DIR:")
    progress.command(f"tierctl apply {plan} {where} --apply")
    progress.say(f"3. compare: each apply prints the digest of the metadata partitions, {hosts.sha256}")
    progress.say(f"4. when the hosts of brokers {names} have all printed it: start the brokers")


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


def _of_own_logs(
    logs: Sequence[LocalLog], saved: SavedPlan, hosts: HostsPlan
) -> tuple[list[Step], list[tuple[TopicIdPartition, str]]]:
    """Return the steps that put back checkpoints of this host's replicas, and which ones forbid the plan."""
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
            steps += checkpoint_steps(partition, [log], decided.lineage, start_offset=decided.start_offset)
        else:
            reason = reason or _why_raised(log, saved.plan.steps)
        if reason is not None:
            refused.append((partition, reason))
    return steps, refused


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
    deleted = counted(len(below), "segment")
    return f"the log start is {start} here, and a leader would delete {deleted} of the plan"


class RebuildOnHost(Change[MutationRequest]):
    """One run that carries out all of a saved plan for several hosts on this host, or none of it.

    Nothing is decided again: this host may lack the logs that the plan was decided from, and other steps
    would be other bytes. What forbids the plan is checked before the first write: metadata partitions that
    are not as the plan states, replicas for which it was not decided, and segments that the tier no longer
    has.
    """

    command = REBUILD
    writes_logs = True
    changes_tier = False

    def __init__(self, run: Mutation, saved: SavedPlan, hosts: HostsPlan) -> None:
        super().__init__(run, run.request)
        self.hosts = self._for_hosts = hosts
        self._folder = folder_of(run.request.metadata) or Path()
        self._steps, self._refused = _of_own_logs(run.logs, saved, hosts)
        self._plan = saved.plan
        self._planned = [step for step in saved.plan.steps if step.action is not Action.WRITE_CHECKPOINTS]
        if run.placement is None:
            raise SafetyRefusal(
                f"{self._folder} has no partition of {METADATA_TOPIC}",
                hint="name the log directory of this host that has __cluster_metadata-0 with --log-dir",
            )
        self._records = HostRecords(run.placement, hosts, self._planned)

    def decide(self) -> Plan:
        """Implement `Change.decide`."""
        return replace(self._plan, steps=(*self._steps, *self._planned))

    def check(self, plan: Plan) -> None:
        """Implement `Change.check`."""
        del plan
        require_read_logs(self.run)
        if self._refused:
            raise refusal_of(
                self._refused,
                "make the plan on the host with the newest logs; if brokers raised a log start, with "
                "--log-start",
            )
        self._records.digest()
        _require_objects(self.run, self._planned)
        for folder in self.run.request.log_dir:
            ensure_stopped(folder)

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
