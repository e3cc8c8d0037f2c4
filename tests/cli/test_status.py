"""`status` on captured data: topics, copy lag, problems, last runs, and copies that a store refused."""

import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tierctl.cli import insight
from tierctl.commands import resources
from tierctl.errors import ExitCode
from tierctl.metadata.state_dir import LAST_RUNS, last_successful_runs
from tierctl.model import RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState
from tierctl.model.times import iso_utc
from tierctl.wire.batches.batch_head import Record
from tierctl.wire.batches.record_batch import encode_batch
from tierctl.wire.metadata.values import encode

from tests.cli.shell import rows, tierctl
from tests.locallog.made import batch, write_log
from tests.plan.tier import NOW_MS, segment
from tests.support.killing import SIGKILLED, Zygote

Capture = Callable[..., Path]
OPEN_SINCE_MS = 1795257348120
"""When a transaction began in topic ledger of "untiered-broker", and its waiting segment was complete."""


def test_sizes_and_offsets_are_those_of_segments(capture: Capture) -> None:
    root = capture("tiered-cluster") / "before"
    listed = rows("segments", "--metadata", root)
    for topic in rows("status", "--metadata", root):
        own = [segment for segment in listed if segment["topic_id"] == topic["topic_id"]]
        assert topic["segments"] == len(own)
        assert topic["log_bytes"] == sum(segment["segment_size_in_bytes"] for segment in own)
        assert topic["first_offset_in_tier"] == min(segment["start_offset"] for segment in own)
        assert topic["last_offset_in_tier"] == max(segment["end_offset"] for segment in own)
        assert topic["last_record_ms"] == max(segment["max_timestamp_ms"] for segment in own)
        assert topic["lag_segments"] is None


def test_the_copy_lag_is_what_copy_waits_for(capture: Capture, tmp_path: Path) -> None:
    root = capture("untiered-broker")
    configs = tmp_path / "configs"
    configs.write_text("ledger.remote.storage.enable=true\nevents.remote.storage.enable=false\n")
    where = ("--metadata", root / "tiered-metadata", "--log-dir", root / "local", "--topic-configs", configs)
    # The transaction was open for an hour by then, and the first segment was complete at its beginning.
    where = (*where, "--now", iso_utc(OPEN_SINCE_MS + 3_600_000))
    found = rows("status", *where)
    lags = {topic["topic"]: (topic["lag_segments"], topic["lag_bytes"]) for topic in found}
    # Three rolled segments wait for an open transaction; the other topics are not enabled.
    assert lags == {"bills": (None, None), "ledger": (3, 1028871 + 908518 + 908655)}
    ledger = next(topic for topic in found if topic["topic"] == "ledger")
    first = root / "local" / "ledger-0" / "00000000000000002788.log"
    assert ledger["lag_since_ms"] == first.stat().st_mtime_ns // 1_000_000
    ran = tierctl("status", *where)
    assert re.search(r": 2 topics, .*; no problems .*; next: tierctl explain ledger-0 ", ran.summary)


@pytest.mark.parametrize(
    ("times_ms", "first_ms", "last_ms"), [((-1, 0), None, None), ((-1, 7, 9, 0), 7, 9), ((9, 7), 7, 9)]
)
def test_segments_without_a_timestamp_are_not_the_oldest(
    times_ms: tuple[int, ...], first_ms: int | None, last_ms: int | None, tmp_path: Path
) -> None:
    """Their age is unknown in `report`, too."""
    folder, values = tmp_path / "__remote_log_metadata-0", list[bytes]()
    for number, at_ms in enumerate(times_ms):
        started = segment(number, 10 * number, 10 * number + 9, max_timestamp_ms=at_ms)
        finished = RemoteLogSegmentMetadataUpdate.of(
            started, RemoteLogSegmentState.COPY_SEGMENT_FINISHED, broker_id=1, event_timestamp_ms=NOW_MS
        )
        values += encode(started), encode(finished)
    folder.mkdir()
    records = [Record(offset, NOW_MS, None, value) for offset, value in enumerate(values)]
    (folder / "00000000000000000000.log").write_bytes(encode_batch(records))
    where = ("--metadata", tmp_path, "--now", iso_utc(NOW_MS))
    [found] = rows("status", *where)
    assert (found["segments"], found["first_record_ms"]) == (len(times_ms), first_ms)
    assert (found["last_offset_in_tier"], found["last_record_ms"]) == (10 * len(times_ms) - 1, last_ms)
    ages = [row for row in rows("report", *where) if row["oldest_ms"] is not None]
    assert [(row["oldest_ms"], row["newest_ms"]) for row in ages] == [(first_ms, last_ms)] * len(ages)


