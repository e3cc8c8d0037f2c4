"""YARN for tests: Hadoop's MiniYARNCluster, started by the tests on free ports."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.spark.clusters import SHORT_LIVED_JVMS
from tests.support.java import java
from tests.support.servers import hadoop_jars, process

_SOURCE = Path(__file__).parent / "Yarn.java"

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


@contextmanager
def yarn_running(folder: Path) -> Iterator[Path]:
    """Run a cluster of one node during the block; yield its HADOOP_CONF_DIR."""
    hadoop = hadoop_jars("YARN")
    conf = folder / "conf"
    conf.mkdir()
    opened = ("--add-opens", "java.base/java.lang=ALL-UNNAMED")
    command = java(f"{hadoop}/*", *opened, str(_SOURCE), str(conf), heap="512m")
    with process(command, folder / "yarn.log", (conf / "yarn-site.xml").is_file):
        yield conf
