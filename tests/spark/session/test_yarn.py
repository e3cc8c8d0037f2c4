"""A command submitted to YARN with its driver in a container has the same result as on threads."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.apply.worlds import objects_of, segments_of
from tests.cli.shell import tierctl, tierctl_process
from tests.spark.clusters import SHORT_LIVED_JVMS, java_environment, spark_home
from tests.spark.worlds import Capture, sweeping, tiered
from tests.support.java import java
from tests.support.servers import hadoop_jars, process

pytestmark = [pytest.mark.slow, pytest.mark.matrix]
TIMEOUT_S = 300
SMALL = {
    "spark.executor.instances": "1",
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.yarn.am.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": "127.0.0.1",
    "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
    **SHORT_LIVED_JVMS,
}


@pytest.fixture(scope="module")
def conf_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return HADOOP_CONF_DIR of Hadoop's MiniYARNCluster with one node, on free ports."""
    spark_home()
    conf = tmp_path_factory.mktemp("yarn") / "conf"
    conf.mkdir()
    opened = ("--add-opens", "java.base/java.lang=ALL-UNNAMED")
    source = Path(__file__).parent / "Yarn.java"
    command = java(f"{hadoop_jars('YARN')}/*", *opened, str(source), str(conf), heap="512m")
    with process(command, conf.with_name("yarn.log"), (conf / "yarn-site.xml").is_file):
        yield conf


def settings(staging: Path, more: Mapping[str, str]) -> list[str]:
    # Spark is on the node already; otherwise every run would send some hundred megabytes.
    own = {"spark.yarn.jars": f"local:{spark_home()}/jars/*", "spark.yarn.stagingDir": staging.as_uri()}
    named = (SMALL | own | more).items()
    return [word for name, value in named for word in ("--spark-conf", f"{name}={value}")]


def test_the_driver_is_in_a_container(conf_dir: Path, capture: Capture, tmp_path: Path) -> None:
    """The container's interpreter is named as --python-archive names it."""
    here, there = tiered(capture, tmp_path / "here"), tiered(capture, tmp_path / "there")
    assert tierctl(*sweeping(here)).code == 0
    python = {
        f"{part}.PYSPARK_PYTHON": sys.executable for part in ("spark.yarn.appMasterEnv", "spark.executorEnv")
    }
    where = ("--master", "yarn", "--deploy-mode", "cluster", *settings(tmp_path / "staging", python))
    submit = ("submit", "--run", "--submit-dir", tmp_path / "kept", *where, "--")
    env = java_environment(HADOOP_CONF_DIR=str(conf_dir))
    ran = tierctl_process(*submit, *sweeping(there), env=env, cwd=tmp_path, timeout_s=TIMEOUT_S)
    assert ran.code == 0, ran.err
    assert segments_of(there.metadata) == segments_of(here.metadata)
    assert objects_of(there.remote) == objects_of(here.remote)
    assert objects_of(there.remote) != objects_of(capture("tiered-cluster") / "before-remote")
