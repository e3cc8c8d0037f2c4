"""`restore into` a formatted node: its files, refused cases, and the file that `backup-config` writes."""

import shutil
import signal
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tierctl import commands
from tierctl.commands.restore import backup_config
from tierctl.errors import CorruptInputError, NotFoundError, SafetyRefusal, TierctlError, UsageError
from tierctl.locallog.formatted_node import BootstrapFile
from tierctl.model import IndexType, RemoteLogSegmentState, TopicPartition, Uuid
from tierctl.model.local import SavedTopic, SavedTopics, TopicFacts
from tierctl.model.progress import SilentProgress
from tierctl.storage.open_tier import TierSpec, open_tier
from tierctl.wire.batches.batch_head import Record
from tierctl.wire.batches.record_batch import batches, encode_batch
from tierctl.wire.files.checkpoints import (
    decode_producer_snapshot,
    read_leader_epoch_checkpoint,
    read_offset_checkpoint,
    read_partition_metadata,
)
from tierctl.wire.files.topics_file import read_topics_file, write_topics_file
from tierctl.wire.kraft import config_record, next_producer_id, topic_of

from tests.metadata.topics import state_at
from tests.support.faults import observed
from tests.support.formatted import DIRECTORY_ID, VERSIONS, bootstrap_name, formatted_dir, formatted_node

Capture = Callable[..., Path]
TIERS = {
    "tiered-cluster": "before-remote",
    "aiven-plain": "bucket",
    "aiven-encrypted": "bucket",
    "unclean-leader": "before/remote",
}
CHECKPOINTS = ("log-start-offset", "recovery-point-offset", "replication-offset")
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
FAR_MS = 1 << 42
"""A time at which every record of the captures is older than Kafka's default of retention.ms."""
OTHER_DIRECTORY_ID = "zcNH6yZoXjLFM0nEAepk_Q"


def rebuilt(remote: Path, metadata: Path) -> Any:
    """Return the state of a tier as `rebuild` publishes it."""
    request = commands.RebuildRequest(metadata=str(metadata), remote=str(remote), apply=True)
    assert commands.rebuild(request).exit_code == 0
    return state_at(metadata)


def facts(state: Any) -> list[Any]:
    """Return all segments, without the times of their events."""
    found = [s for part in state for s in part.cache.list_remote_log_segments()]
    return sorted((replace(s, event_timestamp_ms=0) for s in found), key=lambda s: str(s.segment_id))


def saved_of(state: Any, **settings: str) -> SavedTopics:
    """Return the file of `backup-config`; one partition of each topic was never tiered."""
    partitions = [part.topic_id_partition for part in state]
    return SavedTopics(
        topics={
            each.topic: SavedTopic(
                topic=each.topic,
                topic_id=each.topic_id,
                partitions=max(p.partition for p in partitions if p.topic == each.topic) + 2,
                settings={"retention.ms": "-1", **settings},
            )
            for each in partitions
        }
    )


class Scene:
    """A tier, the file of `backup-config`, and a formatted node."""

    def __init__(self, remote: Path, state: Any, folder: Path, version: str) -> None:
        self.remote = remote
        self.state = state
        self.saved = saved_of(state)
        self.file = folder / "topics.yaml"
        self.node = formatted_node(folder / "node", version)
        self.bootstrap = self.node / bootstrap_name(version)

    def restore(self, progress: SilentProgress | None = None, **more: Any) -> commands.MutationResult:
        self.file.write_bytes(write_topics_file(self.saved))
        fields: dict[str, Any] = {
            "into": str(self.node),
            "log_dir": (self.node,),
            "remote": str(self.remote),
            "topics_file": str(self.file),
            "deletes_are_denied": True,
            "apply": True,
        }
        return commands.restore_into(commands.RestoreIntoRequest(**fields | more), progress)

    @property
    def values(self) -> Sequence[bytes]:
        """The metadata records with which the node starts."""
        return BootstrapFile.decode(self.bootstrap.read_bytes()).values

    def topics(self) -> dict[str, str]:
        return dict(found for found in map(topic_of, self.values) if found is not None)

    def save(self, topic: SavedTopic) -> None:
        """Add a topic to the file of `backup-config`, or replace it."""
        self.saved = replace(self.saved, topics={**self.saved.topics, topic.topic: topic})

    def configured(self, *lines: str) -> Path:
        """Write the settings of a broker; return their file."""
        path = self.file.with_name("server.properties")
        path.write_text("".join(f"{line}\n" for line in lines))
        return path


