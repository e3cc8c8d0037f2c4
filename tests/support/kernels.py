"""A fixture that runs a test with interpreted and with compiled kernels."""

from collections.abc import Iterator

import pytest
from tierctl.kernel import use_compiled, use_interpreted


@pytest.fixture(params=["interpreted", "compiled"], scope="module")
def both_forms(request: pytest.FixtureRequest) -> Iterator[str]:
    """Use one form of all kernels for the tests of a module, and interpreted kernels afterwards."""
    if request.param == "compiled":
        pytest.importorskip("numba")
        use_compiled()
    try:
        yield request.param
    finally:
        use_interpreted()
