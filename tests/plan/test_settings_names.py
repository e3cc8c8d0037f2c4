"""A mistyped topic name in --topic-configs."""

import pytest
from tierctl.errors import UsageError
from tierctl.plan.settings_names import require_known_names


@pytest.mark.parametrize(
    ("stated", "known", "without_settings", "message"),
    [
        (("orders",), ("orders",), (), None),
        ((), ("orders",), ("orders",), None),
        (("orders", "payments"), ("orders",), (), None),
        (("payments",), (), (), None),
        (("odrers",), ("orders",), ("orders",), 'did you mean "orders"?'),
        (("orders", "bilsl"), ("orders", "bills"), ("bills",), 'did you mean "bills"?'),
        (("odrers", "orders"), ("orders",), (), None),
        (("orders-1",), ("orders-1", "orders-2"), ("orders-2",), None),
        (("payments",), ("orders",), ("orders",), "known topics: orders"),
        (("payments", "clicks"), ("orders", "bills"), (), "states settings of clicks, payments only"),
    ],
)
def test_names(
    stated: tuple[str, ...], known: tuple[str, ...], without_settings: tuple[str, ...], message: str | None
) -> None:
    if message is None:
        require_known_names(stated, known, without_settings)
        return
    with pytest.raises(UsageError) as error:
        require_known_names(stated, known, without_settings)
    assert message in f"{error.value.message}; {error.value.hint}"
