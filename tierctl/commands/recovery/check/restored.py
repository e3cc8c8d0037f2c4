"""`restore check`: run the checks for which the request names the inputs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tierctl.apply.defaults import NOT_A_BROKER_ID
from tierctl.commands.recovery.check.checks import RestoreCheck
from tierctl.commands.recovery.check.election import check_election
from tierctl.commands.recovery.check.expected import (
    ExpectedLog,
    LeaderLog,
    Naming,
    decided_partitions,
    expected_log,
    require_one_topic,
)
from tierctl.commands.recovery.check.offsets import check_epoch_files, check_epochs, check_offsets
from tierctl.commands.recovery.check.published import PublishedLog, check_published, read_published
from tierctl.commands.recovery.check.records import check_records, check_seeks
from tierctl.commands.recovery.check.restarts import check_restarts
from tierctl.commands.recovery.check.results import RESTORE_CHECKS, CheckResult, Results, exit_code_of
from tierctl.commands.recovery.derived_metadata import DerivedMetadata
from tierctl.commands.recovery.tier_sets import TierSets
from tierctl.commands.request import Request
from tierctl.commands.resources import Resources
from tierctl.commands.shared_options import DECIDE, TYPED_ONLY, WHERE, AsTopic, RestoreUntil
from tierctl.errors import CorruptInputError, ExitCode, NotFoundError, TierctlError, UsageError
from tierctl.model import TopicIdPartition, TopicPartition, Uuid
from tierctl.model.progress import Progress, SilentProgress
from tierctl.model.times import DURATION_FORMS, parse_duration_ms
from tierctl.plan.materialise import Until
from tierctl.plan.rebuild.partition import is_not_understood
from tierctl.report.results import TableResult, TableRows

if TYPE_CHECKING:
    from tierctl.kafka.cluster import Cluster

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Self
from uuid import uuid4

from tierctl.errors import AuthenticationError
from tierctl.files import write_durably
from tierctl.kafka.cluster import Cluster
from tierctl.model import IsolationLevel, ListedSet

_FORMAT = "tierctl listing 1"
_SHOWN = 3
_LOGGED = re.compile(
    "Deleted remote log segment|About to delete remote log segment|caused truncation of conflicting entries"
)
_SEGMENT_ID = re.compile(r"(?<![A-Za-z0-9_-])[A-Za-z0-9_-]{22}(?![A-Za-z0-9_-])")

SetKey = tuple[Uuid, int, Uuid]
"""Topic id, partition and segment id of a set of objects."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The object sets of a tier at one time: the partition of each set, and the size of each object in it."""

    sets: Mapping[SetKey, tuple[TopicIdPartition, Mapping[int, int]]]

    @classmethod
    def of(cls, listed: Iterable[ListedSet]) -> Self:
        """Return the listing of these sets."""
        return cls(
            {(*each.partition.key, each.segment_id): (each.partition, each.sizes_bytes) for each in listed}
        )

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file that `write` wrote; raise NotFoundError or CorruptInputError."""
        found: dict[SetKey, tuple[TopicIdPartition, Mapping[int, int]]] = {}
        try:
            with path.open(encoding="utf-8") as lines:
                if next(lines, "").rstrip("\n") != _FORMAT:
                    raise CorruptInputError(
                        "a listing of a tier", expected=_FORMAT, found="another first line", source=str(path)
                    )
                for number, line in enumerate(lines, 2):
                    key, value = _parsed(line, f"{path}, line {number}")
                    found[key] = value
        except FileNotFoundError:
            raise NotFoundError(f"{path} does not exist", hint="--listing-out writes a listing") from None
        return cls(found)

    def write(self, path: Path) -> None:
        """Write the listing, one set per line of JSON."""
        lines = (
            json.dumps([str(key[0]), partition.topic, key[1], str(key[2]), sorted(sizes.items())])
            for key, (partition, sizes) in self.sets.items()
        )
        write_durably(path, (f"{line}\n".encode() for line in (_FORMAT, *lines)), mode=0o666)

    @property
    def objects(self) -> int:
        """Return the number of objects."""
        return sum(len(sizes) for _, sizes in self.sets.values())

    @property
    def size_bytes(self) -> int:
        """Return the size of all objects together."""
        return sum(sum(sizes.values()) for _, sizes in self.sets.values())


def _parsed(line: str, where: str) -> tuple[SetKey, tuple[TopicIdPartition, Mapping[int, int]]]:
    try:
        topic_id, topic, number, segment_id, sizes = json.loads(line)
        partition = TopicIdPartition(Uuid.parse(topic_id), str(topic), int(number))
        key = (*partition.key, Uuid.parse(segment_id))
        return key, (partition, {int(part): int(size) for part, size in sizes})
    except (ValueError, TypeError, UsageError) as e:
        raise CorruptInputError(
            "a line of a listing",
            expected="topic id, topic, partition, segment id, sizes",
            found=str(e),
            source=where,
        ) from None


def check_objects(
    results: Results, before: Listing, after: Listing, *, since: str, expendable: frozenset[Uuid]
) -> None:
    """Compare two listings of the tier; `since` says when the first one was made.

    `expendable` are the segments that rebuild published as being deleted: brokers may delete their objects.
    """
    results.decided(
        RestoreCheck.OBJECTS,
        None,
        object_faults(before, after, expendable),
        f"nothing was deleted since {since}: {before.objects} objects, {before.size_bytes} bytes; now "
        f"{after.objects} objects, {after.size_bytes} bytes",
    )


def object_faults(before: Listing, after: Listing, expendable: frozenset[Uuid]) -> Iterator[str]:
    """Yield the objects that are missing or whose size changed."""
    gone: list[str] = []
    changed: list[str] = []
    for key, (partition, sizes) in before.sets.items():
        if key[2] in expendable:
            continue
        now = after.sets.get(key, (partition, {}))[1]
        name = f"{partition.topic_partition} segment {key[2]}"
        if sizes.keys() - now.keys():
            gone.append(f"{name}: {len(sizes.keys() - now.keys())} of {len(sizes)}")
        elif any(now[part] != size for part, size in sizes.items()):
            changed.append(name)
    if gone:
        yield f"objects of {len(gone)} segments were deleted: {_some(gone)}"
    if changed:
        yield f"objects of {len(changed)} segments have another size: {_some(changed)}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


def check_broker_logs(results: Results, files: Sequence[Path], *, expendable: frozenset[Uuid]) -> None:
    """Search brokers' logs for deletions of segments, and for leader epochs that brokers dropped."""
    for path in files:
        try:
            if path.stat().st_size == 0:
                error = NotFoundError(f"{path} is empty", hint="name the broker's log since it started")
                results.prevented(RestoreCheck.BROKER_LOGS, None, error)
                continue
            with path.open(encoding="utf-8", errors="replace") as lines:
                found = [line.strip() for line in lines if _is_fault(line, expendable)]
        except OSError as e:
            error = NotFoundError(f"{path}: {e.strerror or e}", hint="name the log of a broker: server.log")
            results.prevented(RestoreCheck.BROKER_LOGS, None, error)
            continue
        results.decided(
            RestoreCheck.BROKER_LOGS,
            None,
            [f"{path}: {len(found)} lines, the first: {found[0]}"] if found else [],
            f"{path} has no deletion of a segment, and no dropped leader epoch",
        )


