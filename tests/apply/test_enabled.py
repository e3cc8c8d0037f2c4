"""What `copy` leaves out: topics that are not enabled, segments over a limit, logs not understood."""

import errno
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tierctl.errors import CorruptInputError, ExitCode
from tierctl.metadata import state_dir
from tierctl.metadata.state_dir import CUSTOM_METADATA_BREACHES, Journal
from tierctl.model.settings import broker

from tests.apply.worlds import World, check_durable
from tests.cli.shell import Ran, tierctl
from tests.commands.restore.unread import Change, flipped, patched
from tests.support.topic_settings import enabled

Copy = Callable[..., Ran]
TOPICS = {"bills", "events", "ledger"}
MISSING = "remote.storage.enable=true is not among the topic's settings: tiering is opt-in"


@pytest.fixture
def copy(capture: Callable[[str], Path], tmp_path: Path) -> Callable[..., Ran]:
    """Return a function that copies a log directory; `settings` are lines of --topic-configs, or None."""

    def run(settings: str | None, *more: object, broker: str = "") -> Ran:
        where = ("--metadata", tmp_path / "metadata", "--remote", tmp_path / "tier")
        options: list[object] = ["--log-dir", capture("untiered-broker") / "local", "-o", "json", *more]
        for option, text in (("--topic-configs", settings), ("--broker-config", broker or None)):
            if text is not None:
                file = tmp_path / f"{option.strip('-')}.properties"
                file.write_text(text)
                options += [option, file]
        return tierctl("copy", *where, *options, "--apply")

    return run


def copied(ran: Ran) -> set[str]:
    done: list[dict[str, Any]] = ran.json["outcomes"]
    assert {outcome["status"] for outcome in done} <= {"done"}
    return {outcome["topic"] for outcome in done}


def on(*topics: str) -> str:
    return "".join(f"{topic}.remote.storage.enable=true\n" for topic in topics)


COMPACT = "log.cleanup.policy=compact\n"
ASSUMED = ("--topic", "bills", "--assume-enabled")


@pytest.mark.parametrize(
    ("settings", "more", "topics", "reported"),
    [
        (on("bills"), (), {"bills"}, f"skipped 2 partitions of 2 topics (events-0, ledger-0): {MISSING}"),
        (None, ASSUMED, {"bills"}, ""),
        (
            on("bills", "ledger") + "bills.cleanup.policy=compact\n",
            (),
            {"ledger"},
            "cleanup.policy=compact: ",
        ),
    ],
)
def test_what_is_copied(
    copy: Copy, settings: str | None, more: tuple[str, ...], topics: set[str], reported: str
) -> None:
    ran = copy(settings, *more)
    assert (ran.code, copied(ran)) == (0, topics), ran.err
    assert reported in ran.err
    assert ran.err.count(MISSING) <= 1


@pytest.mark.parametrize(
    ("files", "more", "refusal"),
    [
        ((None, ""), (), (2, "no source of topic settings is named")),
        ((None, ""), ("--assume-enabled",), (2, "--assume-enabled needs --topic")),
        ((None, ""), ("--topic", "bilsl", "--assume-enabled"), (10, 'unknown topic "bilsl"')),
        ((on("bilsl", "ledger"), ""), (), (2, 'did you mean "bills"?')),
        (("", ""), (), (4, f"none of the 3 selected topics is copied (bills, events, ledger): {MISSING}")),
        ((None, COMPACT), ASSUMED, (4, "cleanup.policy=compact: Kafka refuses")),
    ],
)
def test_what_is_refused(
    copy: Copy, tmp_path: Path, files: tuple[str | None, str], more: tuple[str, ...], refusal: tuple[int, str]
) -> None:
    """Each is refused before an event is published."""
    settings, broker = files
    ran = copy(settings, *more, broker=broker)
    assert (ran.code, refusal[1] in ran.err) == (refusal[0], True), ran.err
    assert not (tmp_path / "tier").exists()
    assert not [log for log in tmp_path.glob("metadata/*/*.log") if log.stat().st_size]


def test_apply_of_a_plan_of_assumed_topics(capture: Callable[[str], Path], tmp_path: Path) -> None:
    where = ("--metadata", tmp_path / "metadata", "--remote", tmp_path / "tier")
    logs, kept = ("--log-dir", capture("untiered-broker") / "local", "-o", "json"), tmp_path / "plan.json"
    assert tierctl("copy", *where, *logs, *ASSUMED, "--plan-out", kept).code == 0
    ran = tierctl("apply", kept, *where, *logs, "--apply").ok()
    assert copied(ran) == {"bills"}


LIMIT = "remote.log.metadata.custom.metadata.max.bytes"
FIELDS = "REMOTE_SIZE,OBJECT_KEY,OBJECT_PREFIX"


