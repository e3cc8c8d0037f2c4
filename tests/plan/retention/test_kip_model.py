"""For random histories of a broker, `sweep` plans the deletions of a model that follows the KIP's text."""

from collections.abc import Callable

import pytest
from hypothesis import given, target
from hypothesis import strategies as st
from tierctl.model import LocalLog, TopicConfig
from tierctl.plan.expiry import plan_retention
from tierctl.state.tier_state import TierState

from tests.plan.retention.kip_broker import KipBroker, State
from tests.plan.tier import DAY_MS, NOW_MS, S, advance, local_log, segment, segment_id, tier
from tests.support.amounts import examples

MANY = examples(300)
STATES = {
    State.FINISHED: S.COPY_SEGMENT_FINISHED,
    State.DELETING: S.DELETE_SEGMENT_STARTED,
    State.DELETED: S.DELETE_SEGMENT_FINISHED,
}
AGES_MS = st.sampled_from([0, 0, DAY_MS, 2 * DAY_MS, 3 * DAY_MS, 9 * DAY_MS])
ODD_TIMES_MS = st.sampled_from([-1, 0, NOW_MS + DAY_MS])


@st.composite
def produced(draw: st.DrawFn) -> Callable[[KipBroker], None]:
    count, size = draw(st.integers(1, 6)), draw(st.sampled_from([10, 10, 30]))
    at_ms = draw(st.one_of(*[AGES_MS.map(lambda age: NOW_MS - age)] * 8, ODD_TIMES_MS))
    return lambda broker: broker.produce(count, at_ms, size)


@st.composite
def tiered(draw: st.DrawFn) -> Callable[[KipBroker], None]:
    """Fill, roll and usually copy a segment, sometimes at the second attempt: the most frequent steps."""
    fill, copies, cut_off = draw(produced()), draw(st.integers(0, 2)), draw(st.integers(0, 5)) == 0

    def do(broker: KipBroker) -> None:
        fill(broker)
        broker.roll()
        if cut_off:
            broker.copy(fails=True, begun_ms=NOW_MS)
            broker.elect()
        for _ in range(copies):
            broker.copy()

    return do


def happenings(*, unclean: bool) -> st.SearchStrategy[Callable[[KipBroker], None]]:
    """Return steps of a history. Offsets are shares of the log, in thousandths."""
    share = st.integers(0, 1000)
    kinds = [
        *[tiered()] * 6,
        produced(),
        st.just(KipBroker.roll),
        st.just(KipBroker.copy),
        st.sampled_from([NOW_MS, NOW_MS - DAY_MS - 1]).map(
            lambda at_ms: lambda broker: broker.copy(fails=True, begun_ms=at_ms)
        ),
        st.just(KipBroker.drop_local),
        share.map(lambda at: lambda broker: broker.delete_records(_offset(broker, at))),
        st.just(KipBroker.elect),
        st.just(KipBroker.elect),
        st.integers(1, 2).map(lambda count: lambda broker: broker.begin_expiring(count, NOW_MS - DAY_MS)),
    ]
    if unclean:
        kinds.append(share.map(lambda at: lambda broker: broker.elect_uncleanly(_offset(broker, at))))
    return st.one_of(kinds)


def _offset(broker: KipBroker, thousandths: int) -> int:
    return broker.log_start + (broker.log_end - broker.log_start) * thousandths // 1000


def state_of(broker: KipBroker) -> TierState:
    """Return the state from the events that the broker published."""
    state = tier()
    for number, to in broker.events:
        remote = broker.remote[number]
        metadata = segment(
            number,
            remote.start,
            remote.end,
            *remote.epochs,
            size=remote.size_bytes,
            max_timestamp_ms=remote.max_timestamp_ms,
            event_timestamp_ms=remote.begun_ms,
        )
        advance(state, metadata, *([] if to is State.STARTED else [STATES[to]]))
    return state


def log_of(broker: KipBroker) -> LocalLog:
    """Return the broker's log directory."""
    local = [*broker.rolled, broker.active]
    return local_log(
        [s.start for s in local],
        broker.log_end,
        epochs=broker.checkpoint,
        log_start_offset=broker.log_start,
        sizes=[s.size_bytes for s in local],
    )


def planned(broker: KipBroker) -> set[str]:
    """Return the segments that `sweep` plans to delete."""
    config = TopicConfig(
        retention_ms=broker.retention_ms, retention_bytes=broker.retention_bytes, remote_storage_enable=True
    )
    plan = plan_retention(state_of(broker), [log_of(broker)], {"orders": config}, now_ms=NOW_MS)
    ids = [str(step.segment_id) for step in plan.steps]
    assert len(ids) == len(set(ids))
    return set(ids)


