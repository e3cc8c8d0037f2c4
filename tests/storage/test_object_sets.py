"""Metadata derived from a tier's objects equals that of the brokers, field by field."""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from tierctl.commands.request import Request
from tierctl.commands.resources import Resources
from tierctl.commands.restore.inventory import TierSets, why_unsound
from tierctl.errors import AuthenticationError, RemoteResourceNotFound, TierctlError, UsageError
from tierctl.model import (
    ClusterIdentity,
    EpochEntry,
    ListedSet,
    LogEnd,
    ObjectPart,
    ObjectSet,
    RemoteLogSegmentMetadata,
    TierIdentity,
    Uuid,
)
from tierctl.model.local import LARGEST_OFFSET
from tierctl.model.progress import SilentProgress
from tierctl.storage.layouts.aiven.layout import AivenLayout, AivenSettings
from tierctl.storage.layouts.kafka import KafkaLayout, owner_of_folder
from tierctl.storage.object_sets import (
    derived_set,
    list_object_sets,
    read_each,
    stored_segment_ids,
    with_judged_indexes,
    with_lineage,
)
from tierctl.storage.open_tier import TierSpec, detect_layouts, encoded_identity, open_tier
from tierctl.storage.remote_storage_manager import RemoteStorageManager
from tierctl.wire.aiven import AivenCustomMetadata, write_custom_metadata
from tierctl.wire.batches.batch_head import HEAD
from tierctl.wire.files.checkpoints import (
    decode_producer_snapshot,
    encode_producer_snapshot,
    write_leader_epoch_checkpoint,
)
from tierctl.wire.files.indexes import OffsetIndex, TransactionIndex
from tierctl.wire.metadata.values import decode

from tests.read.tier import metadata_values
from tests.storage.memory import MemoryStore
from tests.support.faults import flip_bit

Capture = Callable[..., Path]

KAFKA_TIERS = (
    ("tiered-cluster", ["before"], "before-remote", 36),
    ("tiered-cluster", ["after"], "after-remote", 25),
    ("untiered-broker", ["tiered-metadata"], "tiered-remote", 14),
    ("delete-across-epoch", ["before"], "before-remote", 65),
    ("delete-across-epoch", ["before", "after"], "after-remote", 33),
    ("finite-metadata", ["before"], "before-remote", 28),
    ("finite-metadata", ["before", "after"], "after-remote", 30),
    ("unclean-leader", [f"before/broker-{n}" for n in (1, 2, 3)], "before/remote", 30),
    ("unclean-leader", [f"after/broker-{n}" for n in (1, 2, 3)], "after/remote", 8),
)
UNUSED = {"broker_id", "event_timestamp_ms", "state", "unknown_tags", "nested_tags"}
"""Fields that brokers write and do not use."""


def derived(folder: Path, **settings: Any) -> list[ObjectSet]:
    remote = open_tier(TierSpec(folder.as_uri(), **settings))
    return list(read_each(remote, derived_set, list_object_sets(remote), threads=2))


def published(*folders: Path) -> dict[Uuid, RemoteLogSegmentMetadata]:
    events = [decode(value) for folder in folders for _, _, value in metadata_values(folder) if value]
    return {event.segment_id: event for event in events if isinstance(event, RemoteLogSegmentMetadata)}


def wrong_fields(found: ObjectSet, wanted: RemoteLogSegmentMetadata) -> dict[str, tuple[object, object]]:
    assert found.segment is not None, found.why_incomplete
    pairs = {f.name: (getattr(found.segment, f.name), getattr(wanted, f.name)) for f in fields(wanted)}
    return {name: pair for name, pair in pairs.items() if name not in UNUSED and pair[0] != pair[1]}


