"""Metadata topics in folders: the number of their partitions, their replicas, and the id of a new one."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Self

from tierctl.commands.request import MutationRequest
from tierctl.commands.resources import Resources
from tierctl.errors import CorruptInputError, RemoteTierMissing, SafetyRefusal
from tierctl.files import read_regular
from tierctl.locallog import list_partitions, read_registration
from tierctl.metadata.server_properties import ServerSettings
from tierctl.metadata.topic import METADATA_TOPIC, topic_location
from tierctl.metadata.topic.base import translated
from tierctl.metadata.topic.folder import is_unfinished, partitions_in, recorded_count
from tierctl.metadata.topic.folder_writer import FolderSettings, known_id
from tierctl.model.ids import Uuid
from tierctl.model.progress import Progress
from tierctl.model.settings import clients as manager
from tierctl.state.tier_state import TierState
from tierctl.storage import RemoteStorageManager
from tierctl.storage.identity import read_identity
from tierctl.wire.files.checkpoints import META_PROPERTIES, read_node
from tierctl.wire.kraft import TopicRegistration

# Find out how many partitions a metadata topic in a folder has, before a command writes to it.
#
# The number decides in which partition brokers look for the events of a topic. The folders that are there do
# not show it: the last one may be lost.

_SOURCES = (
    "name the broker's log directory that has __cluster_metadata-0 with --log-dir, or its server.properties "
    f"with {manager.TOPIC_PARTITIONS.name} with --broker-config; rebuild and copy also take "
    "--metadata-partitions"
)

_ONLINE = "start the brokers with copying disabled, and use --metadata kafka://host:port"


class _Stated(NamedTuple):
    """A number of partitions, and who states it."""

    source: str
    number: int


def folder_of(metadata: str | None) -> Path | None:
    """Return the folder that `metadata` names; None for another location."""
    location = None if metadata is None else topic_location("--metadata", metadata)
    if location is None or not location.is_local:
        return None
    return location.path


def is_of_a_broker(folder: Path) -> bool:
    """Return whether `folder` is a broker's log directory; False for a metadata folder that tierctl made."""
    return folder.is_dir() and ((folder / META_PROPERTIES).exists() or bool(list_partitions([folder])))


def counted(
    request: MutationRequest, settings: FolderSettings | None, progress: Progress
) -> FolderSettings | None:
    """Return `settings` with the number of partitions of the topic in the folder of `request`.

    Raise SafetyRefusal if nothing states the number and the folder is a broker's, if two sources differ, if
    there is a folder beyond the number, if a partition is lost and the command may not make it again, or if
    the topic has replicas on brokers that the command does not write to.
    """
    folder = folder_of(request.metadata)
    if folder is None or folder.is_file():
        return settings
    with translated(f"reading {folder}"):
        known = _Known.of(request, folder, FolderSettings() if settings is None else settings)
        try:
            return known.settings()
        except SafetyRefusal as e:
            if request.apply or known.base.remakes_lost:
                raise
            # A plan writes nothing: it may be made on a part of the topic, as it is there.
            progress.say(f"--apply would refuse this: {e.message}")
            return settings


