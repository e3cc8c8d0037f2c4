"""Saved plans: which are refused, and which of their steps are still decided from the current state."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tierctl.plan.saved import digest_of

from tests.apply.commands import OTHER_ID, apply, copy, delete, files, marking, sweep
from tests.apply.test_delete_partitions import recreated
from tests.apply.worlds import DAY_MS, LOG, RETENTION, World
from tests.cli.shell import Ran, tierctl
from tests.metadata.topics import topic_in

Forge = Callable[[dict[str, Any]], object]
HOUR_MS = 3_600_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def forge(plan: Path, change: Forge) -> None:
    """Change a plan and recompute its digest, as a malicious program could."""
    raw = json.loads(plan.read_text())
    change(raw)
    plan.write_text(json.dumps({**raw, "digest": digest_of(raw)}))


@pytest.fixture
def swept(tiered: World, tmp_path: Path) -> Path:
    """Return a sweep plan of `tiered` with two steps."""
    kept = tmp_path / "plan.json"
    assert len(tierctl(*sweep(tiered, "--plan-out", kept)).json["steps"]) == 2
    return kept


def refused(ran: Ran, field: str) -> None:
    assert (ran.code, f"the plan's {field}: expected" in ran.err, "hint: " in ran.err) == (4, True, True), ran


def test_the_plan_is_the_json_on_stdout(tiered: World, tmp_path: Path) -> None:
    kept = tmp_path / "plan.json"
    printed = tierctl(*sweep(tiered, "--plan-out", kept)).json
    assert printed == json.loads(kept.read_text())
    identity = printed["identity"]
    assert identity["metadata_topic_id"] == topic_in(tiered.metadata).topic_id
    assert identity["tier"] == str(tiered.remote)
    assert list(identity["topic_ids"].values()) == ["bills"]
    assert printed["settings"]["bills"]["retention_bytes"] == 1_500_000
    assert list(printed["log_starts"].values()) == [0]
    assert set(printed["read"]) == {"0", "1"}


@pytest.mark.parametrize("command", [copy, sweep, delete], ids=["copy", "sweep", "delete"])
def test_a_plan_of_every_command_is_carried_out(
    command: Callable[..., tuple[object, ...]], empty: World, tiered: World, tmp_path: Path
) -> None:
    kept, world = tmp_path / "plan.json", empty if command is copy else tiered
    if command is delete:
        marked = tmp_path / "mark.json"
        topic_id = next(iter(tiered.state())).topic_id_partition.topic_id
        known = ("--i-know-it-is-deleted", topic_id)
        assert tierctl(*delete(tiered, "--mark", "--topic", "bills", *known, "--plan-out", marked)).code == 0
        refused = tierctl("apply", marked, *tiered.where, "--apply")
        assert (refused.code, "not known to be deleted" in refused.err) == (4, True), "evidence is not saved"
        assert tierctl("apply", marked, *tiered.where, *known, "--apply").code == 0
        shutil.rmtree(tiered.logs / "bills-0")
        (tiered.logs / "meta.properties").write_text("version=1\n")
    planned = tierctl(*command(world, "--plan-out", kept)).json["steps"]
    assert planned
    for again in (False, True):
        ran = tierctl(*apply(world, kept, "--apply")).ok()
        assert len(ran.json["outcomes"]) == (0 if again else len(planned))
        assert len(ran.json["skipped"]) == (len(planned) if again else 0)


def test_a_plan_of_another_cluster_is_refused(
    tiered: World, empty: World, swept: Path, tmp_path: Path
) -> None:
    """With metadata that lacks the plan's segments, all steps would look as if they were done already."""
    other = empty.clone(tmp_path / "other")
    for partition in other.metadata.glob("__remote_log_metadata-*/partition.metadata"):
        partition.write_text("version: 0\ntopic_id: 2QZ5FAXaQrqgUzsReWnweA\n")
    for more in ((), ("--apply",)):
        before = files(other)
        refused(tierctl(*apply(other, swept, *more)), "metadata_topic_id")
        assert files(other) == before
    in_another_tier = World(tiered.metadata, other.remote, tiered.logs, tiered.state_dir)
    refused(tierctl(*apply(in_another_tier, swept, "--apply")), "tier")


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("created_ms", lambda raw: raw["identity"].update(created_ms=now_ms() - DAY_MS - HOUR_MS)),
        ("created_ms", lambda raw: raw["identity"].update(created_ms=now_ms() + HOUR_MS)),
        ("now_ms", lambda raw: raw["identity"].update(now_ms=now_ms() + HOUR_MS)),
        ("read", lambda raw: raw["read"].update({"0": 1_000_000})),
        ("read", lambda raw: raw["read"].update({"2": 0})),
        ("plan_version", lambda raw: raw["identity"].update(plan_version=1)),
        ("plan_version", lambda raw: raw.pop("identity")),
    ],
    ids=["old", "of the future", "decided ahead", "read further", "more partitions", "version", "none"],
)
def test_a_plan_is_refused_by_its_identity(field: str, change: Forge, tiered: World, swept: Path) -> None:
    before = files(tiered)
    forge(swept, change)
    refused(tierctl(*apply(tiered, swept, "--apply")), field)
    assert files(tiered) == before