@pytest.mark.parametrize(("name", "metadata", "remote", "count"), KAFKA_TIERS)
def test_local_tiered_storage(
    capture: Capture, name: str, metadata: list[str], remote: str, count: int
) -> None:
    wanted = published(*(capture(name) / folder for folder in metadata))
    sets = derived(capture(name) / remote)
    assert len(sets) == count
    for each in sets:
        assert wrong_fields(each, wanted[each.listed.segment_id]) == {}, each.listed
        assert each.lineage is not None
        assert not each.has_gaps
        assert each.segment is not None
        assert abs(each.segment.event_timestamp_ms - wanted[each.listed.segment_id].event_timestamp_ms) < 2000


@pytest.mark.parametrize("name", ["aiven-plain", "aiven-encrypted"])
def test_aiven(capture: Capture, name: str) -> None:
    root = capture(name)
    wanted = published(root / "broker-logs")
    keys = {"": next(root.glob("keys/*private*"))} if name.endswith("encrypted") else {}
    sets = derived(root / "bucket", aiven=AivenSettings(private_keys=keys))
    assert len(sets) == 16
    for each in sets:
        event = wanted[each.listed.segment_id]
        assert wrong_fields(each, event) == {}, each.listed
        assert each.segment is not None
        assert each.segment.broker_id == event.broker_id
        assert each.segment.event_timestamp_ms == event.event_timestamp_ms
        assert each.lineage is not None
        assert each.lineage[0].start_offset <= event.start_offset


def test_sets_beside_unknown_ones_have_their_lineage_although_their_metadata_are_known(
    capture: Capture,
) -> None:
    """The log start may be in the index of a known segment alone."""
    root = capture("tiered-cluster")
    request = Request(remote=str(root / "before-remote"))
    tier = TierSets.of(Resources(request=request, progress=SilentProgress()))
    listed = tier.listed()
    of_partition = [each for each in listed if str(each.partition.topic_partition) == "clicks-0"]
    own = of_partition[0].segment_id
    finished = [each for each in published(root / "before").values() if each.segment_id != own]
    sets = tier.derived(listed, finished=finished, with_lineages=True)
    assert sets != tier.derived(listed, finished=finished)
    whole = {each.listed.segment_id: each.lineage for each in derived(root / "before-remote")}
    assert {each.listed.segment_id: each.lineage for each in sets if each.lineage is not None} == {
        each.segment_id: whole[each.segment_id] for each in of_partition
    }


