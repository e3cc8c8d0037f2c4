"""A command submitted to YARN with its driver in a container has the same result as on threads."""

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.apply.worlds import objects_of, segments_of
from tests.cli.shell import environment, tierctl, tierctl_process
from tests.spark.clusters import spark_home
from tests.spark.session.yarn import SMALL, yarn_running
from tests.spark.worlds import Capture, sweeping, tiered

pytestmark = [pytest.mark.slow, pytest.mark.matrix]
TIMEOUT_S = 300


@pytest.fixture(scope="module")
def conf_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return HADOOP_CONF_DIR of a cluster."""
    spark_home()
    with yarn_running(tmp_path_factory.mktemp("yarn")) as found:
        yield found


@pytest.fixture
def env(conf_dir: Path) -> dict[str, str]:
    """Return an operator's environment."""
    kept = {name: os.environ[name] for name in ("JAVA_HOME", "HOME") if name in os.environ}
    return environment(HADOOP_CONF_DIR=str(conf_dir), SPARK_LOCAL_IP="127.0.0.1", **kept)


def settings(staging: Path, more: Mapping[str, str]) -> list[str]:
    # Spark is on the node already; otherwise every run would send some hundred megabytes.
    own = {"spark.yarn.jars": f"local:{spark_home()}/jars/*", "spark.yarn.stagingDir": staging.as_uri()}
    named = (SMALL | own | more).items()
    return [word for name, value in named for word in ("--spark-conf", f"{name}={value}")]


def test_the_driver_is_in_a_container(env: dict[str, str], capture: Capture, tmp_path: Path) -> None:
    """The container's interpreter is named as --python-archive names it."""
    here, there = tiered(capture, tmp_path / "here"), tiered(capture, tmp_path / "there")
    assert tierctl(*sweeping(here)).code == 0
    python = {
        f"{part}.PYSPARK_PYTHON": sys.executable for part in ("spark.yarn.appMasterEnv", "spark.executorEnv")
    }
    where = ("--master", "yarn", "--deploy-mode", "cluster", *settings(tmp_path / "staging", python))
    submit = ("submit", "--run", "--submit-dir", tmp_path / "kept", *where, "--")
    ran = tierctl_process(*submit, *sweeping(there), env=env, cwd=tmp_path, timeout_s=TIMEOUT_S)
    assert ran.code == 0, ran.err
    assert segments_of(there.metadata) == segments_of(here.metadata)
    assert objects_of(there.remote) == objects_of(here.remote)
    assert objects_of(there.remote) != objects_of(capture("tiered-cluster") / "before-remote")