SceneOf = Callable[..., Scene]


@pytest.fixture(scope="module")
def state_of(capture: Capture, module_folder: Path) -> Callable[[str], Any]:
    """Return a function that rebuilds the state of a captured tier once; no test may change it."""
    return cache(lambda tier: rebuilt(capture(tier) / TIERS[tier], module_folder / tier))


@pytest.fixture
def scene_of(capture: Capture, state_of: Callable[[str], Any], tmp_path: Path) -> SceneOf:
    """Return a function that makes the scene of a captured tier, whose objects no test may change."""

    def make(tier: str, version: str = "4.4.0") -> Scene:
        return Scene(capture(tier) / TIERS[tier], state_of(tier), tmp_path, version)

    return make


@pytest.fixture
def scene(scene_of: SceneOf, tmp_path: Path) -> Scene:
    """Return a scene with objects that a test may change."""
    made = scene_of("aiven-plain")
    made.remote = shutil.copytree(made.remote, tmp_path / "bucket")
    return made


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("tier", TIERS)
def test_a_captured_tier(tier: str, scene_of: SceneOf) -> None:
    scene = scene_of(tier)
    objects = files(scene.remote)
    untouched = files(scene.node)
    scene.restore(apply=False)
    assert files(scene.node) == untouched
    result = scene.restore()
    assert {outcome.status for outcome in result.outcomes or ()} == {"done"}
    assert files(scene.remote) == objects
    assert facts(state_at(scene.node)) == facts(scene.state)
    assert scene.topics().keys() == {*scene.saved.topics, "__remote_log_metadata"}
    check_logs(scene, is_readable=tier != "aiven-encrypted")
    whole = files(scene.node)
    assert not scene.restore().plan.steps
    assert files(scene.node) == whole


def test_a_signal_ends_a_restore_between_two_logs(scene_of: SceneOf) -> None:
    scene, renamed = scene_of("tiered-cluster"), list[str]()

    def observe(label: str, moment: str) -> None:
        if (label, moment) == ("restore.partition.rename", "after"):
            renamed.append(label)
            if len(renamed) == 1:
                signal.raise_signal(signal.SIGTERM)

    with observed(observe):
        stopped = scene.restore()
    assert stopped.exit_code == 128 + signal.SIGTERM
    assert not {outcome.status for outcome in stopped.outcomes or ()} & {"done", "failed"}
    assert len(renamed) == len(list(scene.node.glob("*/partition.metadata"))) == 1
    assert scene.restore().exit_code == 0
    assert facts(state_at(scene.node)) == facts(scene.state)


def check_logs(scene: Scene, *, is_readable: bool) -> None:
    """Compare every new log with the last segment of its partition, and the checkpoints with both."""
    remote = open_tier(TierSpec(uri=scene.remote.as_uri()))
    ends = {
        name: read_offset_checkpoint((scene.node / f"{name}-checkpoint").read_bytes()) for name in CHECKPOINTS
    }
    producers = []
    for part in scene.state:
        partition = part.topic_id_partition
        chain = [s for s in part.cache.list_remote_log_segments() if s.state is FINISHED]
        first = min(chain, key=lambda s: s.start_offset)
        last = max(chain, key=lambda s: s.end_offset)
        folder, key = scene.node / str(partition.topic_partition), partition.topic_partition
        base = f"{last.end_offset + 1:020d}"
        assert read_partition_metadata((folder / "partition.metadata").read_bytes()) == partition.topic_id
        assert (folder / f"{base}.log").stat().st_size == 0
        epochs = read_leader_epoch_checkpoint((folder / "leader-epoch-checkpoint").read_bytes())
        assert epochs[-1].epoch == last.segment_leader_epochs[-1][0]
        assert epochs[0].start_offset == ends["log-start-offset"][key] >= first.start_offset
        assert ends["recovery-point-offset"][key] == ends["replication-offset"][key] == last.end_offset + 1
        assert (folder / f"{base}.snapshot").exists() == is_readable
        if is_readable:
            snapshot = (folder / f"{base}.snapshot").read_bytes()
            with remote.fetch_index(last, IndexType.PRODUCER_SNAPSHOT) as stream:
                assert stream.read() == snapshot
            producers += [entry.producer_id for entry in decode_producer_snapshot(snapshot)]
    remote.close()
    following = [found for found in map(next_producer_id, scene.values) if found is not None]
    assert following == ([max(producers) + 1] if producers else [])


