"""A store that is listed by folder, on executors, has the same findings as one that is listed at once."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tierctl.checks.deep import Candidates, Sample
from tierctl.checks.objects import StoreAudit, audit_listing, stem_of
from tierctl.model import RemoteLogSegmentMetadata, Selection, TopicIdPartition
from tierctl.model.events import ZERO_UUID
from tierctl.spark.executors import examined, task
from tierctl.spark.executors.examined import SparkRunner
from tierctl.state.fold import fold_event
from tierctl.state.tier_state import TierState
from tierctl.storage.layouts.aiven.layout import AivenLayout
from tierctl.storage.layouts.kafka import SUFFIXES, KafkaLayout, SegmentLayout, split_key
from tierctl.storage.stores.base import FolderListing, RemoteObject
from tierctl.wire.aiven import AivenCustomMetadata, write_custom_metadata

from tests.plan.tier import OTHER_ID, TOPIC_ID, S, advance, segment
from tests.support.amounts import examples
from tests.verify.tiers import made_tier

PARTITIONS = (
    TopicIdPartition(TOPIC_ID, "made", 0),
    TopicIdPartition(TOPIC_ID, "made", 1),
    TopicIdPartition(OTHER_ID, "other", 0),
)
ALL = Candidates(partitions=Selection(), sample=Sample(percent=1, seed=7), first=0, last=1 << 13)
UNKNOWN = TopicIdPartition(ZERO_UUID, "unknown", 0)
AIVEN_SUFFIXES = (".log", ".indexes", ".rsm-manifest")


def two_tables() -> tuple[TierState, list[RemoteLogSegmentMetadata]]:
    """Return three partitions in two metadata partitions, and their segments; one broker sets flags late."""
    state, segments = TierState(), []
    for number in range(12):
        partition = PARTITIONS[number % 3]
        added = segment(number, number * 10, number * 10 + 9, partition=partition)
        added = replace(
            added, broker_id=number % 2, event_timestamp_ms=1000 + number, txn_index_empty=number in {5, 8}
        )
        fold_event(added, state, metadata_partition=number % 3 % 2, metadata_offset=number)
        if number != 7:
            advance(state, added, S.COPY_SEGMENT_FINISHED)
        segments.append(added)
    unknown = [segment(99, 0, 9, partition=each) for each in (PARTITIONS[0], UNKNOWN)]
    return state, segments + unknown


STATE, SEGMENTS = two_tables()


def folder_of(partition: TopicIdPartition, *, is_aiven: bool) -> str:
    topic, number, topic_id = partition.topic, partition.partition, partition.topic_id
    return f"{topic}-{topic_id}/{number}/" if is_aiven else f"{topic}-{number}-{topic_id}/"


def object_of(number: int, suffix: str, place: str, size_bytes: int, archived: bool) -> RemoteObject:
    """Return an object of a segment; `place` is a folder above the one of its partition, or empty."""
    each = SEGMENTS[number]
    is_aiven = suffix.endswith(AIVEN_SUFFIXES[1:])
    folder = place + folder_of(each.topic_id_partition, is_aiven=is_aiven)
    root = "" if is_aiven else KafkaLayout.base
    key = f"{root}{folder}{each.start_offset:020d}-{each.segment_id}{suffix}"
    return RemoteObject(key, size_bytes, 0, archive_class="GLACIER" if archived else None)


PLACES = (
    "",
    "",
    "",
    "elsewhere/",
    folder_of(PARTITIONS[1], is_aiven=False),
    folder_of(UNKNOWN, is_aiven=True),
)
OBJECTS = st.builds(
    object_of,
    st.integers(0, len(SEGMENTS) - 1),
    st.sampled_from((*SUFFIXES, *AIVEN_SUFFIXES[1:])),
    st.sampled_from(PLACES),
    st.integers(99, 101),
    st.booleans(),
)
OTHERS = st.sampled_from(
    [
        RemoteObject("note.txt", 1, 0),
        RemoteObject(KafkaLayout.base + folder_of(PARTITIONS[0], is_aiven=False), 0, problem="it is a link"),
        RemoteObject(f"{folder_of(PARTITIONS[2], is_aiven=True)}note.txt", 1, 0),
    ]
)


def name_of(listed: RemoteObject) -> str:
    """Return the part of a key that says which object it is, wherever it lies."""
    return listed.key.rpartition("/")[2] or listed.key


@dataclass
class Listed:
    """The listings of a store, by key."""

    objects: Sequence[RemoteObject]
    layout: SegmentLayout

    def list_objects(self, folder: str = "") -> Iterator[RemoteObject]:
        return (each for each in self.objects if each.key.startswith(folder or self.layout.base))

    def list_folder(self, folder: str = "") -> FolderListing:
        folder = folder or self.layout.base
        inner = [each for each in self.list_objects(folder) if "/" in each.key[len(folder) : -1]]
        names = {folder + each.key[len(folder) :].partition("/")[0] + "/" for each in inner}
        rest = tuple(
            each for each in self.list_objects(folder) if each not in inner and each.key not in names
        )
        return FolderListing(tuple(sorted(names)), rest)


class InThisProcess:
    """Run functions as executors do, which receive and return pickled bytes."""

    slots = 1

    def run(self, function: Callable[[Any], Any], inputs: Sequence[Any], **_: Any) -> Iterator[Any]:
        for each in inputs:
            there = pickle.loads(pickle.dumps((function, each)))
            yield task.loads(task.dumps(there[0](there[1])))


@examples(150)
@given(
    st.lists(OBJECTS, max_size=60, unique_by=name_of),
    st.lists(OTHERS, max_size=3, unique_by=name_of),
    st.sampled_from([(), SUFFIXES, AIVEN_SUFFIXES]),
    st.sets(st.integers(0, 11), max_size=3),
    st.sampled_from([KafkaLayout(), AivenLayout()]),
)
def test_folders_add_up(
    objects: list[RemoteObject],
    others: list[RemoteObject],
    whole_of: Sequence[str],
    bare: set[int],
    layout: SegmentLayout,
) -> None:
    known, whole = {name_of(each) for each in objects}, set(range(12)) - bare
    every = (object_of(at, suffix, "", 100, archived=False) for at in whole for suffix in whole_of)
    objects = objects + [each for each in every if name_of(each) not in known]
    listing = sorted([*objects, *others], key=lambda each: each.key)
    counts: list[int] = []
    remote: Any = Listed(listing, layout)
    listing = list(remote.list_objects())
    executors: Any = InThisProcess()
    with mock.patch.object(examined, "shared_tier", return_value=remote):
        spec: Any = None
        runner = SparkRunner(executors=executors, remote=remote, spec=spec, advance=counts.append)
        apart = runner.audit(STATE, ALL)
    at_once = audit_listing(STATE, listing, layout, ALL)
    unaccounted = list(at_once.unaccounted)
    assert list(apart.unaccounted) == unaccounted
    own = {stem_of(layout, each) for each in SEGMENTS[:12]}
    assert all(split_key(each.key)[0] in own for each in listing if each not in unaccounted)
    assert list(apart.suspects()) == list(at_once.suspects())
    assert sum(counts) == len(listing)
    assert sorted(apart.candidates()) == sorted(at_once.candidates())
    assert len(list(at_once.candidates())) == 11


@pytest.mark.parametrize("prefix", ["", "older/"])
def test_custom_metadata_name_the_place_of_a_segment(prefix: str) -> None:
    """An object elsewhere is not read, also in the folder of the segment's partition."""
    custom = write_custom_metadata(AivenCustomMetadata(object_prefix=prefix))
    state, added = TierState(), replace(segment(0, 0, 9, partition=PARTITIONS[0]), custom_metadata=custom)
    fold_event(added, state, metadata_partition=0, metadata_offset=0)
    advance(state, added, S.COPY_SEGMENT_FINISHED)
    name = folder_of(PARTITIONS[0], is_aiven=True) + f"{0:020d}-{added.segment_id}"
    listing = [
        RemoteObject(f"{place}{name}{suffix}", 100, 0)
        for place in ("", "older/")
        for suffix in AIVEN_SUFFIXES
    ]
    audit = audit_listing(state, listing, AivenLayout())
    assert {each.key.startswith("older/") for each in audit.unaccounted} == {prefix == ""}
    assert list(audit.suspects()) == []


def test_a_segment_of_another_partition_is_told_apart() -> None:
    _, listing = made_tier(1)
    assert list(StoreAudit([], KafkaLayout()).unaccounted(listing())) == list(listing())
