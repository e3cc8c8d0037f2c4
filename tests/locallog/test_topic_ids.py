"""The topic ids and the cluster of a log directory."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.locallog import read_log_dir_facts

from tests.locallog.made import TOPIC_ID, batch, write_log


def test_a_captured_log_directory(capture: Callable[[str], Path]) -> None:
    before, after = (read_log_dir_facts(capture("tiered-cluster") / stage) for stage in ("before", "after"))
    gone = {name.rpartition("-")[0] for i, name in before.topic_ids.items() if i not in after.topic_ids}
    assert gone == {"shortlived"}
    assert (before.cluster_id, before.unreadable_topics, before.why_unreadable) == (None, {}, None)


@pytest.mark.parametrize("suffix", ["", ".5bdc1fcf2ea94c4aa0b0b1a85bdc1f-delete", ".5b-stray", ".5b-future"])
def test_folders_on_their_way_count(suffix: str, tmp_path: Path) -> None:
    folder = write_log(tmp_path, [[batch(0)]])
    folder.rename(tmp_path / f"made-0{suffix}")
    assert read_log_dir_facts(tmp_path).topic_ids == {TOPIC_ID: f"made-0{suffix}"}
    (tmp_path / f"made-0{suffix}" / "partition.metadata").write_text("damaged")
    facts = read_log_dir_facts(tmp_path)
    assert (facts.topic_ids, facts.unreadable_topics) == ({}, {"made": f"made-0{suffix}"})
    assert facts.has_partitions


def test_what_is_no_log_directory(tmp_path: Path) -> None:
    assert not read_log_dir_facts(tmp_path).has_partitions
    assert read_log_dir_facts(tmp_path / "none").why_unreadable == "No such file or directory"
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=yDRBVCh3QKmOs6aFeYUCUQ\n")
    facts = read_log_dir_facts(tmp_path)
    assert (facts.cluster_id, facts.has_partitions) == ("yDRBVCh3QKmOs6aFeYUCUQ", False)
    (tmp_path / "meta.properties").write_bytes(b"cluster.id=\\u00")
    assert "meta.properties" in (read_log_dir_facts(tmp_path).why_unreadable or "")