@pytest.fixture
def limited_copy(beginning: World, tmp_path: Path) -> Callable[..., Ran]:
    here = beginning.clone(tmp_path / "world")
    server = tmp_path / "server.properties"

    def run(*more: object, fields: str = FIELDS) -> Ran:
        server.write_text(f"rsm.config.custom.metadata.fields.include={fields}\n")
        where = (*here.where, "--layout", "aiven", "--broker-config", server, "--log-dir", here.logs)
        chosen = ("--topic", "bills", "--assume-enabled", "-o", "json")
        return tierctl("copy", *where, *chosen, "--state-dir", here.state_dir, *more)

    return run


def test_a_breach_is_remembered_until_the_limit_or_the_layout_changes(
    limited_copy: Callable[..., Ran],
) -> None:
    limit = ("--custom-metadata-max-bytes", 20)
    first = limited_copy(*limit, "--apply")
    assert first.code == 8, first.err
    assert "or KIP-917's limit stops copies" in ExitCode(first.code).meaning
    assert first.json["outcomes"][0]["status"] == "failed"
    for _ in range(2):
        again = limited_copy(*limit, "--apply")
        assert (again.code, again.json["steps"]) == (8, [])
        assert "bytes of custom metadata in an earlier run, more than" in again.err
        assert "from offset 0 " in again.err
    planned = limited_copy(*limit)
    assert (planned.code, planned.json["steps"]) == (0, [])
    # With other fields and then with another limit, the segment is copied again.
    assert limited_copy(*limit, fields="REMOTE_SIZE").json["steps"]
    done = limited_copy("--custom-metadata-max-bytes", 500, "--apply")
    assert (done.code, {outcome["status"] for outcome in done.json["outcomes"]}) == (0, {"done"})
    assert limited_copy(*limit, "--apply").code == 0


