"""How many cases of properties and tables `make test` tries; `make matrix` tries all."""

import os
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

TRIES_ALL = os.environ.get("TEST_EXAMPLES") == "all"
_LEAST = 10


def examples(count: int, *, share: int = 4, **more: Any) -> settings:
    """Return the settings of a property test with so many examples.

    `make test` tries one of each `share`, but at least ten.
    """
    tried = count if TRIES_ALL else max(count // share, min(count, _LEAST))
    return settings(max_examples=tried, deadline=None, **more)


def rest_in_matrix(values: Iterable[Any], tried: int = 1) -> list[Any]:
    """Return the values of a parameter; those after the first `tried` are only for `make matrix`."""
    found = list(values)
    return found[:tried] + [pytest.param(each, marks=pytest.mark.matrix) for each in found[tried:]]
