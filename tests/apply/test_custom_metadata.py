"""KIP-917's limit: a segment that breached it is not uploaded again and again by a cron line."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.apply.journal import CUSTOM_METADATA_BREACHES, Journal
from tierctl.errors import CorruptInputError

from tests.apply.conftest import Ran
from tests.apply.worlds import World

FIELDS = "REMOTE_SIZE,OBJECT_KEY,OBJECT_PREFIX"


@pytest.fixture
def copy(beginning: World, tierctl: Callable[..., Ran], tmp_path: Path) -> Callable[..., Ran]:
    here = beginning.clone(tmp_path / "world")
    server = tmp_path / "server.properties"

    def run(*more: object, fields: str = FIELDS) -> Ran:
        server.write_text(f"rsm.config.custom.metadata.fields.include={fields}\n")
        where = (*here.where, "--layout", "aiven", "--config", server, "--log-dir", here.logs)
        chosen = ("--topic", "bills", "--assume-enabled", "-o", "json")
        return tierctl("copy", *where, *chosen, "--state-dir", here.state_dir, *more)

    return run


def test_a_breach_is_remembered_until_the_limit_or_the_layout_changes(copy: Callable[..., Ran]) -> None:
    limit = ("--custom-metadata-max-bytes", 20)
    first = copy(*limit, "--apply")
    assert first.code == 8, first.err
    assert first.json["outcomes"][0]["status"] == "failed"
    for _ in range(2):
        again = copy(*limit, "--apply")
        assert (again.code, again.json["steps"]) == (8, [])
        assert "bytes of custom metadata in an earlier run, more than" in again.err
        assert "from offset 0 " in again.err
    planned = copy(*limit)
    assert (planned.code, planned.json["steps"]) == (0, [])
    # Other fields, then another limit: the segment is tried again.
    assert copy(*limit, fields="REMOTE_SIZE").json["steps"]
    done = copy("--custom-metadata-max-bytes", 500, "--apply")
    assert (done.code, {outcome["status"] for outcome in done.json["outcomes"]}) == (0, {"done"})
    assert copy(*limit, "--apply").code == 0


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"breaches": [{"topic_id": 1}]}', '{"breaches": 3}'])
def test_a_damaged_record(text: str, tmp_path: Path) -> None:
    (tmp_path / CUSTOM_METADATA_BREACHES).write_text(text)
    with pytest.raises(CorruptInputError, match=CUSTOM_METADATA_BREACHES):
        Journal(tmp_path).custom_metadata_breaches()
