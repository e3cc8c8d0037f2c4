"""Tables of selection requests: the selected partitions, and the error for a value without a match."""

import pytest
from tierctl.errors import ExitCode, NotFoundError, UsageError
from tierctl.model import Selection, SelectionRequest, TopicIdPartition, TopicPartition, Uuid
from tierctl.model.selection import parse_partition

ORDERS = Uuid("WXLMw9uDS32Q2fp63a9ugA")
OLD_ORDERS = Uuid("2QZ5FAXaQrqgUzsReWnweA")
CLICKS = Uuid("q1BVgAMTTZeyNc6y5Qnn9w")
LONELY = Uuid.from_bytes(b"\xff" * 16)
KNOWN = [
    *(TopicIdPartition(ORDERS, "orders", number) for number in range(3)),
    TopicIdPartition(OLD_ORDERS, "orders", 9),
    *(TopicIdPartition(CLICKS, "clicks", number) for number in (0, 5)),
]
ask = SelectionRequest.of
OF_CLICKS = 'known partitions of topic "clicks": 0, 5'
SELECTED: list[tuple[SelectionRequest, str]] = [
    (SelectionRequest(), "clicks-0 clicks-5 orders-0 orders-1 orders-2 orders-9"),
    (ask(topics=["orders"]), "orders-0 orders-1 orders-2 orders-9"),
    (ask(partitions=[0]), "clicks-0 orders-0"),
    (ask(partitions=[5, 1]), "clicks-5 orders-1"),
    (ask(topics=["orders", "clicks"], partitions=[5, 1]), "clicks-5 orders-1"),
    (ask(topic_ids=[OLD_ORDERS]), "orders-9"),
    (ask(topic_ids=[CLICKS, OLD_ORDERS], partitions=[0, 9]), "clicks-0 orders-9"),
    (ask(topics=["orders"], topic_ids=[ORDERS], partitions=[2]), "orders-2"),
    (ask(topics=["o*"]), "orders-0 orders-1 orders-2 orders-9"),
    (ask(topics=["[co]*s"], partitions=[5]), "clicks-5"),
    (ask(topics=["clicks", "order?"], partitions=[0]), "clicks-0 orders-0"),
    (ask(topics=["*"], topic_ids=[OLD_ORDERS]), "orders-9"),
    (ask(partitions=[TopicPartition("orders", 1)]), "orders-1"),
    (ask(partitions=[TopicPartition("orders", 9), 0]), "clicks-0 orders-0 orders-9"),
    (ask(topics=["o*"], partitions=[TopicPartition("orders", 9)]), "orders-9"),
    (ask(topic_ids=[ORDERS], partitions=[TopicPartition("orders", 2)]), "orders-2"),
]


UNMATCHED: list[tuple[SelectionRequest, str, str]] = [
    (ask(topics=["oders"]), 'unknown topic "oders"', "known topics with similar names: orders"),
    (ask(topics=["orders", "zzz"]), 'unknown topic "zzz"', "known topics: clicks, orders"),
    (
        ask(topics=["orders", "clocks*"]),
        'no topic matches "clocks*"',
        "known topics with similar names: clicks",
    ),
    (ask(topics=["O*"]), 'no topic matches "O*"', "known topics: clicks, orders"),
    (
        ask(topic_ids=[LONELY]),
        f"unknown topic id {LONELY}",
        f"known topic ids: {OLD_ORDERS} (orders), {ORDERS} (orders), {CLICKS} (clicks)",
    ),
    (
        ask(topic_ids=[Uuid(f"{CLICKS[:-1]}A")]),
        f"unknown topic id {CLICKS[:-1]}A",
        f"known topic ids: {CLICKS} (clicks)",
    ),
    (
        ask(topics=["orders"], topic_ids=[CLICKS]),
        f'topic id {CLICKS} belongs to topic "clicks", which --topic leaves out',
        "a partition must match both --topic and --topic-id: leave one out",
    ),
    (
        ask(topics=["orders", "clicks"], topic_ids=[ORDERS]),
        f'topic "clicks" has none of the topic ids {ORDERS}',
        f'known topic ids of topic "clicks": {CLICKS}',
    ),
    (ask(topics=["clicks"], partitions=[0, 1]), 'topic "clicks" has no partition 1', OF_CLICKS),
    (ask(topics=["clicks", "orders"], partitions=[1, 2]), 'topic "clicks" has no partition 1-2', OF_CLICKS),
    (
        ask(topics=["clicks", "orders"], partitions=[0, 4]),
        "no selected topic has a partition 4",
        "known partitions: 0-2, 5, 9",
    ),
    (
        ask(topic_ids=[ORDERS], partitions=[9]),
        f"topic id {ORDERS} has no partition 9",
        f"known partitions of topic id {ORDERS}: 0-2",
    ),
    (
        ask(partitions=[TopicPartition("orders", 7)]),
        'topic "orders" has no partition 7',
        'known partitions of topic "orders": 0-2, 9',
    ),
    (
        ask(partitions=[TopicPartition("oders", 0), 5]),
        'unknown topic "oders"',
        "known topics with similar names: orders",
    ),
    (
        ask(topics=["clicks", "orders"], partitions=[TopicPartition("orders", 1)]),
        'no --partition is of topic "clicks"',
        "leave that --topic out",
    ),
]
"""Requests with one value that matches nothing, each with the message and the hint of the error."""