def test_unreadable_sets_end_a_run_only_if_no_others_are_known(
    capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors leave out the partitions about which a rebuild does nothing."""

    def refused(_: TierSets, listed: Sequence[ListedSet]) -> list[ObjectSet]:
        return [ObjectSet(listed=each, why_not_understood="denied", lacks_rights=True) for each in listed]

    monkeypatch.setattr(TierSets, "_derive", refused)
    root = capture("tiered-cluster")
    request = Request(remote=str(root / "before-remote"))
    tier = TierSets.of(Resources(request=request, progress=SilentProgress()))
    listed = tier.listed()
    one = listed[0]
    finished = [each for each in published(root / "before").values() if each.segment_id != one.segment_id]
    for found in (tier.derived(listed, finished=finished), tier.derived([one], is_part=True)):
        assert [each.listed for each in found if each.lacks_rights] == [one]
    with pytest.raises(AuthenticationError, match="no set of objects can be read"):
        tier.derived([one])


def test_an_encrypted_bucket_without_the_key_lacks_only_the_lineages(capture: Capture) -> None:
    root = capture("aiven-encrypted")
    wanted = published(root / "broker-logs")
    for each in derived(root / "bucket"):
        assert wrong_fields(each, wanted[each.listed.segment_id]) == {}
        assert each.lineage is None


def test_a_manifest_of_a_segment_within_which_the_log_began(writable: Callable[[str], Path]) -> None:
    """Brokers cut the leader epochs of such a segment at the log start; its start offset stays."""
    bucket = writable("aiven-plain/bucket")
    manifest = min(bucket.rglob("00000000000000000000-*.rsm-manifest"))
    _edit(manifest, segmentLeaderEpochs={"0": 9})
    (other,) = (each for each in derived(bucket) if each.segment is None)
    assert "its leader-epoch index" in (other.why_not_understood or "")
    indexes = manifest.with_suffix(".indexes")
    data = indexes.read_bytes()
    assert data.count(b"0\n1\n0 0\n") == 1
    indexes.write_bytes(data.replace(b"0\n1\n0 0\n", b"0\n1\n0 9\n"))
    (found,) = (s for each in derived(bucket) if (s := each.segment) and s.segment_id in manifest.name)
    assert (found.start_offset, found.segment_leader_epochs) == (0, ((0, 9),))


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _archive(path: Path, pattern: str = "{}", suffix: str = ".zst") -> None:
    for each in path.parent.glob(pattern.format(path.name)):
        each.rename(f"{each}{suffix}")


def _encrypt(path: Path, magic: int) -> None:
    """Replace the log by bytes that look like the head of a batch, but for its offset, which is too high."""
    path.write_bytes(HEAD.pack(39 << 56, 1 << 20, 0, magic, 0, 0, 5, 0, 0, 0, 0, 0, 1) + b"\xa5" * 4000)


KAFKA_DAMAGE: dict[str, tuple[str, Callable[[Path], None], str]] = {
    **{
        f"no {suffix}": (suffix, Path.unlink, f"it has no {suffix}")
        for suffix in (".log", ".index", ".timeindex", ".leader_epoch_checkpoint", ".snapshot")
    },
    "log archived": (".log", _archive, ".log.zst has"),
    "log cut": (".log", _cut, "of one that was cut"),
    "log temporary": (".log", lambda p: _archive(p, suffix=".0a.tmp"), "it has no .log"),
    "all archived": (".log", lambda p: _archive(p.with_suffix(""), "{}.*"), ".index.zst has"),
    "log empty": (".log", lambda p: p.write_bytes(b"") and None, "at least one batch"),
    "log flipped": (".log", flip_bit, "CRC"),
    "log encrypted": (".log", lambda p: _encrypt(p, 2), "expected a length from"),
    "log encrypted, as a message": (".log", lambda p: _encrypt(p, 1), "expected a length of a message"),
    "snapshot cut": (".snapshot", _cut, "producer snapshot"),
    "snapshot flipped": (".snapshot", flip_bit, "producer snapshot"),
    "epochs cut": (".leader_epoch_checkpoint", _cut, "leader-epoch checkpoint"),
    "epochs begin later": (
        ".leader_epoch_checkpoint",
        lambda p: p.write_bytes(write_leader_epoch_checkpoint([EpochEntry(9, 1 << 40)])) and None,
        "no entry for its offsets",
    ),
    "epochs of another log": (
        ".leader_epoch_checkpoint",
        lambda p: p.write_bytes(write_leader_epoch_checkpoint([EpochEntry(9, 0)])) and None,
        "its leader-epoch index is wrong: the batch at offset",
    ),
}


PROVEN = {"no .log", "no log", "log cut", "log temporary", "log empty"}
"""Damage to the records that the objects themselves prove; all other sets are not understood."""


def _edit(path: Path, **members: Any) -> None:
    document = json.loads(path.read_text())
    document["remoteLogSegmentMetadata"] |= members
    path.write_text(json.dumps(document))


AIVEN_DAMAGE: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "no manifest": (".rsm-manifest", Path.unlink, "it has no .rsm-manifest"),
    "no log": (".log", Path.unlink, "it has no .log"),
    "log archived": (".log", _archive, ".log.zst has"),
    "log cut": (".log", _cut, "its manifest says"),
    "indexes cut": (".indexes", _cut, "its .indexes has"),
    "manifest cut": (".rsm-manifest", _cut, "manifest"),
    "another segment's": (".rsm-manifest", lambda p: _edit(p, startOffset=7), "from offset 7"),
    "no epochs": (".rsm-manifest", lambda p: _edit(p, segmentLeaderEpochs={}), "no leader epochs"),
    "negative": (".rsm-manifest", lambda p: _edit(p, endOffset=-4), "a number from 0"),
}


HALVES = {"untiered-broker/tiered-remote": KAFKA_DAMAGE, "aiven-plain/bucket": AIVEN_DAMAGE}


@pytest.mark.parametrize(("tier", "damage"), [(tier, each) for tier in HALVES for each in HALVES[tier]])
def test_half_sets(writable: Callable[[str], Path], tier: str, damage: str) -> None:
    suffix, change, reason = HALVES[tier][damage]
    folder = writable(tier)
    victim = sorted(folder.rglob("*.log"))[3].stem
    change(next(folder.rglob(f"{victim}{suffix}")))
    (half,) = (each for each in derived(folder) if each.segment is None)
    assert victim.endswith(f"{half.listed.start_offset:020d}-{half.listed.segment_id}")
    assert (reason in (half.why_incomplete or ""), reason in (half.why_not_understood or "")) == (
        damage in PROVEN,
        damage not in PROVEN,
    )


def _judged_alone(remote: RemoteStorageManager, listed: ListedSet) -> ObjectSet:
    (found,) = with_judged_indexes([derived_set(remote, listed)])
    return found


def test_one_wrong_bit_of_an_index_proves_no_cut_and_each_cut_above_an_entry_is_proven(
    writable: Callable[[str], Path],
) -> None:
    """No other set tells whether the log is whole; the two fields of an entry agree if it was cut."""
    folder = writable("untiered-broker/tiered-remote")
    remote = open_tier(TierSpec(folder.as_uri()))
    log = min(folder.rglob("*.log"), key=lambda path: path.stat().st_size)
    (listed,) = (each for each in list_object_sets(remote) if log.stem.endswith(each.segment_id))
    whole = _judged_alone(remote, listed)
    assert whole.segment is not None
    for path, entry_bytes in ((log.with_suffix(".index"), 8), (log.with_suffix(".timeindex"), 12)):
        sound = path.read_bytes()
        assert len(sound) >= entry_bytes
        for bit in range(8 * entry_bytes):
            changed = bytearray(sound)
            changed[-1 - bit // 8] ^= 1 << bit % 8
            path.write_bytes(changed)
            found = _judged_alone(remote, listed)
            assert found.segment == whole.segment, (path.name, bit, found.why_incomplete)
        path.write_bytes(sound)
    data = log.read_bytes()
    for place in OffsetIndex.decode(log.with_suffix(".index").read_bytes(), listed.start_offset):
        log.write_bytes(data[: place.position])
        short = replace(listed, sizes_bytes={**listed.sizes_bytes, ObjectPart.LOG: place.position})
        assert "index has offset" in (_judged_alone(remote, short).why_incomplete or ""), place


def test_indexes_with_allocated_entries_are_damaged_and_show_where_the_log_ended(
    writable: Callable[[str], Path],
) -> None:
    folder = writable("untiered-broker/tiered-remote")
    whole = derived(folder)
    for path in (*folder.rglob("*.index"), *folder.rglob("*.timeindex")):
        path.write_bytes(path.read_bytes() + bytes(48))
    damaged = ("offset index", "time index")
    found = derived(folder)
    assert [each.log_end for each in found] == [each.log_end for each in whole]
    assert {each.damaged_indexes for each in found} == {damaged}
    _cut(next(folder.rglob("*.log")))
    judged = [each for found in derived(folder) for each in with_judged_indexes([found])]
    assert [each.why_incomplete is None for each in judged].count(False) == 1


def test_archived_objects_show_that_their_segment_was_stored(writable: Callable[[str], Path]) -> None:
    """A segment that is stored, and in no event, shows that events were lost."""
    folder = writable("untiered-broker/tiered-remote")
    remote = open_tier(TierSpec(folder.as_uri()))
    listed = list_object_sets(remote)
    for suffix, count in ((".zst", len(listed)), (".tmp", 0)):
        for path in folder.rglob("*.*"):
            _archive(path, suffix=suffix)
        stored = stored_segment_ids(remote, {each.partition.key for each in listed})
        assert sum(map(len, stored.values())) == count


@pytest.mark.parametrize(
    ("tier", "suffix"), list(zip(HALVES, (".log", ".rsm-manifest"), strict=True)), ids=HALVES
)
def test_half_a_set_is_not_copied_under_another_id(
    writable: Callable[[str], Path], tier: str, suffix: str
) -> None:
    """The copy would be published as finished; the set was whole when the copy was planned."""
    folder = writable(tier)
    segment = derived(folder)[3].segment
    assert segment is not None
    (lost,) = folder.rglob(f"*-{segment.segment_id}{suffix}")
    lost.unlink()
    other = replace(segment.topic_id_partition, topic_id=Uuid("GAAAAAAAAAAAAAAAAAAAAQ"))
    with pytest.raises(RemoteResourceNotFound, match=lost.name):
        open_tier(TierSpec(folder.as_uri())).copy_objects(segment, other)


def test_the_manifest_of_another_segment_shows_no_end(writable: Callable[[str], Path]) -> None:
    """A half set is given up only if other sets have all of its records."""
    bucket = writable("aiven-plain/bucket")
    manifest = sorted(bucket.rglob("*.rsm-manifest"))[3]
    manifest.with_suffix(".indexes").unlink()
    (half,) = (each for each in derived(bucket) if each.segment is None)
    assert half.log_end == LogEnd(
        offset=json.loads(manifest.read_text())["remoteLogSegmentMetadata"]["endOffset"]
    )
    _edit(manifest, startOffset=half.listed.start_offset + 7)
    (half,) = (each for each in derived(bucket) if each.segment is None)
    assert half.log_end == LogEnd(offset=LARGEST_OFFSET)


def _with_index(path: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    """Change one index of the segment with the manifest `path` to another one of the same size."""
    span = json.loads(path.read_text())["segmentIndexes"][name]
    indexes = path.with_suffix(".indexes")
    data, end = indexes.read_bytes(), span["position"] + span["size"]
    changed = change(data[span["position"] : end])
    indexes.write_bytes(data[: span["position"]] + changed + data[end:])


def _later_producer(data: bytes) -> bytes:
    first, *others = decode_producer_snapshot(data)
    return encode_producer_snapshot([first._replace(last_offset=1 << 40), *others])


def _later_abort(data: bytes) -> bytes:
    *others, last = TransactionIndex.decode(data, 0).entries
    return TransactionIndex((*others, last._replace(last_offset=1 << 40))).encode()


WRONG_INDEXES: dict[str, tuple[Callable[[Path], None], str]] = {
    "cut": (lambda p: _with_index(p, "transaction", lambda d: d[1:] + b"0"), "transaction index"),
    "abort": (lambda p: _with_index(p, "transaction", _later_abort), "transaction index has the entry"),
    "producer": (lambda p: _with_index(p, "producerSnapshot", _later_producer), "has producer"),
    "said to be empty": (lambda p: _edit(p, txnIdxEmpty=True), "that it says is empty"),
    "said to be unknown": (lambda p: _edit(p, txnIdxEmpty="false"), "txnIdxEmpty"),
}


@pytest.mark.parametrize("case", WRONG_INDEXES)
def test_indexes_of_aiven_that_can_not_be_of_the_segment(writable: Callable[[str], Path], case: str) -> None:
    """Brokers would serve records of aborted transactions as committed, or producers would be refused."""
    bucket = writable("aiven-plain/bucket")
    change, reason = WRONG_INDEXES[case]
    with_aborts = (
        path
        for path in sorted(bucket.rglob("*.rsm-manifest"))
        if json.loads(path.read_text())["segmentIndexes"]["transaction"] is not None
    )
    path = next(with_aborts)
    change(path)
    (other,) = (each for each in derived(bucket) if each.segment is None)
    assert str(other.listed.segment_id) in path.name
    assert reason in (other.why_not_understood or ""), other


def test_one_record_with_hostile_custom_metadata_does_not_end_a_run(capture: Capture) -> None:
    remote = open_tier(TierSpec((capture("aiven-plain") / "bucket").as_uri()))
    known = derived_set(remote, list_object_sets(remote)[0])
    assert known.segment is not None
    custom = write_custom_metadata(AivenCustomMetadata(object_key="../../x"))
    hostile = replace(known, segment=replace(known.segment, custom_metadata=custom), lineage=None)
    assert with_lineage(remote, hostile) == hostile
    assert hostile.segment is not None
    assert "not a legal object key" in str(why_unsound(remote, hostile.segment))


class OpenedStore(MemoryStore):
    """A store that counts how often each object is opened."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        files = (path for path in folder.rglob("*") if path.is_file())
        self.objects = {str(path.relative_to(folder)): path.read_bytes() for path in files}
        self.opened: Counter[str] = Counter()

    def open(self, key: str, start: int = 0, end: int | None = None) -> BinaryIO:
        self.opened[key] += 1
        return super().open(key, start, end)


def test_a_manifest_is_read_once_for_its_metadata_and_the_lineage(capture: Capture) -> None:
    store = OpenedStore(capture("aiven-plain") / "bucket" / "tier")
    remote = RemoteStorageManager(store, AivenLayout())
    sets = list(read_each(remote, derived_set, list_object_sets(remote), threads=1))
    assert all(each.lineage for each in sets)
    manifests = {key: count for key, count in store.opened.items() if key.endswith(".rsm-manifest")}
    assert len(manifests) == len(sets) == 16
    assert set(manifests.values()) == {1}


LAYOUTS = {
    "kafka": ("untiered-broker", "tiered-remote", KafkaLayout, ".snapshot"),
    "aiven": ("aiven-plain", "bucket/tier", AivenLayout, ".rsm-manifest"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_set_that_is_deleted_after_the_listing_is_not_understood(capture: Capture, layout: str) -> None:
    name, folder, of_layout, suffix = LAYOUTS[layout]
    store = OpenedStore(capture(name) / folder)
    remote = RemoteStorageManager(store, of_layout())
    sets = list_object_sets(remote)
    victim = next(key for key in sorted(store.objects) if key.endswith(suffix))
    del store.objects[victim]
    (half,) = [each for each in read_each(remote, derived_set, sets, threads=1) if each.segment is None]
    assert str(half.listed.segment_id) in victim
    assert f"{victim} is missing" in (half.why_not_understood or "")
    store.objects = {}
    gone = [each for each in read_each(remote, derived_set, sets, threads=1) if each.why_incomplete]
    assert len(gone) == (len(sets) if layout == "kafka" else 0)


def test_a_log_of_which_the_store_returns_less_than_it_listed_is_not_understood(capture: Capture) -> None:
    """It is not proven that the log is cut, so the set is not incomplete."""
    store = OpenedStore(capture("untiered-broker") / "tiered-remote")
    remote = RemoteStorageManager(store, KafkaLayout())
    sets = list_object_sets(remote)
    victim = next(key for key in sorted(store.objects) if key.endswith(".log"))
    store.objects[victim] = store.objects[victim][:-1]
    (short,) = [each for each in read_each(remote, derived_set, sets, threads=1) if each.segment is None]
    assert short.why_incomplete is None
    assert f"reading {victim}: expected bytes 0 to " in (short.why_not_understood or "")


def test_a_manifest_of_a_plugin_before_kafka_4_says_by_its_indexes_whether_a_transaction_aborted(
    writable: Callable[[str], Path],
) -> None:
    bucket = writable("aiven-plain/bucket")
    before = {each.listed.segment_id: each.segment for each in derived(bucket)}
    for path in bucket.rglob("*.rsm-manifest"):
        document = json.loads(path.read_text())
        del document["remoteLogSegmentMetadata"]["txnIdxEmpty"]
        path.write_text(json.dumps(document))
    after = {each.listed.segment_id: each.segment for each in derived(bucket)}
    assert after == before
    assert {segment.txn_index_empty for segment in after.values() if segment} == {True, False}


def test_custom_metadata_are_built_as_the_plugin_builds_them(capture: Capture) -> None:
    tier = capture("aiven-plain") / "bucket"
    fields_included = frozenset({"REMOTE_SIZE", "OBJECT_KEY"})
    for each in derived(tier, aiven=AivenSettings(custom_metadata_fields=fields_included)):
        assert each.segment is not None
        custom = each.segment.custom_metadata
        assert custom is not None
        assert str(each.listed.segment_id).encode() in custom


def test_parts_of_a_set_are_listed_whatever_the_topic_is_called(writable: Callable[[str], Path]) -> None:
    tier = writable("untiered-broker/tiered-remote")
    folder = min((tier / "kafka-tiered-storage").iterdir())
    topic_id = folder.name[-22:]
    shutil.move(folder, folder.with_name(f"a-1-22.b_-3-17-{topic_id}"))
    (folder.parent / f"a-1-22.b_-3-17-{topic_id}" / "notes.txt").write_text("mine")
    remote = open_tier(TierSpec(tier.as_uri()))
    named = {(s.partition.topic, s.partition.partition) for s in list_object_sets(remote)}
    assert ("a-1-22.b_-3", 17) in named
    every = ObjectPart.LOG | ObjectPart.OFFSET | ObjectPart.TIMESTAMP
    assert all(each.parts & every == every for each in list_object_sets(remote))


@pytest.mark.parametrize("changed", ["topic id", "segment id", "partition", "none"])
def test_a_tier_is_detected_by_keys_that_are_listed_as_sets(changed: str, tmp_path: Path) -> None:
    """The last character of an id in Kafka's form is one of A, Q, g and w."""
    topic, segment = (Uuid.from_bytes(bytes([number] * 16)) for number in (1, 2))
    topic, segment = (
        Uuid(f"{each[:-1]}B") if changed == name else each
        for name, each in (("topic id", topic), ("segment id", segment))
    )
    partition = "00" if changed == "partition" else "0"
    store = MemoryStore()
    store.put_all({f"x/orders-{topic}/{partition}/{7:020d}-{segment}.log": b"x"})
    found = list_object_sets(RemoteStorageManager(store, AivenLayout(key_prefix="x/")))
    assert bool(detect_layouts(store)) == bool(found) == (changed == "none")


KAFKA = f"kafka-tiered-storage/orders-0-{'A' * 22}/"
AIVEN = f"tier/orders-{'A' * 22}/0/"


@pytest.mark.parametrize(
    ("layout", "count", "found"),
    [
        (KAFKA, 1000, "kafka"),
        (AIVEN, 999, "aiven"),
        (AIVEN, 1000, None),
        (None, 999, ""),
        (None, 1000, None),
    ],
)
def test_many_objects_before_the_first_segment_are_not_the_whole_tier(
    layout: str | None, count: int, found: str | None
) -> None:
    store = MemoryStore()
    store.put_all({f"aaa/{number:04d}": b"" for number in range(count)})
    if layout is not None:
        store.put_all({f"{layout}{7:020d}-{'A' * 22}.log": b"x"})
    if found is None:
        assert detect_layouts(store) == {}
        with pytest.raises(UsageError, match="none of its first 1000 objects is of a segment") as caught:
            detect_layouts(store, is_needed=True)
        assert caught.value.hint
    else:
        assert [each.layout for each in detect_layouts(store, is_needed=True)] == ([found] if found else [])


IDENTITY = ".tierctl-identity"
TWO = {f"{prefix}/{IDENTITY}": "aiven" for prefix in "xy"}


@pytest.mark.parametrize(
    ("identities", "prefix", "others", "found"),
    [
        ({IDENTITY: "aiven"}, None, 0, "aiven"),
        ({IDENTITY: "kafka"}, None, 0, "kafka"),
        ({IDENTITY: "aiven"}, None, 1000, "aiven"),
        ({f"x/{IDENTITY}": "aiven"}, None, 0, "aiven x/"),
        ({f"x/{IDENTITY}": "aiven"}, None, 1000, "none of its first 1000 objects"),
        # Of a tier whose own folder is x: --remote names another one.
        ({f"x/{IDENTITY}": "kafka"}, None, 0, "kafka"),
        ({f"x/{IDENTITY}": "kafka", f"y/{IDENTITY}": "aiven"}, None, 0, "aiven y/"),
        (TWO, None, 0, "the store has several tiers: 'x/.*identity', 'y/.*identity'"),
        (TWO | {IDENTITY: "aiven"}, None, 0, "aiven"),
        (TWO, "y/", 0, "aiven y/"),
        ({f"raw-{IDENTITY}": "aiven"}, "raw-", 0, "aiven raw-"),
        ({IDENTITY: "kafka"}, "raw-", 0, "kafka"),
        ({IDENTITY: "avro"}, None, 0, "kafka"),
        ({IDENTITY: ""}, None, 0, "expected JSON with tier_identity"),
    ],
)
def test_the_identity_of_an_emptied_tier_states_its_layout(
    identities: dict[str, str], prefix: str | None, others: int, found: str, tmp_path: Path
) -> None:
    """The tier is a folder, in which a new tier has layout kafka."""
    store = open_tier(TierSpec(tmp_path.as_uri(), layout="aiven")).store
    of_kafka = ClusterIdentity(cluster_id="c", metadata_topic_id=None)
    contents = {
        key: encoded_identity(TierIdentity(cluster=of_kafka, layout=layout)) if layout else b"{"
        for key, layout in identities.items()
    }
    store.put_all(contents | {f"aaa/{number:04d}": b"" for number in range(others)})
    spec = TierSpec(tmp_path.as_uri(), aiven=AivenSettings(key_prefix=prefix))
    if " " in found.removeprefix("aiven "):
        with pytest.raises(TierctlError, match=found) as caught:
            open_tier(spec)
        assert "--layout" in (caught.value.hint or "")
    else:
        layout = open_tier(spec).layout
        base = "" if layout.name == "kafka" else layout.base
        assert f"{layout.name} {base}".strip() == found


@pytest.mark.parametrize(
    ("folder", "owner"),
    [
        ("kafka-tiered-storage/a-0-AAAAAAAAAAAAAAAAAAAAAQ/", ("AAAAAAAAAAAAAAAAAAAAAQ", 0)),
        ("a-b-12-AAAAAAAAAAAAAAAAAAAAAQ/", ("AAAAAAAAAAAAAAAAAAAAAQ", 12)),
        ("prefix-a-AAAAAAAAAAAAAAAAAAAAAQ/", ("AAAAAAAAAAAAAAAAAAAAAQ", None)),
        ("x/a-AAAAAAAAAAAAAAAAAAAAAQ/7/", ("AAAAAAAAAAAAAAAAAAAAAQ", 7)),
        ("kafka-tiered-storage/", None),
        ("a-0-AAAAAAAAAAAAAAAAAAAAAQ", None),
        ("", None),
    ],
)
def test_owners_of_folders(folder: str, owner: tuple[str, int | None] | None) -> None:
    assert owner_of_folder(folder) == owner