def test_a_breach_that_cannot_be_recorded_is_a_warning(
    limited_copy: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the run did is still reported."""
    limit = ("--custom-metadata-max-bytes", 20)
    monkeypatch.setattr(state_dir, "write_json", full)
    ran = limited_copy(*limit, "--apply")
    assert (ran.code, ran.json["outcomes"][0]["status"]) == (8, "failed"), ran.err
    assert re.search(
        r"warning: --state-dir .*/state_dir: No space left on device .*\(the disk is full: .*; "
        "the next run uploads the segments over the limit once more",
        ran.err,
    )
    monkeypatch.undo()
    assert limited_copy(*limit).json["steps"]


def full(path: Path, *_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device", str(path))


def test_explain_and_status_know_the_breach(beginning: World, tmp_path: Path) -> None:
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


WRONG_OFFSET = {
    **dict.fromkeys(("partition", "size_bytes", "limit_bytes"), 0),
    "topic_id": "h0muvYe_TpOMWkoQBim7pw",
    "start_offset": "x",
    "layout": "aiven",
}


@pytest.mark.parametrize(
    "text",
    [
        *("", "{}", "[]", '{"breaches": [{"topic_id": 1}]}', '{"breaches": 3}'),
        json.dumps({"breaches": [WRONG_OFFSET]}),
    ],
)
def test_a_damaged_record(text: str, tmp_path: Path) -> None:
    (tmp_path / CUSTOM_METADATA_BREACHES).write_text(text)
    with pytest.raises(CorruptInputError, match=CUSTOM_METADATA_BREACHES):
        Journal(tmp_path).custom_metadata_breaches()


WHOLE = [0, 600, 1200, 1800, 2400]
LOG, NEXT, EPOCHS = "00000000000000001200", "00000000000000001800.snapshot", "leader-epoch-checkpoint"
MUTATIONS: dict[str, tuple[str, Change | None, ExitCode, str]] = {
    "magic": (f"{LOG}.log", patched(16, 3), ExitCode.CORRUPT, "found magic 3"),
    "magic of a later batch": (f"{LOG}.log", patched(16, 127, nth=3), ExitCode.CORRUPT, "found magic 127"),
    "codec 5": (f"{LOG}.log", patched(22, 5, mends_crc=True), ExitCode.CORRUPT, "from 0 to 4, found 5"),
    "codec 7": (f"{LOG}.log", patched(22, 7, mends_crc=True), ExitCode.CORRUPT, "from 0 to 4, found 7"),
    "a bit": (f"{LOG}.log", flipped(200), ExitCode.CORRUPT, "expected CRC-32C"),
    "no offset index": (f"{LOG}.index", None, ExitCode.PARTIAL, f"{LOG}.index"),
    "no time index": (f"{LOG}.timeindex", None, ExitCode.PARTIAL, f"{LOG}.timeindex"),
    "offset index": (f"{LOG}.index", flipped(4), ExitCode.CORRUPT, "offset index at byte 8"),
    "time index": (f"{LOG}.timeindex", flipped(3), ExitCode.CORRUPT, "time index at byte 12"),
    "no snapshot": (NEXT, None, ExitCode.OK, "no producer snapshot at offset 1800"),
    "snapshot": (NEXT, lambda data: b"\0\7" + data[2:], ExitCode.CORRUPT, "found version 7"),
    "no epochs": (EPOCHS, None, ExitCode.OK, "leader epochs of segment 0 are not all known"),
    "epochs": (EPOCHS, lambda data: b"7" + data[1:], ExitCode.CORRUPT, "found version 7"),
    "no entries": (EPOCHS, lambda _: b"0\n0\n", ExitCode.OK, "leader epochs of segment 0 are not all known"),
}
"""Changes of files of bills-0: the file, its change (None: it is missing), the exit code and the reason."""


@pytest.fixture(scope="module")
def logs(capture: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    local = capture("untiered-broker") / "local"
    folder = tmp_path_factory.mktemp("logs") / "local"
    return shutil.copytree(local, folder, ignore=shutil.ignore_patterns("ledger-*", "events-*"))


@pytest.mark.parametrize("name", MUTATIONS)
def test_copy_stops_where_the_log_is_not_understood(logs: Path, tmp_path: Path, name: str) -> None:
    world = World(tmp_path / "metadata", tmp_path / "remote", logs, tmp_path / "state")
    file, change, code, reason = MUTATIONS[name]
    path = logs / "bills-0" / file
    sound = path.read_bytes()
    path.write_bytes(change(sound)) if change else path.unlink()
    try:
        where = (*world.where, "--layout", "kafka", "--log-dir", logs, *enabled(logs))
        ran = tierctl("copy", *where, "--output", "json", "--apply")
    finally:
        path.write_bytes(sound)
    assert (ran.code, reason in ran.out + ran.err) == (code, True), ran.out + ran.err
    found = {
        number: [
            each.start_offset for each in world.segments() if each.topic_id_partition.partition == number
        ]
        for number in (0, 1)
    }
    assert found == {0: [] if file == EPOCHS else [0, 600], 1: WHOLE}
    assert {str(each.state) for each in world.segments()} == {"COPY_SEGMENT_FINISHED"}
    check_durable(world)


@pytest.mark.parametrize("log_start", [None, 1200])
def test_a_gap_between_tier_and_log_is_warned_of(logs: Path, tmp_path: Path, log_start: int | None) -> None:
    """Offsets below a recorded log start were deleted; without the record they may have been lost."""
    local = shutil.copytree(logs, tmp_path / "logs")
    world = World(tmp_path / "metadata", tmp_path / "remote", local, tmp_path / "state")
    where = (*world.where, "--layout", "kafka", "--log-dir", local, *enabled(local), "--topic", "bills")
    aside = tmp_path / "aside"
    aside.mkdir()
    for path in (local / "bills-0").glob("0*"):
        if int(path.name[:20]) > 600:
            path.rename(aside / path.name)
    assert tierctl("copy", *where, "--apply").code == 0
    for path in (local / "bills-0").glob("0*"):
        path.unlink()
    for path in aside.iterdir():
        path.rename(local / "bills-0" / path.name)
    if log_start is not None:
        (local / "log-start-offset-checkpoint").write_text(f"0\n1\nbills 0 {log_start}\n")
        epochs = local / "bills-0" / EPOCHS
        epochs.write_text(epochs.read_text().replace("\n0 0\n", f"\n0 {log_start}\n"))
    ran = tierctl("copy", *where).ok()
    warning = "bills-0: offsets 600 to 1199 are neither in the tier nor in the log"
    assert (warning in ran.err) == (log_start is None), ran.err


def test_a_plugin_that_encrypts_is_refused_before_the_first_event(copy: Copy, tmp_path: Path) -> None:
    """Attempts that fail would look like copies that a broker fails to make."""
    ran = copy(on("bills"), "--layout", "aiven", broker="rsm.config.encryption.enabled=true\n")
    assert (ran.code, ran.out) == (2, ""), ran.err
    assert "encryption.enabled=true: tierctl reads encrypted segments, but writes none" in ran.err
    assert [path for path in tmp_path.rglob("*.log") if path.stat().st_size] == []
    assert not (tmp_path / "tier").exists()


def test_the_setting_in_a_file_refuses_nothing_as_the_manual_says(copy: Copy) -> None:
    """The file may be that of a broker that is stopped, or of one that is to tier later."""
    row = broker.REMOTE_LOG_STORAGE_SYSTEM_ENABLE
    assert copied(copy(on("bills"), broker=f"{row.name}=true\n")) == {"bills"}
    assert row.use.startswith("if a partition's leader has true, ")
