"""The description of a tier: the effect of settings, and the data that executors receive."""

import pickle
from pathlib import Path

import pytest
from tierctl.errors import UsageError
from tierctl.model import LogSegmentData
from tierctl.storage import open_tier as open_module
from tierctl.storage.layouts.aiven.layout import AivenLayout, AivenSettings
from tierctl.storage.open_tier import TierSpec, open_tier
from tierctl.storage.remote_storage_manager import RetrySettings

from tests.storage.segments import data_in, metadata_of
from tests.storage.tiers import local_tier

BACKOFF = {"remote.log.manager.task.retry.backoff.ms": "7"}


@pytest.fixture
def data(tmp_path: Path) -> LogSegmentData:
    return data_in(tmp_path / "source")


def test_an_executor_detects_no_layout(
    tmp_path: Path, data: LogSegmentData, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = local_tier(tmp_path / "tier", AivenLayout(AivenSettings(chunk_size=700), key_prefix="some/"))
    written.copy_log_segment_data(metadata_of(), data)
    spec = TierSpec((tmp_path / "tier").as_uri())
    resolved = pickle.loads(pickle.dumps(spec.resolved(open_tier(spec))))

    def detect(*_: object) -> None:
        raise AssertionError("detected again")

    monkeypatch.setattr(open_module, "detect_layouts", detect)
    with pytest.raises(AssertionError, match="detected again"):
        open_tier(spec)
    tier = open_tier(resolved)
    assert tier.layout.base == "some/"
    assert tier.fetch_log_segment(metadata_of(), 0).read() == data.log_segment.path.read_bytes()


def test_calls_are_repeated_by_the_settings_but_not_on_local_disk(tmp_path: Path) -> None:
    assert TierSpec.from_settings("s3://bucket/folder", BACKOFF).retry == RetrySettings(backoff_ms=7)
    assert TierSpec.from_settings(tmp_path.as_uri(), BACKOFF).retry is None
    asked = RetrySettings(backoff_ms=7, attempts=2)
    spec = TierSpec.from_settings(tmp_path.as_uri(), {}, retry=asked)
    tier = open_tier(spec)
    assert tier.retry == asked
    assert TierSpec(spec.uri).resolved(tier).retry == asked


def test_private_keys_of_the_command_line_take_precedence() -> None:
    settings = {f"rsm.config.encryption.key.pairs.{key}.private.key.file": f"/{key}" for key in ("a", "b")}
    spec = TierSpec.from_settings(
        "s3://bucket", settings, private_keys={"b": Path("/other"), "": Path("/any")}
    )
    assert spec.aiven.private_keys == {"a": Path("/a"), "b": Path("/other"), "": Path("/any")}


def test_a_password_never_reaches_an_executor(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must not contain"):
        TierSpec("abfs://container:secret@account/folder").resolved(local_tier(tmp_path))
