"""One local Spark for the tests that need no more."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tierctl.spark.session import SparkSettings, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """local[2] in this process."""
    session = open_session(
        SparkSettings(
            master="local[2]",
            conf={
                "spark.ui.enabled": "false",
                "spark.driver.memory": "1g",
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.sql.shuffle.partitions": "2",
            },
        )
    )
    yield session
    session.stop()