@pytest.mark.parametrize("version", VERSIONS)
def test_one_topic_after_another(version: str, scene_of: SceneOf) -> None:
    scene = scene_of("tiered-cluster", version)
    first, second, *_ = scene.saved.topics
    scene.restore(topic=(first,))
    assert scene.topics().keys() == {first, "__remote_log_metadata"}
    before = facts(state_at(scene.node))
    scene.restore(topic=(first, second))
    assert scene.topics().keys() == {first, second, "__remote_log_metadata"}
    assert [each for each in facts(state_at(scene.node)) if each in before] == before


def test_partitions_are_spread_over_log_directories(scene: Scene, tmp_path: Path) -> None:
    """So they are if a later run names the directories in another order."""
    more = formatted_dir(tmp_path / "second", OTHER_DIRECTORY_ID)
    scene.restore(log_dir=(scene.node, more), topic=("sensors",))
    scene.restore(log_dir=(more, scene.node))
    found = {path.name for folder in (scene.node, more) for path in folder.glob("sensors-*")}
    assert found == {"sensors-0", "sensors-1"}
    assert len(list(more.glob("sensors-*"))) == 1
    assert not list(more.glob("__remote_log_metadata-*"))
    assert facts(state_at(scene.node)) == facts(scene.state)


def nothing(scene: Scene) -> None:
    """Change nothing."""
    del scene


def change_saved(scene: Scene, **changes: Any) -> None:
    scene.save(replace(scene.saved.topics["sensors"], **changes))


def cut_bootstrap(scene: Scene) -> None:
    scene.bootstrap.write_bytes(scene.bootstrap.read_bytes()[:-1])


def start(scene: Scene) -> None:
    (scene.bootstrap.parent / "00000000000000000000.log").write_bytes(b"x")


def older_version(scene: Scene) -> None:
    file = BootstrapFile.decode(scene.bootstrap.read_bytes())
    value = file.values[0].replace(b"metadata.version\x00\x21", b"metadata.version\x00\x10")
    header = next(batches(file.data)).head
    batch = encode_batch([Record(1, file.timestamp_ms, None, value)])
    footer = (2).to_bytes(8, "big") + file.data[file.footer_at + 8 :]
    scene.bootstrap.write_bytes(file.data[: header.end] + batch + footer)


