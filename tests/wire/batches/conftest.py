"""Runs a test with every way to read batches."""

from collections.abc import Iterator

import pytest
from tierctl.kernel import use_compiled, use_interpreted
from tierctl.wire.batches import records, scan


@pytest.fixture(params=["scalar", "interpreted kernel", "compiled kernel"], scope="module")
def every_way(request: pytest.FixtureRequest) -> Iterator[str]:
    """Read batches by the scalar decoder, and by the kernels in both forms; return the name of the way."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "compiled kernel":
            use_compiled()
        else:
            use_interpreted()
        if request.param == "interpreted kernel":
            for module in (scan, records):
                patch.setattr(module, "is_compiled", lambda: True)
        yield request.param
    use_interpreted()