def _is_fault(line: str, expendable: frozenset[Uuid]) -> bool:
    return bool(_LOGGED.search(line)) and not any(each in expendable for each in _SEGMENT_ID.findall(line))


VALUE = b"written by tierctl restore check"
_READABLE_S = 30
_PAUSE_S = 0.5


def check_producers(results: Results, partitions: Sequence[TopicPartition], cluster: Cluster) -> None:
    """Write two records to each partition, by two producers, and read them with read_committed."""
    for transactional_id in (None, f"tierctl-restore-check-{uuid4()}"):
        kind = "an idempotent producer" if transactional_id is None else "a transaction"
        try:
            offsets = cluster.produce(partitions, VALUE, transactional_id=transactional_id)
        except AuthenticationError as e:
            for each in partitions:
                results.prevented(RestoreCheck.PRODUCERS, each, e)
            return
        except TierctlError as e:
            for each in partitions:
                results.failed(RestoreCheck.PRODUCERS, each, f"{kind}: {e.message}")
            continue
        for each in partitions:
            offset = offsets[each]
            with results.making(RestoreCheck.PRODUCERS, each):
                faults = _faults(cluster, each, offset, kind)
                text = f"{kind} wrote offset {offset}, which read_committed serves"
                results.decided(RestoreCheck.PRODUCERS, each, faults, text)


