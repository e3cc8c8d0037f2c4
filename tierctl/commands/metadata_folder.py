"""Metadata topics in folders: the number of their partitions, their replicas, and the id of a new one."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Self

from tierctl.apply.tier_check import read_identity
from tierctl.commands.request import MutationRequest
from tierctl.commands.resources import Resources
from tierctl.errors import RemoteTierMissing, SafetyRefusal
from tierctl.files import exists, is_dir, is_file, read_decoded
from tierctl.locallog import list_partitions, read_registration
from tierctl.locallog.folders import distinct_dirs
from tierctl.metadata.server_properties import manager_settings
from tierctl.metadata.topic import METADATA_TOPIC, topic_location
from tierctl.metadata.topic.base import Tail, translated
from tierctl.metadata.topic.folder import (
    has_topic_id,
    is_unfinished,
    partition_folder,
    partitions_in,
    recorded_count,
    sound_end,
)
from tierctl.metadata.topic.folder_writer import FolderSettings, TopicPlacement
from tierctl.model.checked_values import natural_number
from tierctl.model.events import Uuid
from tierctl.model.progress import Progress
from tierctl.model.settings import clients as manager
from tierctl.model.settings.scopes import StatedSettings, place_of
from tierctl.state.tier_state import TierState
from tierctl.storage.remote_storage_manager import RemoteStorageManager
from tierctl.wire.files.checkpoints import (
    META_PROPERTIES,
    PARTITION_METADATA_FILE,
    read_cluster_id,
    read_directory_id,
    read_node,
    read_partition_metadata,
)
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
    return is_dir(folder) and (exists(folder / META_PROPERTIES) or bool(list_partitions([folder])))


def with_count(
    resources: Resources,
    request: MutationRequest,
    settings: FolderSettings | None,
    progress: Progress,
    *,
    may_be_new: bool,
) -> FolderSettings | None:
    """Return `settings` with the number of partitions of the topic in the folder of `request`.

    Report to `progress` what --apply would do or refuse, and, if the topic `may_be_new`, the number of one
    that is made, and who states it. Raise SafetyRefusal if nothing states the number and the folder is a
    broker's, if two sources differ, if there is a folder beyond the number, if a partition is lost and the
    command may not make it again, or if the topic has replicas on brokers that the command does not write to.
    """
    folder = folder_of(request.metadata)
    if folder is None or is_file(folder):
        return settings
    with translated(f"reading {folder}"):
        base = FolderSettings() if settings is None else settings
        known = _Known.of(request, folder, base, resources.broker_settings)
        try:
            found = known.settings()
        except SafetyRefusal as e:
            if request.apply or known.base.remakes_lost:
                raise
            # A plan writes nothing: it may be made on a part of the topic, as it is there.
            progress.say(f"--apply would refuse this: {e.message}")
            return settings
    for line in () if found.placement is None else _planned(found.placement):
        progress.say(line)
    if may_be_new and not known.found and found.placement is None:
        source = known.stated[0].source if known.stated else "Kafka's default"
        progress.say(f"a new {METADATA_TOPIC} has {found.partition_count} partitions ({source})")
    return found


_SHOWN_MAX = 5


def _planned(placement: TopicPlacement) -> Iterator[str]:
    """Yield what the first append changes besides the records, a line for each log directory."""
    for folder, numbers in placement.missing.items():
        shown = ", ".join(f"{METADATA_TOPIC}-{number}" for number in numbers[:_SHOWN_MAX])
        more = f" and {len(numbers) - _SHOWN_MAX} more" if len(numbers) > _SHOWN_MAX else ""
        yield f"{folder} lacks {shown}{more}, or their partition.metadata: --apply makes them"
    for folder, tail in placement.damaged.items():
        yield (
            f"{folder} is damaged, or lacks records, from offset {tail.next_offset} on (byte {tail.position} "
            f"of {tail.segment_base:020d}.log): --apply keeps what follows in .bak files, and writes it anew"
        )


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
    """What is known about the topic in `folder`, and in the other log directories of its brokers.

    `dirs` are all of them, and `found` has those that have a folder of a partition, by its number.
    """

    folder: Path
    base: FolderSettings
    dirs: Sequence[Path]
    found: Mapping[int, Sequence[Path]]
    stated: Sequence[_Stated]
    registration: TopicRegistration | None

    @classmethod
    def of(
        cls, request: MutationRequest, folder: Path, base: FolderSettings, broker_settings: StatedSettings
    ) -> Self:
        dirs = distinct_dirs([folder, *(each for each in base.replicas if is_dir(each))])
        found: dict[int, list[Path]] = {}
        for each in dirs:
            for number in partitions_in(each):
                found.setdefault(number, []).append(each)
        # The brokers of --log-dir need not be those of a metadata folder that is no broker's.
        registration = registered([folder, *request.log_dir]) if is_of_a_broker(folder) else None
        return cls(
            folder=folder,
            base=base,
            dirs=dirs,
            found=dict(sorted(found.items())),
            stated=_with_record(list(_stated(request, registration, broker_settings)), folder),
            registration=registration,
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
        if not self.found and not self._is_registered:
            return self.base if count is None else replace(self.base, partition_count=count)
        if count is None:
            if exists(self.folder / META_PROPERTIES) or self.base.remakes_lost:
                raise SafetyRefusal(
                    f"nothing states how many partitions {METADATA_TOPIC} has; {self.folder} has "
                    f"{len(partitions_in(self.folder))}, and others may be lost",
                    hint=_SOURCES,
                )
            # tierctl made it before it recorded numbers, or it is a copy: each event confirms the number.
            return self.base
        last = max(self.found, default=-1)
        if last >= count:
            raise SafetyRefusal(
                f"{self.found[last][0]} has {METADATA_TOPIC}-{last}, but the topic has {count} partitions "
                f"({self.stated[0].source}), so that the last is {METADATA_TOPIC}-{count - 1}",
                hint="brokers would not read it: correct the number, or move the folder away",
            )
        if last + 1 == count and self._is_being_made():
            return replace(self.base, partition_count=count)
        self._require_own_partitions()
        self._require_all_replicas()
        return replace(self.base, placement=self._placement(count))

    @property
    def _is_registered(self) -> bool:
        """Return whether the topic exists in the cluster's metadata."""
        return self.registration is not None and self.registration.topic_id is not None

    def _is_being_made(self) -> bool:
        """Return whether tierctl was stopped when it made the topic, before it had any event."""
        is_recorded = exists(self.folder / META_PROPERTIES) or recorded_count(self.folder) is not None
        return not is_recorded and is_unfinished(self.folder, list(self.found))

    def _topic_id(self) -> Uuid | None:
        """Return the topic's id; raise SafetyRefusal if a partition is of another topic of the name."""
        paths = (partition_folder(each, number) for number, dirs in self.found.items() for each in dirs)
        found = {
            path: read_decoded(path / PARTITION_METADATA_FILE, read_partition_metadata) for path in paths
        }
        known = {path: topic_id for path, topic_id in found.items() if topic_id is not None}
        if self.registration is None:
            expected, source = next(iter(known.values()), None), str(next(iter(known), None))
        else:
            expected, source = self.registration.topic_id, "the cluster's metadata"
        other = next((path for path in known if known[path] != expected), None)
        if other is not None:
            raise SafetyRefusal(
                f"{other} has topic id {known[other]}, expected is {expected or 'none'}, as in {source}: it "
                "was deleted, or is of another cluster",
                hint="brokers remove the folders of a deleted topic when they start; leave out the log "
                f"directories of other clusters, or {_ONLINE}",
            )
        return expected

    def _require_own_partitions(self) -> None:
        """Raise SafetyRefusal if other brokers have partitions of which this one may be a replica or not."""
        if self.registration is not None:
            return
        own = [each for each in self.dirs if node_of(each) == node_of(self.folder)]
        other = next((number for number, found in self.found.items() if not set(found) & set(own)), None)
        if other is not None:
            raise SafetyRefusal(
                f"{self.found[other][0]} has {METADATA_TOPIC}-{other}, which {self.folder} lacks: whether "
                "its broker is a replica is unknown",
                hint="name the log directory that has __cluster_metadata-0 with --log-dir, or one with all "
                f"partitions of the metadata topic as --metadata, or {_ONLINE}",
            )

    def _require_all_replicas(self) -> None:
        """Raise SafetyRefusal if a replica is on a broker that does not get the events."""
        if self.registration is None:
            return
        others = _other_brokers(self.registration, self.dirs)
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

    def _placement(self, count: int) -> TopicPlacement:
        """Return where each partition is, or has to be; raise SafetyRefusal if it must not be made."""
        topic_id = self._topic_id()
        lost = set(range(count)) - set(self.found)
        if lost and not self.base.remakes_lost:
            raise SafetyRefusal(
                f"{METADATA_TOPIC}-{min(lost)} is missing in {self.folder}, of {count} partitions "
                f"({self.stated[0].source}): the events of some topics are lost",
                hint="rebuild makes the partition again, and publishes its events from the tier",
            )
        by_node: dict[str, list[Path]] = {}
        for each in self.dirs:
            by_node.setdefault(node_of(each), []).append(each)
        missing = self._unnamed(topic_id)
        damaged: dict[Path, Tail] = {}
        homes = {number: self._home(number, damaged) for number in self.found}
        for node, dirs in by_node.items():
            there = {number for number, found in self.found.items() if set(found) & set(dirs)}
            for number in sorted(self._due(node, there, lost) - there):
                directory = self._directory(number, node, dirs)
                missing.setdefault(directory, []).append(number)
                homes.setdefault(number, directory)
        homeless = set(range(count)) - homes.keys()
        if homeless:
            raise SafetyRefusal(
                f"no log directory here is of a replica of {METADATA_TOPIC}-{min(homeless)}: its events have "
                "no place here",
                hint=f"name the log directories of all brokers with replicas with --log-dir, or {_ONLINE}",
            )
        return TopicPlacement(homes=homes, topic_id=topic_id, missing=missing, damaged=damaged)

    def _unnamed(self, topic_id: Uuid | None) -> dict[Path, list[int]]:
        """Return the partitions whose folders lack the topic id, by log directory.

        Raise SafetyRefusal if a broker's folders lack it and nothing else states it.
        """
        unnamed: dict[Path, list[int]] = {}
        for number, dirs in self.found.items():
            for each in dirs:
                if not has_topic_id(each, number):
                    unnamed.setdefault(each, []).append(number)
        if topic_id is not None or not unnamed:
            return unnamed
        if exists(self.folder / META_PROPERTIES):
            raise SafetyRefusal(
                f"nothing states the topic id of {METADATA_TOPIC}: no folder of a partition has "
                f"{PARTITION_METADATA_FILE}",
                hint=_SOURCES,
            )
        return {}

    def _home(self, number: int, damaged: dict[Path, Tail]) -> Path:
        """Return the directory with the longest replica of a partition; add those with damage to `damaged`.

        A command that can't publish lost events again uses the replica in the folder, and reports its damage.
        """
        dirs = self.found[number]
        if not self.base.remakes_lost:
            return dirs[0]
        ends = {}
        for each in dirs:
            tail, is_damaged = sound_end(each, number)
            ends[each] = tail.next_offset
            if is_damaged:
                damaged[partition_folder(each, number).resolve()] = tail
        return max(dirs, key=lambda each: ends[each])

    def _due(self, node: str, there: set[int], lost: set[int]) -> set[int]:
        """Return the partitions that a broker must have; it has those `there`."""
        if self.registration is not None:
            number = natural_number(node)
            return set() if number is None else set(self.registration.nodes.get(number, ()))
        # A broker that has fewer partitions than there are is no replica of all of them.
        return lost if there >= set(self.found) else set()

    def _directory(self, number: int, node: str, dirs: Sequence[Path]) -> Path:
        """Return the directory among `dirs` of broker `node` that gets a partition without a folder.

        A broker makes an empty log in the directory that the controller assigned, wherever another is. Raise
        SafetyRefusal if that directory is not among `dirs`.
        """
        assigned = self.registration and self.registration.directory(number, int(node))
        if assigned is None:
            return max(dirs, key=lambda each: len(partitions_in(each)))
        found = next((each for each in dirs if _directory_id(each) == assigned), None)
        if found is None:
            raise SafetyRefusal(
                f"{METADATA_TOPIC}-{number} of broker {node} is assigned to the log directory with "
                f"directory.id={assigned}, which is none of {', '.join(map(str, dirs))}",
                hint=f"name the directory whose {META_PROPERTIES} has this id with --log-dir; if its disk is "
                f"lost, {_ONLINE}",
            )
        return found


