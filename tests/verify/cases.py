"""Ways to damage a tier, and the findings that `verify` must report."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tierctl.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteState,
    TopicPartition,
    Uuid,
)

from tests.locallog.made import cut_last_batch, damage_last_batch, raise_log_start
from tests.metadata.events import deletion_of, update_of
from tests.verify.tiers import NOW_MS, Spoilt

S = RemoteLogSegmentState
P = RemotePartitionDeleteState
OTHER = Uuid("AAAAAAAAAAAAAAAAAAAAAQ")
CLICKS, LEDGER = "clicks", "payments"
Spoil = Callable[[Spoilt], None]


@dataclass(frozen=True, slots=True)
class Case:
    """One way to damage a tier, and its findings: (severity, kind) without and with --deep."""

    spoil: Spoil
    found: list[tuple[str, str]]
    deep: list[tuple[str, str]] | None = None
    says: str = ""

    @property
    def deeply(self) -> list[tuple[str, str]]:
        return self.found if self.deep is None else self.deep


def first(topic: str = CLICKS, nth: int = 1) -> Callable[[Spoilt], RemoteLogSegmentMetadata]:
    return lambda tier: tier.chosen or tier.segments(topic)[nth]


def without(suffix: str, topic: str = CLICKS) -> Spoil:
    return lambda tier: tier.object(first(topic)(tier), suffix).unlink()


def _all_objects_gone(tier: Spoilt) -> None:
    for path in tier.files(first()(tier)):
        path.unlink()


def _transactions_gone(tier: Spoilt) -> None:
    # Not the first segment: until a broker has written TxnIndexEmpty, its version may be older.
    found = [s for s in tier.segments(LEDGER) if tier.object(s, ".txnindex").exists()]
    tier.object(found[-1], ".txnindex").unlink()


def _changed(suffix: str, change: Callable[[bytes], bytes], topic: str = CLICKS) -> Spoil:
    def spoil(tier: Spoilt) -> None:
        path = tier.object(first(topic)(tier), suffix)
        path.write_bytes(change(path.read_bytes()))

    return spoil


def _flipped(suffix: str, at: int, topic: str = CLICKS) -> Spoil:
    def flip(data: bytes) -> bytes:
        position = at if at >= 0 else len(data) + at
        return data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :]

    return _changed(suffix, flip, topic)


def _swapped(suffix: str) -> Spoil:
    """Exchange the objects of two segments."""

    def spoil(tier: Spoilt) -> None:
        one, other = (tier.object(s, suffix) for s in tier.segments(CLICKS)[1:3])
        data = one.read_bytes()
        one.write_bytes(other.read_bytes())
        other.write_bytes(data)

    return spoil


def orphan_of_a_segment(tier: Spoilt) -> None:
    segment = first()(tier)
    for suffix in (".log", ".index", ".timeindex"):
        source = tier.object(segment, suffix)
        shutil.copy(source, tier.object(replace(segment, segment_id=OTHER), suffix))


def _tombstones(tier: Spoilt) -> None:
    for _ in range(2):
        tier.append_raw(0, None)


def junk(tier: Spoilt) -> None:
    (tier.remote / "kafka-tiered-storage" / "README").write_text("who wrote this?")


def _beside(suffix: str) -> Spoil:
    """Store an object of a segment that the metadata do not have."""

    def spoil(tier: Spoilt) -> None:
        tier.object(replace(first()(tier), segment_id=OTHER), suffix).write_bytes(bytes(8) + b"half")

    return spoil


def _replaced(make: Callable[[Path], object], suffix: str = ".log") -> Spoil:
    """Replace an object by another kind of entry."""

    def spoil(tier: Spoilt) -> None:
        path = tier.object(first()(tier), suffix)
        path.rename(path.with_name("moved"))
        make(path)
        path.with_name("moved").rename(tier.remote / "moved")

    return spoil


def _linked_folder(tier: Spoilt) -> None:
    folder = tier.object(first()(tier), "").parent
    folder.symlink_to(folder.rename(tier.remote / "moved"))


def _odd_names(tier: Spoilt) -> None:
    folder = tier.object(first()(tier), "").parent
    for name in (b"\xff\xfe.log", b"00000000000000000000-.log", b"new\nline", b"=1+1"):
        (Path(os.fsdecode(os.fsencode(folder) + b"/" + name))).write_bytes(b"?")


def _pipe_in_log(name: str) -> Spoil:
    def spoil(tier: Spoilt) -> None:
        path = tier.metadata / name
        path.unlink()
        os.mkfifo(path)

    return spoil


def _topic_ids_unreadable(tier: Spoilt) -> None:
    for folder in tier.metadata.glob("clicks-*"):
        _pipe_in_log(f"{folder.name}/partition.metadata")(tier)


def _misplaced(tier: Spoilt) -> None:
    """Move an object to an offset that the metadata does not have, with its own id."""
    segment = first()(tier)
    tier.object(segment, ".snapshot").rename(
        tier.object(replace(segment, start_offset=segment.start_offset + 1), ".snapshot")
    )


def _moved_below(folder: str) -> Spoil:
    """Move the objects of a segment into a copy of their folder that is elsewhere in the tier."""

    def spoil(tier: Spoilt) -> None:
        stem = tier.object(first()(tier), "")
        there = stem.parents[1] / folder / stem.parent.name
        there.mkdir(parents=True)
        for path in [*stem.parent.glob(f"{stem.name}.*")]:
            path.rename(there / path.name)

    return spoil


def update(
    segment: RemoteLogSegmentMetadata, state: RemoteLogSegmentState, at_ms: int = 0, **other: Any
) -> RemoteLogSegmentMetadataUpdate:
    return replace(update_of(segment, state, at_ms=at_ms), **other)


def _published(*states: RemoteLogSegmentState, at_ms: int = 0, nth: int = 1) -> Spoil:
    """Publish events about a segment; the log starts after it if it is the first one."""

    def spoil(tier: Spoilt) -> None:
        segment = first(nth=nth)(tier)
        if nth == 0:
            raise_log_start(tier.metadata, TopicPartition("clicks", 0), segment.end_offset + 1)
        tier.append(*(update(segment, state, at_ms) for state in states))

    return spoil


def _unknown_update(tier: Spoilt) -> None:
    tier.append(update(first()(tier), S.COPY_SEGMENT_FINISHED, segment_id=OTHER))


def _begun(at_ms: int) -> Spoil:
    def spoil(tier: Spoilt) -> None:
        segment = first()(tier)
        begun = replace(
            segment, segment_id=OTHER, state=S.COPY_SEGMENT_STARTED, event_timestamp_ms=at_ms, broker_id=1
        )
        tier.append(begun)

    return spoil


def _copied_again(change: Callable[[RemoteLogSegmentMetadata], RemoteLogSegmentMetadata]) -> Spoil:
    """Copy a segment a second time, with all its objects."""

    def spoil(tier: Spoilt) -> None:
        segment = first()(tier)
        again = change(replace(segment, segment_id=OTHER, state=S.COPY_SEGMENT_STARTED))
        tier.copy_objects(segment, again)
        tier.append(again, update(again, S.COPY_SEGMENT_FINISHED))

    return spoil


def _marked(state: RemotePartitionDeleteState) -> Spoil:
    def spoil(tier: Spoilt) -> None:
        segment = first()(tier)
        states = list(P)[: list(P).index(state) + 1]
        tier.append(*(deletion_of(segment, each) for each in states))

    return spoil


def _timestamps_changed(at_ms: int) -> Spoil:
    """Publish the topic's first segment with another largest timestamp in its metadata."""

    def spoil(tier: Spoilt) -> None:
        segment = first(nth=0)(tier)
        again = replace(segment, segment_id=OTHER, state=S.COPY_SEGMENT_STARTED, max_timestamp_ms=at_ms)
        tier.copy_objects(segment, again)
        gone = (S.DELETE_SEGMENT_STARTED, S.DELETE_SEGMENT_FINISHED)
        tier.append(
            *(update(segment, state) for state in gone), again, update(again, S.COPY_SEGMENT_FINISHED)
        )
        for path in tier.files(segment):
            path.unlink()

    return spoil