def test_the_age_of_a_plan_is_an_option(tiered: World, swept: Path) -> None:
    made_ms = now_ms() - 2 * DAY_MS
    forge(swept, lambda raw: raw["identity"].update(created_ms=made_ms, now_ms=made_ms))
    refused(tierctl(*apply(tiered, swept, "--max-age", "47h")), "created_ms")
    assert tierctl(*apply(tiered, swept, "--max-age", "3d")).code == 0
    assert tierctl(*apply(tiered, swept, "--max-age", "soon")).code == 2


def _unlimited(world: World) -> Path:
    file = world.logs / "unlimited.properties"
    file.write_text("bills.retention.bytes=-1\n")
    return file


def test_settings_that_changed_drop_a_step(tiered: World, swept: Path) -> None:
    before = files(tiered)
    ran = tierctl(*apply(tiered, swept, "--topic-configs", _unlimited(tiered), "--apply"))
    assert (ran.code, ran.json["outcomes"]) == (4, []), "nothing of the plan was done"
    assert "no step of the plan is still valid" in ran.err
    assert "plan again with tierctl sweep" in ran.err
    assert len(ran.json["skipped"]) == 2
    only_shown = tierctl(*apply(tiered, swept, "--topic-configs", _unlimited(tiered)))
    assert (only_shown.code, "is still valid" in only_shown.err) == (0, False)
    assert "retention_bytes was 1500000 and is -1" in ran.json["skipped"][0]["reason"]
    assert files(tiered) == before
    part = tiered.logs / "part.properties"
    part.write_text(RETENTION.replace("1500000", "2000000"))
    ran = tierctl(*apply(tiered, swept, "--topic-configs", part, "--apply"))
    assert [outcome["start_offset"] for outcome in ran.json["outcomes"]] == [0]


def test_a_log_start_that_was_asked_for_is_in_the_plan(tiered: World, tmp_path: Path) -> None:
    kept = tmp_path / "plan.json"
    asked = ("--log-start-offset", "bills-0=1200", "--topic-configs", _unlimited(tiered))
    planned = tierctl(*sweep(tiered, *asked, "--plan-out", kept)).json
    assert len(planned["steps"]) == 2
    ran = tierctl(
        *apply(tiered, kept, "--topic-configs", _unlimited(tiered), "--state-dir", tiered.state_dir),
        "--apply",
    )
    assert [outcome["start_offset"] for outcome in ran.json["outcomes"]] == [0, 600]
    assert (tiered.state_dir / "log-start-offset-checkpoint").read_text().endswith(" 0 1200\n")


def test_a_log_start_of_a_plan_without_a_valid_step_stays(tiered: World, tmp_path: Path) -> None:
    kept = tmp_path / "plan.json"
    planned = tierctl(*sweep(tiered, "--log-start-offset", "bills-0=300", "--plan-out", kept)).json
    assert len(planned["steps"]) == 2
    more = ("--topic-configs", _unlimited(tiered), "--state-dir", tiered.state_dir)
    for args, code in (((), 0), (("--apply",), 4)):
        ran = tierctl(*apply(tiered, kept, *more, "--detailed-exitcode", *args))
        assert (ran.code, "nothing to do" in ran.summary) == (code, True), ran
    assert not (tiered.state_dir / "log-start-offset-checkpoint").exists()


def test_two_log_starts_of_one_partition_are_refused(tiered: World) -> None:
    """The last one would win, and a mistyped partition would lose what it should keep."""
    asked = [word for offset in (1, 2) for word in ("--log-start-offset", f"bills-0={offset}")]
    ran = tierctl(*sweep(tiered, *asked))
    assert (ran.code, "names bills-0 twice: 1 and 2" in ran.err) == (2, True), ran


@pytest.mark.parametrize(("offset", "count"), [(1200, 2), (500, 0)], ids=["with steps", "without steps"])
def test_the_log_start_of_a_topic_that_was_created_again_stays(
    offset: int, count: int, tiered: World, tmp_path: Path
) -> None:
    """The option names a partition; the plan is for the topic that had this name when it was made."""
    kept, given = tmp_path / "plan.json", ("--topic-configs", _unlimited(tiered))
    asked = ("--log-start-offset", f"bills-0={offset}", *given)
    assert len(tierctl(*sweep(tiered, *asked, "--plan-out", kept)).json["steps"]) == count
    recreated(tiered)
    (tiered.logs / LOG / "partition.metadata").write_text(f"version: 0\ntopic_id: {OTHER_ID}\n")
    ran = tierctl(*apply(tiered, kept, *given, "--state-dir", tiered.state_dir, "--apply"))
    assert not (tiered.state_dir / "log-start-offset-checkpoint").exists()
    assert (ran.code, f"{OTHER_ID}:bills-0 is not selected" in ran.err) == (4, True), ran.err


