"""Metrics in --metrics-file after runs that copy, delete or fail, one after the other."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tierctl.errors import RemoteStorageError, StoreWriteFailed
from tierctl.storage.layouts.kafka import KafkaLayout
from tierctl.storage.stores.local_store import LocalStore

from tests.apply.commands import copy, delete, files, sweep
from tests.apply.worlds import World
from tests.cli.shell import tierctl
from tests.metadata.topics import topic_in
from tests.support.promtool import check_metrics
from tests.support.topic_settings import enabled

Writable = Callable[[str], Path]
KAFKA = "kafka_server_brokertopicmetrics_remote"


def samples(file: Path) -> dict[tuple[str, ...], float]:
    """Return the samples of a metrics file: (name, label values in the order of the label names)."""
    return {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(file.read_text())
        for sample in family.samples
    }


def of_topics(file: Path, name: str) -> dict[str, float]:
    return {key[1]: value for key, value in samples(file).items() if key[0] == f"{KAFKA}{name}"}


@pytest.fixture(params=["", pytest.param("promtool", marks=pytest.mark.matrix)])
def file(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Return a metrics file; after the test, Prometheus must accept its content."""
    path = tmp_path / "tierctl.prom"
    yield path
    monkeypatch.undo()
    if request.param and path.is_file():
        check_metrics(path)


def test_copied_bytes_are_counted_from_run_to_run_and_the_lag_is_what_is_left(
    empty: World, file: Path
) -> None:
    planned = tierctl(*copy(empty, "--metrics-file", file))
    sizes: dict[str, int] = {}
    for step in planned.json["steps"]:
        sizes[step["topic"]] = sizes.get(step["topic"], 0) + step["segment_size_in_bytes"]
    assert of_topics(file, "copylagbytes") == sizes
    assert of_topics(file, "copybytes_total") == {}
    assert ("tierctl_last_apply_timestamp_seconds", "copy") not in samples(file)

    assert tierctl(*copy(empty, "--metrics-file", file, "--apply")).code == 0
    assert of_topics(file, "copybytes_total") == sizes == of_topics(file, "logsizebytes")
    assert of_topics(file, "copylagbytes") == dict.fromkeys(sizes, 0)
    assert of_topics(file, "copyerrors_total") == dict.fromkeys(sizes, 0)
    requests = of_topics(file, "copyrequests_total")

    assert tierctl(*copy(empty, "--metrics-file", file, "--apply")).code == 0
    assert of_topics(file, "copybytes_total") == sizes
    assert of_topics(file, "copyrequests_total") == requests
    assert samples(file)["tierctl_runs_total", "copy", "0"] == 3
    assert samples(file)["tierctl_last_apply_timestamp_seconds", "copy"] > 0


def test_copied_segments_with_a_note_are_counted(writable: Writable, tmp_path: Path, file: Path) -> None:
    """A note says what is unusual about a segment, here offsets without records; this run did copy it."""
    world, new = writable("formerly-compacted"), tmp_path / "new"
    topic_in(new, writable=True).close()
    own = ("--metadata", world / "logs", "--remote", world / "remote")
    tierctl("rebuild", *own, "--log-dir", world / "logs", "--apply").ok()
    source = ("--metadata", world / "logs", "--from-remote", world / "remote")
    target = ("--to-metadata", new, "--remote", tmp_path / "tier", "--layout", "kafka")
    ran = tierctl("copy", *source, *target, "--metrics-file", file, "--apply", "-o", "json")
    outcomes = ran.ok().json["outcomes"]
    assert {outcome["why"] is None for outcome in outcomes} == {True, False}
    assert of_topics(file, "copyrequests_total") == {"mid": len(outcomes)}
    assert of_topics(file, "copybytes_total") == of_topics(file, "logsizebytes")