def _epochs_changed(tier: Spoilt) -> None:
    segment = first()(tier)
    path = tier.object(segment, ".leader_epoch_checkpoint")
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], f"{int(lines[2].split()[0]) + 7} 0", *lines[3:]][:3]) + "\n")
    count = len(path.read_text().splitlines()) - 2
    path.write_text(path.read_text().replace(f"0\n{lines[1]}\n", f"0\n{count}\n", 1))


def _log_of_another_topic(tier: Spoilt) -> None:
    """Give the topic another id in the log directory."""
    for folder in tier.metadata.glob("clicks-*"):
        (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {OTHER}")


def _log_gone(tier: Spoilt) -> None:
    for folder in tier.metadata.glob("clicks-*"):
        shutil.rmtree(folder)


def _log_unreadable(tier: Spoilt) -> None:
    (tier.metadata / "clicks-1" / "leader-epoch-checkpoint").write_text("what?")


def _log_end_damaged(tier: Spoilt) -> None:
    damage_last_batch(tier.metadata / "clicks-1")


def _log_cut(tier: Spoilt) -> None:
    cut_last_batch(tier.metadata / "clicks-1")


def _high_watermark_too_low(tier: Spoilt) -> None:
    path = tier.metadata / "replication-offset-checkpoint"
    path.write_text(path.read_text().replace("clicks 0 5500", "clicks 0 4600"))


E, W, I = "error", "warning", "info"  # noqa: E741
MISSING = [(E, "missing_object")]
ORPHAN = [(W, "orphan")]
UNREADABLE = [(E, "unreadable_object"), (E, "missing_object")]
INDEX = [(E, "corrupt_index")]
CLEAN: list[tuple[str, str]] = []

OF_OBJECTS = {
    "log gone": Case(without(".log"), MISSING, says="the store lacks the segment's log"),
    "offset index gone": Case(without(".index"), MISSING, says="offset index"),
    "time index gone": Case(without(".timeindex"), MISSING, says="time index"),
    "snapshot gone": Case(without(".snapshot"), MISSING, says="producer snapshot"),
    "leader epochs gone": Case(without(".leader_epoch_checkpoint"), MISSING, says="leader-epoch index"),
    "everything gone": Case(_all_objects_gone, MISSING, says="none of the segment's objects"),
    "log cut": Case(_changed(".log", lambda d: d[:-100]), [(E, "size_differs")], says="bytes"),
    "log longer": Case(
        _changed(".log", lambda d: d + b"x"), [(E, "size_differs")], [(E, "size_differs"), (E, "corrupt_log")]
    ),
    "log empty": Case(_changed(".log", lambda _: b""), [(E, "size_differs")]),
    "record flipped": Case(_flipped(".log", 5000), CLEAN, [(E, "corrupt_log")], says="CRC-32C"),
    "record of an unknown version": Case(
        _changed(".log", lambda data: data[:16] + b"\3" + data[17:]), CLEAN, [(E, "not_understood")]
    ),
    "index of an unknown version": Case(
        _changed(".leader_epoch_checkpoint", lambda data: b"7" + data[1:]),
        CLEAN,
        [(E, "not_understood")],
        says="version 7",
    ),
    "last record flipped": Case(_flipped(".log", -3), CLEAN, [(E, "corrupt_log")]),
    "batch epoch flipped": Case(_flipped(".log", 15), CLEAN, [(E, "epochs_differ")]),
    "offset index flipped": Case(_flipped(".index", 15), CLEAN, INDEX, says="offset index"),
    "offset index cut": Case(_changed(".index", lambda d: d[:-3]), CLEAN, INDEX),
    "time index flipped": Case(_flipped(".timeindex", 7), CLEAN, INDEX, says="timestamp index"),
    "leader epochs changed": Case(_epochs_changed, CLEAN, [(E, "epochs_differ")]),
    "leader epochs no file": Case(
        _changed(".leader_epoch_checkpoint", lambda _: b"what?\n"), CLEAN, INDEX, says="leader-epoch index"
    ),
    "foreign segment": Case(orphan_of_a_segment, ORPHAN, says="3 objects of"),
    "log is a link": Case(
        _replaced(lambda path: path.symlink_to("elsewhere")), UNREADABLE, says="symbolic link"
    ),
    "log is a pipe": Case(_replaced(os.mkfifo), UNREADABLE, says="a pipe"),
    "index is a pipe": Case(_replaced(os.mkfifo, ".timeindex"), UNREADABLE),
    "log is a folder": Case(_replaced(Path.mkdir), UNREADABLE, says="a folder has the name of an object"),
    "object misplaced": Case(_misplaced, [(W, "orphan"), (E, "missing_object")]),
}
"""Damage to objects of one segment, which a tier may choose."""

OF_TIERS = {
    "transactions gone": Case(_transactions_gone, MISSING, says="transaction index"),
    "snapshot flipped": Case(_flipped(".snapshot", -1, LEDGER), CLEAN, INDEX, says="producer-snapshot index"),
    "logs swapped": Case(_swapped(".log"), [(E, "size_differs")] * 2),
    "foreign object": Case(junk, ORPHAN, says="not that of a segment's object"),
    "archived object": Case(_beside(".log.zst"), ORPHAN, says="renamed or compressed"),
    "temporary file": Case(
        _beside(".log.tmp"), [(W, "temp_leftover")], says="killed left it, or a copy that runs"
    ),
    "objects moved": Case(
        _moved_below("old"), [(W, "orphan"), (E, "missing_object")], says="lies where no broker reads it"
    ),
    "folder is a link": Case(_linked_folder, [(E, "unreadable_object")], says="symbolic link"),
    "odd names": Case(_odd_names, [(W, "orphan")] * 4),
    "deleted, objects there": Case(
        _published(S.DELETE_SEGMENT_STARTED, S.DELETE_SEGMENT_FINISHED, nth=0),
        ORPHAN,
        says="the segment is DELETE_SEGMENT_FINISHED",
    ),
    "deleted in the middle": Case(
        _published(S.DELETE_SEGMENT_STARTED, S.DELETE_SEGMENT_FINISHED), [(W, "orphan"), (E, "gap")]
    ),
    "deletion stuck": Case(_published(S.DELETE_SEGMENT_STARTED, nth=0), [(W, "stuck_delete")]),
    "deletion under way": Case(
        _published(S.DELETE_SEGMENT_STARTED, at_ms=NOW_MS - 1000, nth=0), [(I, "stuck_delete")]
    ),
    "copy dangling": Case(_begun(0), [(W, "dangling_copy")]),
    "copy under way": Case(_begun(NOW_MS - 1000), [(I, "dangling_copy")]),
    "copied twice": Case(_copied_again(lambda s: s), [(W, "doubled_segment")]),
    "of another leader": Case(
        _copied_again(lambda s: replace(s, segment_leader_epochs=((99, s.start_offset),))),
        [(W, "divergent_segment")],
        [(W, "divergent_segment"), (E, "epochs_differ"), (E, "epochs_differ")],
    ),
    "no timestamp": Case(_timestamps_changed(0), [], [(W, "metadata_differs")]),
    "timestamp in the future": Case(
        _timestamps_changed(NOW_MS + 1),
        [(I, "stalled_retention")],
        [(I, "stalled_retention"), (W, "metadata_differs")],
        says="is in the future",
    ),
    "update of nothing": Case(_unknown_update, [(W, "dropped_event")]),
    "backwards": Case(_published(S.DELETE_SEGMENT_FINISHED), [(W, "dropped_event")], says="was dropped"),
    "tombstones": Case(_tombstones, [(E, "empty_record")], says="2 without a value, the first at offset"),
    "metadata unreadable": Case(lambda t: t.append_raw(0, b"\x63what"), [(E, "corrupt_metadata")]),
    "partition marked": Case(_marked(P.DELETE_PARTITION_MARKED), [(W, "unfinished_partition_delete")]),
    "partition begun": Case(_marked(P.DELETE_PARTITION_STARTED), [(W, "unfinished_partition_delete")]),
    "partition not empty": Case(_marked(P.DELETE_PARTITION_FINISHED), [(E, "unfinished_partition_delete")]),
    "topic recreated": Case(_log_of_another_topic, [(W, "recreated_topic")] * 2, says=OTHER),
    "log directory damaged": Case(_log_unreadable, [(E, "unreadable_log")]),
    "end of a log damaged": Case(_log_end_damaged, [(E, "damaged_log_end")], says="the log ends at offset"),
    "end of a log lost": Case(_log_cut, [(E, "cut_log")], says="and its high watermark was 5"),
    "leader epochs are a pipe": Case(
        _pipe_in_log("clicks-1/leader-epoch-checkpoint"), [(E, "unreadable_log")], says="no plain file"
    ),
    "topic ids are a pipe": Case(_topic_ids_unreadable, [(E, "unreadable_log")] * 2),
    "checkpoint is a pipe": Case(_pipe_in_log("replication-offset-checkpoint"), [(E, "unreadable_log")]),
    "topic gone": Case(_log_gone, [(W, "unknown_topic")] * 2),
    "high watermark low": Case(_high_watermark_too_low, [(E, "offsets")] * 2, says="Ry"),
}
"""Other damage."""

CASES = OF_OBJECTS | OF_TIERS
"""Every case is run with the broker's log directory."""
