"""Give a formatted node topics: the records of these, and its metadata topic.

`require_objects_are_safe` proves that its broker can't delete the only copy of the objects.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import chain
from pathlib import Path
from zlib import crc32

from tierctl.apply.run import Run
from tierctl.apply.run_context import effect
from tierctl.apply.tier_check import tier_name
from tierctl.commands.metadata_folder import known_topic_id
from tierctl.commands.mutation import Mutation
from tierctl.commands.resources import Resources
from tierctl.commands.restore.new_logs import NewLogs, PartitionSource, attempted
from tierctl.errors import AuthenticationError, SafetyRefusal
from tierctl.files import read_regular, replace_durably
from tierctl.locallog import FormattedNode
from tierctl.locallog.folders import distinct_dirs
from tierctl.metadata.manager import RemoteLogMetadataManager, no_op, open_metadata
from tierctl.metadata.server_properties import MetadataTopicSettings, ServerSettings
from tierctl.metadata.topic import METADATA_TOPIC, IfMissing, topic_location
from tierctl.metadata.topic.folder import partitions_in
from tierctl.metadata.topic.folder_writer import FolderSettings, known_id
from tierctl.model import ClusterIdentity, ListedSet, MetadataEvent, RemoteLogSegmentMetadata, Uuid
from tierctl.model.local import SavedTopics
from tierctl.model.location import canonical_uri
from tierctl.model.selection import counted
from tierctl.model.settings import broker, topic
from tierctl.plan.partition_choice import segment_steps
from tierctl.plan.steps import Action, Step
from tierctl.state.tier_state import TierState
from tierctl.storage import store_uri
from tierctl.storage.open_tier import TierSpec
from tierctl.storage.remote_storage_manager import RemoteStorageManager
from tierctl.storage.stores.base import InspectableStore, Versioning
from tierctl.storage.stores.local_store import LocalStore
from tierctl.wire.kraft import PartitionRegistration, config_record, partition_record, topic_record

COPYING_DISABLED: Mapping[str, str] = {
    topic.COPY_DISABLE.name: "true",
    topic.LOCAL_RETENTION_MS.name: "-2",
    topic.LOCAL_RETENTION_BYTES.name: "-2",
}
"""Topic settings that stop brokers from copying segments and from raising the log start (KIP-950)."""
COPY_DISABLE_LEVEL = 21
"""The feature level of metadata.version in Kafka 3.9, the first version with remote.log.copy.disable."""


def former_settings(name: str, settings: Mapping[str, str], broker_settings: Mapping[str, str]) -> str:
    """Return the command that gives a topic its `settings` back that `COPYING_DISABLED` replaced.

    It is one call, because Kafka validates the settings of a topic together: it refuses another local
    retention while copying is disabled. The address is that of the first listener that is no controller's.
    """
    stated = broker.endpoints_row(broker_settings).value(broker_settings)
    controllers = {each.upper() for each in broker.CONTROLLER_LISTENER_NAMES.value(broker_settings)}
    of_brokers = [each for each in stated if each.partition("://")[0].upper() not in controllers]
    host, _, port = (of_brokers or stated)[0].rpartition("//")[2].rpartition(":")
    former = [f"{each}={settings[each]}" for each in COPYING_DISABLED if each in settings]
    unset = [each for each in COPYING_DISABLED if each not in settings]
    words = [
        f"kafka-configs.sh --bootstrap-server {host or 'localhost'}:{port} --alter --entity-type topics",
        f"--entity-name {name}",
        *([f"--add-config {','.join(former)}"] if former else []),
        *([f"--delete-config {','.join(unset)}"] if unset else []),
    ]
    return " ".join(words)


def last_topic_id(
    name: str, sets: Mapping[Uuid, Collection[ListedSet]], saved: SavedTopics, clock_ms: int
) -> Uuid:
    """Return which of the ids of `sets`, all of topics named `name`, that of the last topic is.

    It is the one that `saved` has, if every object of the others is older than the file, and the file not
    later than `clock_ms`. Otherwise raise SafetyRefusal: the topic may have been deleted and created again
    since.
    """
    own = saved.topics[name].topic_id if name in saved.topics else None
    others = [each for topic_id, found in sets.items() if topic_id != own for each in found]
    times_ms = [each.modified_ms for each in others if each.modified_ms is not None]
    is_newer = len(times_ms) == len(others) and max(times_ms) < (saved.saved_ms or 0) <= clock_ms
    if own is not None and is_newer:
        return own
    ids = [
        f"{topic_id} ({counted(len(found), 'segment')}{', in --topics-file' if topic_id == own else ''})"
        for topic_id, found in sorted(sets.items())
    ]
    raise SafetyRefusal(
        f"the tier has objects of {len(sets)} topics named {name}, with the ids {' and '.join(ids)}",
        hint="a topic that was deleted and created again has another id, and no file of backup-config that "
        "is newer than the objects of the others, and not of the future, says which one was the last: "
        "name the id to restore with --topic-id, and restore other topics in another run, with --topic",
    )


def why_unpublished(sources: Iterable[PartitionSource]) -> str | None:
    """Return why a topic that the node has lacks events; None if its segments are in the metadata topic."""
    steps = chain.from_iterable(segment_steps(each.inputs, each.decision) for each in sources)
    lacking = sum(step.action is Action.PUBLISH_SEGMENT for step in steps)
    if not lacking:
        return None
    return (
        f"the node has the topic, and the metadata topic lacks {counted(lacking, 'segment')} of it, since an "
        "earlier run had --publish-later: repeat that option, or start the node, keep consumers away, and "
        "publish them with tierctl rebuild --metadata kafka://HOST:PORT"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBroker:
    """The broker that gets every partition; `directories` maps its log directories to their directory ids."""

    node_id: int
    directories: Mapping[Path, Uuid]
    metadata_version: int

    def log_dir(self, topic: str, partition: int) -> Path:
        """Return the log directory for a partition; the choice is the same in each run.

        It does not depend on the order in which the directories are named.
        """
        dirs = sorted(self.directories)
        return dirs[(crc32(topic.encode()) + partition) % len(dirs)]

    @property
    def start_settings(self) -> Mapping[str, str]:
        """Return the settings that override the topic's own ones until the restore has been checked."""
        # Older brokers do not have these settings. They know all segments when they start, so they may copy.
        return COPYING_DISABLED if self.metadata_version >= COPY_DISABLE_LEVEL else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create with `settings`; `leader_epochs[i]` is the leader epoch of partition i.

    All partitions are in `log_dir`; if that is None, they are spread over the broker's log directories.
    """

    topic: str
    topic_id: Uuid
    settings: Mapping[str, str]
    leader_epochs: Sequence[int]
    log_dir: Path | None = None

    def records(self, broker: NewBroker) -> list[bytes]:
        """Return the records of the topic, its settings and its partitions; `broker` is the only replica."""
        partitions = [
            PartitionRegistration(
                topic_id=self.topic_id,
                partition=number,
                node_id=broker.node_id,
                leader_epoch=epoch,
                directory_id=broker.directories[self.log_dir or broker.log_dir(self.topic, number)],
            )
            for number, epoch in enumerate(self.leader_epochs)
        ]
        settings = sorted(self.settings.items())
        return [
            topic_record(self.topic, self.topic_id),
            *(config_record(self.topic, name, value) for name, value in settings),
            *map(partition_record, partitions),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewNode(NewLogs):
    """The logs of a formatted node, and the new bootstrap file: `content` replaces `former` (the old bytes).

    With `has_metadata_topic` the metadata topic is created even if it gets no event.
    """

    bootstrap_path: Path
    former: bytes
    content: bytes
    has_metadata_topic: bool = True

    def create_topics(self, run: Run, steps: Sequence[Step]) -> None:
        """Write the topics into the bootstrap file, in one write and last; the act of CREATE_TOPIC.

        If a run is killed before, the node starts without any restored topic.
        """
        run.require_all_done()
        if not run.plan.steps:
            return
        if self.has_metadata_topic and run.may_begin():
            # An empty append creates the node's metadata topic, which must exist even without segments.
            run.context.metadata.publish(())
        run.attempt(steps, lambda each: attempted(each, self._write_bootstrap))

    def _write_bootstrap(self) -> None:
        if read_regular(self.bootstrap_path) != self.former:
            raise SafetyRefusal(f"{self.bootstrap_path} was changed by another program", hint="plan again")
        with effect("restore.bootstrap.write"):
            replace_durably(self.bootstrap_path, self.content, backup=True)


class NewNodeMetadata:
    """Implement RemoteLogMetadataManager over the node's log directories; `publish` creates the topic.

    It is in the log directory where an earlier run made it, or else in the first one that is named.
    """

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        config = resources.request.broker_config
        self._settings = MetadataTopicSettings() if config is None else ServerSettings.read(config).topic
        self._manager: RemoteLogMetadataManager | None = None
        self._is_writable = False
        self._empty = TierState()
        self._topic_id: Uuid | None = None

    @cached_property
    def _folder(self) -> Path:
        dirs = distinct_dirs(self._resources.request.log_dir)
        found = [each for each in dirs if partitions_in(each)]
        if len(found) > 1:
            raise SafetyRefusal(
                f"{METADATA_TOPIC} is in {found[0]} and in {found[1]}, expected is one log directory",
                hint="format the node again",
            )
        return [*found, *dirs][0]

    def topic(self, node: FormattedNode, remote: RemoteStorageManager) -> NewTopic:
        """Return the metadata topic to create in the cluster metadata; its id is the same in every run.

        The id is taken from the topic that a killed run made, or else from the tier's identity, or else
        derived from the node. Raise SafetyRefusal if a killed run made another number of partitions, or if
        two log directories have the topic.
        """
        made, count = partitions_in(self._folder), self._settings.num_partitions
        if made and made[-1] + 1 != count:
            raise SafetyRefusal(
                f"{self._folder} has {made[-1] + 1} partitions of {METADATA_TOPIC}, expected are {count}",
                hint="name the server.properties of the node with --broker-config, the same as in the "
                "first run",
            )
        self._topic_id = known_id(self._folder, made) or known_topic_id(remote) or _derived_id(node)
        settings = self._settings
        return NewTopic(
            topic=METADATA_TOPIC,
            topic_id=self._topic_id,
            # As TopicBasedRemoteLogMetadataManager creates it.
            settings={
                topic.CLEANUP_POLICY.name: "delete",
                topic.RETENTION_MS.name: str(settings.retention_ms),
                topic.MIN_INSYNC_REPLICAS.name: str(settings.min_isr),
                topic.REMOTE_STORAGE_ENABLE.name: "false",
            },
            # Their batches have leader epoch 0.
            leader_epochs=[1] * count,
            log_dir=self._folder,
        )

    @property
    def state(self) -> TierState:
        """Implement `RemoteLogMetadataManager.state`."""
        return self._empty if self._manager is None else self._manager.state

    def refresh(self) -> TierState:
        """Implement `RemoteLogMetadataManager.refresh`; an incomplete topic counts as empty."""
        if self._manager is None and 0 in partitions_in(self._folder):
            self._manager = self._opened(writable=False)
        return self._empty if self._manager is None else self._manager.refresh()

    def publish(self, events: Sequence[MetadataEvent], *, before_append: Callable[[], None] = no_op) -> None:
        """Implement `RemoteLogMetadataManager.publish`; the first call creates the topic."""
        if self._manager is None or not self._is_writable:
            self.close()
            self._manager, self._is_writable = self._opened(writable=True), True
            self._manager.refresh()
        self._manager.publish(events, before_append=before_append)

    def deleted_segments(self) -> Iterator[RemoteLogSegmentMetadata]:
        """Yield nothing: no segment is deleted before the node starts."""
        return iter(())

    def _opened(self, *, writable: bool) -> RemoteLogMetadataManager:
        location = topic_location("--log-dir", str(self._folder.absolute()))
        folder = None
        if writable and self._topic_id is not None:
            count, topic_id = self._settings.num_partitions, self._topic_id
            folder = FolderSettings(partition_count=count, new_topic_id=lambda: topic_id)
        return open_metadata(
            location,
            writable=writable,
            if_missing=IfMissing.CREATE if writable else IfMissing.FAIL,
            on_torn=self._resources.progress.note,
            folder=folder,
        )

    def identity(self) -> ClusterIdentity:
        """Implement `RemoteLogMetadataManager.identity`: the node has no topic yet."""
        return ClusterIdentity(cluster_id=None, metadata_topic_id=None)

    def close(self) -> None:
        """Implement `RemoteLogMetadataManager.close`."""
        if self._manager is not None:
            self._manager.close()
        self._manager = None


def _derived_id(node: FormattedNode) -> Uuid:
    """Derive an id from the ids of the cluster and its directories, which format chooses at random.

    The id does not begin with '-', as in Kafka's Uuid.randomUuid, so that no tool takes it for an option.
    """
    seed = "\0".join([node.cluster_id, *sorted(node.directories.values())]).encode()
    while True:
        seed = sha256(seed + METADATA_TOPIC.encode()).digest()
        found = Uuid.from_bytes(seed[:16])
        if not found.startswith("-"):
            return found


_HINT = (
    "make the store deny deletes until the restored topics were checked (a policy, or versioning), or copy "
    "the objects and name the copy with --copy-of-objects; --deletes-are-denied overrides this check"
)
_PROBE = b"written by tierctl restore, to see whether deletes are denied; may be deleted\n"


def require_objects_are_safe(run: Mutation, *, copy: str | None, writes_probe: bool) -> None:
    """Raise SafetyRefusal unless a copy has every object, the bucket keeps versions, or deletes are denied.

    With `writes_probe`, an object of tierctl's own is written and its deletion attempted. Without it, a store
    whose protection only this attempt can show is neither refused nor reported as safe.
    """
    if copy is not None:
        _require_copy(run, copy)
        return
    store = run.remote.store
    if isinstance(store, LocalStore):
        raise SafetyRefusal(
            f"it is not proven that the objects of {tier_name(run.remote)} can't be deleted", hint=_HINT
        )
    if isinstance(store, InspectableStore) and _is_versioned(store):
        return
    if not writes_probe:
        return
    if not _denies_deletes(run.remote):
        raise SafetyRefusal(
            f"{tier_name(run.remote)} has no versioning, and tierctl could delete its test object",
            hint=_HINT,
        )
    run.progress.warn(
        f"{tier_name(run.remote)} denies deletes with the credentials of this run: make sure that it denies "
        "them with those of the brokers, too"
    )


def _is_versioned(store: InspectableStore) -> bool:
    try:
        return store.versioning() is Versioning.ENABLED
    except AuthenticationError:
        return False


def _denies_deletes(remote: RemoteStorageManager) -> bool:
    """Return whether the store refuses to delete an object that tierctl writes for this test.

    If it refuses, the object stays in the store: each run uses the same key, and writes it only if it is
    missing.
    """
    key = remote.own_key("probe")
    if key not in remote.store.sizes_bytes([key]):
        remote.store.put_all({key: _PROBE})
    try:
        errors = remote.store.delete([key])
    except AuthenticationError:
        return True
    return isinstance(errors.get(key), AuthenticationError)


def _require_copy(run: Mutation, uri: str) -> None:
    """Raise SafetyRefusal unless the tier at `uri` has every object with the same size."""
    spec = TierSpec.from_settings(
        store_uri("--copy-of-objects", uri),
        run.resources.broker_settings,
        layout=run.request.layout,
    )
    copy = run.resources.open_tier(spec)
    # Two names of one folder are no copy: deleting the tier's objects would delete both.
    own, other = (canonical_uri("--copy-of-objects", tier_name(each)) for each in (run.remote, copy))
    if own == other:
        raise SafetyRefusal(f"--copy-of-objects {uri} is the tier itself", hint=_HINT)
    there = {each.key: each.size_bytes for each in copy.list_objects()}
    missing = [each for each in run.remote.list_objects() if there.get(each.key) != each.size_bytes]
    if missing:
        size = there.get(missing[0].key)
        found = "lacks it" if size is None else f"has {size} bytes"
        raise SafetyRefusal(
            f"--copy-of-objects {uri} is not a copy of the tier: it differs in "
            f"{counted(len(missing), 'object')}; the first, {missing[0].key}, has {missing[0].size_bytes} "
            f"bytes, the copy {found}",
            hint=_HINT,
        )
