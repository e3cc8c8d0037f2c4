"""Single files of the state directory: what of them is damaged or refused."""

import json
from pathlib import Path

import pytest
from tierctl.errors import CorruptInputError, SafetyRefusal
from tierctl.metadata.state_dir import LAST_RUNS, Journal, Manifest, last_successful_runs
from tierctl.model import TopicIdPartition
from tierctl.model.local import LARGEST_OFFSET

from tests.metadata.events import TOPIC_ID


@pytest.mark.parametrize("topic_id", [{}, 1, []])
def test_a_manifest_with_a_topic_id_of_another_type_is_damaged(topic_id: object) -> None:
    content = json.loads(Manifest(topic_id=None, metadata_partitions=5).dumps())
    with pytest.raises(CorruptInputError, match="topic_id"):
        Manifest.loads(json.dumps({**content, "topic_id": topic_id}).encode())


@pytest.mark.parametrize(
    "content", ["[" * 100_000, "null", "[]", "5", '{"a": 1e400}', '{"a": NaN}', '{"a": []}']
)
def test_json_of_another_shape_is_damaged(tmp_path: Path, content: str) -> None:
    with pytest.raises(CorruptInputError, match="list of snapshots"):
        Manifest.loads(content.encode())
    (tmp_path / LAST_RUNS).write_text(content)
    with pytest.raises(CorruptInputError, match="last successful runs"):
        last_successful_runs(tmp_path)
    (tmp_path / LAST_RUNS).chmod(0o666)
    with pytest.raises(SafetyRefusal, match="can be written by every user"):
        last_successful_runs(tmp_path)


def test_a_log_start_that_could_not_be_read_again_is_refused(tmp_path: Path) -> None:
    partition = TopicIdPartition(TOPIC_ID, "orders", 0)
    journal = Journal(tmp_path)
    journal.raise_log_starts({partition: LARGEST_OFFSET})
    with pytest.raises(CorruptInputError, match=r"log start of .*: expected an offset up to"):
        journal.raise_log_starts({partition: LARGEST_OFFSET + 1})
    assert journal.log_starts() == {partition.key: LARGEST_OFFSET}


@pytest.mark.parametrize("content", ["x", "0\n1\norders 0 5\n"])
def test_damaged_log_starts_say_which_file_has_the_earlier_ones(content: str, tmp_path: Path) -> None:
    partition = TopicIdPartition(TOPIC_ID, "orders", 0)
    journal, file = Journal(tmp_path), tmp_path / "log-start-offset-checkpoint"
    for start in (5, 7):
        journal.raise_log_starts({partition: start})
    file.write_text(content)
    with pytest.raises(CorruptInputError) as damaged:
        journal.log_starts()
    assert (damaged.value.hint or "").startswith(f"put {file.name}.bak in its place")
    file.with_name(f"{file.name}.bak").replace(file)
    assert journal.log_starts() == {partition.key: 5}
