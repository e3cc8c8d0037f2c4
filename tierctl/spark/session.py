"""One Spark session, as every command that runs on Spark wants it."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tierctl.errors import UsageError
from tierctl.spark.settings import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    Session = SparkSession

DEFAULT_MASTER = "local[*]"


@contextmanager
def opened_session(settings: SparkSettings) -> "Iterator[SparkSession]":
    """A session for the block. One that is open already is used, and left open."""
    found = _active_session()
    session = open_session(settings)
    try:
        yield session
    finally:
        if found is None:
            session.stop()


def open_session(settings: SparkSettings) -> "SparkSession":
    """A session whose workers run this interpreter."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as e:
        raise UsageError("PySpark is not installed", hint="pip install 'tierctl[spark]'") from e

    # Workers of another Python die with an EOFException that says nothing.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("tierctl").master(settings.master or DEFAULT_MASTER)
    for key, value in settings.conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _active_session() -> "SparkSession | None":
    if "pyspark" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()
