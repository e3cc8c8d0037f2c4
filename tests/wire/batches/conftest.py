"""Runs a test with every way to read batches."""

from collections.abc import Iterator

import pytest
from tierctl.kernel import use_compiled, use_interpreted
from tierctl.wire.batches import scan


@pytest.fixture(params=["scalar", "interpreted kernel", "compiled kernel"], scope="module")
def every_way(request: pytest.FixtureRequest) -> Iterator[str]:
    """Find batches one by one, and by the kernel in both forms; return the name of the way."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "compiled kernel":
            use_compiled()
        else:
            use_interpreted()
        if request.param == "interpreted kernel":
            patch.setattr(scan, "is_compiled", lambda: True)
        yield request.param
    use_interpreted()
