"""Preconditions: topics that settings name, the tier of the metadata, and complete histories."""

import pytest
from tierctl.errors import RemoteTierMissing, SafetyRefusal, TierctlError, UsageError
from tierctl.model import (
    ClusterIdentity,
    RemoteLogSegmentMetadataUpdate,
    TierIdentity,
    TopicIdPartition,
    Uuid,
)
from tierctl.plan.preconditions import (
    Evidence,
    TierContents,
    check_tier,
    decide_histories,
    require_known_names,
    require_recognised,
    why_history_unknown,
    why_maybe_unheard_of,
    why_unknown,
)
from tierctl.state.fold import fold_event
from tierctl.state.tier_state import MissingEvents, TierState
from tierctl.wire.metadata.values import metadata_partition

from tests.plan.tier import OTHER_ID, PARTITION, S, advance, segment, segment_id


@pytest.mark.parametrize(
    ("stated", "known", "without_settings", "message"),
    [
        (("orders",), ("orders",), (), None),
        ((), ("orders",), ("orders",), None),
        (("orders", "__remote_log_metadata"), ("orders",), (), None),
        (("odrers",), ("orders",), ("orders",), 'did you mean "orders"?'),
        (("orders", "bilsl"), ("orders", "bills"), ("bills",), 'did you mean "bills"?'),
        (("orders-1",), ("orders-1", "orders-2"), ("orders-2",), None),
        (("payments",), ("orders",), ("orders",), "known topics: orders"),
        (("payments", "clicks"), ("orders", "bills"), (), "states settings of clicks, payments only"),
    ],
)
def test_topics_that_settings_name(
    stated: tuple[str, ...], known: tuple[str, ...], without_settings: tuple[str, ...], message: str | None
) -> None:
    if message is None:
        assert require_known_names(stated, known, without_settings) is None
        return
    with pytest.raises(UsageError) as error:
        require_known_names(stated, known, without_settings)
    assert message in f"{error.value.message}; {error.value.hint}"


@pytest.mark.parametrize(
    ("stated", "known"),
    [(("orders", "payments"), ("orders",)), (("payments",), ()), (("orders", "odrers"), ("orders",))],
)
def test_other_unknown_names_are_noted(stated: tuple[str, ...], known: tuple[str, ...]) -> None:
    note = require_known_names(stated, known, ()) or ""
    assert f"states settings of {stated[-1]}, which neither the metadata nor the log" in note


TOPIC, OTHER_TOPIC = Uuid("2QZ5FAXaQrqgUzsReWnweA"), Uuid("Qwn_wKgZbeaSNpD3Nhsgvw")
BOTH = ClusterIdentity(cluster_id="c1", metadata_topic_id=TOPIC)
ONLY_CLUSTER = ClusterIdentity(cluster_id="c1", metadata_topic_id=None)
ONLY_TOPIC = ClusterIdentity(cluster_id=None, metadata_topic_id=TOPIC)
NOTHING = ClusterIdentity(cluster_id=None, metadata_topic_id=None)
OTHER_CLUSTER = ClusterIdentity(cluster_id="c2", metadata_topic_id=TOPIC)
RECREATED = ClusterIdentity(cluster_id="c1", metadata_topic_id=OTHER_TOPIC)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (BOTH, BOTH, True),
        (BOTH, ONLY_CLUSTER, True),
        (BOTH, ONLY_TOPIC, True),
        (BOTH, OTHER_CLUSTER, False),
        (BOTH, RECREATED, False),
        (ONLY_TOPIC, RECREATED, False),
        (ONLY_CLUSTER, OTHER_CLUSTER, False),
        (ONLY_CLUSTER, ONLY_TOPIC, None),
        (NOTHING, BOTH, None),
        (NOTHING, NOTHING, None),
    ],
)
def test_ids_that_both_know_decide(one: ClusterIdentity, other: ClusterIdentity, same: bool | None) -> None:
    assert one.is_same_as(other) is same
    assert other.is_same_as(one) is same


