"""A tier in S3 and nothing else: it is read and rebuilt as the folder that it is a copy of."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.storage.stores import open_store
from tierctl.storage.stores.base import hashed_file

from tests.cli.shell import tierctl
from tests.commands.restore.test_materialise import ISOLATIONS, records
from tests.support.servers import S3Server

TIERS = {
    "tiered-cluster": ("before", "before-remote"),
    "aiven-encrypted": ("broker-logs", "bucket"),
}


def uploaded(folder: Path, server: S3Server) -> str:
    """The URI of a copy of the tier, below a prefix of a new bucket."""
    uri = f"s3://{server.bucket()}/some/tier"
    store = open_store(uri)
    files = [path for path in folder.rglob("*") if path.is_file()]
    store.put_all({path.relative_to(folder).as_posix(): hashed_file(path) for path in files})
    store.close()
    return uri


@pytest.mark.parametrize("name", TIERS)
def test_every_record_comes_from_the_bucket(
    capture: Callable[[str], Path], s3_server: S3Server, tmp_path: Path, name: str
) -> None:
    metadata, remote = (capture(name) / folder for folder in TIERS[name])
    keys = [word for key in capture(name).glob("keys/private*") for word in ("--aiven-private-key", key)]
    tier = ("--remote", uploaded(remote, s3_server), *keys)
    new = ("--metadata", (tmp_path / "new").as_uri())
    tierctl("rebuild", *new, *tier, "--apply").ok()
    for isolation in ISOLATIONS:
        wanted = records("--metadata", metadata, "--remote", remote, *keys, "--isolation", isolation)
        for source in (("--rebuild",), new):
            assert records(*source, *tier, "--isolation", isolation) == wanted
    for command in ("segments", "verify"):
        tierctl(command, *new, *tier).ok()