def is_untraceable(request: MutationRequest) -> bool:
    """Return whether brokers' log directories have no partition of the topic, and nothing states its id."""
    folder = folder_of(request.metadata)
    if folder is None or not is_of_a_broker(folder):
        return False
    dirs = [folder, *request.log_dir]
    registration = registered(dirs)
    is_registered = registration is not None and registration.topic_id is not None
    return not is_registered and not any(map(partitions_in, dirs))


def _directory_id(log_dir: Path) -> Uuid | None:
    return read_decoded(log_dir / META_PROPERTIES, read_directory_id)


def registered(folders: Iterable[Path]) -> TopicRegistration | None:
    """Return what the cluster's metadata in `folders` say about the topic; None if none of them has any.

    Each node has a copy of the cluster's metadata; the one with the latest records decides. Raise
    SafetyRefusal if the folders are of several clusters, of which another one would decide.
    """
    folders = list(folders)
    clusters = {read_decoded(each / META_PROPERTIES, read_cluster_id): each for each in folders}
    clusters.pop(None, None)
    if len(clusters) > 1:
        found_in = " and ".join(f"{each} ({cluster_id})" for cluster_id, each in sorted(clusters.items()))
        raise SafetyRefusal(
            f"the log directories are of several clusters: {found_in}",
            hint="name those of the cluster that has the metadata topic",
        )
    copies = (read_registration(folder, METADATA_TOPIC) for folder in folders)
    found = (each for each in copies if each is not None)
    return max(found, key=lambda each: each.next_offset, default=None)