EMPTY: dict[str, object] = {}
"""No finished segment in the metadata, and no object in the tier."""
FOUND: dict[str, object] = {"known": True}
LOST: dict[str, object] = {"missing": "/tier/00-x.log"}
LOST_OTHERS: dict[str, object] = LOST | {"unknown_key": "other-0/y.log", "is_foreign": True}
FOREIGN: dict[str, object] = {"unknown_key": "other-0/y.log", "is_foreign": True}
LEAKED: dict[str, object] = {"unknown_key": "other-0/y.log"}
READ, LOSS, ADOPT = {"is_reading": True}, {"allow_missing_objects": True}, {"adopt": True}
NEVER: dict[str, bool] = {}
REFUSED, WRONG, OK = SafetyRefusal, RemoteTierMissing, None

CASES = [
    # The tier's identity, that of the metadata, the tier's objects, options, and the error.
    (None, BOTH, EMPTY, NEVER, OK),
    (None, BOTH, FOUND, NEVER, OK),
    (None, NOTHING, FOUND, NEVER, OK),
    (None, BOTH, LOST, NEVER, WRONG),
    (None, BOTH, LOST, READ, WRONG),
    (None, BOTH, LOST, LOSS, OK),
    (None, BOTH, LOST_OTHERS, NEVER, WRONG),
    (None, BOTH, FOREIGN, NEVER, REFUSED),
    (None, BOTH, FOREIGN, READ, REFUSED),
    (None, BOTH, FOREIGN, ADOPT, OK),
    (None, BOTH, LEAKED, NEVER, OK),
    (BOTH, BOTH, EMPTY, NEVER, OK),
    (BOTH, BOTH, FOUND, NEVER, OK),
    (BOTH, BOTH, LOST, NEVER, WRONG),
    (BOTH, BOTH, LOST, LOSS, OK),
    (BOTH, BOTH, LOST, READ, OK),
    (BOTH, BOTH, LOST, ADOPT, WRONG),
    (BOTH, BOTH, FOREIGN, NEVER, OK),
    *(
        (BOTH, other, contents, options, REFUSED)
        for other in (OTHER_CLUSTER, RECREATED)
        for contents in (EMPTY, FOUND, LOST, FOREIGN)
        for options in (NEVER, READ, LOSS)
    ),
    (BOTH, RECREATED, FOUND, ADOPT, OK),
    (BOTH, RECREATED, LOST, ADOPT, WRONG),
    (BOTH, RECREATED, LOST, ADOPT | LOSS, OK),
    # Neither identity is known: the objects decide; without objects the tier belongs to another topic.
    (BOTH, NOTHING, FOUND, NEVER, OK),
    (BOTH, NOTHING, EMPTY, NEVER, REFUSED),
    (BOTH, NOTHING, EMPTY, ADOPT, OK),
    (BOTH, NOTHING, LOST, READ, WRONG),
    (NOTHING, BOTH, EMPTY, NEVER, OK),
    (NOTHING, NOTHING, FOREIGN, NEVER, REFUSED),
]


@pytest.mark.parametrize(("identity", "own", "objects", "options", "error"), CASES)
def test_whose_tier_it_is(
    identity: ClusterIdentity | None,
    own: ClusterIdentity,
    objects: dict[str, object],
    options: dict[str, bool],
    error: type[TierctlError] | None,
) -> None:
    stored = None if identity is None else TierIdentity(cluster=identity, layout="kafka")
    contents = TierContents(name="/tier", layout="kafka", identity=stored, **objects)  # type: ignore[arg-type]
    if error is None:
        note = check_tier(contents, own, **options)
        is_unclear = identity is not None and identity.is_same_as(own) is None and not options.get("adopt")
        assert (note is not None) == is_unclear
        return
    with pytest.raises(error, match="/tier") as raised:
        check_tier(contents, own, **options)
    assert raised.value.hint is not None
    if error is SafetyRefusal:
        assert str(own) in raised.value.message
        assert identity is None or str(identity) in raised.value.message or objects.get("is_foreign")


