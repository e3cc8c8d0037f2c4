"""The cache has the same results as Kafka's, on Kafka's own histories and on random ones."""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tierctl.errors import IllegalEventError, RemoteResourceNotFound, TierctlError
from tierctl.model import MetadataEvent, RemoteLogSegmentMetadata, Uuid
from tierctl.state.cache import RemoteLogMetadataCache
from tierctl.wire.metadata.values import decode

from tests.conftest import vectors
from tests.state.folding import encodable
from tests.state.histories import ORDERS, S, finished, histories, segment_id, started, updated
from tests.state.reference import ReferenceCache
from tests.support.amounts import examples

pytestmark = pytest.mark.usefixtures("both_forms")

JAVA_NAMES = {
    IllegalEventError: "IllegalArgumentException",
    RemoteResourceNotFound: "RemoteResourceNotFoundException",
}
HISTORIES = list(vectors("cache.jsonl"))
PROBED_OFFSETS = range(-1, 62)


def take(cache: Any, event: MetadataEvent) -> bool | str:
    """Return the cache's reaction to an event: accepted, ignored, or the Java exception's name."""
    try:
        return cache.add(event) if isinstance(event, RemoteLogSegmentMetadata) else cache.update(event)
    except TierctlError as e:
        return JAVA_NAMES[type(e)]


def listed(cache: Any, epoch: int) -> list[RemoteLogSegmentMetadata] | str:
    try:
        return list(cache.list_remote_log_segments(epoch))
    except RemoteResourceNotFound:
        return "RemoteResourceNotFoundException"


def assert_lists(cache: RemoteLogMetadataCache, epoch: int, ids: list[Uuid]) -> None:
    """Compare a list with Kafka's, in which segments with equal start offsets have no order."""
    found = list(cache.list_remote_log_segments(epoch))
    assert sorted(each.segment_id for each in found) == sorted(ids)
    starts = [each.start_offset for each in found]
    assert starts == sorted(starts)


def id_of(metadata: RemoteLogSegmentMetadata | None) -> Uuid | None:
    return None if metadata is None else metadata.segment_id


@pytest.mark.parametrize("history", HISTORIES, ids=range(len(HISTORIES)))
def test_answers_as_kafka(history: dict[str, Any]) -> None:
    cache = RemoteLogMetadataCache()
    said = [take(cache, decode(bytes.fromhex(event["hex"]))) for event in history["events"]]
    assert [s if isinstance(s, str) else None for s in said] == [
        event["error"] for event in history["events"]
    ]
    everything = sorted([m.segment_id, m.state] for m in cache.list_remote_log_segments())
    assert everything == history["list_all"]
    for epoch_text, answers in history["by_epoch"].items():
        epoch = int(epoch_text)
        assert cache.highest_offset_for_epoch(epoch) == answers["highest_offset"]
        assert_lists(cache, epoch, answers["list"])
        listed = [m.segment_size_in_bytes for m in cache.list_remote_log_segments(epoch)]
        assert cache.remote_log_size(epoch) == (len(listed), sum(listed))
        for offset, found, _ in answers["find"]:
            assert id_of(cache.remote_log_segment_metadata(epoch, offset)) == found


def assert_same_answers(cache: RemoteLogMetadataCache, reference: ReferenceCache) -> None:
    key: Callable[[RemoteLogSegmentMetadata], str] = lambda m: m.segment_id  # noqa: E731
    assert len(cache) == len(reference)
    assert sorted(cache.list_remote_log_segments(), key=key) == sorted(
        reference.list_remote_log_segments(), key=key
    )
    assert cache.leader_epochs() == reference.leader_epochs()
    for epoch in (*reference.leader_epochs(), 99):
        assert cache.highest_offset_for_epoch(epoch) == reference.highest_offset_for_epoch(epoch)
        ours, theirs = listed(cache, epoch), listed(reference, epoch)
        if isinstance(ours, str) or isinstance(theirs, str):
            assert ours == theirs
        else:
            assert ours == theirs
        for offset in PROBED_OFFSETS:
            at = (epoch, offset)
            assert cache.remote_log_segment_metadata(*at) == reference.remote_log_segment_metadata(*at)
            assert cache.next_start_offset(*at) == reference.next_start_offset(*at)


@given(histories(), st.booleans(), st.booleans())
@examples(150)
def test_columns_and_dictionaries_agree(
    history: list[MetadataEvent], initialized: bool, compacting: bool
) -> None:
    reference = ReferenceCache(initialized=initialized)
    full = RemoteLogMetadataCache(initialized=initialized)
    for event in filter(encodable, history):
        said = take(reference, event)
        assert take(full, event) == said
        if compacting:
            full.table.compact()
    assert_same_answers(full, reference)


