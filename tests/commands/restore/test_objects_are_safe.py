"""The proof that brokers can't destroy the objects of a tier, on an S3 server with versioning."""

from types import SimpleNamespace
from typing import Any

import pytest
from tierctl.commands.restore.new_node import require_objects_are_safe
from tierctl.errors import AuthenticationError, RemoteStorageError, SafetyRefusal
from tierctl.model.progress import SilentProgress
from tierctl.storage.open_tier import TierSpec, open_tier
from tierctl.storage.stores.s3.store import S3Store

from tests.support.servers import S3Server, keys_in, s3_call


def ask(bucket: str, *, writes_probe: bool = True) -> None:
    remote = open_tier(TierSpec(uri=f"s3://{bucket}/tier"))
    run: Any = SimpleNamespace(remote=remote, progress=SilentProgress())
    try:
        require_objects_are_safe(run, copy=None, writes_probe=writes_probe)
    finally:
        remote.close()


def test_versions_are_proof(s3_versioned_server: S3Server) -> None:
    bucket = s3_versioned_server.bucket()
    s3_call("put_bucket_versioning", bucket, VersioningConfiguration={"Status": "Enabled"})
    ask(bucket)
    assert keys_in(bucket) == []
    s3_call("put_bucket_versioning", bucket, VersioningConfiguration={"Status": "Suspended"})
    with pytest.raises(SafetyRefusal, match="has no versioning"):
        ask(bucket)
    assert keys_in(bucket) == []


def test_a_plan_writes_no_probe(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def put_all(*_: object) -> None:
        raise AssertionError("a plan only reads")

    monkeypatch.setattr(S3Store, "put_all", put_all)
    ask(s3_server.bucket(), writes_probe=False)


@pytest.mark.parametrize(
    ("error", "is_proof"), [(AuthenticationError("denied"), True), (RemoteStorageError("busy"), False)]
)
@pytest.mark.parametrize("is_raised", [True, False])
def test_only_a_denial_is_proof(
    error: Exception, is_proof: bool, is_raised: bool, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def delete(_store: S3Store, asked: list[str]) -> dict[str, Exception]:
        if is_raised:
            raise error
        return dict.fromkeys(asked, error)

    bucket = s3_server.bucket()
    monkeypatch.setattr(S3Store, "delete", delete)
    if is_proof:
        for _ in range(2):
            ask(bucket)
            (left,) = keys_in(bucket)
            assert left.startswith("tier/.tierctl")
    else:
        with pytest.raises((SafetyRefusal, RemoteStorageError)):
            ask(bucket)


def test_a_folder_proves_nothing(tmp_path: Any) -> None:
    run: Any = SimpleNamespace(remote=open_tier(TierSpec(uri=tmp_path.as_uri())))
    with pytest.raises(SafetyRefusal, match="it is not proven"):
        require_objects_are_safe(run, copy=None, writes_probe=True)
