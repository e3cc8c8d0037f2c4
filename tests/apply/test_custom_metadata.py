"""A segment over KIP-917's limit is not uploaded again by each scheduled run."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.apply.journal import CUSTOM_METADATA_BREACHES, Journal
from tierctl.errors import CorruptInputError

from tests.apply.conftest import Ran
from tests.apply.worlds import World

LIMIT = "remote.log.metadata.custom.metadata.max.bytes"
FIELDS = "REMOTE_SIZE,OBJECT_KEY,OBJECT_PREFIX"


@pytest.fixture
def copy(beginning: World, tierctl: Callable[..., Ran], tmp_path: Path) -> Callable[..., Ran]:
    here = beginning.clone(tmp_path / "world")
    server = tmp_path / "server.properties"

    def run(*more: object, fields: str = FIELDS) -> Ran:
        server.write_text(f"rsm.config.custom.metadata.fields.include={fields}\n")
        where = (*here.where, "--layout", "aiven", "--broker-config", server, "--log-dir", here.logs)
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
    # With other fields and then with another limit, the segment is copied again.
    assert copy(*limit, fields="REMOTE_SIZE").json["steps"]
    done = copy("--custom-metadata-max-bytes", 500, "--apply")
    assert (done.code, {outcome["status"] for outcome in done.json["outcomes"]}) == (0, {"done"})
    assert copy(*limit, "--apply").code == 0


def test_explain_and_status_know_the_breach(
    beginning: World, tierctl: Callable[..., Ran], tmp_path: Path
) -> None:
    here = beginning.clone(tmp_path / "world")
    server, topics = tmp_path / "server.properties", tmp_path / "topics.properties"
    server.write_text(f"rsm.config.custom.metadata.fields.include={FIELDS}\n{LIMIT}=20\n")
    topics.write_text("bills.remote.storage.enable=true\n")
    where = ("--metadata", here.metadata, "--broker-config", server, "--log-dir", here.logs)
    where = (*where, "--topic-configs", topics, "--state-dir", here.state_dir, "-o", "json")
    tier = ("--remote", here.remote, "--layout", "aiven")
    here.state_dir.mkdir(exist_ok=True)
    before = tierctl("status", *where)
    assert tierctl("copy", *where, *tier, "--topic", "bills", "--apply").code == 8
    again = tierctl("copy", *where, *tier, "--topic", "bills")
    (skip,) = again.json["skipped"]
    assert again.json["steps"] == []
    for named in ((), tier):
        found = tierctl("explain", "bills", 0, *where, *named).json
        assert {row["reason"] for row in found if row["reason_kind"] != "not_rolled"} == {skip["reason"]}
    row = tierctl("explain", "bills", 0, *where, "--offset", 0).json[0]
    assert (row["next_action"], row["rule"]) == ("none", "RLMCopyTask, limit of custom metadata (KIP-917)")
    assert row["settings"] == [{"name": LIMIT, "value": "20", "source": "broker settings file"}]
    assert {"name": "limit_bytes", "value": 20} in row["facts"]
    # The later segments wait until the limit or the fields change; then they are copied.
    shown = tierctl("status", *where)
    assert shown.json[0]["lag_segments"] == before.json[0]["lag_segments"]
    assert (before.code, shown.code) == (0, 3), "an operator must act"
    assert shown.json[0]["problems"] == 1
    (problem,) = tierctl("status", *where, "--show", "problems").json
    size_bytes = next(fact["value"] for fact in row["facts"] if fact["name"] == "size_bytes")
    advice = f"tierctl copy --custom-metadata-max-bytes {size_bytes}"
    asked = {name: problem[name] for name in ("severity", "check", "subject", "findings", "found", "fix")}
    assert asked == {
        "severity": "warning",
        "check": "custom_metadata",
        "subject": "bills-0",
        "findings": 1,
        "found": skip["reason"],
        "fix": advice,
    }
    assert f"; next: {advice} --metadata" in shown.summary
    words = (*advice.split()[1:], *where, *tier, "--topic", "bills")
    assert tierctl(*words).json["steps"], "with that limit it is copied"
    others = tmp_path / "other.properties"
    others.write_text(server.read_text().replace(FIELDS, "REMOTE_SIZE"))
    for changed in (("--custom-metadata-max-bytes", 500), (*tier, "--broker-config", others)):
        (row,) = tierctl("explain", "bills", 0, *where, *changed, "--offset", 0).json
        assert row["next_action"] == "copy"


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"breaches": [{"topic_id": 1}]}', '{"breaches": 3}'])
def test_a_damaged_record(text: str, tmp_path: Path) -> None:
    (tmp_path / CUSTOM_METADATA_BREACHES).write_text(text)
    with pytest.raises(CorruptInputError, match=CUSTOM_METADATA_BREACHES):
        Journal(tmp_path).custom_metadata_breaches()
