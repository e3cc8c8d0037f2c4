"""The tables of `pipeline run`: the first run, and a run with one per cent new events."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.bench.clusters import ONE, without_newest
from tests.bench.harness import Comparison, Required, Side, row
from tests.bench.metadata_log import MetadataLog, metadata_log
from tests.bench.process import Measured, run, tierctl

FIRST = Required(seconds=40)
NEW = 0.01
EVENTS_AND_PARQUET = "Reading and folding events takes six tenths of the processor time, Parquet a fifth."


def tables(topic: Path, warehouse: Path, *engine: str) -> Measured:
    """Update the tables to the end of the topic."""
    words = tierctl("pipeline", "run", "--metadata", topic.as_uri(), "--warehouse", warehouse.as_uri())
    return run(*words, *(engine or ("--engine", "local")))


@row(
    "pipeline-first",
    work="`pipeline run`, first",
    shape=str(ONE),
    required=FIRST,
    rounds=2,
    limit=EVENTS_AND_PARQUET,
)
def first_run(folder: Path) -> Iterator[Comparison]:
    """Run the first pipeline run in one process."""
    yield _first(folder)


@row("pipeline-spark", work="`pipeline run`, first, Spark local[2]", shape=str(ONE), required=FIRST, rounds=2)
def first_run_on_spark(folder: Path) -> Iterator[Comparison]:
    """Run the first pipeline run on executors, including the start of the session."""
    yield _first(folder, "--engine", "spark", "--master", "local[2]")


def _first(folder: Path, *engine: str) -> Comparison:
    log, warehouse = metadata_log(ONE), folder / "warehouse"
    return Comparison(
        Side(
            "tierctl",
            lambda: tables(log.folder, warehouse, *engine),
            prepare=lambda: shutil.rmtree(warehouse, ignore_errors=True),
        )
    )


@row(
    "pipeline-new",
    work="`pipeline run`, 1 % new events",
    shape=str(ONE),
    required=Required(ratio=10),
    rounds=2,
    limit=(
        "Of 6.0 s of processor time, loading the folded state takes 1.1 s, storing it 1.1 s, and finding the "
        "changed files of `segments` 0.6 s, which grow with all segments; summing up the 10,000 user "
        "partitions, all of which have new events, 2.1 s; reading, folding and storing the new events 0.9 s"
    ),
)
def run_with_new_events(folder: Path) -> Iterator[Comparison]:
    """Run the pipeline after the topic has grown by a hundredth, compared with a first run."""
    log, topic, kept, used, new = (
        metadata_log(ONE),
        *(folder / name for name in ("topic", "kept", "used", "new")),
    )
    link(without_newest(log, NEW), topic)
    tables(topic, kept)
    link(log, topic)

    def restore() -> None:
        shutil.rmtree(used, ignore_errors=True)
        shutil.copytree(kept, used)
        # Otherwise the measured run waits until the bytes of this copy are on the disk.
        os.sync()

    yield Comparison(
        Side("tierctl", lambda: tables(topic, used), prepare=restore),
        Side("first run", lambda: tables(topic, new), prepare=lambda: shutil.rmtree(new, ignore_errors=True)),
    )


def link(log: MetadataLog, topic: Path) -> None:
    """Fill `topic` with links to the files of a log."""
    shutil.rmtree(topic, ignore_errors=True)
    shutil.copytree(log.folder, topic, copy_function=os.link)