def _faults(cluster: Cluster, partition: TopicPartition, offset: int, kind: str) -> list[str]:
    """Return why the record is not served; wait first, because brokers write markers after the commit."""
    consumer = cluster.consumer(IsolationLevel.READ_COMMITTED)
    deadline = time.monotonic() + _READABLE_S
    try:
        while True:
            found = consumer.first(partition, offset)
            if found is not None:
                is_it = (found.offset, found.value) == (offset, VALUE)
                return (
                    [] if is_it else [f"{kind} wrote offset {offset}, read_committed serves {found.offset}"]
                )
            if time.monotonic() > deadline:
                return [f"{kind} wrote offset {offset}, which read_committed does not serve"]
            time.sleep(_PAUSE_S)
    finally:
        consumer.close()


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
            "--metadata",
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
            "--before",
            metavar="FILE",
            help="A listing of the tier that --listing-out wrote before the brokers started. Each of its "
            "objects must still exist.",
            rich_help_panel=DECIDE,
        ),
    ] = None
    listing_out: Annotated[
        Path | None,
        typer.Option(
            "--listing-out",
            metavar="FILE",
            help="Write the listing of the tier to FILE, for --before of a later check. Without a cluster, "
            "only the listing is written.",
            rich_help_panel=DECIDE,
        ),
    ] = None
    broker_log: Annotated[
        Sequence[Path],
        typer.Option(
            "--broker-log",
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
            "--produce",
            metavar="TOPIC",
            help="Write two records with new producers to each checked partition of TOPIC, one of them in a "
            "transaction. Consumers of the topic receive these records.",
            rich_help_panel=DECIDE,
        ),
    ] = None
    broker_id: Annotated[
        int,
        typer.Option(
            "--broker-id",
            metavar="ID",
            min=-1,
            help="Broker id in the events that rebuild or restore published.",
            rich_help_panel=DECIDE,
        ),
        TYPED_ONLY,
    ] = NOT_A_BROKER_ID

    def validate(self) -> None:
        """Raise UsageError for fields that contradict each other."""
        for option, value in (("--election-timeout", self.election_timeout_ms), ("--produce", self.produce)):
            if value is not None and not self.has_cluster:
                raise UsageError(
                    f"{option} needs a cluster", hint="name it: --bootstrap-server, or --metadata kafka://..."
                )
        Until.parse(self.until)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreCheckResults(TableResult):
    """The results, the worst first; `exit_code_of` says how the exit code follows."""

    results: tuple[CheckResult, ...]
    exit_code: ExitCode

    def table_rows(self) -> TableRows:
        """Implement `TableResult.table_rows`."""
        return RESTORE_CHECKS, self.results

    @property
    def missing(self) -> list[str]:
        """Return the names of the checks that were not made, or not completely, in the table's order."""
        found = {each.check for each in self.results if each.verdict == "not_checked"}
        return [check for check in RestoreCheck if check in found]


def restore_check(request: RestoreCheckRequest, progress: Progress | None = None) -> RestoreCheckResults:
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
        results = run.results.complete()
    return RestoreCheckResults(results=results, exit_code=exit_code_of(results))


