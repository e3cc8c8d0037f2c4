"""YARN for tests: Hadoop's MiniYARNCluster, started by the tests on free ports."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.java import SHORT_LIVED, java
from tests.servers import HADOOP, cannot, jars, process

_SOURCE = Path(__file__).parent / "Yarn.java"
_NEEDED = (
    *HADOOP,
    ("org.bouncycastle", "bcpkix-jdk18on", "1.78.1", ""),
    ("ch.qos.reload4j", "reload4j", "1.2.25", ""),
)

SMALL = {
    "spark.executor.instances": "1",
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.yarn.am.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": "127.0.0.1",
    "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
    **{f"spark.{process}.extraJavaOptions": " ".join(SHORT_LIVED) for process in ("driver", "executor")},
}


@contextmanager
def yarn_running(folder: Path) -> Iterator[Path]:
    """A cluster of one node while the block runs; yields its HADOOP_CONF_DIR."""
    hadoop = jars("yarn-3.4.2", _NEEDED)
    if hadoop is None or shutil.which("java") is None:
        cannot("YARN", "Java and Maven are needed, and Maven Central")
    conf = folder / "conf"
    conf.mkdir()
    opened = ("--add-opens", "java.base/java.lang=ALL-UNNAMED")
    command = java(f"{hadoop}/*", *opened, str(_SOURCE), str(conf), heap="512m")
    with process(command, folder / "yarn.log", (conf / "yarn-site.xml").is_file):
        yield conf