def test_a_failed_run_keeps_the_last_success_and_counts_its_errors(
    empty: World, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tierctl(*copy(empty, "--metrics-file", file)).code == 0
    success = ("tierctl_last_success_timestamp_seconds", "copy")
    before = samples(file)

    def full(*_: object) -> None:
        raise StoreWriteFailed("No space left on device")

    monkeypatch.setattr(LocalStore, "put_all", full)
    at_once = ("--override", "remote.log.manager.task.retry.backoff.ms=1")
    ran = tierctl(*copy(empty, "--metrics-file", file, "--apply", *at_once))
    assert (ran.code, ", 0 B " in ran.summary) == (5, True), "the summary has the size of what was done"
    monkeypatch.undo()
    assert tierctl(*copy(empty, "--metrics-file", file, "--remote", "none:")).code == 2
    after = samples(file)
    assert after[success] == before[success]
    assert after["tierctl_last_run_exit_code", "copy"] == 2
    assert (
        after["tierctl_errors_total", "copy", "StoreWriteFailed"]
        == of_topics(file, "copyerrors_total")["bills"]
    )
    assert after["tierctl_errors_total", "copy", "UsageError"] == 1
    assert of_topics(file, "copybytes_total") == {"bills": 0}


def test_deleted_segments_are_counted_and_sweep_and_delete_leave_each_others_lag(
    tiered: World, file: Path
) -> None:
    planned = tierctl(*sweep(tiered, "--metrics-file", file)).json["steps"]
    assert planned
    size = sum(step["segment_size_in_bytes"] for step in planned)
    assert of_topics(file, "deletelagbytes")["bills"] == size
    assert tierctl(*delete(tiered, "--metrics-file", file)).code == 0
    assert of_topics(file, "deletelagbytes")["bills"] == size
    assert tierctl(*sweep(tiered, "--metrics-file", file, "--apply")).code == 0
    assert of_topics(file, "deletelagbytes")["bills"] == 0
    assert of_topics(file, "deleterequests_total") == {"bills": len(planned)}
    assert samples(file)["tierctl_deleted_bytes_total", "bills"] == size


def test_a_run_of_one_topic_leaves_the_lag_of_others(empty: World, file: Path) -> None:
    name = f"{KAFKA}copylagbytes"
    file.write_text(f'# TYPE {name} gauge\n{name}{{topic="other"}} 5\n{name}{{topic="bills"}} 7\n')
    tierctl(*copy(empty, "--metrics-file", file, "--partition", "0"))
    assert of_topics(file, "copylagbytes") == {"bills": 7, "other": 5}
    tierctl(*copy(empty, "--metrics-file", file, "--topic", "bills", "--apply"))
    assert of_topics(file, "copylagbytes") == {"bills": 0, "other": 5}
    tierctl(*copy(empty, "--metrics-file", file))
    assert of_topics(file, "copylagbytes") == {"bills": 0}


_UNTIERED = "copy untiered-broker tiered-metadata tiered-remote local"


@pytest.mark.parametrize(
    ("line", "unreadable", "lags"),
    [
        (_UNTIERED, "", {"bills": 0, "events": 0, "ledger": 3}),
        (_UNTIERED, "bills-1", {"events": 0, "ledger": 3}),
        ("copy finite-metadata cut before-remote cut", "", {"expiring": 0, "whole": 0}),
        ("sweep finite-metadata cut before-remote cut", "", {"expiring": 0, "whole": 0}),
        ("sweep tiered-cluster after after-remote after", "", {"shortlived": 0}),
    ],
)
def test_a_lag_has_all_that_waits_and_is_not_known_without_each_partition(
    line: str, unreadable: str, lags: dict[str, int], writable: Writable, file: Path
) -> None:
    """`status` measures and prints the copy lag that `copy` measures."""
    command, name, metadata, remote, logs = line.split()
    root = writable(name)
    if unreadable:
        (root / logs / unreadable / "partition.metadata").unlink()
    where = ("--metadata", root / metadata, "--remote", root / remote, "--log-dir", root / logs)
    where += () if name == "tiered-cluster" else enabled(root / logs)
    kind = "delete" if command == "sweep" else "copy"
    gauge = f"{KAFKA}{kind}lagsegments"
    file.write_text(
        f"# TYPE {gauge} gauge\n" + "".join(f'{gauge}{{topic="{t}"}} 5\n' for t in ("orders", "bills"))
    )
    for each in ("copy", "status") if command == "copy" else ("sweep",):
        ran = tierctl(each, *where, "--metrics-file", file, "--now", "2026-11-25T00:00:00Z", "-o", "json")
        assert of_topics(file, f"{kind}lagsegments") == lags
    if command == "copy":
        assert {
            row["topic"]: row["lag_segments"] for row in ran.json if row["lag_segments"] is not None
        } == lags


def test_the_age_of_the_oldest_segment_to_copy(empty: World, file: Path) -> None:
    def ages() -> dict[str, float]:
        name = "tierctl_copy_lag_oldest_age_seconds"
        return {key[1]: value for key, value in samples(file).items() if key[0] == name}

    # The records are older than the files, as where old data are loaded into a topic.
    oldest_ms: dict[str, int] = {}
    for step in tierctl(*copy(empty)).json["steps"]:
        at_ms = step["max_timestamp_ms"] + 3_000_000
        os.utime(step["log"], ns=(at_ms * 1_000_000,) * 2)
        oldest_ms.setdefault(step["topic"], at_ms)
    now_ms = max(oldest_ms.values()) + 3_600_000
    late = ("--metrics-file", file, "--now", now_ms)
    assert tierctl(*copy(empty, *late)).code == 0
    expected = {topic: (now_ms - at_ms) / 1000 for topic, at_ms in oldest_ms.items()}
    assert ages() == pytest.approx(expected)
    file.unlink()
    status = ("status", *empty.where, "--log-dir", empty.logs, *late)
    option, configs = enabled(empty.logs)
    assert tierctl(*status, option, configs).code == 0
    assert ages() == pytest.approx(expected)
    # Brokers count the copy lag from the timestamps: only a long one ends after the last write.
    lagging = file.with_suffix(".properties")
    for lag_ms, later_s in ((1_000_000, 0), (3_300_000, 300)):
        lags = (f"{topic}.remote.copy.lag.ms={lag_ms}\n" for topic in expected)
        lagging.write_text("".join([configs.read_text(), *lags]))
        assert tierctl(*status, option, lagging).code == 0
        assert ages() == pytest.approx({topic: age_s - later_s for topic, age_s in expected.items()})
    assert tierctl(*copy(empty, "--apply", "--metrics-file", file)).code == 0
    assert ages() == dict.fromkeys(expected, 0)


def test_findings_stay_until_a_run_looks_for_their_kind_again(tiered: World, file: Path) -> None:
    first, second, *_ = sorted(tiered.remote.rglob("*.log"))
    whole = [each.read_bytes() for each in (first, second)]
    # The files of the world are hard links.
    for each in (first, second):
        each.unlink()
    second.write_bytes(whole[1][:-1] + bytes([whole[1][-1] ^ 1]))
    metadata, more = tiered.where[:2], ("-o", "json", "--metrics-file", file)

    def counted() -> dict[str, float]:
        name = "tierctl_verify_findings"
        return {key[1]: value for key, value in samples(file).items() if key[0] == name and key[2] == "error"}

    assert tierctl("verify", *tiered.where, "--deep", *more).code == 7
    found = counted()
    assert (found["missing_object"], found["corrupt_log"]) == (1, 1)
    assert tierctl("status", *tiered.where, *more).code == 0
    assert tierctl("verify", *metadata, *more).code == 0
    assert tierctl("verify", *tiered.where, "--sample", "1%", *more).code in {3, 7}
    assert tierctl("verify", *tiered.where, *more).code == 3
    assert counted() == found
    first.write_bytes(whole[0])
    assert tierctl("verify", *tiered.where, *more).code == 0
    assert counted() == {"corrupt_log": 1}
    second.write_bytes(whole[1])
    assert tierctl("verify", *tiered.where, "--deep", *more).code == 0
    assert counted() == {}


def test_a_file_that_cannot_be_written_is_a_warning(
    empty: World, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write

    def full(fd: int, data: bytes) -> int:
        if b"tierctl_build_info" in bytes(data):
            raise OSError(28, "No space left on device")
        return write(fd, data)

    tierctl(*copy(empty, "--metrics-file", file))
    before = file.read_bytes()
    monkeypatch.setattr("os.write", full)
    ran = tierctl(*copy(empty, "--metrics-file", file, "--apply"))
    assert ran.code == 0
    assert "could not be written: No space left on device" in ran.err
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.glob("tierctl.prom*")] == ["tierctl.prom"]
    assert files(empty)


def test_bytes_of_segments_that_are_read_are_counted(
    tiered: World, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = min(tiered.remote.rglob("*.log"))
    size, segment = log.stat().st_size, log.stem[21:]
    fetched = ("fetch", *tiered.where, "--raw-segment", segment, "--metrics-file", file)
    fetched += ("--out", file.with_name("segment"))
    assert tierctl(*fetched).code == 0
    assert of_topics(file, "fetchbytes_total") == {"bills": size}
    assert of_topics(file, "fetchrequests_total") == {"bills": 1}
    assert of_topics(file, "fetcherrors_total") == {"bills": 0}

    def broken(*_: object) -> None:
        raise RemoteStorageError("no disk")

    monkeypatch.setattr(KafkaLayout, "open_log", broken)
    assert tierctl(*fetched).code == 5
    assert of_topics(file, "fetchbytes_total") == {"bills": size}
    assert of_topics(file, "fetcherrors_total") == {"bills": 1}
