"""Packages that come with an extra, named when one is missing."""

from importlib.util import find_spec

from tierctl.errors import UsageError


def require(module: str, extra: str = "kafka") -> None:
    """UsageError that says what to install when `module` is not there."""
    if find_spec(module) is None:
        raise UsageError(
            f"a cluster needs {module}, which is not installed", hint=f"pip install tierctl[{extra}]"
        )
