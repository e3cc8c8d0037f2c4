"""Threads that store and delete in the folders of one tier."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.storage.segments import data_in, delete_segment, metadata_of
from tests.storage.tiers import local_tier


def test_folders_that_come_and_go_disturb_nobody(tmp_path: Path) -> None:
    """Each object is sometimes the last one of its folder, which other threads then delete."""
    tier = local_tier(tmp_path)
    (tmp_path / "other").mkdir()

    def put_and_delete(number: int) -> None:
        for attempt in range(150):
            metadata = metadata_of(number, attempt=attempt + 1)
            tier.copy_log_segment_data(metadata, data[number])
            delete_segment(tier, metadata)

    data = [data_in(tmp_path / f"source-{number}") for number in range(3)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(put_and_delete, range(3)))
    assert not list(tier.list_objects())
