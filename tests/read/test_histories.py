"""Which facts prove a complete history: log starts from a checkpoint, and objects of this tier."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.locallog import read_log_dirs
from tierctl.model import Selection
from tierctl.model.location import TruncatedMetadata
from tierctl.read.readable_log import EvidenceSources, examine_histories
from tierctl.storage.open_tier import TierSpec, open_tier

from tests.metadata.topics import manager_at

REFUSE = TruncatedMetadata.REFUSE


@pytest.fixture
def root(capture: Callable[[str], Path]) -> Path:
    return capture("finite-metadata")


def incomplete(metadata: Path, sources: EvidenceSources) -> set[str]:
    """Return the names of the partitions whose history is not known to be complete."""
    state = manager_at(metadata).refresh()
    return {str(partition.topic_partition) for partition in examine_histories(state, sources, REFUSE)}


def test_a_log_start_without_a_checkpoint_proves_nothing(root: Path, tmp_path: Path) -> None:
    """Without the checkpoint, the first local segment counts as the log start, above all remote segments."""
    for folder in ("expiring-0", "keeplocal-0", "orders-0", "quiet-0"):
        shutil.copytree(root / "after" / folder, tmp_path / folder)
    sources = EvidenceSources(selection=Selection(), logs=lambda: read_log_dirs([tmp_path]))
    assert incomplete(root / "after", sources) == {"expiring-0", "keeplocal-0", "orders-0", "quiet-0"}
    shutil.copy(root / "after" / "log-start-offset-checkpoint", tmp_path)
    assert incomplete(root / "after", sources) == set()


@pytest.mark.parametrize(
    ("tier", "expected"),
    [
        ("after-remote", {"keeplocal-0", "orders-0"}),
        ("empty", {"expiring-0", "keeplocal-0", "orders-0"}),
    ],
)
def test_a_tier_without_any_known_object_proves_nothing(
    root: Path, tmp_path: Path, tier: str, expected: set[str]
) -> None:
    folder = root / tier if tier != "empty" else tmp_path
    (tmp_path / "kafka-tiered-storage").mkdir()
    remote = open_tier(TierSpec.from_settings(folder.as_uri(), {}))
    sources = EvidenceSources(selection=Selection(), remote=lambda: remote)
    assert incomplete(root / "after", sources) == expected
    remote.close()