@pytest.fixture
def lagging(capture: Capture) -> tuple[object, ...]:
    """Return the options of a broker with segments that wait for KIP-1241, at the time of the capture."""
    root = capture("copy-lag", "4.4.0")
    where = ("--metadata", root / "tiered-metadata", "--log-dir", root / "local")
    settings = ("--topic-configs", root / "topics.properties", "--broker-config", root / "server.properties")
    return (*where, *settings, "--now", (root / "looked_at_ms").read_text().strip())


def test_the_metrics_have_the_copy_lag_of_the_rows(lagging: tuple[object, ...], tmp_path: Path) -> None:
    """Segments that wait for a limit of KIP-1241 are behind in both."""
    metrics = tmp_path / "tierctl.prom"
    found = rows("status", *lagging, "--metrics-file", metrics)
    text = metrics.read_text()
    for kind, column in (("segments", "lag_segments"), ("bytes", "lag_bytes")):
        gauge = rf'brokertopicmetrics_remotecopylag{kind}{{topic="(.+)"}} (\S+)\n'
        measured = {topic: float(value) for topic, value in re.findall(gauge, text)}
        assert measured == {row["topic"]: row[column] for row in found if row[column] is not None}
    assert sum(measured.values()) > 20_000_000


def test_an_incomplete_history_is_told_as_by_explain(capture: Capture) -> None:
    root = capture("finite-metadata")
    where = ("--metadata", root / "after", "--remote", root / "after-remote", "--log-dir", root / "after")
    settings = ("--topic-configs", root / "topics.properties", "--broker-config", root / "server.properties")
    for command in (("status",), ("explain", "quiet-0")):
        ran = tierctl(*command, *where, *settings, "--now", (root / "now_ms").read_text().strip())
        assert (ran.code, ran.err.count("quiet-0 is not known to be complete")) == (ExitCode.CORRUPT, 1)


def test_what_brokers_delete_from_their_disks_next_is_what_explain_says(tmp_path: Path) -> None:
    data, settings = tmp_path / "data", tmp_path / "topics.properties"
    write_log(data, [[batch(n)] for n in range(4)], snapshots={1: (), 2: (), 3: ()})
    settings.write_text(
        "made.remote.storage.enable=true\nmade.retention.ms=-1\nmade.local.retention.bytes=1\n"
    )
    where = ("--metadata", tmp_path / "metadata", "--log-dir", data, "--topic-configs", settings)
    ran = tierctl("copy", *where, "--remote", tmp_path / "tier", "--apply")
    assert ran.code == ExitCode.OK, ran.err
    local = [row for row in rows("explain", "made-0", *where) if row["next_action"] == "delete_local"]
    assert len(local) == 3
    [found] = rows("status", *where)
    sizes = sum(row["segment_size_in_bytes"] for row in local)
    assert (found["local_delete_segments"], found["local_delete_bytes"]) == (3, sizes)
    settings.write_text("made.remote.storage.enable=true\nmade.retention.ms=-1\n")
    [found] = rows("status", *where)
    assert (found["local_delete_segments"], found["local_delete_bytes"]) == (0, 0)
    [found] = rows("status", *where[:2])
    assert (found["local_delete_segments"], found["local_delete_bytes"]) == (None, None)