def folder_of(name: str, topic_id: str | None = None, log: str = "0" * 20) -> Callable[[Scene], None]:
    def make(scene: Scene) -> None:
        folder = scene.node / name
        folder.mkdir()
        own = topic_id or scene.saved.topics["sensors"].topic_id
        (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {own}")
        (folder / f"{log}.log").write_bytes(b"")

    return make


def lose_a_segment(scene: Scene) -> None:
    chain = sorted(scene.remote.glob("**/sensors-*/0/*.rsm-manifest"))
    chain[2].unlink()


def cut_the_last_log(scene: Scene) -> None:
    path = max(scene.remote.glob("**/sensors-*/0/*.log"))
    path.write_bytes(path.read_bytes()[:2000])


def metadata_topic_twice(scene: Scene) -> None:
    other = formatted_dir(scene.node.parent / "other", OTHER_DIRECTORY_ID)
    for folder in (scene.node, other):
        (folder / "__remote_log_metadata-0").mkdir()


def other_topic_of_the_name(scene: Scene) -> None:
    scene.restore(topic=("sensors",))
    change_saved(scene, partitions=9)


def create_again(scene: Scene) -> None:
    """Add the objects of another topic with the name of one, as if it had been deleted and created again."""
    for folder in [*scene.remote.rglob("sensors-*")]:
        shutil.copytree(folder, folder.with_name(f"sensors-{OTHER_ID}"))


def own_setting(name: str, value: str) -> Callable[[Scene], None]:
    return lambda scene: change_saved(scene, settings={"retention.ms": "-1", name: value})


def one_id_for_all(scene: Scene) -> None:
    """Leave the objects of one topic, and give the other one its id, as in a file that was edited."""
    for folder in scene.remote.rglob("audit-*"):
        shutil.rmtree(folder)
    topic_id = scene.saved.topics["sensors"].topic_id
    settings = {"remote.storage.enable": "true"}
    scene.save(replace(scene.saved.topics["audit"], topic_id=topic_id, settings=settings))


def with_metadata_topic(scene: Scene) -> None:
    """Add the metadata topic of the lost cluster, of whose name a controller accepts one topic only."""
    scene.save(other_topic("__remote_log_metadata", partitions=50))


def other_topic(name: str, *, partitions: int = 1, **settings: str) -> SavedTopic:
    """Return a topic that has no object in the tier."""
    stated = {key.replace("_", "."): value for key, value in settings.items()}
    return SavedTopic(topic=name, topic_id=Uuid(OTHER_ID), partitions=partitions, settings=stated)


OTHER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
NO_PROOF = {"deletes_are_denied": False}
Refusal = tuple[Callable[[Scene], Any], dict[str, Any], type[TierctlError], str]


def refused(
    why: str,
    change: Callable[[Scene], Any] = nothing,
    kind: type[TierctlError] = SafetyRefusal,
    **request: Any,
) -> Refusal:
    """Return the case of a restore that is refused after `change`, with these fields of the request."""
    return change, request, kind, why


REFUSALS = {
    "not formatted": refused("is not formatted", lambda s: (s.node / "meta.properties").unlink()),
    "no bootstrap file": refused("neither of its bootstrap files", lambda s: s.bootstrap.unlink()),
    "a damaged bootstrap file": refused("bootstrap file", cut_bootstrap, TierctlError),
    "an old metadata.version": refused("metadata.version 16, expected is 17", older_version),
    "a node that was started": refused("shows that a node was started", start),
    "a broker that was started": refused("was started", lambda s: (s.node / ".lock").touch()),
    "an elected controller": refused("was started", lambda s: (s.bootstrap.parent / "quorum-state").touch()),
    "nothing proves that objects survive": refused("it is not proven", **NO_PROOF),
    "a copy that is the tier": refused("is the tier itself", **NO_PROOF, copy_of_objects="REMOTE"),
    "a copy that is a link to the tier": refused(
        "is the tier itself",
        lambda s: (s.remote.parent / "link").symlink_to(s.remote),
        **NO_PROOF,
        copy_of_objects="LINK",
    ),
    "a copy that lacks an object": refused("differs in 1 object", **NO_PROOF, copy_of_objects="COPY"),
    "a folder of another topic": refused("has a folder of", folder_of("bills-0", OTHER_ID)),
    "a folder that can't be read": refused(
        "folder bills-0 already", lambda s: (s.node / "bills-0").symlink_to(s.node / "unmounted")
    ),
    "a folder named like Kafka's own": refused(
        "folder __bills-0 already", lambda s: (s.node / "__bills-0").symlink_to(s.node / "unmounted")
    ),
    "a folder of another log": refused("other files than the log", folder_of("sensors-0")),
    "a hole": refused("--after-hole begins the log", lose_a_segment),
    "an incomplete set at the end": refused("new records would get their offsets", cut_the_last_log),
    "a partition too many": refused(
        "the tier has segments of sensors-1", lambda s: change_saved(s, partitions=1)
    ),
    "a topic that was created again": refused(
        "the topic was created again", lambda s: change_saved(s, topic_id=OTHER_ID)
    ),
    "two topics of one name": refused(f"with the ids {OTHER_ID} (", create_again),
    "two topics of one name, with an older file": refused(
        "segments, in --topics-file)",
        lambda s: (create_again(s), setattr(s, "saved", replace(s.saved, saved_ms=1))),
    ),
    "two topics of one name, with a file of the future": refused(
        "and not of the future, says which one was the last",
        lambda s: (create_again(s), setattr(s, "saved", replace(s.saved, saved_ms=FAR_MS))),
        clock_ms=lambda: FAR_MS - 1000,
    ),
    "the settings of another topic of the name": refused(
        f"in --topics-file, the selected objects of the tier are of {OTHER_ID} only",
        create_again,
        topic_id=(OTHER_ID,),
    ),
    "two topics of one id": refused("audit and sensors have the same id", one_id_for_all),
    "an internal topic": refused(
        "__remote_log_metadata is an internal topic", with_metadata_topic, topic=("__remote_log_metadata",)
    ),
    "settings that nobody knows": refused(
        "settings of audit are unknown", lambda s: setattr(s, "saved", SavedTopics(topics={}))
    ),
    "a value that no Kafka reads": refused(
        "topic sensors: max.message.bytes='1 MB' is not", own_setting("max.message.bytes", "1 MB"), UsageError
    ),
    "a value that this Kafka refuses": refused(
        "segment.bytes=500 is below 1048576", own_setting("segment.bytes", "500"), UsageError
    ),
    "a compacted topic": refused(
        "sensors-0: its settings have cleanup.policy=compact", own_setting("cleanup.policy", "compact")
    ),
    "a topic whose tiering was disabled": refused(
        "sensors-0: its settings have remote.storage.enable=false",
        own_setting("remote.storage.enable", "false"),
    ),
    "the same topic with other partitions": refused(
        "other partitions or settings", other_topic_of_the_name, topic=("sensors",)
    ),
    "events that were left for later": refused(
        "the metadata topic lacks", lambda s: s.restore(publish_later=True), topic=("sensors",)
    ),
    "other directories": refused(
        "expected is node 7", lambda s: formatted_dir(s.node.parent / "other", node_id=8), log_dir="OTHER"
    ),
    "a metadata topic in two directories": refused(
        "__remote_log_metadata is in", metadata_topic_twice, log_dir="OTHER"
    ),
    "a topic of nobody": refused("nobody", kind=NotFoundError, topic=("nobody",)),
    "some partitions": refused("with all its partitions", kind=UsageError, partition=(0,)),
    "no log directory": refused("--log-dir is missing", kind=UsageError, log_dir=()),
    "no file": refused("--topics-file is missing", kind=UsageError, topics_file=None),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refused(case: str, scene: Scene, tmp_path: Path) -> None:
    change, more, kind, why = REFUSALS[case]
    copy = shutil.copytree(scene.remote, tmp_path / "copy")
    next(copy.rglob("*.indexes")).unlink()
    named = {
        "REMOTE": str(scene.remote),
        "COPY": str(copy),
        "LINK": str(tmp_path / "link"),
        "OTHER": (scene.node, tmp_path / "other"),
    }
    change(scene)
    before = files(scene.node)
    with pytest.raises(kind) as caught:
        scene.restore(**{name: named.get(str(value), value) for name, value in more.items()})
    assert why in f"{caught.value.message} {caught.value.hint}"
    after = files(scene.node)
    after.pop(".tierctl.lock", None)
    before.pop(".tierctl.lock", None)
    assert after == before


def test_a_file_newer_than_the_objects_says_which_topic_was_the_last(scene: Scene) -> None:
    create_again(scene)
    scene.saved = replace(scene.saved, saved_ms=FAR_MS)
    progress = SilentProgress()
    result = scene.restore(progress, clock_ms=lambda: FAR_MS)
    assert scene.topics()["sensors"] == scene.saved.topics["sensors"].topic_id
    skipped = {(each.partition, each.reason) for each in result.plan.skipped if each.topic_id == OTHER_ID}
    assert {partition for partition, _ in skipped} == {0, 1}
    assert [line for line in progress.lines if OTHER_ID in line and all(why in line for _, why in skipped)]


def test_a_whole_copy_is_proof_enough(scene: Scene, tmp_path: Path) -> None:
    copy = shutil.copytree(scene.remote, tmp_path / "copy")
    scene.restore(deletes_are_denied=False, copy_of_objects=str(copy))
    assert "sensors" in scene.topics()


def test_after_a_hole_the_log_begins_later(scene: Scene) -> None:
    lose_a_segment(scene)
    scene.restore(after_hole=True)
    starts = read_offset_checkpoint((scene.node / "log-start-offset-checkpoint").read_bytes())
    assert starts[TopicPartition("sensors", 0)] > 0 == starts[TopicPartition("sensors", 1)]


def test_a_node_that_was_started_meanwhile_gets_no_topic(scene: Scene) -> None:
    former = scene.bootstrap.read_bytes()
    result = scene.restore(confirm=lambda _plan: start(scene))
    assert {outcome.status for outcome in result.outcomes or ()} == {"failed", "dropped"}
    assert scene.bootstrap.read_bytes() == former


@pytest.mark.parametrize("setting", ["retention.ms=1000", "retention.bytes=1000"])
def test_segments_that_retention_deletes_at_once_are_told(setting: str, scene: Scene) -> None:
    name, _, value = setting.partition("=")
    change_saved(scene, settings={"retention.ms": "-1", name: value})
    progress = SilentProgress()
    scene.restore(progress, apply=False, deletes_are_denied=False)
    assert [text for text in progress.lines if text.startswith("sensors: ") and setting in text]
    assert not [text for text in progress.lines if text.startswith("audit: ")]


@pytest.mark.parametrize(
    ("line", "own", "told"),
    [
        ("log.retention.minutes=1", {}, "retention.ms=60000"),
        ("log.retention.bytes=1000", {"retention.ms": "-1"}, "retention.bytes=1000"),
        ("log.retention.ms=-1", {}, None),
        ("log.retention.minutes=1", {"retention.ms": "-1"}, None),
        ("", {}, "retention.ms=604800000"),
    ],
)
def test_the_brokers_own_retention_is_told(
    line: str, own: dict[str, str], told: str | None, scene: Scene
) -> None:
    change_saved(scene, settings=own)
    progress = SilentProgress()
    more = {"broker_config": scene.configured(line), "now_ms": FAR_MS}
    scene.restore(progress, apply=False, deletes_are_denied=False, **more)
    found = [text for text in progress.lines if text.startswith("sensors: ")]
    assert [told in text for text in found] == [True] if told else not found, found


@pytest.mark.parametrize(
    ("setting", "others"),
    [
        ("controller.quorum.voters=1@a:9093", 0),
        ("controller.quorum.voters=1@a:9093,2@b:9093,3@c:9093", 2),
        ("controller.quorum.bootstrap.servers=a:9093,b:9093", 1),
    ],
)
def test_other_controllers_need_the_same_file(setting: str, others: int, scene: Scene) -> None:
    progress = SilentProgress()
    scene.restore(progress, broker_config=scene.configured(setting))
    told = [text for text in progress.lines if text.startswith(f"{scene.bootstrap} has the topics")]
    assert len(told) == min(others, 1)
    assert all(f"each of the other {others} controllers" in text for text in told)


def test_the_directory_of_a_partition_is_in_its_record(scene: Scene) -> None:
    scene.restore(topic=("audit",))
    topic_id = scene.saved.topics["audit"].topic_id
    partitions = [v for v in scene.values if v[:3] == b"\x01\x03\x01" and topic_id.bytes in v]
    directory = type(topic_id)(DIRECTORY_ID).bytes
    epochs = read_leader_epoch_checkpoint((scene.node / "audit-0" / "leader-epoch-checkpoint").read_bytes())
    assert [value[-17:-1] for value in partitions] == [directory] * 2
    # The epoch is above those of the records, so that no batch is truncated at the next election.
    assert [int.from_bytes(value[-26:-22], "big") for value in partitions] == [epochs[-1].epoch + 1, 0]


@pytest.mark.parametrize(
    ("version", "stated", "told"),
    [
        ("4.4.0", "message.format.version=2.8", "Kafka 4.4 has no message.format.version: left out"),
        ("3.9.1", "message.format.version=2.8", None),
        ("3.9.1", "segment.bytes=500", None),
        ("3.9.1", "remote.copy.lag.ms=-1", "no Kafka up to 3.9"),
        ("4.4.0", "remote.copy.lag.ms=-1", None),
        ("4.4.0", "retention.mss=-1", "has retention.mss: brokers that do not know a setting"),
    ],
)
def test_settings_that_the_nodes_kafka_does_not_have(
    version: str, stated: str, told: str | None, scene_of: SceneOf
) -> None:
    """Kafka validates the names of all settings of a topic when one of them is changed."""
    scene, (name, _, value) = scene_of("aiven-plain", version), stated.partition("=")
    own_setting(name, value)(scene)
    progress = SilentProgress()
    scene.restore(progress)
    is_left_out = told is not None and told.endswith("left out")
    assert (config_record("sensors", name, value) not in scene.values) == is_left_out
    found = [text for text in (*progress.notes, *progress.lines) if text.startswith("sensors: ")]
    assert [told in text for text in found] == [True] if told else not found, found


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [
        ("segment.bytes", "500", "1048576"),
        ("cleanup.policy", "compact,delete", "delete"),
        ("remote.storage.enable", "false", "true"),
    ],
)
def test_topic_configs_correct_a_value_of_the_file(
    name: str, wrong: str, right: str, scene: Scene, tmp_path: Path
) -> None:
    own_setting(name, wrong)(scene)
    configs = tmp_path / "topics.properties"
    configs.write_text(f"sensors.{name}={right}\n")
    scene.restore(topic_configs=configs)
    assert config_record("sensors", name, right) in scene.values


def test_the_brokers_own_cleanup_policy_counts(scene: Scene) -> None:
    with pytest.raises(SafetyRefusal, match="audit-0: its settings have cleanup"):
        scene.restore(broker_config=scene.configured("log.cleanup.policy=compact"))


def test_a_tiered_topic_without_an_object_is_restored(scene: Scene) -> None:
    """Kafka reads true in any case of letters."""
    scene.save(other_topic("empty", remote_storage_enable="True"))
    scene.restore()
    assert scene.topics()["empty"] == OTHER_ID
    assert config_record("empty", "remote.log.copy.disable", "true") in scene.values


def test_a_topic_that_was_never_tiered_stays_so(scene: Scene) -> None:
    scene.save(other_topic("local", cleanup_policy="compact"))
    scene.restore(topic=("local", "sensors"))
    values = scene.values
    assert config_record("local", "cleanup.policy", "compact") in values
    assert config_record("sensors", "remote.storage.enable", "true") in values
    assert not [each for each in values if each[:2] == b"\x01\x04" and b"local" in each and b"remote" in each]


ORDERS = SavedTopic(topic="orders", topic_id=Uuid.from_bytes(bytes(range(16))), partitions=3, settings={})
SAVED = SavedTopics(topics={"orders": ORDERS}, cluster_id="abc", saved_ms=1000)


def test_the_file_gives_the_topics_back() -> None:
    data = backup_config.file_of(SAVED, Path("topics.yaml"))
    assert read_topics_file(data, "topics.yaml") == SAVED


@pytest.mark.parametrize("written", [{}, {"orders": replace(ORDERS, partitions=2)}])
def test_another_content_is_refused(written: dict[str, SavedTopic], monkeypatch: pytest.MonkeyPatch) -> None:
    other = write_topics_file(replace(SAVED, topics=written))
    monkeypatch.setattr(backup_config, "write_topics_file", lambda _: other)
    with pytest.raises(CorruptInputError, match="others instead of orders"):
        backup_config.file_of(SAVED, Path("topics.yaml"))


@pytest.mark.parametrize(
    ("before", "orders", "why"),
    [
        (None, "hidden", None),
        (b"", "hidden", None),
        (write_topics_file(SAVED), "listed", None),
        (write_topics_file(SAVED), "deleted", None),
        (write_topics_file(SAVED), "hidden", "list for this user lacks: orders"),
        (write_topics_file(SAVED)[:-20], "listed", "would lack is unknown"),
        (write_topics_file(replace(SAVED, cluster_id=None)), "deleted", None),
        (write_topics_file(replace(SAVED, cluster_id="lost")), "deleted", "of cluster lost, expected .* abc"),
    ],
    ids=["no file", "empty", "listed", "deleted", "hidden", "damaged", "no cluster", "another cluster"],
)
def test_a_list_that_may_lack_topics_replaces_no_backup(
    before: bytes | None, orders: str, why: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "topics.yaml"
    if before is not None:
        file.write_bytes(before)
    facts = TopicFacts(topic="orders", topic_id=ORDERS.topic_id, partitions=(), is_internal=False)
    cluster = SimpleNamespace(
        topics=lambda: {"orders": facts} if orders == "listed" else {},
        leaders=SimpleNamespace(unknown_topic_ids=lambda ids: ids if orders == "deleted" else ()),
        own_topic_settings=dict,
        cluster_id=lambda: "abc",
    )
    monkeypatch.setattr(backup_config.Resources, "cluster", cluster)
    request = commands.BackupConfigRequest(bootstrap_server="b:9092", output_file=file)
    with nullcontext() if why is None else pytest.raises(SafetyRefusal, match=why):
        commands.backup_config(request)
    assert why is None or file.read_bytes() == before
