"""Captures that are read in bulk, and how both engines are asked the same."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.spark import fold, verify
from tierctl.spark import format as spark_format

from tests.cli.shell import Ran, tierctl

Capture = Callable[[str], Path]

METADATA = (
    "tiered-cluster/before",
    "tiered-cluster/after",
    "untiered-broker/tiered-metadata",
    "unclean-leader/after/broker-1",
    "aiven-plain/broker-logs",
    "aiven-encrypted/broker-logs",
)
"""Folders with a metadata topic."""


def within(capture: Capture, place: str) -> Path:
    name, _, part = place.partition("/")
    return capture(name) / part


def on_both(*args: object) -> tuple[Ran, Ran]:
    """The same command line here and on the session that is open."""
    return tierctl(*args), tierctl(*args, "--engine", "spark", "--master", "local[2]")


def assert_same(*args: object) -> Ran:
    """The same exit code, and the same bytes on stdout and stderr; returns what was said."""
    here, there = on_both(*args)
    assert (there.code, there.out, there.err) == (here.code, here.out, here.err)
    return here


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Captures are small: cut them as if they were large."""
    monkeypatch.setattr(fold, "LEAST_EVENTS", 1)
    monkeypatch.setattr(spark_format, "LEAST_RECORDS", 1)
    monkeypatch.setattr(spark_format, "RECORDS_A_SPLIT_MIN", 10)
    monkeypatch.setattr(spark_format, "RECORDS_A_SPLIT_MAX", 20)
    monkeypatch.setattr(verify, "SEGMENTS_AT_ONCE", 20)
    monkeypatch.setattr(verify, "_LEAST_US", 1)
