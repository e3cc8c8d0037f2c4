"""A job in one process, timed without its start-up: `job.py ENGINE WORK ARGUMENTS`.

ENGINE is `here`, which uses one core, or a Spark master. In a Spark session the second run is measured: the
JVM and its workers are started, their libraries are loaded, and the JVM has compiled the code that it runs
often. The first run of `sizes` reads small data. Arguments of WORK:

    sizes METADATA SMALL_METADATA               `segments --sizes`
    remote_log_metadata METADATA                every column of the data source
    remote_log METADATA REMOTE TOPIC            every column of the data source, or with `here` the reader
"""

import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from tierctl.commands import SegmentsRequest, segments
from tierctl.model.engine import EngineName

from tests.read.tier import Tier

CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
USERS_CONF = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4"}
"""Let the JVM compile code as in a session that a user starts for a data source: tierctl's compiles less."""


def sizes(metadata: str, engine: EngineName, master: str | None) -> None:
    """Sum up the segments of each topic."""
    result = segments(SegmentsRequest(metadata=metadata, sizes=True, engine=engine, master=master))
    assert result.rows


def read_source(spark: object, source: str, options: dict[str, str]) -> None:
    """Read every row and column of a data source, and discard them."""
    frame = spark.read.format(source).options(**options).load()  # type: ignore[attr-defined]
    frame.write.format("noop").mode("overwrite").save()


def read_here(metadata: str, remote: str, topic: str) -> None:
    """Read every record of a topic's partition 0 in this process."""
    tier = Tier.of(folder_of(metadata), folder_of(remote))
    deque(tier.reader(topic, 0).read(), maxlen=0)


def folder_of(uri: str) -> Path:
    """Return the folder that a file URI names."""
    return Path(urlsplit(uri).path)


def job_here(work: str, arguments: list[str]) -> list[Callable[[], None]]:
    """Return the single run of this process."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if work == "sizes":
        return [lambda: sizes(arguments[0], EngineName.LOCAL, None)]
    return [lambda: read_here(*arguments)]


def job_on_spark(master: str, work: str, arguments: list[str]) -> list[Callable[[], None]]:
    """Return the run that warms up the session, and the run that is measured."""
    from tierctl.spark import register
    from tierctl.spark.session import SparkSettings, open_session

    conf = CONF if work == "sizes" else CONF | USERS_CONF
    spark = open_session(SparkSettings(master=master, conf=conf))
    register(spark)
    match work:
        case "sizes":
            return [lambda uri=uri: sizes(uri, EngineName.SPARK, master) for uri in arguments[::-1]]
        case "remote_log_metadata":
            return [partial(read_source, spark, work, {"metadata": arguments[0]})] * 2
        case _:
            options = dict(zip(("metadata", "remote", "topic"), arguments, strict=True))
            return [partial(read_source, spark, work, options)] * 2


def main() -> None:
    """Do the work; print how long the last run took."""
    engine, work, *arguments = sys.argv[1:]
    runs = job_here(work, arguments) if engine == "here" else job_on_spark(engine, work, arguments)
    for run in runs:
        began_s = time.perf_counter()
        run()
        seconds = time.perf_counter() - began_s
    print(json.dumps({"seconds": seconds}))


main()