@pytest.mark.parametrize(
    ("hours", "more", "code"),
    [(0.9, (), ExitCode.OK), (1.1, (), ExitCode.PARTIAL), (1.1, ("--copy-limit", "90m"), ExitCode.OK)],
)
def test_a_transaction_that_keeps_segments_from_the_tier(
    hours: float, more: tuple[str, ...], code: ExitCode, capture: Capture, tmp_path: Path
) -> None:
    root, metrics = capture("untiered-broker"), tmp_path / "tierctl.prom"
    configs = tmp_path / "configs"
    configs.write_text("ledger.remote.storage.enable=true\n")
    now_ms = OPEN_SINCE_MS + round(hours * 3_600_000)
    where = ("--metadata", root / "tiered-metadata", "--log-dir", root / "local", "--topic-configs", configs)
    where = (*where, "--now", now_ms, *more)
    found = rows("status", *where, "--show", "problems", "--metrics-file", metrics, code=code)
    text = metrics.read_text()
    age_s = float(re.findall(r'tierctl_copy_lag_oldest_age_seconds\{topic="ledger"\} (\S+)\n', text)[0])
    first = root / "local" / "ledger-0" / "00000000000000002788.log"
    assert age_s == pytest.approx(now_ms / 1000 - first.stat().st_mtime, abs=0.001)
    explained = tierctl("explain", "ledger-0", *where)
    assert (explained.code, explained.err.count("ends it: kafka-transactions.sh")) == (code, code != 0)
    reported = tierctl("report", *where)
    assert (reported.code, reported.err.count("ledger-0: ")) == (code, code != 0)
    if code == ExitCode.OK:
        assert found == []
        return
    (problem,) = found
    assert (problem["check"], problem["subject"], problem["findings"]) == ("open_transaction", "ledger-0", 1)
    assert "3 segments (from offset" in problem["found"]
    assert f"since {iso_utc(OPEN_SINCE_MS)}" in problem["found"]
    end = "kafka-transactions.sh --bootstrap-server HOST:PORT abort --topic ledger --partition 0 "
    end += "--start-offset 3280"
    assert problem["fix"].endswith(f": {end}")
    assert f"this ends it: {end}" in explained.err
    ran = tierctl("status", *where)
    assert "next: tierctl explain ledger-0 " in ran.summary
    assert "; 1 problem in metadata, logs, with stopped copies of 1 partition" in ran.summary
    assert rows("status", *where, code=code)[-1]["problems"] == 1