def cache_of(*events: MetadataEvent) -> RemoteLogMetadataCache:
    cache = RemoteLogMetadataCache()
    assert all(take(cache, event) is True for event in events)
    return cache


def test_later_copy_supersedes_what_it_covers_and_forgets_what_it_overwrites() -> None:
    superseded = cache_of(*finished(1, 0, 100), *finished(2, 0, 200))
    assert [m.segment_id for m in superseded.list_remote_log_segments(0)] == [segment_id(2), segment_id(1)]
    assert id_of(superseded.remote_log_segment_metadata(0, 50)) == segment_id(2)
    forgotten = cache_of(*finished(1, 0, 100), *finished(2, 101, 200), *finished(3, 0, 100))
    assert [m.segment_id for m in forgotten.list_remote_log_segments(0)] == [segment_id(3), segment_id(2)]
    assert forgotten.get(segment_id(1)) is not None
    assert forgotten.highest_offset_for_epoch(0) == 200


def test_highest_offset_outlives_deletion() -> None:
    cache = cache_of(
        *finished(1, 0, 9), updated(1, S.DELETE_SEGMENT_STARTED), updated(1, S.DELETE_SEGMENT_FINISHED)
    )
    assert cache.highest_offset_for_epoch(0) == 9
    assert len(cache) == 0


def test_epoch_that_names_a_segment_gone_is_refused_until_it_is_back() -> None:
    moved = [started(1, 0, 9, ((0, 0),)), started(1, 0, 9, ((1, 0),))]
    deletion = [updated(1, S.DELETE_SEGMENT_STARTED), updated(1, S.DELETE_SEGMENT_FINISHED)]
    cache = cache_of(*moved, *deletion)
    with pytest.raises(RemoteResourceNotFound):
        cache.list_remote_log_segments(0)
    assert take(cache, started(1, 0, 9, ((2, 0),))) is True
    assert [m.segment_id for m in cache.list_remote_log_segments(0)] == [segment_id(1)]


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (started(1, -1, 5), "start offset"),
        (started(1, 5, 4), "end offset"),
        (started(1, 0, 9, state=S.COPY_SEGMENT_FINISHED), "COPY_SEGMENT_STARTED"),
        (started(1, 0, 9, segment_leader_epochs=()), "leader epoch"),
    ],
    ids=["negative start", "ends before it starts", "not a first event", "no epochs"],
)
def test_what_can_be_no_segment_is_refused(event: RemoteLogSegmentMetadata, expected: str) -> None:
    with pytest.raises(IllegalEventError, match=expected):
        RemoteLogMetadataCache().add(event)


def test_deleting_while_listing_leaves_out_what_went() -> None:
    count = 3000
    cache = cache_of(*(event for n in range(count) for event in finished(n, n, n)))
    seen = []
    for metadata in cache.list_remote_log_segments():
        number = int.from_bytes(metadata.segment_id.bytes, "big")
        seen.append(number)
        for victim in (number, count - 1 - number):
            for state in (S.DELETE_SEGMENT_STARTED, S.DELETE_SEGMENT_FINISHED):
                take(cache, updated(victim, state))
    assert seen == list(range(count // 2))
    assert len(cache) == 0


def test_partition_of_every_segment_is_kept() -> None:
    other = started(2, 10, 19, topic="renamed")
    cache = cache_of(started(1, 0, 9), other)
    assert cache.get(segment_id(2)) == other
    assert next(cache.list_remote_log_segments()).topic_id_partition == ORDERS


def test_every_field_of_a_segment_is_kept() -> None:
    """A field that is added to the model must get a column of the state, too."""
    segment = started(
        1,
        10,
        19,
        broker_id=3,
        custom_metadata=b"custom",
        txn_index_empty=True,
        unknown_tags=((5, b"tag"),),
        nested_tags=(("remote_log_segment_id", ((6, b"tag"),)),),
    )
    # The cache adds a segment always in this state, and kafka records have no leader epoch.
    fixed = {"state", "leader_epoch"}
    assert {f.name for f in fields(segment) if getattr(segment, f.name) == f.default} == fixed
    assert cache_of(segment).get(segment_id(1)) == segment


def test_threads_ask_at_the_same_time() -> None:
    """Each segment has another number of leader epochs: nothing of one question may be left to another."""
    cache, expected = RemoteLogMetadataCache(), {}
    for number in range(40):
        first = 100 * number
        epochs = tuple((number + step, first + step) for step in range(1 + number % 7))
        for event in finished(number, first, first + 99, epochs):
            take(cache, event)
        expected |= {(epoch, offset): segment_id(number) for epoch, offset in epochs}
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            asked = [*expected] * 8
            found = list(pool.map(lambda each: id_of(cache.remote_log_segment_metadata(*each)), asked))
    finally:
        sys.setswitchinterval(interval)
    assert found == [expected[each] for each in asked]