@dataclass(slots=True, kw_only=True)
class _Run:
    """The checks of one run, in the order in which they are made."""

    request: RestoreCheckRequest
    resources: Resources
    results: Results = field(default_factory=Results)
    logs: list[ExpectedLog] = field(default_factory=list)
    expendable: set[Uuid] = field(default_factory=set)

    def make_checks(self) -> None:
        request, resources = self.request, self.resources
        earlier = None if request.before is None else Listing.read(request.before)
        first = self._listing()
        if request.listing_out is not None:
            first.write(request.listing_out)
        cluster = resources.cluster
        if cluster is not None or request.log_dir or request.metadata is not None:
            self._expect(cluster)
            self._check_metadata(cluster)
            if cluster is not None:
                self._require_some()
                self._check_cluster(cluster)
            log_dirs = [Path(each) for each in request.log_dir]
            check_epoch_files(self.results, self.logs, log_dirs)
        expendable = frozenset(self.expendable)
        since = "the check began" if earlier is None else f"{request.before} was written"
        before = first if earlier is None else earlier
        check_objects(self.results, before, self._listing(), since=since, expendable=expendable)
        if earlier is None:
            self.results.not_checked(_C.OBJECTS, None, "whether objects were deleted earlier: needs --before")
        check_broker_logs(self.results, request.broker_log, expendable=expendable)

    def _listing(self) -> Listing:
        return Listing.of(TierSets.of(self.resources).listed())

    def _expect(self, cluster: Cluster | None) -> None:
        """Derive the logs that brokers must serve from the objects of the tier."""
        derived = DerivedMetadata(self.resources)
        partitions = decided_partitions(derived, self.resources)
        require_one_topic(partitions, self.request.as_topic)
        naming = self._naming(cluster, derived.decisions)
        until = Until.parse(self.request.until)
        readable = {each.topic_id_partition: each for each in partitions}
        for source, decision in derived.decisions.items():
            self.expendable |= {segment.segment_id for segment, _ in decision.choice.discarded}
            if source not in readable:
                why = decision.refused or "it has no complete set of objects"
                self.results.failed(
                    _C.OBJECTS,
                    naming.name_of(source),
                    f"the tier of {source} can't be served: {why}",
                    is_understood=not is_not_understood(why),
                )
            elif self._is_expected(naming, source):
                is_own = cluster is not None and naming.is_same_id(source)
                leader = LeaderLog.asked(cluster if is_own else None, naming.name_of(source))
                log = expected_log(self.resources, readable[source], decision, naming, until, leader=leader)
                self.logs.append(log)

    def _require_some(self) -> None:
        """Add a result if no partition can be compared with the cluster: nothing was verified then."""
        if not self.logs and exit_code_of(self.results.results) is ExitCode.OK:
            error = NotFoundError(
                "the cluster has no partition of the tier that can be compared",
                hint="name the cluster that was restored, or the topics with --topic or --topic-id",
            )
            self.results.prevented(_C.OFFSETS, None, error)

    def _naming(self, cluster: Cluster | None, sources: Collection[TopicIdPartition]) -> Naming:
        names = {self.request.as_topic or source.topic for source in sources}
        return Naming(None if cluster is None else cluster.topics(names), self.request.as_topic)

    def _is_expected(self, naming: Naming, source: TopicIdPartition) -> bool:
        """Return whether the cluster should serve a partition of the tier; add a result if it does not."""
        selection, name = self.resources.selection, naming.name_of(source)
        why = naming.why_not_there(source)
        if why is None:
            if naming.is_same_id(source) or selection.topics or selection.topic_ids:
                return True
            why = (
                f"the cluster's topic {name.topic} has another id than the tier's, {source.topic_id}: it was "
                "created again, or materialised: name it with --topic-id to compare them"
            )
            self.results.not_checked(_C.OFFSETS, name, why)
        elif selection.topics or selection.topic_ids:
            self.results.failed(_C.OFFSETS, name, why, fix="restore the topic, or name the right cluster")
        else:
            self.results.not_checked(_C.OFFSETS, name, f"{why}: deleted, or not restored")
        return False

    def _check_metadata(self, cluster: Cluster | None) -> None:
        """Check the events of the metadata topic, if the request names it."""
        if self.request.metadata is None:
            return
        try:
            topic = self.resources.metadata_topic(quiet=True)
            published, unreadable = read_published(topic, own_broker_id=self.request.broker_id)
        except TierctlError as e:
            for check in (_C.DELETIONS, _C.METADATA, _C.NEXT_COPY):
                self.results.prevented(check, None, e)
            return
        if unreadable:
            error = CorruptInputError(
                "records of the metadata topic",
                expected="events",
                found=f"{unreadable} that can't be read",
                hint="tierctl format shows them",
            )
            self.results.prevented(_C.METADATA, None, error)
        for log in self.logs:
            check_published(self.results, log, published.get(log.key, PublishedLog()))
        for found in published.values():
            self.expendable |= found.discarded
        if cluster is not None:
            check_restarts(self.results, topic, cluster, own_broker_id=self.request.broker_id)

    def _check_cluster(self, cluster: Cluster) -> None:
        """Check the records that leaders serve; elect new leaders before the other checks."""
        names = self._produced_to()
        if self.request.election_timeout_ms is not None:
            progress, timeout_ms = self.resources.progress, self.request.election_timeout_ms
            check_election(self.results, self.logs, cluster, progress, timeout_ms=timeout_ms)
        check_offsets(self.results, self.logs, cluster)
        check_epochs(self.results, self.logs, cluster)
        for log in self.logs:
            check_records(self.results, log, cluster, self.resources.progress)
            check_seeks(self.results, log, cluster)
        if names:
            check_producers(self.results, names, cluster)

    def _produced_to(self) -> list[TopicPartition]:
        """Return the partitions to write records to; raise NotFoundError if none of them is checked."""
        wanted = self.request.produce
        names = [log.name for log in self.logs if log.name.topic == wanted]
        if wanted is not None and not names:
            checked = ", ".join(sorted({log.name.topic for log in self.logs})) or "no topic"
            raise NotFoundError(f"--produce names {wanted}, which is not checked", hint=f"checked: {checked}")
        return names
