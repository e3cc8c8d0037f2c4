"""Rows about a tier: copies and deletes beside programs that verify nothing."""

import sys
from pathlib import Path

from tests.bench.conftest import Measure, fresh
from tests.bench.log_dirs import log_dirs
from tests.bench.metadata_log import OBJECTS, metadata_log, tier
from tests.bench.process import tierctl
from tests.bench.rivals import PROGRAMS, python_with
from tests.bench.rows import TIERCTL, Row, measures
from tests.support.servers import S3Server

BUCKET = "bench"
CP = 'set -e; cp -r "$1" "$2"; find "$2" -type f -exec sync {} +'


def upload(library: str, logs: Path) -> list[str]:
    """Return the command line that uploads the files of rolled segments, the largest first."""
    python = [sys.executable] if library == "boto3" else python_with("obstore==0.12.1")
    found = (path for path in logs.glob("*/orders-*/[0-9]*") if path.stat().st_size)
    files = sorted(found, key=lambda path: (-path.stat().st_size, path))
    return [*python, str(PROGRAMS / "upload.py"), library, BUCKET, *map(str, files)]


def copy(made: Path, metadata: Path, remote: str, *options: str) -> list[str]:
    """Return the command line that copies every rolled segment to a tier."""
    words = ["--metadata", metadata.as_uri(), "--remote", remote, *options, "--apply"]
    words += ["--topic-configs", str(made / "topics.properties")]
    return tierctl("copy", *words, *(f"--log-dir={each}" for each in sorted((made / "logs").iterdir())))


def copy_to(server: S3Server, row: Row, contestant: str, measure: Measure, metadata: Path) -> None:
    """Copy to an empty bucket, or upload the same files to it with a program that verifies nothing."""
    made, bucket = log_dirs(row.shape), server.folder / "data" / BUCKET
    if contestant == TIERCTL:
        layout = "aiven" if row.key == "copy-s3-aiven" else "kafka"
        words = copy(made, metadata, f"s3://{BUCKET}/tier", "--layout", layout)
    else:
        words = upload(row.rival.partition(",")[0], made / "logs")
    measure(words, prepare=fresh({bucket: None, metadata: None}))
    assert len([path for path in bucket.rglob("*.log") if path.is_file()]) >= row.shape.segments


@measures("copy-s3-boto3", "copy-s3-obstore", "copy-s3-aiven", "copy-s3-batches")
def test_copy_to_s3(row: Row, contestant: str, measure: Measure, tmp_path: Path, s3_server: S3Server) -> None:
    copy_to(s3_server, row, contestant, measure, tmp_path / "metadata")


@measures("copy-s3-tls")
def test_copy_to_s3_over_tls(
    row: Row, contestant: str, measure: Measure, tmp_path: Path, s3_tls_server: S3Server
) -> None:
    """As to AWS: no SHA-256 of the bytes is part of a signature."""
    copy_to(s3_tls_server, row, contestant, measure, tmp_path / "metadata")


@measures("copy-local")
def test_copy_to_a_folder(row: Row, contestant: str, measure: Measure, tmp_path: Path) -> None:
    made, target, metadata = log_dirs(row.shape), tmp_path / "target", tmp_path / "metadata"
    if contestant == TIERCTL:
        measure(copy(made, metadata, target.as_uri()), prepare=fresh({target: None, metadata: None}))
    else:
        measure(["sh", "-c", CP, "-", str(made / "logs"), str(target)], prepare=fresh({target: None}))


def delete_from(root: Path, remote: str, row: Row, measure: Measure, theirs: list[str] | None) -> None:
    """Delete every segment below `root`, which each run fills; `theirs` deletes the same objects."""
    made, metadata = tier(row.shape), root.parent / "metadata"
    words = ["--metadata", metadata.as_uri(), "--remote", remote, "--layout", "kafka", "--apply"]
    words += ["--topic-configs", str(made / "topics.properties"), "--max-fraction", "1"]
    ours = tierctl("sweep", *words, "--max-deletes", "100000", "--output", "csv")
    sources = {metadata: metadata_log(row.shape), root: made / "remote"}
    measure(theirs or ours, prepare=fresh(sources))
    assert not [path for path in root.rglob("*") if path.suffix in OBJECTS]


@measures("deletes-s3")
def test_deletes_from_s3(row: Row, contestant: str, measure: Measure, s3_server: S3Server) -> None:
    """Delete beside boto3, which lists the bucket and deletes 1,000 keys per request in 8 threads."""
    boto3 = [sys.executable, str(PROGRAMS / "delete_bucket.py"), BUCKET]
    root = s3_server.folder / "data" / BUCKET
    delete_from(root, f"s3://{BUCKET}", row, measure, None if contestant == TIERCTL else boto3)


@measures("deletes-folder")
def test_deletes_from_a_folder(row: Row, contestant: str, measure: Measure, tmp_path: Path) -> None:
    root = tmp_path / "remote"
    removed = ["rm", "-r", str(root / "kafka-tiered-storage")]
    delete_from(root, root.as_uri(), row, measure, None if contestant == TIERCTL else removed)
