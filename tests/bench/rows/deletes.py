"""Delete expired segments from S3 and from a folder, compared with programs that delete the same objects."""

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

from tests.bench.expired_tier import ExpiredTier, expired_tier
from tests.bench.harness import Comparison, Required, Side, row
from tests.bench.process import Measured, run, tierctl
from tests.support.servers import s3_environment, s3_running

LARGE, SMALL = ExpiredTier(segments=6_000), ExpiredTier(segments=3_000)
WIDE = ExpiredTier(segments=6_000, user_partitions=300)
HALF = Required(ratio=0.5)
_PROGRAMS = Path(__file__).parents[1] / "programs"


def _sweep(folder: Path, remote: str, env: dict[str, str] | None = None) -> Measured:
    words = ("--metadata", str(folder / "metadata"), "--remote", remote, "--layout", "kafka")
    limits = ("--max-fraction", "1", "--max-deletes", "100000")
    configs = ("--topic-configs", str(folder / "topic.properties"))
    return run(*tierctl("sweep", *words, *configs, *limits, "--apply", "--output", "csv"), env=env or {})


def _on_s3(folder: Path, tier: ExpiredTier) -> Iterator[Comparison]:
    """Compare with boto3, which lists the bucket and deletes 1,000 keys per request in 8 threads."""
    made = expired_tier(tier)
    with s3_running(folder) as server:
        env, buckets = s3_environment(server), [""]

        def prepare() -> None:
            buckets[0] = f"tier-{uuid4().hex[:12]}"
            tier.fill(folder, made, folder / "data" / buckets[0])

        def boto3() -> Measured:
            return run(sys.executable, str(_PROGRAMS / "delete_bucket.py"), buckets[0], env=env)

        yield Comparison(
            Side("tierctl", lambda: _sweep(folder, f"s3://{buckets[0]}", env), prepare),
            Side("boto3", boto3, prepare),
            check=lambda: tier.check(folder / "data"),
        )


@row("deletes-s3", work="`sweep --apply`, S3", shape=str(LARGE), required=HALF)
def deletes_s3(folder: Path) -> Iterator[Comparison]:
    """Delete the segments of one user partition."""
    yield from _on_s3(folder, LARGE)


@row("deletes-s3-small", work="`sweep --apply`, S3", shape=str(SMALL), required=HALF)
def deletes_s3_small(folder: Path) -> Iterator[Comparison]:
    """Delete half as many segments, so that the start-up counts more."""
    yield from _on_s3(folder, SMALL)


@row("deletes-s3-wide", work="`sweep --apply`, S3", shape=str(WIDE), required=HALF)
def deletes_s3_wide(folder: Path) -> Iterator[Comparison]:
    """Delete the same number of segments in many folders; every wave lists each folder."""
    yield from _on_s3(folder, WIDE)


def _in_folder(folder: Path, own: Callable[[], Measured]) -> Iterator[Comparison]:
    made, root = expired_tier(LARGE), folder / "remote"

    def prepare() -> None:
        shutil.rmtree(root, ignore_errors=True)
        LARGE.fill(folder, made, root)

    yield Comparison(
        Side("tierctl", own, prepare),
        Side("rm -r", lambda: run("rm", "-r", str(root / "kafka-tiered-storage")), prepare),
    )


@row("deletes-keys", work="delete by key, folder", shape=str(LARGE), required=HALF)
def deletes_keys(folder: Path) -> Iterator[Comparison]:
    """Delete the objects by key and list them afterwards, without events and start-up."""
    words = (str(_PROGRAMS / "delete_segments.py"), str(folder / "metadata"), str(folder / "remote"))
    yield from _in_folder(folder, lambda: run(sys.executable, *words, is_self_timed=True))


@row("deletes-folder", work="`sweep --apply`, folder", shape=str(LARGE))
def deletes_folder(folder: Path) -> Iterator[Comparison]:
    """Delete with all events, the plan and the start-up; `rm -r` has none of these."""
    yield from _in_folder(folder, lambda: _sweep(folder, (folder / "remote").as_uri()))
