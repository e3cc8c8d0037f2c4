"""A copy on Spark to S3 that loses its lease; the interpreter of its workers has no tierctl."""

from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from tierctl.apply.run_context import observe

from tests.apply.test_stores import Place
from tests.cli.shell import Ran
from tests.cli.shell import tierctl as run_here
from tests.metadata.topics import segments_at
from tests.spark.clusters import Driver
from tests.spark.on_engines import SPARK
from tests.spark.worlds import Capture
from tests.support.amounts import rest_in_matrix
from tests.support.servers import S3Server
from tests.support.topic_settings import enabled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_until_lost(_spark: "SparkSession", words: list[str], label: str, times: int) -> Any:
    """Run a command whose lease is lost at the nth occurrence of the label."""
    with mock.patch("tierctl.storage.lease.ObjectLease.is_lost", return_value=False) as is_lost:
        left = iter(range(1, times))

        def met(name: str, moment: str) -> None:
            if (name, moment) == (label, "after") and next(left, None) is None:
                is_lost.return_value = True

        observe(met)
        try:
            return run_here(*words)
        finally:
            observe(None)


DONE = 4


@pytest.mark.parametrize(
    "at", rest_in_matrix([("copy.finished.publish", 1), ("copy.started.publish", 3)]), ids=str
)
def test_a_lost_lease_ends_the_run(
    s3_driver: Driver, s3_server: S3Server, capture: Capture, tmp_path: Path, at: tuple[str, int]
) -> None:
    """The lease is lost after the first wave of four is finished; no unverified segment is finished.

    COPY_SEGMENT_STARTED of the third wave is published after COPY_SEGMENT_FINISHED of the first.
    """
    tier = Place(f"s3://{s3_server.bucket()}/tier", "kafka")
    local = capture("untiered-broker") / "local"
    logs = ("--log-dir", local, *enabled(local))
    copy = ("copy", "--metadata", tmp_path / "metadata", *tier.options, *logs, "--apply")
    words = [str(word) for word in (*copy, "--wave-size", 4, "-o", "json", *SPARK)]
    ran = s3_driver.call(run_until_lost, words, *at)
    ran = Ran(ran.code, ran.out, ran.err)
    assert ran.code == 6, ran.err
    statuses = [outcome["status"] for outcome in ran.json["outcomes"]]
    assert statuses.count("done") == DONE
    assert "pending" in statuses
    segments = segments_at(tmp_path / "metadata")
    finished = [s for s in segments if s.state.name == "COPY_SEGMENT_FINISHED"]
    assert len(finished) == DONE
    opened = tier.open()
    assert all(len(opened.objects_of(s)) >= 5 for s in finished)
    # The metadata has the unfinished segments, so a later run finds them.
    known = {o.key for s in segments for o in opened.objects_of(s)}
    assert {o.key for o in opened.list_objects()} <= known
    opened.close()
