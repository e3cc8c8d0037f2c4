"""Listings of a tier, joined with the metadata, beside a plain listing by obstore."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from tierctl.commands import SegmentsRequest, segments
from tierctl.model import RemoteLogSegmentState
from tierctl.storage.layouts.kafka import KafkaLayout

from tests.bench import cache
from tests.bench.baselines import python_with
from tests.bench.harness import Comparison, Required, Side, row
from tests.bench.metadata_log import MetadataLog, Shape, metadata_log
from tests.bench.process import Measured, run
from tests.support.servers import s3_environment, s3_running

SHAPE = Shape(segments=20_000, user_partitions=200)
_PROGRAMS = Path(__file__).parents[1] / "programs"
_NEEDED = Required(ratio=1.0, peak_mb=250)
_LIMIT = (
    "the server and the client share two cores: parsing, objects and the join take 1.2 s of CPU in one "
    "interpreter, where obstore only counts the rows (0.3 s)"
)
_OF_FOLDER = (
    "The system takes most of the time: by a profile, half of it is the stat of each file and a sixth the "
    "reading of folders, which obstore does too; the join takes a ninth"
)
_WORK = "join a listing of 100,000 objects with the metadata"


def _tier(log: MetadataLog) -> Path:
    """Return a tier with five objects of each finished segment of `log`; made once."""

    def make(folder: Path) -> None:
        layout = KafkaLayout()
        for segment in segments(SegmentsRequest(metadata=log.uri)).rows:
            if segment.state is not RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
                continue
            for key in layout.keys_of(segment):
                if key.endswith(".txnindex"):
                    continue
                path = folder / key
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as file:
                    file.truncate(segment.segment_size_in_bytes if key.endswith(".log") else 1)

    return cache.make_once(f"listing/{SHAPE.name}", make)


def _compared(tier: str, listed: str, log: MetadataLog, env: dict[str, str]) -> Comparison:
    obstore = python_with("obstore==0.12.1", "arro3-core==0.9.1")

    def joined() -> Measured:
        program = str(_PROGRAMS / "list_into_verify.py")
        return run(sys.executable, program, log.uri, tier, env=env, is_self_timed=True)

    def plain() -> Measured:
        program = str(_PROGRAMS / "list_with_obstore.py")
        return run(*obstore, program, listed, env=env, is_self_timed=True)

    return Comparison(Side("tierctl", joined), Side("obstore, plain listing", plain))


@row("listing-folder", work=_WORK, shape=f"folder; {SHAPE}", required=_NEEDED, rounds=5, limit=_OF_FOLDER)
def listing_folder(_folder: Path) -> Iterator[Comparison]:
    """List a folder."""
    log = metadata_log(SHAPE)
    tier = _tier(log)
    yield _compared(tier.as_uri(), str(tier), log, {})


@row("listing-s3", work=_WORK, shape=f"S3; {SHAPE}", required=_NEEDED, rounds=3, limit=_LIMIT)
def listing_s3(folder: Path) -> Iterator[Comparison]:
    """List a bucket of versitygw, which has hard links to the same files."""
    log = metadata_log(SHAPE)
    tier = _tier(log)
    with s3_running(folder) as server:
        shutil.copytree(tier, folder / "data" / "tier", copy_function=lambda a, b: Path(b).hardlink_to(a))
        yield _compared("s3://tier", "s3://tier", log, s3_environment(server))