@pytest.mark.parametrize(
    ("identity", "objects", "error"),
    [
        (None, {"begun": "/tier/00-x.log"}, WRONG),
        (None, {"begun": "/tier/00-x.log", "unknown_key": "other-0/y.log"}, WRONG),
        (None, {"begun": "/tier/00-x.log", "known": True}, OK),
        (None, {}, OK),
        (BOTH, {"begun": "/tier/00-x.log"}, OK),
    ],
)
def test_where_begun_deletions_may_go_on(
    identity: ClusterIdentity | None, objects: dict[str, object], error: type[TierctlError] | None
) -> None:
    stored = None if identity is None else TierIdentity(cluster=identity, layout="kafka")
    contents = TierContents(name="/tier", layout="kafka", identity=stored, **objects)  # type: ignore[arg-type]
    if error is None:
        require_recognised(contents)
        return
    with pytest.raises(error, match="neither an identity object nor an object of a segment"):
        require_recognised(contents)


@pytest.mark.parametrize("missing", ["tier/log", None])
def test_objects_of_the_metadata_in_another_folder_are_no_tier(missing: str | None) -> None:
    key = "tier/kafka-tiered-storage/orders-0-AAAAAAAAAAAAAAAAAAAAAQ/x.log"
    contents = TierContents(name="/", layout="aiven", identity=None, missing=missing, misplaced_key=key)
    with pytest.raises(RemoteTierMissing, match=f"it has {key}"):
        check_tier(contents, BOTH)
    assert check_tier(contents, BOTH, allow_missing_objects=True) is None


def test_another_layout_is_a_usage_error() -> None:
    stored = TierIdentity(cluster=BOTH, layout="aiven")
    contents = TierContents(name="/tier", layout="kafka", identity=stored, known=True)
    with pytest.raises(UsageError, match="has layout aiven, not kafka"):
        check_tier(contents, BOTH)


HEAD = MissingEvents(0, 0, 28)
HOLE = MissingEvents(0, 28, 40)
IDS = frozenset({segment_id(2), segment_id(3)})
"""Ids of the known segments, which begin at offsets 200 and 300."""


def state_with(*missing: MissingEvents) -> TierState:
    """Return a state with segments from offset 200 on, and missing events of metadata partition 0."""
    state = TierState(missing=list(missing))
    for number in (2, 3):
        advance(state, segment(number, 100 * number, 100 * number + 99), S.COPY_SEGMENT_FINISHED)
    return state


HISTORIES: dict[str, tuple[list[MissingEvents], Evidence, str | None]] = {
    "nothing is known": ([HEAD], Evidence(), "begins at offset 200, the log start is not known"),
    "the log start is below": ([HEAD], Evidence(log_start_offset=199), "the log start is 199"),
    "the log start is there": ([HEAD], Evidence(log_start_offset=200), None),
    "the log start is above": ([HEAD], Evidence(log_start_offset=350), None),
    "the local log begins at the log start": (
        [HEAD],
        Evidence(log_start_offset=100, local_log_start_offset=100),
        "begins at offset 200, the log start is 100",
    ),
    "every object has its events": ([HEAD], Evidence(stored_ids=IDS), None),
    "an object of a deleted segment is gone": ([HEAD], Evidence(stored_ids=IDS - {segment_id(2)}), None),
    "an object without events": (
        [HEAD],
        Evidence(stored_ids=IDS | {segment_id(9)}),
        "the tier has objects of 1 segment without events",
    ),
    "two objects without events, but below the log start": (
        [HEAD],
        Evidence(log_start_offset=200, stored_ids=IDS | {segment_id(8), segment_id(9)}),
        None,
    ),
    "a hole after known events": (
        [HOLE],
        Evidence(log_start_offset=200),
        "the events at offsets 28 to 39 of metadata partition 0 are gone",
    ),
    "a head and a hole": ([HEAD, HOLE], Evidence(log_start_offset=200), "begins at offset 28"),
    "a hole that the objects close": ([HEAD, HOLE], Evidence(stored_ids=IDS), None),
}


