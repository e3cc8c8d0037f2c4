"""`copy --apply`: to S3 beside programs that only upload, and to a folder beside cp and fsync."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path

import pytest

from tests.bench.baselines import go_program, python_with
from tests.bench.harness import Comparison, MissingBaselineError, Required, Side, row
from tests.bench.process import REPOSITORY, Measured, run, tierctl
from tests.bench.segment_logs import LogShape, files_to_copy, segment_logs
from tests.support.servers import S3Server, s3_environment, s3_running

SHAPE = LogShape(segments=32)
SMALL_BATCHES = LogShape(segments=16, batch_bytes=1 << 10)
LARGE = LogShape(segments=8, segment_bytes=256 << 20)
UPLOAD = str(REPOSITORY / "tests" / "bench" / "programs" / "upload.py")
REQUIRED = Required(ratio=1, peak_mb=250)
LIMIT = (
    "By processor time, which the server and its client share on two cores, boto3 takes 11.2 s for 2 GiB and "
    "tierctl 13.3 s, beside other work; the server takes 6.8 s of it (by a profile, MD5 53 %, SHA-256 25 %, "
    "CRC-32C 2 %). The SHA-256 of the signature takes both clients 1.4 s; tierctl adds 1.0 s for the check "
    "of each batch, 0.5 s more for its start, during which a core waits, and 0.1 s for the listings that "
    "verify its objects. Over TLS, as to AWS, no side makes a SHA-256: boto3 takes 13.3 s, tierctl 13.2 s"
)

Words = Callable[[str, Path], list[str]]
"""The command line that uploads the files of a folder to a bucket."""


def _boto3(bucket: str, folder: Path) -> list[str]:
    return [sys.executable, UPLOAD, "boto3", bucket, *map(str, files_to_copy(folder))]


def _obstore(bucket: str, folder: Path) -> list[str]:
    return [*python_with("obstore==0.12.1"), UPLOAD, "obstore", bucket, *map(str, files_to_copy(folder))]


def _rclone(bucket: str, folder: Path) -> list[str]:
    endpoint = os.environ["AWS_ENDPOINT_URL_S3"]
    where = f":s3,provider=Other,env_auth=true,force_path_style=true,endpoint='{endpoint}':{bucket}"
    program = go_program("rclone", "github.com/rclone/rclone@v1.76.0")
    return [*program, "copy", str(folder / "logs"), where, "--transfers", "8", "--s3-no-check-bucket"]


def _aws(bucket: str, folder: Path) -> list[str]:
    program = [*python_with("awscli==1.46.3"), "-m", "awscli", "s3", "cp", "--recursive"]
    return [*program, "--only-show-errors", str(folder / "logs"), f"s3://{bucket}"]


RIVALS: Mapping[str, tuple[str, Words]] = {
    "boto3": ("boto3, 8 threads", _boto3),
    "obstore": ("obstore, 8 threads", _obstore),
    "rclone": ("rclone", _rclone),
    "aws": ("aws s3 cp", _aws),
}


def copied(logs: Path, folder: Path, remote: str, *options: str) -> Measured:
    """Copy every rolled segment to an empty tier, with an empty metadata topic."""
    shutil.rmtree(folder / "metadata", ignore_errors=True)
    words = ["--metadata", (folder / "metadata").as_uri(), "--remote", remote, *options]
    words += ["--log-dir", str(logs / "logs"), "--topic-configs", str(logs / "topics.properties")]
    return run(*tierctl("copy", *words, "--apply"))


def beside(
    shape: LogShape, rival: str, folder: Path, layout: str = "kafka", *, tls: bool = False
) -> Iterator[Comparison]:
    """Compare with a program that uploads the same files and verifies nothing."""
    logs, numbers = segment_logs(shape), count()
    (folder / "s3").mkdir()
    with pytest.MonkeyPatch.context() as patch, s3_running(folder / "s3", tls=tls) as server:
        for name, value in s3_environment(server).items():
            patch.setenv(name, value)

        def emptied() -> str:
            """Return a new bucket after deleting the objects of earlier rounds and a pause for the disk."""
            _remove_buckets(server)
            os.sync()
            bucket = f"bench-{next(numbers)}"
            (server.folder / "data" / bucket).mkdir()
            return bucket

        buckets: list[str] = []
        ours = Side(
            f"tierctl, --layout {layout}",
            lambda: copied(logs, folder, f"s3://{buckets[-1]}/tier", "--layout", layout),
            prepare=lambda: buckets.append(emptied()),
        )
        name, words = RIVALS[rival]
        try:
            words("none", logs)
        except MissingBaselineError as e:
            yield Comparison(ours, e)
            return
        theirs = Side(name, lambda: run(*words(buckets[-1], logs)), prepare=lambda: buckets.append(emptied()))
        yield Comparison(ours, theirs)


def _remove_buckets(server: S3Server) -> None:
    for bucket in (server.folder / "data").iterdir():
        shutil.rmtree(bucket, ignore_errors=True)


for _rival in RIVALS:

    @row(f"copy-s3-{_rival}", work="`copy --apply` to S3", shape=str(SHAPE), required=REQUIRED, limit=LIMIT)
    def to_s3(folder: Path, rival: str = _rival) -> Iterator[Comparison]:
        """Copy with the whole process; each object is verified."""
        yield from beside(SHAPE, rival, folder)


@row(
    "copy-s3-tls",
    work="`copy --apply` to S3 over TLS",
    shape=str(SHAPE),
    required=REQUIRED,
    limit=LIMIT,
)
def to_s3_over_tls(folder: Path) -> Iterator[Comparison]:
    """As to AWS: no SHA-256 of the bytes is part of a signature."""
    yield from beside(SHAPE, "boto3", folder, tls=True)


@row(
    "copy-s3-aiven",
    work="`copy --apply` to S3, layout aiven",
    shape=str(SHAPE),
    required=REQUIRED,
    limit=LIMIT,
)
def to_s3_aiven(folder: Path) -> Iterator[Comparison]:
    """Copy with the objects of Aiven's plugin."""
    yield from beside(SHAPE, "boto3", folder, "aiven")


for _name, _shape in {"batches": SMALL_BATCHES, "segments": LARGE}.items():

    @row(
        f"copy-s3-held-out-{_name}",
        work="`copy --apply` to S3",
        shape=str(_shape),
        required=REQUIRED,
        limit=LIMIT,
    )
    def to_s3_held_out(folder: Path, shape: LogShape = _shape) -> Iterator[Comparison]:
        """Copy shapes for which nothing was tuned."""
        yield from beside(shape, "boto3", folder)


CP = 'set -e; mkdir "$2"; cp -r "$1" "$2"; find "$2" -type f -exec sync {} +'


@row("copy-local", work="`copy --apply` to a folder", shape=str(SHAPE))
def to_folder(folder: Path) -> Iterator[Comparison]:
    """Compare with cp and fsync of every file."""
    logs, target = segment_logs(SHAPE), folder / "target"

    def prepare() -> None:
        shutil.rmtree(target, ignore_errors=True)
        os.sync()

    yield Comparison(
        Side("tierctl", lambda: copied(logs, folder, target.as_uri()), prepare=prepare),
        Side("cp, fsync", lambda: run("sh", "-c", CP, "-", str(logs / "logs"), str(target)), prepare=prepare),
    )
