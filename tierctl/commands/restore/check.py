"""`restore check`: verify what brokers serve after a rebuild or a restore, against the objects of the tier.

The logs that brokers must serve are derived from the objects of the tier, without a request to a broker.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tierctl.checks.check import CheckResults, Examination, Result, fault, incomplete, not_checked, prevented
from tierctl.checks.registry import RestoreCheck
from tierctl.checks.restored import (
    ExpectedLog,
    Listing,
    PublishedLog,
    check_broker_logs,
    check_epoch_files,
    check_epochs,
    check_objects,
    check_offsets,
    check_published,
    check_restarts,
    read_published,
    require_listing_file,
)
from tierctl.checks.served import check_election, check_producers, check_records, check_seeks
from tierctl.commands.request import DECIDE, TYPED_ONLY, WHERE, AsTopic, Request, RestoreUntil
from tierctl.commands.resources import Resources
from tierctl.commands.restore.inventory import DerivedMetadata, TierSets
from tierctl.commands.restore.new_logs import target_folders
from tierctl.commands.restore.to_log import Until, require_known, until_offset
from tierctl.errors import CorruptInputError, NotFoundError, SafetyRefusal, TierctlError, UsageError
from tierctl.kafka.cluster import Cluster
from tierctl.model import TopicIdPartition, TopicPartition, Uuid
from tierctl.model.choices import NOT_A_BROKER_ID
from tierctl.model.local import TopicFacts
from tierctl.model.progress import Progress, SilentProgress
from tierctl.model.times import DURATION_FORMS, parse_duration_ms
from tierctl.plan.choose_sets import Choice
from tierctl.plan.partition_choice import PartitionDecision
from tierctl.plan.reasons import is_not_understood
from tierctl.read.partition_reader import ReadablePartition, readable_partitions
from tierctl.state.lineage import Lineage
from tierctl.state.log_start import DerivedSets, Log, log_start_in_force


def _on_leader(cluster: Cluster, partition: TopicIdPartition) -> Log | None:
    """Return a partition's log on its leader; None if it can't be asked, which other checks report."""
    try:
        return next(iter(cluster.logs([partition])), None)
    except TierctlError:
        return None


@dataclass(frozen=True, slots=True)
class Naming:
    """Map topics of the tier to the topics of the cluster that should have their records.

    `current` are the cluster's topics by name; None without a cluster. `as_topic` is the name of a
    materialised topic, if it differs from the name in the tier. `folder_ids` are the topic ids that the log
    directories state, None for a damaged file; they count without a cluster.
    """

    current: Mapping[str, TopicFacts] | None
    as_topic: str | None = None
    folder_ids: Mapping[TopicPartition, Uuid | None] = field(default_factory=dict)

    def name_of(self, source: TopicIdPartition) -> TopicPartition:
        """Return the name that the partition has on the cluster."""
        return TopicPartition(self.as_topic or source.topic, source.partition)

    def why_not_there(self, source: TopicIdPartition) -> str | None:
        """Return why the cluster can't have the partition under any topic id; None if it can."""
        if self.current is None:
            return None
        name = self.name_of(source)
        topic = self.current.get(name.topic)
        if topic is None:
            return f"the cluster has no topic {name.topic}"
        if source.partition not in {each.partition for each in topic.partitions}:
            return f"the cluster's topic {name.topic} has no partition {source.partition}"
        return None

    def is_same_id(self, source: TopicIdPartition) -> bool:
        """Return whether the cluster's topic has the tier's topic id, so that its brokers serve this tier.

        A topic of another name never has it.
        """
        return self.name_of(source).topic == source.topic and self.topic_id(source) == source.topic_id

    def topic_id(self, source: TopicIdPartition) -> Uuid:
        """Return the id of the cluster's topic; without a cluster, a folder's, or the one in the tier."""
        if self.current is None:
            return self.folder_ids.get(self.name_of(source)) or source.topic_id
        topic = self.current.get(self.name_of(source).topic)
        return source.topic_id if topic is None else topic.topic_id


def decided_partitions(derived: DerivedMetadata, resources: Resources) -> list[ReadablePartition]:
    """Return the selected partitions of the tier that have segments to serve; read the tier.

    Raise UsageError if the tier has several topics of one selected name, and NotFoundError if it has no
    segment.
    """
    state = derived.refresh()
    selection = resources.selection
    by_name = bool(selection.topics) and not selection.topic_ids
    try:
        return readable_partitions(state, (), selection, by_name=by_name)
    except NotFoundError:
        # No partition can be read; the decisions contain the reason for each.
        if derived.decisions:
            return []
        raise


