"""A process with a Spark session that serves requests on stdin; clusters.py starts it."""

import json
import os

from tierctl.spark.session.jvm import SparkSettings
from tierctl.spark.session.open import opened_session

from tests.spark.clusters import serve


def main(master: str, conf: str) -> None:
    """Serve requests. `conf` is JSON. Responses go to the original stdout, all other output to stderr."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    settings = SparkSettings(master=master, conf=json.loads(conf))
    with opened_session(settings) as session, os.fdopen(0, "rb", closefd=False) as requests:
        serve(session, requests, answers)
