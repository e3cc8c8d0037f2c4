"""JVMs of Spark in tests: an archive of classes, with which one starts with half the processor time.

`python -m tests.support.spark_classes` makes it if it is not there.
"""

import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.java import ARCHIVED
from tests.support.made_once import make_once

_REPOSITORY = Path(__file__).parents[2]
_ARCHIVE = _REPOSITORY / ".cache" / "spark" / version("pyspark") / "classes.jsa"
_TIMEOUT_S = 600

# JVM options are divided at blanks.
USES_ARCHIVE = () if " " in str(_ARCHIVE) else (f"-XX:SharedArchiveFile={_ARCHIVE}", *ARCHIVED)
"""The options of a JVM of Spark that uses the archive if there is one."""

_RUN = """
import os, sys
option = f"-XX:ArchiveClassesAtExit={sys.argv[1]}"
os.environ["PYSPARK_SUBMIT_ARGS"] = f'--driver-java-options "{option}" pyspark-shell'
from pyspark.sql import SparkSession
settings = {name: "127.0.0.1" for name in ("spark.driver.host", "spark.driver.bindAddress")}
settings |= {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
rows = spark.range(1000).repartition(4, "id").mapInArrow(lambda batches: batches, "id long")
rows.groupBy("id").count().orderBy("id").collect()
spark.range(10).write.parquet(sys.argv[2])
stream = spark.readStream.schema("id long").parquet(sys.argv[2]).writeStream
stream.foreachBatch(lambda batch, number: batch.count()).trigger(availableNow=True).start().awaitTermination()
spark.stop()
"""


def make_class_archive() -> None:
    """Make the archive once for all sessions: a JVM writes it when it ends."""

    def make(folder: Path) -> None:
        with TemporaryDirectory() as rows:
            words = [sys.executable, "-c", _RUN, str(folder / _ARCHIVE.name), f"{rows}/rows"]
            env = os.environ | {"PYSPARK_PYTHON": sys.executable}
            subprocess.run(words, env=env, check=True, capture_output=True, timeout=_TIMEOUT_S)

    if USES_ARCHIVE:
        make_once(_ARCHIVE.parent, make)


def end_jvm() -> None:
    """End the JVM of this process, so that workers of the next one have the environment of this test.

    A session that is still open ends with it: PySpark would take it for the active one.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from tierctl.spark.session import jvm

    if SparkSession._instantiatedSession is not None:
        SparkSession._instantiatedSession.stop()
    for started in jvm._started:
        started.end()
    jvm._started.clear()
    SparkContext._gateway = SparkContext._jvm = None


if __name__ == "__main__" and shutil.which("java") is not None:
    make_class_archive()
