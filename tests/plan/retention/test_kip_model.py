"""For random histories of a broker, `sweep` plans the deletions of a model that follows the KIP's text."""

from collections.abc import Callable

from hypothesis import given, settings, target
from hypothesis import strategies as st
from tierctl.model import LocalLog, TopicConfig
from tierctl.plan.retention.sweep import plan_retention
from tierctl.state.tier import TierState

from tests.plan.retention.kip_broker import KipBroker, State
from tests.plan.tier import DAY_MS, NOW_MS, S, advance, local_log, segment, segment_id, tier

MANY = settings(max_examples=300, deadline=None)
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
    """A segment is filled, rolled and mostly copied: what happens most."""
    fill, copies = draw(produced()), draw(st.integers(0, 2))

    def do(broker: KipBroker) -> None:
        fill(broker)
        broker.roll()
        for _ in range(copies):
            broker.copy()

    return do


def happenings(*, unclean: bool) -> st.SearchStrategy[Callable[[KipBroker], None]]:
    """What may happen to a partition. Offsets are shares of the log, in thousandths."""
    share = st.integers(0, 1000)
    kinds = [
        *[tiered()] * 6,
        produced(),
        st.just(KipBroker.roll),
        st.just(KipBroker.copy),
        st.just(lambda broker: broker.copy(fails=True)),
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
    """The state from the events that the broker published."""
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
        )
        advance(state, metadata, *([] if to is State.STARTED else [STATES[to]]))
    return state


def log_of(broker: KipBroker) -> LocalLog:
    """The broker's log directory."""
    local = [*broker.rolled, broker.active]
    return local_log(
        [s.start for s in local],
        broker.log_end,
        epochs=broker.checkpoint,
        log_start_offset=broker.log_start,
        sizes=[s.size_bytes for s in local],
    )


def planned(broker: KipBroker) -> set[str]:
    """The segments that `sweep` deletes."""
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