def _stated(
    request: MutationRequest, registration: TopicRegistration | None, broker_settings: StatedSettings
) -> Iterator[_Stated]:
    if registration is not None and registration.replicas:
        yield _Stated("the cluster's metadata", len(registration.replicas))
    if request.metadata_partitions is not None:
        yield _Stated("--metadata-partitions", request.metadata_partitions)
    given = manager_settings(broker_settings.stripped())
    stated = manager.TOPIC_PARTITIONS.given(given)
    if stated is not None:
        yield _Stated(place_of(given, manager.TOPIC_PARTITIONS.name), stated)


def _with_record(stated: list[_Stated], folder: Path) -> list[_Stated]:
    """Return `stated`, and the number with which tierctl made the topic in `folder`.

    A broker that uses the folder since may have got more partitions: then the others decide.
    """
    recorded = recorded_count(folder) if partitions_in(folder) else None
    if recorded is None or (stated and exists(folder / META_PROPERTIES)):
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
    registration = registered(folders)
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
    node = read_decoded(folder / META_PROPERTIES, read_node)
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
    identity object, if the tier has one, so that the tier belongs to the new topic without a change.
    """
    folder = folder_of(request.metadata)
    if folder is None or is_of_a_broker(folder):
        return FolderSettings(replicas=tuple(request.log_dir))
    topic_id = known_topic_id(resources.remote)
    return FolderSettings() if topic_id is None else FolderSettings(new_topic_id=lambda: topic_id)