@pytest.mark.parametrize(("missing", "evidence", "expected"), HISTORIES.values(), ids=HISTORIES)
def test_evidence(missing: list[MissingEvents], evidence: Evidence, expected: str | None) -> None:
    state = state_with(*missing)
    # By the evidence for another decision.
    state.complete.add(PARTITION.key)
    reasons = decide_histories(state, {PARTITION: evidence})
    assert (expected is None) == (reasons == {}) == (PARTITION.key in state.complete)
    if expected is not None:
        assert expected in reasons[PARTITION]
    part = state.partition(PARTITION)
    assert part is not None
    assert (why_unknown(state, part) is None) == (expected is None)


def test_a_partition_that_is_younger_than_the_missing_events_is_complete() -> None:
    """Its first segment was deleted since; both events of the deletion are known."""
    state = TierState(missing=[HEAD])
    advance(state, segment(0, 0, 99), S.COPY_SEGMENT_FINISHED, S.DELETE_SEGMENT_STARTED)
    advance(state, segment(0, 0, 99), S.DELETE_SEGMENT_FINISHED)
    advance(state, segment(1, 100, 199), S.COPY_SEGMENT_FINISHED)
    assert decide_histories(state, {PARTITION: Evidence()}) == {}


def test_an_update_alone_shows_no_segment() -> None:
    """The first event of the segment is missing, so its start offset is unknown."""
    whole = state_with(HEAD)
    state = TierState(missing=[HEAD], read={0: 5})
    [part] = whole
    copied = segment(2, 200, 299)
    update = RemoteLogSegmentMetadataUpdate.of(
        copied, S.COPY_SEGMENT_FINISHED, broker_id=1, event_timestamp_ms=1
    )
    fold_event(update, state, metadata_partition=0, metadata_offset=29)
    reasons = decide_histories(state, {PARTITION: Evidence(log_start_offset=900)})
    assert "no segment is known" in reasons[PARTITION]
    assert part.lowest_start_offset == 200


def test_without_a_decision_nothing_is_complete_unless_missing_events_are_accepted() -> None:
    state = state_with(HEAD)
    assert "begins at offset 28" in (why_history_unknown(state, PARTITION) or "")
    state.accepts_missing = True
    assert why_history_unknown(state, PARTITION) is None


def test_events_that_go_missing_later_make_a_complete_history_unknown() -> None:
    state = state_with(HEAD)
    decide_histories(state, {PARTITION: Evidence(log_start_offset=200)})
    assert why_history_unknown(state, PARTITION) is None
    state.add_missing(HOLE)
    assert why_history_unknown(state, PARTITION) is not None


UNHEARD_OF = TopicIdPartition(OTHER_ID, "payments", 0)


@pytest.mark.parametrize(
    ("evidence", "is_complete"),
    [
        (Evidence(log_start_offset=0), False),
        (Evidence(log_start_offset=5, local_log_start_offset=6), False),
        (Evidence(log_start_offset=6, local_log_start_offset=6), True),
        (Evidence(stored_ids=frozenset({Uuid("2QZ5FAXaQrqgUzsReWnweA")})), False),
        (Evidence(stored_ids=frozenset()), True),
    ],
)
def test_a_partition_without_any_event(evidence: Evidence, is_complete: bool) -> None:
    own = metadata_partition(OTHER_ID, 0, 3)
    state = TierState(read=dict.fromkeys(range(3), 50), missing=[MissingEvents(own, 0, 50)])
    reasons = decide_histories(state, {UNHEARD_OF: evidence})
    assert (reasons == {}) == is_complete
    assert (why_maybe_unheard_of(state, UNHEARD_OF) is None) == is_complete


def test_missing_events_of_another_metadata_partition_do_not_matter() -> None:
    own = metadata_partition(OTHER_ID, 0, 3)
    state = TierState(read=dict.fromkeys(range(3), 50), missing=[MissingEvents((own + 1) % 3, 0, 50)])
    assert decide_histories(state, {UNHEARD_OF: Evidence()}) == {}
    assert why_maybe_unheard_of(state, UNHEARD_OF) is None
    state.read = {}
    assert why_maybe_unheard_of(state, UNHEARD_OF) is not None