@pytest.mark.parametrize(("request_", "selected"), SELECTED)
def test_selected_partitions(request_: SelectionRequest, selected: str) -> None:
    selection = request_.resolve(iter(KNOWN))
    assert sorted(str(p.topic_partition) for p in KNOWN if p in selection) == selected.split()
    assert selection.narrows == request_.narrows == (request_ != SelectionRequest())
    for partition in KNOWN:
        assert selection.matches(partition.topic, partition.topic_id, partition.partition) == (
            partition in selection
        )


@pytest.mark.parametrize(("asked", "message", "hint"), UNMATCHED)
def test_a_value_that_matches_nothing(asked: SelectionRequest, message: str, hint: str) -> None:
    with pytest.raises(NotFoundError) as raised:
        asked.resolve(iter(KNOWN))
    assert (raised.value.message, raised.value.hint) == (message, hint)
    assert raised.value.exit_code is ExitCode.NOT_FOUND


def test_nothing_is_known() -> None:
    assert SelectionRequest().resolve([]) == Selection()
    with pytest.raises(NotFoundError) as raised:
        ask(topics=["orders"]).resolve([])
    assert raised.value.hint == "known topics: none"
    with pytest.raises(NotFoundError, match="no selected topic has a partition 0"):
        ask(partitions=[0]).resolve([])


def test_many_names_are_shown_in_part() -> None:
    known = [TopicIdPartition(ORDERS, f"t{number:02}", 2 * number) for number in range(12)]
    with pytest.raises(NotFoundError) as raised:
        ask(topics=["unlike"]).resolve(known)
    assert raised.value.hint == "known topics: t00, t01, t02, t03, t04 and 7 more"
    with pytest.raises(NotFoundError) as raised:
        ask(partitions=[1]).resolve(known)
    assert raised.value.hint == "known partitions: 0, 2, 4, 6, 8, …"


def test_known_partitions_are_not_read_without_need() -> None:
    def unread() -> list[TopicIdPartition]:
        raise AssertionError

    def known() -> object:
        yield unread()

    assert SelectionRequest().resolve(known()) == Selection()  # type: ignore[arg-type]


def test_a_partition_whose_id_is_not_known_yet() -> None:
    request = ask(topics=["orders"], partitions=[1], topic_ids=[ORDERS])
    assert request.may_select(TopicPartition("orders", 1))
    assert not request.may_select(TopicPartition("orders", 2))
    assert not request.may_select(TopicPartition("clicks", 1))


MALFORMED = {
    "empty": "",
    "padded": "2QZ5FAXaQrqgUzsReWnweA==",
    "too short": "2QZ5FAXaQrqgUzsReWnwe",
    "too long": "2QZ5FAXaQrqgUzsReWnweAA",
    "15 bytes": "2QZ5FAXaQrqgUzsReWnw",
    "plus of plain base64": "+QZ5FAXaQrqgUzsReWnweA",
    "slash of plain base64": "/QZ5FAXaQrqgUzsReWnweA",
    "space": " QZ5FAXaQrqgUzsReWnweA",
    "trailing line feed": "2QZ5FAXaQrqgUzsReWnweA\n",
    "not ASCII": "éQZ5FAXaQrqgUzsReWnweA",
    "last character not canonical": "2QZ5FAXaQrqgUzsReWnweB",
    "hexadecimal": "d906791405da42baa0533b117969f078",
}


@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_ids(text: str) -> None:
    for parse in (Uuid.parse, lambda text: ask(topic_ids=[text])):
        with pytest.raises(UsageError, match="not a Kafka id") as raised:
            parse(text)
        assert "22 characters" in (raised.value.hint or "")


def test_a_negative_partition() -> None:
    with pytest.raises(UsageError, match="partition -1 is negative"):
        ask(partitions=[3, -1])


def test_a_glob_selects_only_topics_that_exist() -> None:
    """A mutating command must not delete a topic that appears after its plan was shown."""
    later = TopicIdPartition(LONELY, "orders-2", 0)
    selection = ask(topics=["orders*"]).resolve(KNOWN)
    assert selection == Selection(topics=frozenset({"orders"}))
    assert later not in selection


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("17", 17),
        ("orders-0", TopicPartition("orders", 0)),
        ("my-topic-2024-3", TopicPartition("my-topic-2024", 3)),
        ("7-3", TopicPartition("7", 3)),
        ("-1", None),
        ("orders", None),
        ("orders-", None),
        ("orders-x", None),
        ("", None),
    ],
)
def test_a_partition_is_named_as_kafkas_tools_print_it(text: str, expected: object) -> None:
    if expected is None:
        with pytest.raises(UsageError, match="is no partition"):
            parse_partition(text)
    else:
        assert parse_partition(text) == expected


def test_a_partition_of_a_topic_that_is_left_out() -> None:
    with pytest.raises(UsageError, match="leaves out the topic of --partition orders-0"):
        ask(topics=["click*"], partitions=[TopicPartition("orders", 0)])