def test_a_plan_needs_the_settings_and_logs_it_was_decided_from(
    tiered: World, empty: World, swept: Path, tmp_path: Path
) -> None:
    configs = ("--topic-configs", tiered.logs / "configs")
    for given, missing in ((("--log-dir", tiered.logs), "--topic-configs"), (configs, "--log-dir")):
        ran = tierctl("apply", swept, *tiered.where, *given, "--apply")
        assert (ran.code, f"{missing} is missing" in ran.err, "hint: " in ran.err) == (2, True, True)
    kept = tmp_path / "copy.json"
    assert tierctl(*copy(empty, "--plan-out", kept)).code == 0
    assert tierctl("apply", kept, *empty.where, "--apply").code == 2


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (copy, ["--max-deletes 1", "--max-fraction 0", "--all-log-dirs"]),
        (sweep, ["--custom-metadata-max-bytes 1", "--from-layout kafka", "--to-metadata other"]),
        (delete, ["--max-deletes 1", "--max-fraction 0", "--custom-metadata-max-bytes 1"]),
    ],
    ids=["copy", "sweep", "delete"],
)
def test_an_option_that_would_have_no_effect_on_the_plan_is_refused(
    command: Callable[..., tuple[object, ...]],
    options: list[str],
    empty: World,
    tiered: World,
    tmp_path: Path,
) -> None:
    """A run must not delete more than a limit that its command line states."""
    kept, world = tmp_path / "plan.json", empty if command is copy else tiered
    if command is delete:
        tierctl(*delete(tiered, *marking(tiered.metadata, "bills"), "--apply")).ok()
    assert tierctl(*command(world, "--plan-out", kept)).ok().json["steps"]
    before = files(world)
    for option in options:
        ran = tierctl(*apply(world, kept, *option.split(), "--apply"))
        expected = f"{option.split()[0]} can't be used with a plan of {command.__name__}"
        assert (ran.code, expected in ran.err, "hint: " in ran.err) == (2, True, True), ran
    assert files(world) == before


TEXTS = [b"", b" \n", b"{}", b"[]", b"[1]", b'"x"', b"null", b"\x00", b"not JSON", b"\xff\xfe\x00"]
TEXTS += [b"[" * 100_000, b'{"a":' * 100_000]


def test_files_that_are_no_plan_and_parts_of_one(tiered: World, swept: Path, tmp_path: Path) -> None:
    whole = swept.read_bytes()
    texts, cut = [tmp_path / f"text-{number}" for number in range(len(TEXTS))], tmp_path / "cut"
    for path, text in zip(texts, TEXTS, strict=True):
        path.write_bytes(text)
    for path in (tmp_path, tmp_path / "missing", *texts):
        ran = tierctl(*apply(tiered, path, "--apply"))
        assert (ran.code, str(path) in ran.err, "hint: " in ran.err) == (2, True, True)
    for size in range(0, len(whole) - 3, len(whole) // 20):
        cut.write_bytes(whole[:size])
        assert tierctl(*apply(tiered, cut, "--apply")).code == 2


def test_plans_of_other_commands(tiered: World, swept: Path) -> None:
    forge(swept, lambda raw: raw.update(command="rewind"))
    ran = tierctl(*apply(tiered, swept, "--apply"))
    known = "expected one of copy, delete, rebuild, restore into, restore log, restore new-ids, sweep"
    assert (ran.code, known in ran.err) == (2, True)
    forge(swept, lambda raw: raw.update(command="copy"))
    refused(tierctl(*apply(tiered, swept)), "options")


@pytest.mark.parametrize("command", [copy, sweep], ids=["copy", "sweep"])
def test_a_later_now_only_plans(
    command: Callable[..., tuple[object, ...]], tiered: World, tmp_path: Path
) -> None:
    """The run creates no metadata topic."""
    kept, ahead = tmp_path / "plan.json", now_ms() + HOUR_MS
    new = World(tmp_path / "new", tmp_path / "new tier", tiered.logs, tiered.state_dir)
    world = new if command is copy else tiered
    more = ("--now", ahead, "--plan-out", kept, *(("--clean-dangling",) if command is copy else ()))
    planned = tierctl(*command(world, *more))
    assert (planned.code, "--apply would refuse this" in planned.err) == (0, True)
    before = files(world)
    for args in (command(world, *more, "--apply"), apply(world, kept, "--apply")):
        ran = tierctl(*args)
        assert (ran.code, "ahead of the" in ran.err) == (4, True), ran.err
    assert files(world) == before
    assert not new.metadata.exists()
