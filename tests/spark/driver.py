"""A process with a Spark session that does what it is asked on stdin; clusters.py starts it."""

import os

from tierctl.spark.session import opened_session
from tierctl.spark.settings import SparkSettings

from tests.spark.clusters import SMALL, serve


def main(master: str) -> None:
    """Answers go to the stdout this process was given; what else is printed goes to stderr."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    settings = SparkSettings(master=master, conf={} if master.startswith("sc://") else SMALL)
    with opened_session(settings) as session, os.fdopen(0, "rb", closefd=False) as requests:
        serve(session, requests, answers)
