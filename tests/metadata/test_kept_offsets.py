"""The remover's offsets and raised log starts."""

import errno
from functools import partial
from pathlib import Path

import pytest
from tierctl.errors import CorruptInputError, MetadataError
from tierctl.files import FileSystem
from tierctl.metadata.kept_offsets import LOG_STARTS, REMOVER_OFFSETS, KeptOffsets
from tierctl.model import TopicIdPartition, Uuid
from tierctl.wire.checkpoints import read_offset_checkpoint

from tests.faults import Failing, operations_of, run_and_die

OLD = TopicIdPartition(Uuid("2QZ5FAXaQrqgUzsReWnweA"), "orders", 1)
NEW = TopicIdPartition(Uuid("u6uHqOrgTh-HLODx2Wo0EA"), "orders", 1)
CLICKS = TopicIdPartition(Uuid("_EXPeli8S0a5wJiVzeI3mg"), "clicks", 0)


def test_nothing_is_kept_at_first(tmp_path: Path) -> None:
    kept = KeptOffsets(tmp_path / "new")
    assert (kept.remover_offsets(), kept.log_start_offsets()) == ({}, {})
    assert not (tmp_path / "new").exists()


def test_remover_offsets_only_rise(tmp_path: Path) -> None:
    kept = KeptOffsets(tmp_path)
    kept.commit_remover_offsets({0: 5, 3: 7})
    kept.commit_remover_offsets({0: 4, 3: 9, 4: 1})
    assert KeptOffsets(tmp_path).remover_offsets() == {0: 5, 3: 9, 4: 1}
    assert (tmp_path / REMOVER_OFFSETS).read_bytes() == b"0\n3\n0 5\n3 9\n4 1\n"


def test_log_starts_only_rise_in_kafkas_format(tmp_path: Path) -> None:
    kept = KeptOffsets(tmp_path)
    kept.raise_log_start_offsets({OLD: 1500, CLICKS: 10})
    kept.raise_log_start_offsets({OLD: 1400, CLICKS: 2400})
    assert KeptOffsets(tmp_path).log_start_offsets() == {OLD: 1500, CLICKS: 2400}
    found = read_offset_checkpoint((tmp_path / LOG_STARTS).read_bytes())
    assert {str(key): offset for key, offset in found.items()} == {"clicks-0": 2400, "orders-1": 1500}


def test_a_topic_made_anew_does_not_inherit_a_log_start(tmp_path: Path) -> None:
    kept = KeptOffsets(tmp_path)
    kept.raise_log_start_offsets({OLD: 1500})
    assert NEW not in kept.log_start_offsets()
    kept.raise_log_start_offsets({NEW: 10})
    assert kept.log_start_offsets() == {NEW: 10}


def raise_new(folder: Path, fs: FileSystem) -> None:
    KeptOffsets(folder, fs=fs).raise_log_start_offsets({NEW: 10, CLICKS: 20})


def prepared(folder: Path) -> Path:
    KeptOffsets(folder).raise_log_start_offsets({OLD: 1500, CLICKS: 10})
    return folder


def test_no_fault_gives_a_log_start_to_the_wrong_topic(tmp_path: Path) -> None:
    operations = operations_of(partial(raise_new, prepared(tmp_path / "watched")))
    for nth in range(len(operations)):
        for kill in (True, False):
            folder = prepared(tmp_path / f"{nth}-{kill}")
            if kill:
                assert run_and_die(partial(raise_new, folder), nth)
            else:
                with pytest.raises(MetadataError):
                    raise_new(folder, Failing(nth, errno.EIO))
            starts = KeptOffsets(folder).log_start_offsets()
            assert starts.get(NEW, 0) in {0, 10}
            assert starts[CLICKS] in {10, 20}
            raise_new(folder, FileSystem())
            assert KeptOffsets(folder).log_start_offsets() == {NEW: 10, CLICKS: 20}


@pytest.mark.parametrize("name", [REMOVER_OFFSETS, LOG_STARTS, "_log_start_topic_ids"])
def test_a_damaged_file_is_told(tmp_path: Path, name: str) -> None:
    kept = KeptOffsets(tmp_path)
    kept.raise_log_start_offsets({OLD: 1500})
    kept.commit_remover_offsets({0: 5})
    (tmp_path / name).write_bytes(b"nonsense\n")
    with pytest.raises(CorruptInputError) as caught:
        _ = (kept.remover_offsets(), kept.log_start_offsets())
    assert caught.value.source == str(tmp_path / name)