def run(happened: list[Callable[[KipBroker], None]], retention_ms: int, retention_bytes: int) -> KipBroker:
    broker = KipBroker(retention_ms=retention_ms, retention_bytes=retention_bytes)
    for do in happened:
        do(broker)
    return broker


LIMITS_MS = st.sampled_from([-1, -1, 0, DAY_MS, 2 * DAY_MS + 1, 5 * DAY_MS])
LIMITS_BYTES = st.sampled_from([-1, -1, 0, 50, 120, 300, 600])


def expected(broker: KipBroker) -> set[str]:
    return {str(segment_id(number)) for number in broker.expired(NOW_MS)}


@MANY
@given(st.lists(happenings(unclean=False), min_size=3, max_size=30), LIMITS_MS, LIMITS_BYTES)
def test_sweep_deletes_what_the_text_says(
    happened: list[Callable[[KipBroker], None]], retention_ms: int, retention_bytes: int
) -> None:
    broker = run(happened, retention_ms, retention_bytes)
    deleted = expected(broker)
    target(float(len(deleted)))
    assert planned(broker) == deleted


@MANY
@given(st.lists(happenings(unclean=True), min_size=3, max_size=30), LIMITS_MS, LIMITS_BYTES)
def test_sweep_deletes_what_the_text_says_after_unclean_elections(
    happened: list[Callable[[KipBroker], None]], retention_ms: int, retention_bytes: int
) -> None:
    broker = run(happened, retention_ms, retention_bytes)
    assert planned(broker) == expected(broker)


def _tiered(count: int, *, size: int = 10, days: int = 0) -> Callable[[KipBroker], None]:
    def do(broker: KipBroker) -> None:
        broker.produce(count, NOW_MS - days * DAY_MS, size)
        broker.roll()
        broker.copy()

    return do


def _elected_uncleanly(offset: int) -> Callable[[KipBroker], None]:
    return lambda broker: broker.elect_uncleanly(offset)


@pytest.mark.parametrize(
    ("happened", "retention_ms", "retention_bytes", "wanted"),
    [
        pytest.param(
            # Segments 0 [0, 3], 1 [4, 6] and 2 [0, 4]: brokers find 2 at offset 0 and do not list 0. The log
            # has the 130 bytes of 2, which is 80 above the limit.
            [_tiered(4, size=30), _tiered(3), _elected_uncleanly(4), _tiered(1)],
            *(-1, 50, set()),
            id="a copy that a longer one replaced is not counted again",
        ),
        pytest.param(
            # Segments 0 [0, 3] and 1 [0, 8]: brokers list both. The log has 190 bytes, 140 above the limit.
            [_tiered(4), _elected_uncleanly(4), _tiered(5, size=30)],
            *(-1, 50, set()),
            id="a listed copy that a longer one contains is not counted again",
        ),
        pytest.param(
            # Segments 0 [0, 5], 1 [0, 11] and 2 [12, 14]: without 1, the log is 30 bytes above the limit; 0
            # has 60.
            [_tiered(6), _elected_uncleanly(6), _tiered(6), _tiered(3), lambda b: b.produce(5, NOW_MS, 10)],
            *(-1, 50, {0, 1, 2}),
            id="a copy below the new log start does not end the run by size",
        ),
        pytest.param(
            # Segments 0 [0, 2] without a timestamp, 1 [0, 8] and 2 [9, 9].
            [
                lambda b: b.produce(3, 0, 10),
                *(KipBroker.roll, KipBroker.copy, _elected_uncleanly(3)),
                *(_tiered(6, days=9), _tiered(1, days=9)),
            ],
            *(DAY_MS, -1, {0, 1, 2}),
            id="a copy below the new log start does not end the run by time",
        ),
        pytest.param(
            # Segments 0 [0, 5], 1 [6, 10] and 2 [0, 11], which left the lineage by the last election.
            [
                *(_tiered(6, days=9), _tiered(5, days=9), _elected_uncleanly(6)),
                *(_tiered(6, days=9), _elected_uncleanly(6)),
            ],
            *(DAY_MS, -1, set()),
            id="a copy that brokers do not list stays when the longer one diverged",
        ),
    ],
)
def test_segments_copied_again_after_an_unclean_election(
    happened: list[Callable[[KipBroker], None]], retention_ms: int, retention_bytes: int, wanted: set[int]
) -> None:
    broker = run(happened, retention_ms, retention_bytes)
    assert planned(broker) == {str(segment_id(number)) for number in wanted}
    assert expected(broker) == planned(broker)