def test_the_metadata_are_folded_once(
    capture: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """status reads the whole topic once, because a state directory does not contain dropped events."""
    opened: list[object] = []
    open_metadata = resources.open_metadata

    def counted(*args: Any, **more: Any) -> Any:
        opened.append(more["state_dir"])
        return open_metadata(*args, **more)

    monkeypatch.setattr(resources, "open_metadata", counted)
    root = capture("tiered-cluster") / "before"
    for more in ((), ("--state-dir", tmp_path)):
        opened.clear()
        rows("status", "--metadata", root, *more)
        assert opened == [None]


@pytest.mark.parametrize(("moment", "logs"), [("before", "after"), ("after", "before")])
def test_problems_are_the_findings_of_verify(moment: str, logs: str, capture: Capture) -> None:
    root = capture("tiered-cluster")
    where = ("--metadata", root / moment, "--log-dir", root / logs)
    serious = [each for each in rows("verify", *where, code=None) if each["severity"] != "info"]
    code = ExitCode.PARTIAL if serious else ExitCode.OK
    shown = rows("status", *where, "--show", "problems", code=code)
    assert {each["check"]: each["findings"] for each in shown} == Counter(each["check"] for each in serious)
    topics = rows("status", *where, code=code)
    known = {topic["topic_id"] for topic in topics}
    assert sum(t["problems"] for t in topics) == sum(each["topic_id"] in known for each in serious)


def test_problems_are_counted_by_findings_and_for_their_topics(writable: Callable[[str], Path]) -> None:
    """A log whose topic id can't be read has the name only: that is no other topic."""
    root = writable("tiered-cluster/before")
    (root / "orders-0" / "partition.metadata").unlink()
    log = root / "orders-1" / "00000000000000003000.log"
    log.write_bytes(log.read_bytes()[:100] + b"\xff" + log.read_bytes()[101:])
    where = ("--metadata", root, "--log-dir", root)
    ran = tierctl("status", *where, "-o", "json")
    assert {row["topic"]: row["problems"] for row in ran.json if row["problems"]} == {"orders": 2}
    assert "; 2 problems in metadata, logs" in ran.summary
    assert ": 2 problems of 1 topic: 2 error" in tierctl("verify", *where).summary


def test_a_problem_of_several_findings_counts_as_many(capture: Capture) -> None:
    root = capture("unclean-leader") / "before" / "broker-1"
    where = ("status", "--metadata", root, "--log-dir", root)
    for more in ((), ("--show", "problems")):
        assert re.search(r"[:;] 10 problems(: 10 warning| in )", tierctl(*where, *more).summary)
    limited = tierctl(*where, "--limit", 1, "-o", "table").summary
    assert "; 1 of 2 rows printed (--limit); problems: 1 of 2 rows printed (--limit); 10 " in limited


def test_a_problem_is_as_severe_as_the_worst_of_its_findings(writable: Callable[[str], Path]) -> None:
    """The kind may be an error: if a deletion has ended, and left segments."""
    root, remote = writable("tiered-cluster/before"), writable("tiered-cluster/before-remote")
    topic_id = rows("segments", "--metadata", root, "--topic", "shortlived")[0]["topic_id"]
    named = ("--mark", "--topic-id", topic_id, "--i-know-it-is-deleted", topic_id)
    tierctl("delete", "--metadata", root, "--remote", remote, *named, "--apply", "--yes", "--no-lease").ok()
    verified = rows("verify", "--metadata", root, code=ExitCode.PARTIAL)
    (problem,) = rows("status", "--metadata", root, "--show", "problems", code=ExitCode.PARTIAL)
    assert {each["severity"] for each in verified} == {"warning"}
    assert (problem["severity"], problem["findings"]) == ("warning", len(verified))


def shown(metadata: Path, *more: object, code: int) -> dict[str, int]:
    """Return the numbers of problems by kind."""
    found = rows("status", "--metadata", metadata, "--show", "problems", *more, code=code)
    return {each["check"]: each["findings"] for each in found}


@pytest.mark.parametrize(
    ("line", "names"),
    [
        (
            "copy --metadata {new}/metadata --remote {new}/tier --log-dir {logs} {ledger}",
            ("dangling_copy", "dangling_copies"),
        ),
        (
            "sweep --metadata {before} --remote {remote} --log-start-offset orders-0=1800",
            ("stuck_delete", "stuck_deletes"),
        ),
    ],
)
def test_what_a_killed_run_left_needs_an_operator_after_a_day(
    line: str, names: tuple[str, str], writable: Capture, tmp_path: Path, forked: Zygote
) -> None:
    kind, column = names
    places = {
        "new": tmp_path,
        "ledger": "--topic ledger --assume-enabled",
        "logs": writable("untiered-broker/local"),
        "before": writable("tiered-cluster/before"),
        "remote": writable("tiered-cluster/before-remote"),
    }
    (tmp_path / "metadata").mkdir()
    args = line.format(**places).split()
    kill = [f"{args[0]}.started.publish", "after", 1]
    assert forked(*args, "--apply", "--wave-size", 1, kills=[kill]).code == SIGKILLED
    metadata = Path(args[2])
    assert shown(metadata, code=ExitCode.OK) == {}
    assert shown(metadata, "--now", "+2d", code=ExitCode.PARTIAL) == {kind: 1}
    found = rows("status", "--metadata", metadata, "--now", "+2d", code=ExitCode.PARTIAL)
    assert sum(topic[column] for topic in found) == sum(topic["problems"] for topic in found) == 1


def test_successful_runs_are_stored(capture: Capture, tmp_path: Path) -> None:
    root, state = capture("tiered-cluster"), str(tmp_path / "some" / "state")
    where = ("--metadata", str(root / "before"), "--state-dir", state)
    assert tierctl("cache", "build", *where, "--out", tmp_path / "flat").code == 0
    assert tierctl("segments", *where, "--topic", "none").code == ExitCode.NOT_FOUND
    assert tierctl("segments", *where).code == 0
    known = last_successful_runs(Path(state))
    shown = rows("status", *where, "--show", "runs")
    assert [each["command"] for each in shown] == ["cache build", "segments"]
    assert {each["command"]: each["ended_ms"] for each in shown} == known
    assert [each["command"] for each in rows("status", *where, "--show", "runs")] == [
        *("cache build", "segments", "status")
    ]
    (Path(state) / LAST_RUNS).write_text("[]")
    assert tierctl("status", *where).code == ExitCode.CORRUPT
    ran = tierctl("segments", *where)
    assert ran.code == 0
    assert "could not be stored" in ran.err


def test_watch_prints_again(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) >= 2:
            raise KeyboardInterrupt

    # The clock of the module is replaced, because other threads of this process sleep, too.
    clock = SimpleNamespace(sleep=sleep, monotonic=lambda: time.monotonic() - 500)
    monkeypatch.setattr(insight, "time", clock)
    root = capture("tiered-cluster") / "before"
    ran = tierctl("status", "--metadata", str(root), "--topic", "orders", "--watch", "7s")
    assert waits == [7, 7]
    assert ran.out.count("topic_id") == 2
    assert ran.code == 130
    # The time of a repetition begins after the wait before it.
    first, second = re.findall(r"\((\d+)\.\d s\)", ran.raw_err)[:2]
    assert (int(first) < 100, int(second) >= 500) == (True, True)


def test_an_enabled_topic_without_segments_is_listed(lagging: tuple[object, ...]) -> None:
    """Also if copying is disabled, so that its lag is unknown; a topic that is not enabled is not listed."""
    found = {row["topic"]: row for row in rows("status", *lagging)}
    assert found.keys() >= {"nocopy", "unbounded"}
    (nocopy,) = rows("status", *lagging, "--topic", "nocopy")
    assert nocopy == found["nocopy"]
    assert (nocopy["segments"], nocopy["lag_segments"], nocopy["problems"]) == (0, None, 0)
    assert rows("status", *lagging[:4], *lagging[-2:], "--topic", "nocopy") == []


def test_a_lag_that_is_not_known_is_reported(capture: Capture, tmp_path: Path) -> None:
    """Topics whose settings disable tiering are not reported."""
    ran = tierctl("status", "--metadata", capture("tiered-cluster") / "before")
    assert ran.err.startswith("note: without --log-dir the copy lag is unknown, and also whether KIP-917's ")
    root, configs = capture("untiered-broker"), tmp_path / "configs"
    where = ("status", "--metadata", root / "tiered-metadata", "--log-dir", root / "local")
    ran = tierctl(*where)
    assert "the copy lag is unknown for bills, events, ledger: no settings state" in ran.err
    configs.write_text("ledger.remote.storage.enable=true\nevents.remote.storage.enable=false\n")
    assert "is unknown for bills: no" in tierctl(*where, "--topic-configs", configs).err
    configs.write_text(f"{configs.read_text()}bills.remote.storage.enable=true\n")
    assert tierctl(*where, "--topic-configs", configs).err == ""


NOW = ("--now", "2026-11-27T04:10:00Z")
"""Two minutes after the capture: the copy that the restart of the broker cut off is not dangling yet."""


@pytest.fixture
def root(capture: Capture) -> Path:
    return capture("failing-copies", "4.4.0")


def attempts(root: Path) -> int:
    """Return how many segments of orders-1 Kafka's own tool shows as begun and never finished."""
    dump = (root / "answers" / "failing.txt").read_text()
    lines = [line for line in dump.splitlines() if ":orders-1, id=" in line]
    ids = {
        state: {re.findall(r", id=([\w-]{22})", line)[0] for line in lines if f"state={state}" in line}
        for state in ("COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED")
    }
    return len(ids["DELETE_SEGMENT_STARTED"] - ids["COPY_SEGMENT_FINISHED"])


def test_while_they_fail(root: Path, tmp_path: Path) -> None:
    where = ("--metadata", root / "failing", *NOW)
    said = re.compile(
        rf"{attempts(root)} attempts to copy the log from offset 1000 on failed since "
        r"2026-11-27T04:06:\d\dZ, the last one begun at 2026-11-27T04:\d\d:\d\dZ by broker 7\Z"
    )
    for words in (("status", "--show", "problems"), ("verify",)):
        all_found = rows(*words, *where, code=ExitCode.PARTIAL)
        (found,) = [each for each in all_found if each["severity"] != "info"]
        assert (found["check"], found["severity"], found["subject"]) == (
            "failing_copies",
            "warning",
            "orders-1",
        )
        assert said.match(found["found"])
        assert "in the log of broker 7" in found["fix"]
    metrics = tmp_path / "tierctl.prom"
    (topic,) = rows("status", *where, "--metrics-file", metrics, code=ExitCode.PARTIAL)
    assert (topic["failing_copies"], topic["problems"]) == (1, 1)
    text = metrics.read_text()
    assert f'tierctl_tier_failed_copies{{topic="orders"}} {attempts(root)}.0\n' in text
    (since_s,) = re.findall(r'failing_since_timestamp_seconds\{topic="orders"\} (\S+)\n', text)
    assert iso_utc(round(float(since_s) * 1000)).startswith("2026-11-27T04:06:")
    assert 'tierctl_verify_findings{kind="failing_copies",severity="warning"} 1.0\n' in text
    rows("report", *where, code=ExitCode.PARTIAL)
    explained = tierctl("explain", "orders", 1, *where)
    assert explained.code == ExitCode.PARTIAL
    assert f"orders-1: {attempts(root)} attempts to copy the log from offset 1000 on failed" in explained.err
    assert "to copy the log" not in tierctl("explain", "orders", 0, *where).err
    checked = tierctl("segments", "--check", *where)
    assert checked.code == ExitCode.PARTIAL
    assert "failing_copies" in checked.out


def test_after_they_succeeded(root: Path, tmp_path: Path) -> None:
    where = ("--metadata", root / "healed", *NOW)
    metrics = tmp_path / "tierctl.prom"
    (topic,) = rows("status", *where, "--metrics-file", metrics, code=ExitCode.OK)
    assert (topic["failing_copies"], topic["problems"]) == (0, 0)
    text = metrics.read_text()
    assert 'tierctl_tier_failed_copies{topic="orders"} 0.0\n' in text
    assert "failing_since_timestamp_seconds{" not in text
    assert {each["severity"] for each in rows("verify", *where, code=ExitCode.OK)} == {"info"}
    assert rows("report", *where, code=ExitCode.OK)


@pytest.mark.parametrize(("moment", "copied", "deleted"), [("failing", 4, 0), ("healed", 6, 2)])
def test_growth_counts_only_what_was_copied(moment: str, copied: int, deleted: int, root: Path) -> None:
    (day,) = rows("report", "--metadata", root / moment, "--show", "growth", code=None)
    dump = (root / "answers" / f"{moment}.txt").read_text()
    ids = {
        state: set(re.findall(rf", id=([\w-]{{22}})\}}.*state={state}", dump))
        for state in ("COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_FINISHED")
    }
    assert len(ids["COPY_SEGMENT_FINISHED"]) == copied == day["copied_segments"]
    gone = ids["DELETE_SEGMENT_FINISHED"] & ids["COPY_SEGMENT_FINISHED"]
    assert len(gone) == deleted == day["deleted_segments"]
    assert len(ids["DELETE_SEGMENT_FINISHED"]) > 20
    sizes = dict(re.findall(r", id=([\w-]{22})\}, .*segmentSizeInBytes=(\d+)", dump))
    assert day["deleted_bytes"] == sum(int(sizes[each]) for each in gone)