def require_no_contradiction(request: MutationRequest, state: TierState) -> None:
    """Raise SafetyRefusal if an event in the folder of `request` is in the wrong metadata partition."""
    if folder_of(request.metadata) is None:
        return
    bad = next((each for each in state.quarantined if each.is_misplaced), None)
    if bad is not None:
        raise SafetyRefusal(
            f"{bad.error.message}: the number of metadata partitions is not the one with which this event "
            "was written",
            hint=f"find out how many partitions {METADATA_TOPIC} has: {_SOURCES}. If the events were "
            "published with a wrong number, delete the folders of the partitions with such events, and use "
            "rebuild",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What is known about the topic in `folder`; `found` are the numbers of its partitions there."""

    folder: Path
    base: FolderSettings
    found: Sequence[int]
    stated: Sequence[_Stated]
    registration: TopicRegistration | None

    @classmethod
    def of(cls, request: MutationRequest, folder: Path, base: FolderSettings) -> Self:
        # The brokers of --log-dir need not be those of a metadata folder that is no broker's.
        folders = [folder, *map(Path, request.log_dir)] if is_of_a_broker(folder) else []
        registrations = _registrations(folders)
        return cls(
            folder=folder,
            base=base,
            found=partitions_in(folder),
            stated=_with_record(list(_stated(request, registrations)), folder),
            registration=next(iter(registrations), None),
        )

    def settings(self) -> FolderSettings:
        counts = {each.number for each in self.stated}
        if len(counts) > 1:
            found = " and ".join(dict.fromkeys(f"{each.number} ({each.source})" for each in self.stated))
            raise SafetyRefusal(
                f"the number of partitions of {METADATA_TOPIC} is unclear: {found}",
                hint="brokers look for events in as many partitions as the topic has: leave out what is "
                "wrong. If the topic was made again with too few, add partitions first",
            )
        count = next(iter(counts), None)
        if not self.found:
            return self.base if count is None else replace(self.base, partition_count=count)
        if count is None:
            if (self.folder / META_PROPERTIES).exists() or self.base.remakes_lost:
                raise SafetyRefusal(
                    f"nothing states how many partitions {METADATA_TOPIC} has; {self.folder} has "
                    f"{len(self.found)}, and others may be lost",
                    hint=_SOURCES,
                )
            # tierctl made it before it recorded numbers, or it is a copy: each event confirms the number.
            return self.base
        if self.found[-1] >= count:
            raise SafetyRefusal(
                f"{self.folder} has {METADATA_TOPIC}-{self.found[-1]}, but the topic has {count} partitions "
                f"({self.stated[0].source}), so that the last is {METADATA_TOPIC}-{count - 1}",
                hint="brokers would not read it: correct the number, or move the folder away",
            )
        if self.found[-1] + 1 == count and self._is_being_made():
            return replace(self.base, partition_count=count)
        self._require_all_replicas(count)
        topic_id = self._topic_id()
        made = self.base if topic_id is None else replace(self.base, new_topic_id=lambda: topic_id)
        return replace(made, known_count=count, lost=self._lost(count))

    def _is_being_made(self) -> bool:
        """Return whether tierctl was stopped when it made the topic, before it had any event."""
        is_recorded = (self.folder / META_PROPERTIES).exists() or recorded_count(self.folder) is not None
        return not is_recorded and is_unfinished(self.folder, self.found)

    def _topic_id(self) -> Uuid | None:
        """Return the topic's id; raise SafetyRefusal if the cluster has another topic of the name."""
        own = known_id(self.folder, self.found)
        if self.registration is None:
            return own
        if own not in {None, self.registration.topic_id}:
            raise SafetyRefusal(
                f"{METADATA_TOPIC} in {self.folder} has topic id {own}, in the cluster's metadata "
                f"{self.registration.topic_id or 'it does not exist'}: it was deleted",
                hint=f"brokers remove these folders when they start: {_ONLINE}",
            )
        return self.registration.topic_id

    def _require_all_replicas(self, count: int) -> None:
        """Raise SafetyRefusal if a replica is on a broker that does not get the events."""
        if self.registration is None:
            return
        node = node_of(self.folder)
        own = self.registration.nodes.get(int(node), ()) if node.isdecimal() else ()
        elsewhere = sorted(set(range(count)) - set(own))
        if elsewhere:
            raise SafetyRefusal(
                f"{self.folder} is of broker {node}, which is no replica of {METADATA_TOPIC}-{elsewhere[0]}: "
                "its events have no place here",
                hint=f"name a log directory with all partitions of the topic as --metadata, or {_ONLINE}",
            )
        others = _other_brokers(self.registration, (self.folder, *self.base.replicas))
        if others and not self.base.has_other_hosts:
            raise SafetyRefusal(
                f"{METADATA_TOPIC} has replicas on brokers {', '.join(map(str, others))}, which would not "
                "get the events: if one of them leads first, the events are truncated, and log starts are "
                "raised",
                hint="stop all brokers, and run rebuild where the log directories of all of them are "
                "(mounted, or copied there and back), with a --log-dir for each and its meta.properties; or "
                "save its plan with --plan-out, without --apply, and run tierctl apply with the plan on the "
                f"host of each broker; or {_ONLINE}",
            )

    def _lost(self, count: int) -> Mapping[Path, Sequence[int]]:
        """Return the partitions that are to be made again, by log directory."""
        missing = set(range(count)) - set(self.found)
        if missing and not self.base.remakes_lost:
            raise SafetyRefusal(
                f"{METADATA_TOPIC}-{min(missing)} is missing in {self.folder}, of {count} partitions "
                f"({self.stated[0].source}): the events of some topics are lost",
                hint="rebuild makes the partition again, and publishes its events from the tier",
            )
        by_node: dict[str, list[Path]] = {}
        for each in dict.fromkeys(path.resolve() for path in (self.folder, *self.base.replicas)):
            by_node.setdefault(node_of(each), []).append(each)
        lost = {}
        for node, folders in by_node.items():
            there = {number for each in folders for number in partitions_in(each)}
            own = self._due(node, there, missing) - there
            if own:
                lost[max(folders, key=lambda each: len(partitions_in(each)))] = sorted(own)
        return lost

    def _due(self, node: str, there: set[int], missing: set[int]) -> set[int]:
        """Return the partitions that a broker must have; it has those `there`."""
        if self.registration is not None:
            return set(self.registration.nodes.get(int(node), ())) if node.isdecimal() else set()
        # A broker that has fewer partitions than `folder` is no replica of all of them.
        return missing if there >= set(self.found) else set()


def _registrations(folders: Sequence[Path]) -> list[TopicRegistration]:
    """Return what the cluster's metadata in each of `folders` that has some says about the topic."""
    found = (read_registration(folder, METADATA_TOPIC) for folder in folders)
    return [each for each in found if each is not None]


def _stated(request: MutationRequest, registrations: Sequence[TopicRegistration]) -> Iterator[_Stated]:
    for each in registrations:
        if each.replicas:
            yield _Stated("the cluster's metadata", len(each.replicas))
    if request.metadata_partitions is not None:
        yield _Stated("--metadata-partitions", request.metadata_partitions)
    if request.broker_config is not None:
        stated = ServerSettings.read(request.broker_config).expected_partitions
        if stated is not None:
            yield _Stated(str(request.broker_config), stated)


def _with_record(stated: list[_Stated], folder: Path) -> list[_Stated]:
    """Return `stated`, and the number with which tierctl made the topic in `folder`.

    A broker that uses the folder since may have got more partitions: then the others decide.
    """
    recorded = recorded_count(folder) if partitions_in(folder) else None
    if recorded is None or (stated and (folder / META_PROPERTIES).exists()):
        return stated
    return [*stated, _Stated(f"the record in {folder}", recorded)]


def _other_brokers(registration: TopicRegistration, folders: Iterable[Path]) -> list[int]:
    """Return the brokers with replicas whose log directories are not among `folders`."""
    named = {node_of(each) for each in folders}
    return sorted(node for node in registration.nodes if str(node) not in named)


def brokers_of_all_hosts(request: MutationRequest) -> tuple[int, ...]:
    """Return the brokers with replicas of the topic in the folder of `request`, if some are on other hosts.

    The result is empty if `request` names the log directories of all of them, or if the cluster's metadata do
    not name them. Raise SafetyRefusal if one of them has replicas of some partitions only.
    """
    folder = folder_of(request.metadata)
    if folder is None or not is_of_a_broker(folder):
        return ()
    folders = [folder, *request.log_dir]
    registration = next(iter(_registrations(folders)), None)
    if registration is None or not _other_brokers(registration, folders):
        return ()
    for node, numbers in registration.nodes.items():
        missing = sorted(registration.replicas.keys() - set(numbers))
        if missing:
            raise SafetyRefusal(
                f"broker {node} has replicas of {METADATA_TOPIC}-{numbers[0]}, but not of "
                f"{METADATA_TOPIC}-{missing[0]}: a plan for several hosts needs all partitions on each",
                hint=f"run rebuild where the log directories of all brokers are, or {_ONLINE}",
            )
    return tuple(sorted(registration.nodes))


def node_of(folder: Path) -> str:
    """Return the id of the broker of a log directory; its path if it states none."""
    path = folder / META_PROPERTIES
    try:
        node = read_node(read_regular(path)) if path.is_file() else None
    except CorruptInputError as e:
        raise e.within(str(path)) from None
    return str(folder) if node is None else node.node_id


def known_topic_id(remote: RemoteStorageManager) -> Uuid | None:
    """Return the id of the metadata topic that the tier belongs to; None if the tier states none."""
    with suppress(RemoteTierMissing):
        identity = read_identity(remote)
        return None if identity is None else identity.cluster.metadata_topic_id
    return None


def folder_settings(request: MutationRequest, resources: Resources) -> FolderSettings:
    """Return the settings for the folder of `metadata`.

    A broker's metadata topic has replicas in the other log directories. A new topic gets the id in the tier's
    identity object, if the tier has one, so that the tier belongs to the new topic without a change. Raise
    SafetyRefusal if a broker's folder lacks partitions of the topic.
    """
    folder = folder_of(request.metadata)
    if folder is None or is_of_a_broker(folder):
        if folder is not None:
            _require_all_partitions(folder, request)
        return FolderSettings(replicas=tuple(request.log_dir))
    topic_id = known_topic_id(resources.remote)
    return FolderSettings() if topic_id is None else FolderSettings(new_topic_id=lambda: topic_id)


def _require_all_partitions(folder: Path, request: MutationRequest) -> None:
    """Raise SafetyRefusal if `folder` has fewer metadata partitions than the brokers use.

    The folders of one broker are in one of its log directories, or in several.
    """
    own = partitions_in(folder)
    for other in request.log_dir:
        missing = sorted(set(partitions_in(other)) - set(own)) if other.is_dir() else []
        if missing:
            raise SafetyRefusal(
                f"{other} has {METADATA_TOPIC}-{missing[0]}, which {folder} lacks: the number of metadata "
                "partitions is unknown, and it decides which events each has",
                hint="name a log directory with all partitions of the metadata topic as --metadata, or start "
                "the brokers with copying disabled and use --metadata kafka://host:port",
            )