def expected_log(
    resources: Resources,
    partition: ReadablePartition,
    decision: PartitionDecision,
    naming: Naming,
    until: Until,
    *,
    leader: Log | None = None,
) -> ExpectedLog:
    """Return the log that brokers must serve for one partition of the tier; `leader` is its leader's log."""
    source = partition.topic_id_partition
    problems: list[TierctlError] = []
    is_materialised = not naming.is_same_id(source)
    # Readers begin after the last hole, because brokers serve no segment before it.
    start = max(
        decision.start_offset, decision.choice.first_offset or 0, _lawful_start(decision.choice, leader)
    )
    end = decision.choice.next_offset or start
    log = resources.readable_log(partition, start, problems.append)
    cut = until_offset(resources, log, until) if is_materialised else None
    stop = end if cut is None else max(min(cut, end), start)
    own = decision.lineage.truncate_from_start(start).truncate_from_end(stop)
    return ExpectedLog(
        source=source,
        name=naming.name_of(source),
        topic_id=naming.topic_id(source),
        log=log,
        decision=decision,
        indexes=resources.indexes,
        start_offset=start,
        end_offset=stop,
        lineage=Lineage([(0, start)]) if is_materialised else own,
        is_materialised=is_materialised,
        is_cut=stop < end,
        problems=problems,
    )


def _lawful_start(choice: Choice, leader: Log | None) -> int:
    """Return the log start of the leader if DeleteRecords must have raised it, as `rebuild` decides; else 0.

    A leader that raised it because it knew no segments takes the start of a segment, and its leader epochs
    begin at the log start in any case.
    """
    if leader is None or not choice.chain:
        return 0
    start = leader.log_start_offset
    if not start or not leader.leader_epochs or leader.leader_epochs[0].start_offset != start:
        return 0
    found = log_start_in_force([leader], DerivedSets([choice.chain], [each for each, _ in choice.left]))
    is_within = found.raised_from is None and found.offset <= choice.chain[-1].end_offset
    return found.offset if is_within else 0


_C = RestoreCheck


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreCheckRequest(Request):
    """A request to verify what brokers serve after a rebuild or a restore.

    `metadata` is the metadata topic of the brokers to check. The expected records and offsets are derived
    from the objects of the tier alone.
    """

    metadata: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="The metadata topic of the brokers that are checked. Without this option, or with the value "
            "none, its events are not checked.",
            rich_help_panel=WHERE,
        ),
    ] = None
    as_topic: AsTopic = None
    until: RestoreUntil = ()
    before: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A listing of the tier that --listing-out wrote before the brokers started. Each of its "
            "objects must still exist.",
            rich_help_panel=DECIDE,
        ),
    ] = None
    listing_out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the listing of the tier to FILE, for --before of a later check. Without a cluster, "
            "only the listing is written. An earlier listing is replaced; any other file that is not empty "
            "is refused.",
            rich_help_panel=DECIDE,
        ),
    ] = None
    broker_log: Annotated[
        Sequence[Path],
        typer.Option(
            metavar="FILE",
            help="The server.log of a broker since its start, which must not contain a deletion of a "
            "segment. Repeatable.",
            rich_help_panel=DECIDE,
        ),
    ] = ()
    election_timeout_ms: Annotated[
        int | None,
        typer.Option(
            "--election-timeout",
            metavar="DURATION",
            parser=parse_duration_ms,
            help="Keep consumers at positions in several leader epochs, wait at most this long for you to "
            "elect "
            "new leaders of all partitions, and then continue to read. tierctl elects no leader itself. "
            "The time "
            f"is written as {DURATION_FORMS}.",
            rich_help_panel=DECIDE,
        ),
    ] = None
    produce: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC",
            help="Write two records with new producers to each checked partition of TOPIC, one of them in a "
            "transaction. Consumers of the topic receive these records.",
            rich_help_panel=DECIDE,
        ),
    ] = None
    broker_id: Annotated[
        int,
        typer.Option(
            metavar="ID",
            min=-1,
            help="Broker id in the events that rebuild or restore published.",
            rich_help_panel=DECIDE,
        ),
        TYPED_ONLY,
    ] = NOT_A_BROKER_ID

    @property
    def reads_metadata_of_cluster(self) -> bool:
        """Implement `Request.reads_metadata_of_cluster`: they are derived from the tier instead."""
        return False

    def validate(self) -> None:
        """Raise UsageError for fields that contradict each other."""
        for option, value in (("--election-timeout", self.election_timeout_ms), ("--produce", self.produce)):
            if value is not None and not self.has_cluster:
                raise UsageError(
                    f"{option} needs a cluster", hint="name it: --bootstrap-server, or --metadata kafka://..."
                )
        Until.parse(self.until)


