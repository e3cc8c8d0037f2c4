"""One Spark session, as every command that runs on Spark wants it."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER = "local[*]"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """What `--master` and `--spark-conf` say; `master` None is what the configuration has, else local[*]."""

    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)


def open_session(settings: SparkSettings) -> "SparkSession":
    """A session whose workers run this interpreter."""
    from pyspark.sql import SparkSession

    # Workers of another Python die with an EOFException that says nothing.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("tierctl").master(settings.master or DEFAULT_MASTER)
    for key, value in settings.conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
