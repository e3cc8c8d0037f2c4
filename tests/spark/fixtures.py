"""Spark for tests: each kind is started once, and only when a test uses it; see clusters.py."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tierctl.spark.session.jvm import SparkSettings
from tierctl.spark.session.open import opened_session

from tests.spark.clusters import (
    ENGINES,
    SMALL,
    Driver,
    Engine,
    spark_connect_server,
    spark_home,
    standalone_cluster,
)
from tests.support.servers import S3Server, s3_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_CLUSTER = "local-cluster[2,1,1024]"


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """Return a session of local[2] in this process."""
    spark_home()
    with opened_session(SparkSettings(master="local[2]", conf=SMALL)) as session:
        yield session


@pytest.fixture(scope="session")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of a standalone master with two workers."""
    with standalone_cluster(tmp_path_factory.mktemp("standalone")) as master:
        yield master


@pytest.fixture(scope="session")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of a Spark Connect server."""
    with spark_connect_server(tmp_path_factory.mktemp("connect")) as master:
        yield master


def _driver(master: str, tmp_path_factory: pytest.TempPathFactory, **environment: str) -> Iterator[Driver]:
    driver = Driver(master, tmp_path_factory.mktemp("driver"), environment=environment)
    yield driver
    driver.close()


@pytest.fixture(scope="session")
def local_cluster_driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """Return a driver of local-cluster[2,1,1024]."""
    spark_home()
    yield from _driver(LOCAL_CLUSTER, tmp_path_factory)


@pytest.fixture(scope="session")
def standalone_driver(standalone: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """Return a driver of the standalone cluster, with one core of each worker."""
    yield from _driver(standalone, tmp_path_factory)


@pytest.fixture(scope="session")
def connect_driver(connect_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """Return a client of the Spark Connect server."""
    yield from _driver(connect_server, tmp_path_factory)


@pytest.fixture(scope="session")
def s3_driver(s3_session: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """Return a driver of local[2] whose Python workers find the session's S3 server, too."""
    spark_home()
    yield from _driver("local[2]", tmp_path_factory, **s3_environment(s3_session))


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    """Run the test on each of ENGINES."""
    name = request.param
    if name == "local[2]":
        return Engine(name, name, None, request.getfixturevalue("spark"))
    kind = {LOCAL_CLUSTER: "local_cluster", "standalone": "standalone", "connect": "connect"}[name]
    driver: Driver = request.getfixturevalue(f"{kind}_driver")
    return Engine(name, driver.master, driver, None)