def restore_check(request: RestoreCheckRequest, progress: Progress | None = None) -> CheckResults:
    """Return one result for each check, including the checks that could not be made.

    Nothing is changed, except that records are written if `produce` is given, and a file if `listing_out` is
    given. Raise UsageError for a contradictory request, NotFoundError if the tier or the selection has no
    segment, and the errors of the tier. Errors of brokers become results, unless no broker can be asked at
    all.
    """
    request.validate()
    with Resources(request=request, progress=progress or SilentProgress()) as resources:
        run = _Run(request=request, resources=resources)
        run.make_checks()
        return run.examination.complete()


@dataclass(slots=True, kw_only=True)
class _Run:
    """The checks of one run, in the order in which they are made."""

    request: RestoreCheckRequest
    resources: Resources
    examination: Examination = field(default_factory=lambda: Examination(RestoreCheck))
    logs: list[ExpectedLog] = field(default_factory=list)
    expendable: set[Uuid] = field(default_factory=set)

    def make_checks(self) -> None:
        request, resources = self.request, self.resources
        earlier = None if request.before is None else Listing.read(request.before)
        if request.listing_out is not None:
            require_listing_file(request.listing_out)
        first = self._listing()
        if request.listing_out is not None:
            first.write(request.listing_out)
        cluster = resources.cluster
        if cluster is not None or request.log_dir or request.metadata is not None:
            self._expect(cluster)
            self._check_metadata(cluster)
            if cluster is not None:
                self._check_cluster(cluster)
            self._make(_C.LEADER_EPOCHS, lambda: check_epoch_files(self.logs, request.log_dir))
        expendable = frozenset(self.expendable)
        since = "the check began" if earlier is None else f"{request.before} was written"
        before = first if earlier is None else earlier
        self._make(
            _C.OBJECTS,
            lambda: [check_objects(before, self._listing(), since=since, expendable=expendable)],
        )
        if earlier is None:
            reason = "whether objects were deleted earlier: needs --before"
            self.examination.add(not_checked(_C.OBJECTS, "", reason))
        self._make(_C.BROKER_LOGS, lambda: check_broker_logs(request.broker_log, expendable=expendable))

    def _make(self, check: RestoreCheck, run: Callable[[], Iterable[Result]], subject: str = "") -> None:
        self.examination.make([check], subject, run)

    def _listing(self) -> Listing:
        return Listing.of(TierSets.of(self.resources).listed())

    def _expect(self, cluster: Cluster | None) -> None:
        """Derive the logs that brokers must serve from the objects of the tier."""
        derived = DerivedMetadata(self.resources)
        partitions = decided_partitions(derived, self.resources)
        topics, as_topic = {each.topic_id_partition.topic for each in partitions}, self.request.as_topic
        if as_topic is not None and len(topics) > 1:
            raise UsageError(
                f"--as needs exactly one topic, selected are {', '.join(sorted(topics))}",
                hint="check one at a time",
            )
        names = {as_topic or source.topic for source in derived.decisions}
        current = None if cluster is None else cluster.topics(names)
        folder_ids = dict(self._folder_ids(derived.decisions)) if cluster is None else {}
        naming = Naming(current, as_topic, folder_ids)
        until = Until.parse(self.request.until)
        require_known(until, {source.topic_partition for source in derived.decisions})
        readable = {each.topic_id_partition: each for each in partitions}
        for source, decision in sorted(derived.decisions.items(), key=lambda each: naming.name_of(each[0])):
            self.expendable |= {segment.segment_id for segment, _ in decision.choice.discarded}
            if source not in readable:
                why = decision.refused or "it has no complete set of objects"
                found = f"the tier of {source} can't be served: {why}"
                subject, is_understood = str(naming.name_of(source)), not is_not_understood(why)
                self.examination.add(fault(_C.OBJECTS, subject, found, is_understood=is_understood))
            elif self._is_expected(naming, source):
                is_own = naming.is_same_id(source)
                leader = _on_leader(cluster, source) if cluster is not None and is_own else None
                log = expected_log(self.resources, readable[source], decision, naming, until, leader=leader)
                self.logs.append(log)

    def _folder_ids(
        self, sources: Iterable[TopicIdPartition]
    ) -> Iterator[tuple[TopicPartition, Uuid | None]]:
        """Yield the topic id of each partition that a log directory has; add a result for a damaged file."""
        for name in sorted({Naming(None, self.request.as_topic).name_of(source) for source in sources}):
            try:
                folders = target_folders(self.request.log_dir, name)
            except (CorruptInputError, SafetyRefusal) as e:
                self.examination.add(prevented(_C.LEADER_EPOCHS, str(name), e))
                yield name, None
                continue
            yield from ((name, each.topic_id) for each in folders if each.topic_id is not None)

    def _is_expected(self, naming: Naming, source: TopicIdPartition) -> bool:
        """Return whether the cluster should serve a partition of the tier; add a result if it does not."""
        selection, name = self.resources.selection, naming.name_of(source)
        why = naming.why_not_there(source)
        if naming.folder_ids.get(name, source.topic_id) is None:
            return False
        if why is None:
            if naming.is_same_id(source) or selection.topics or selection.topic_ids:
                return True
            why = (
                f"the cluster's topic {name.topic} has another id than the tier's, {source.topic_id}: it was "
                "created again, or materialised"
            )
            fix = "name it with --topic-id to compare them, or select the others"
            self.examination.add(incomplete(_C.OFFSETS, str(name), why, fix=fix))
        elif selection.topics or selection.topic_ids:
            fix = "restore the topic, or name the right cluster"
            self.examination.add(fault(_C.OFFSETS, str(name), why, fix=fix))
        else:
            reason = f"{why}: deleted, or not restored"
            fix = "restore the topic, name the right cluster, or select the topics that were restored"
            self.examination.add(incomplete(_C.OFFSETS, str(name), reason, fix=fix))
        return False

    def _check_metadata(self, cluster: Cluster | None) -> None:
        """Check the events of the metadata topic, if the request names it."""
        if self.request.metadata is not None:
            checks = (_C.DELETIONS, _C.METADATA, _C.NEXT_COPY)
            self.examination.make(checks, "", self._of_metadata)
            if cluster is not None:
                self._make(_C.RESTARTS, lambda: self._of_restarts(cluster))

    def _of_metadata(self) -> Iterator[Result]:
        topic = self.resources.metadata_topic(quiet=True)
        published, unreadable = read_published(topic, own_broker_id=self.request.broker_id)
        for found in published.values():
            self.expendable |= found.discarded
        if unreadable:
            error = CorruptInputError(
                "records of the metadata topic",
                expected="events",
                found=f"{unreadable} that can't be read",
                hint="tierctl format shows them",
            )
            yield prevented(_C.METADATA, "", error)
        for log in self.logs:
            yield from check_published(log, published.get(log.key, PublishedLog()))

    def _of_restarts(self, cluster: Cluster) -> Iterator[Result]:
        topic = self.resources.metadata_topic(quiet=True)
        return check_restarts(topic, cluster, own_broker_id=self.request.broker_id)

    def _check_cluster(self, cluster: Cluster) -> None:
        """Check the records that leaders serve; elect new leaders before the other checks."""
        names, logs, progress = self._produced_to(), self.logs, self.resources.progress
        timeout_ms = self.request.election_timeout_ms
        if timeout_ms is not None:
            self._make(_C.ELECTION, lambda: check_election(logs, cluster, progress, timeout_ms=timeout_ms))
        self._make(_C.OFFSETS, lambda: check_offsets(logs, cluster))
        self._make(_C.LEADER_EPOCHS, lambda: check_epochs(logs, cluster))
        for log in logs:
            self._make(_C.RECORDS, partial(check_records, log, cluster, progress), log.subject)
            self._make(_C.SEEKS, partial(check_seeks, log, cluster), log.subject)
        if names:
            self._make(_C.PRODUCERS, lambda: check_producers(names, cluster))

    def _produced_to(self) -> list[TopicPartition]:
        """Return the partitions to write records to; raise NotFoundError if none of them is checked."""
        wanted = self.request.produce
        names = [log.name for log in self.logs if log.name.topic == wanted]
        if wanted is not None and not names:
            checked = ", ".join(sorted({log.name.topic for log in self.logs})) or "no topic"
            raise NotFoundError(f"--produce names {wanted}, which is not checked", hint=f"checked: {checked}")
        return names
