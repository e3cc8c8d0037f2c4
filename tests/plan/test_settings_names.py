"""A mistyped topic name in --topic-configs."""

import pytest
from tierctl.errors import UsageError
from tierctl.plan.preconditions import require_known_names


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
def test_names(
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
