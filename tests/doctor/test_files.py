"""Checks of local files: each once with the fault, and once without."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from tierctl.checks import environment
from tierctl.checks.check import Examination, Result, exit_code_of, fault, not_checked, ok, prevented
from tierctl.checks.environment import check_event_clock
from tierctl.checks.registry import DoctorCheck
from tierctl.commands import DoctorRequest, OwnSettings, doctor
from tierctl.errors import (
    AuthenticationError,
    CorruptInputError,
    ExitCode,
    MetadataError,
    SafetyRefusal,
    UsageError,
)
from tierctl.metadata.state_dir import require_private
from tierctl.model.choices import Severity
from tierctl.model.settings.scopes import KafkaFault, KafkaVersion

from tests.cli.shell import tierctl
from tests.doctor.cases import NOT_CHECKED, OK, PROBLEM, WARNING, examined

Capture = Callable[[str], Path]
OTHER = 12345
"""The number of a user and of a group that no system has."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder that every user can enter, unlike pytest's own."""
    made = Path(tempfile.mkdtemp(prefix="tierctl-test-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def written(file: Path, text: str, mode: int = 0o600) -> Path:
    file.write_text(text)
    file.chmod(mode)
    return file


def test_nothing_to_check_is_an_error() -> None:
    with pytest.raises(UsageError, match="nothing to check"):
        doctor(DoctorRequest())
    with pytest.raises(UsageError, match="--probe-writes needs --remote"):
        doctor(DoctorRequest(broker_config=Path("x"), probe_writes=True))
    with pytest.raises(UsageError, match="unknown scheme"):
        doctor(DoctorRequest(broker_config=Path("x"), remote="s3x://bucket/tier"))


def test_every_check_has_a_result_and_none_is_ok_without_a_look(tmp_path: Path) -> None:
    results = doctor(DoctorRequest(state_dir=tmp_path)).results
    made = {DoctorCheck.STATE_DIR_ACCESS, DoctorCheck.STATE_DIR_SPACE}
    assert {each.check for each in results if each.severity is OK} == made
    assert {each.check for each in results if each.severity is NOT_CHECKED} == set(DoctorCheck) - made
    assert all(each.found for each in results)


def test_a_cluster_that_can_not_be_reached_prevents_every_check_of_it() -> None:
    found = doctor(DoctorRequest(bootstrap_server="localhost:1"))
    assert found.exit_code is ExitCode.RETRYABLE
    assert {each.severity for each in found.results} == {NOT_CHECKED}
    needing = {check for check in DoctorCheck if "--bootstrap-server" in check.row.needs}
    assert {each.check for each in found.results if each.error is ExitCode.RETRYABLE} >= needing


BROKER = "remote.log.storage.system.enable=true\nremote.log.storage.manager.class.name=p.Plugin\n"
BROKER += "listeners=PLAINTEXT://:9092\nremote.log.metadata.manager.listener.name=PLAINTEXT\n"


TIERED = "a.remote.storage.enable=true\n"
CHECK, MADE = DoctorCheck, "__remote_log_metadata.retention.ms="


@pytest.mark.parametrize(
    ("check", "option", "text", "severity"),
    [
        (CHECK.BROKER_FILE, "broker_config", BROKER, OK),
        (CHECK.BROKER_FILE, "broker_config", BROKER + "log.retention.ms=x\n", PROBLEM),
        (CHECK.BROKER_FILE, "broker_config", BROKER + "log.retention.mss=1\n", WARNING),
        (CHECK.TOPIC_FILE, "topic_configs", TIERED + "a.local.retention.ms=1\n", OK),
        (CHECK.TOPIC_FILE, "topic_configs", TIERED, WARNING),
        (CHECK.TOPIC_FILE, "topic_configs", TIERED + "a.cleanup.policy=compact\n", PROBLEM),
        (CHECK.METADATA_SETTINGS, "topic_configs", f"{MADE}-1\n", OK),
        (CHECK.METADATA_SETTINGS, "topic_configs", f"{MADE}5\n", PROBLEM),
        (CHECK.METADATA_SETTINGS, "topic_configs", "a.retention.ms=5\n", NOT_CHECKED),
        (CHECK.CLIENT_FILE, "command_config", "security.protocol=PLAINTEXT\n", OK),
        (CHECK.CLIENT_FILE, "command_config", "security.protocol=SASL\n", PROBLEM),
    ],
)
def test_files_of_settings(
    check: DoctorCheck, option: str, text: str, severity: Severity, tmp_path: Path
) -> None:
    """tests/verify/test_setting_files.py has the lines and texts of the problems."""
    file = written(tmp_path / "file.properties", text)
    found = examined(check, **{option: file})
    assert found.severity is severity
    if severity in {PROBLEM, WARNING} and check is not CHECK.METADATA_SETTINGS:
        assert found.subject.startswith(f"{file}, line ")
    if check is CHECK.TOPIC_FILE and severity is not OK:
        assert found.why != check.row.why, "a contradiction has its own meaning"


@pytest.mark.parametrize(
    ("topic", "severity"), [("a" * 10, OK), ("a" * 40, OK), ("a" * 60, PROBLEM), ("a" * 249, PROBLEM)]
)
def test_custom_metadata_of_long_names(topic: str, severity: Severity, tmp_path: Path) -> None:
    fields = "rsm.config.custom.metadata.fields.include=REMOTE_SIZE,OBJECT_KEY\n"
    request = {
        "broker_config": written(tmp_path / "broker", BROKER + fields),
        "topic_configs": written(tmp_path / "topics", f"{topic}.retention.ms=-1\n"),
    }
    assert examined(DoctorCheck.CUSTOM_METADATA, **request).severity is severity
    written(tmp_path / "broker", BROKER + fields + "remote.log.metadata.custom.metadata.max.bytes=1000\n")
    assert examined(DoctorCheck.CUSTOM_METADATA, **request).severity is OK


@pytest.mark.parametrize(
    ("version", "faults", "unknown"),
    [
        ("3.6", list(KafkaFault), []),
        ("3.8.0", list(KafkaFault), []),
        ("3.8", [KafkaFault.LARGE_RETENTION, KafkaFault.EXCESS_DELETES], [KafkaFault.WRONG_SIZES]),
        ("3.8.1", [KafkaFault.LARGE_RETENTION, KafkaFault.EXCESS_DELETES], []),
        ("3.9", [KafkaFault.EXCESS_DELETES], [KafkaFault.LARGE_RETENTION]),
        ("3.9.0", [KafkaFault.LARGE_RETENTION, KafkaFault.EXCESS_DELETES], []),
        ("3.9.1", [KafkaFault.EXCESS_DELETES], []),
        ("4.0", [KafkaFault.EXCESS_DELETES], []),
        ("4.3", [], [KafkaFault.EXCESS_DELETES]),
        ("4.3.1", [KafkaFault.EXCESS_DELETES], []),
        ("4.3.2", [], []),
        ("4.4", [], []),
    ],
)
def test_faults_of_releases(version: str, faults: list[str], unknown: list[str]) -> None:
    results = doctor(DoctorRequest(kafka_version=KafkaVersion.parse(version))).results
    found = [each for each in results if each.check is DoctorCheck.BROKER_VERSION]
    assert [each.found for each in found if each.severity is PROBLEM] == faults
    assert [each.found.partition(":")[0] for each in found if each.severity is NOT_CHECKED] == unknown
    assert [each.severity for each in found if not (faults or unknown)] == ([] if faults or unknown else [OK])


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("log.retention.ms=${env:X}", True),
        ("rlmm.config.remote.log.metadata.topic.num.partitions=${env:X}", True),
        ("rlmm.config.remote.log.metadata.common.client.ssl.key.password=${env:X}", True),
        ("rsm.config.chunk.size=${env:X}", True),
        ("rsm.config.key.prefix=${env:X}/", True),
        # tierctl does not act on these, or only where no option states the address.
        ("log.retention.check.interval.ms=${env:X}", False),
        ("log.dirs=${env:X}", False),
        ("advertised.listeners=PLAINTEXT://${env:X}:1", False),
    ],
)
def test_a_reference_to_a_config_provider(line: str, refused: bool, folder: Path) -> None:
    """Brokers accept it: the message is not that they do not start, and names what tierctl lacks."""
    text = f"listeners=PLAINTEXT://:1\nremote.log.metadata.manager.listener.name=PLAINTEXT\nconfig.providers=env\n{line}\n"
    file = written(folder / "server.properties", text, 0o600)
    found = [
        each
        for each in doctor(DoctorRequest(broker_config=file)).results
        if each.check is DoctorCheck.BROKER_FILE and each.severity is PROBLEM
    ]
    assert len(found) == refused
    for each in found:
        assert (
            f"{line.partition('=')[0].removeprefix('rlmm.config.')} refers to a config provider" in each.found
        )


@pytest.mark.parametrize(
    ("mode", "text", "severity"),
    [
        (0o600, "sasl.jaas.config=password\n", OK),
        (0o640, "sasl.jaas.config=password\n", OK),
        (0o644, "sasl.jaas.config=password\n", PROBLEM),
        (0o660, "sasl.jaas.config=password\n", WARNING),
        (0o644, "client.id=a\n", OK),
        (0o646, "client.id=a\n", PROBLEM),
        (0o644, "ssl.key.password=${file:/f:key}\n", OK),
    ],
)
def test_secrets_in_settings(mode: int, text: str, severity: Severity, folder: Path) -> None:
    file = written(folder / "client.properties", text, mode)
    assert examined(DoctorCheck.SECRETS, command_config=file).severity is severity


def test_what_other_users_can_not_reach_is_safe(folder: Path) -> None:
    file = written(folder / "client.properties", "ssl.key.password=x\n", 0o644)
    assert examined(DoctorCheck.SECRETS, command_config=file).severity is PROBLEM
    folder.chmod(0o700)
    assert examined(DoctorCheck.SECRETS, command_config=file).severity is OK
    file.chmod(0o600)
    folder.chmod(0o777)
    found = examined(DoctorCheck.SECRETS, command_config=file)
    assert (found.severity, "replace" in found.found) == (PROBLEM, True)
    folder.chmod(0o1777)
    assert examined(DoctorCheck.SECRETS, command_config=file).severity is OK


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file of another user")
@pytest.mark.parametrize("what", ["file", "folder", "group of the folder"])
def test_a_file_that_another_owner_can_change_is_a_warning(what: str, folder: Path) -> None:
    file = written(folder / "client.properties", "ssl.key.password=x\n")
    assert examined(DoctorCheck.SECRETS, command_config=file).severity is OK
    if what == "group of the folder":
        folder.chmod(0o775)
        os.chown(folder, 0, OTHER)
    else:
        os.chown(file if what == "file" else folder, OTHER, 0)
    found = examined(DoctorCheck.SECRETS, command_config=file)
    assert (found.severity, "others may change it" in found.found) == (WARNING, True)


def test_key_files_and_the_profile(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def severity(**request: object) -> Severity:
        return examined(DoctorCheck.SECRETS, **request).severity

    key = written(folder / "key.pem", "x", 0o644)
    assert severity(aiven_private_key=[f"a={key}"], state_dir=folder) is PROBLEM
    store = written(folder / "client.properties", f"ssl.keystore.location={key}\n")
    assert severity(command_config=store) is PROBLEM
    key.chmod(0o600)
    assert severity(aiven_private_key=[f"a={key}"], command_config=store) is OK
    plain = '[profiles.a]\nremote = "s3://bucket/t"\n'
    conf = 'spark-conf = ["spark.x.credentials.provider=a.B", "spark.x.secret.key=k"]\n'
    for text, expected in (
        (plain.replace("bucket", "me:pass@bucket"), PROBLEM),
        (plain + conf, PROBLEM),
        (plain + conf.replace("secret", "own"), OK),
    ):
        profile = written(folder / "tierctl.toml", text, 0o644)
        assert severity(own_settings=OwnSettings(file=profile), state_dir=folder) is expected
    aws = written(folder / "credentials", "[default]\n", 0o644)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(aws))
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    assert severity(remote="s3://bucket/t") is PROBLEM


def test_no_secret_is_printed(folder: Path) -> None:
    file = written(folder / "client.properties", "ssl.key.password=s3cr3t\nsecurity.protocol=SSL\n", 0o644)
    assert "s3cr3t" not in str(doctor(DoctorRequest(command_config=file)))


def test_state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "state"

    def severity(check: DoctorCheck = DoctorCheck.STATE_DIR_ACCESS) -> Severity:
        return examined(check, state_dir=own).severity

    assert severity() is OK
    own.mkdir(0o700)
    written(own / "file", "x")
    assert (severity(), severity(DoctorCheck.STATE_DIR_SPACE)) == (OK, OK)
    for path, mode in ((own, 0o777), (own / "file", 0o666)):
        path.chmod(mode)
        assert severity() is PROBLEM
        path.chmod(0o700)
    # root may read and write everything: os.access stands for another user here.
    for unreadable in (own, own / "file"):
        monkeypatch.setattr(environment.os, "access", lambda path, _, own=unreadable: Path(path) != own)
        assert severity() is PROBLEM
    monkeypatch.undo()
    (own / "file").rename(tmp_path / "plain")
    own.rmdir()
    (tmp_path / "plain").rename(own)
    assert severity() is PROBLEM


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder of another user")
@pytest.mark.parametrize("group", [0, OTHER])
@pytest.mark.parametrize("owner", [0, OTHER])
@pytest.mark.parametrize("mode", [0o700, 0o755, 0o770, 0o777, 0o1777])
def test_a_state_directory_has_a_fault_if_commands_refuse_it(
    mode: int, owner: int, group: int, tmp_path: Path
) -> None:
    own = tmp_path / "state"
    own.mkdir()
    own.chmod(mode)
    os.chown(own, owner, group)
    try:
        require_private(own)
        expected = OK
    except SafetyRefusal:
        expected = PROBLEM
    assert examined(DoctorCheck.STATE_DIR_ACCESS, state_dir=own).severity is expected


@pytest.mark.parametrize(
    ("free", "files", "severity"),
    [(1 << 30, 10_000, OK), (1 << 20, 10_000, WARNING), (1 << 30, 10, WARNING), (1 << 30, 0, OK)],
)
def test_space_of_the_state_directory(
    free: int, files: int, severity: Severity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SimpleNamespace(f_bavail=free, f_frsize=1, f_files=files, f_favail=files)
    monkeypatch.setattr(environment.os, "statvfs", lambda _: disk)
    assert examined(DoctorCheck.STATE_DIR_SPACE, state_dir=tmp_path).severity is severity


def test_log_directories(capture: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = tmp_path / "logs"
    shutil.copytree(capture("untiered-broker") / "local", logs)

    def severity(check: DoctorCheck, **more: object) -> Severity:
        return examined(check, log_dir=[logs], **more).severity

    (logs / "notes-2").write_text("brokers ignore it")
    assert (severity(DoctorCheck.LOG_DIR_ACCESS), severity(DoctorCheck.LOG_SNAPSHOTS)) == (OK, OK)
    assert examined(DoctorCheck.INDEX_CACHE, log_dir=[logs]).found == "no cached indexes"
    (logs / "remote-log-index-cache").mkdir()
    (logs / "remote-log-index-cache" / "notes").touch()
    assert severity(DoctorCheck.INDEX_CACHE) is PROBLEM
    (logs / "notes-3").symlink_to(tmp_path / "unmounted")
    assert examined(DoctorCheck.LOG_DIR_ACCESS, log_dir=[logs]).found == "is a link that leads nowhere"
    (logs / "notes-3").rename(logs / "__notes-3")
    assert severity(DoctorCheck.LOG_DIR_ACCESS) is PROBLEM
    (logs / "__notes-3").rename(logs / "__consumer_offsets-3")
    assert severity(DoctorCheck.LOG_DIR_ACCESS) is OK
    (logs / "__consumer_offsets-3").unlink()
    snapshots = sorted(logs.glob("ledger-0/*.snapshot"))
    snapshots[0].unlink()
    assert severity(DoctorCheck.LOG_SNAPSHOTS) is PROBLEM
    assert severity(DoctorCheck.LOG_SNAPSHOTS, topic=["events"]) is OK
    monkeypatch.setattr(environment.os, "access", lambda path, _: "ledger-0" not in str(path))
    assert severity(DoctorCheck.LOG_DIR_ACCESS) is PROBLEM
    monkeypatch.undo()
    snapshots[1].unlink()
    (logs / "bills-0" / f"{0:020d}.log.swap").touch()
    found = {
        each.subject: each.severity
        for each in doctor(DoctorRequest(log_dir=[logs])).results
        if each.check is DoctorCheck.LOG_SNAPSHOTS
    }
    assert found == {str(logs / "bills-0"): NOT_CHECKED, str(logs / "ledger-0"): PROBLEM}
    (tmp_path / "file").touch()
    # The folder above a log directory has nothing that is wrong, either.
    for mistyped in (tmp_path / "none", tmp_path / "file", tmp_path):
        found = examined(DoctorCheck.LOG_DIR_ACCESS, log_dir=[mistyped])
        assert (found.severity, found.fix) == (PROBLEM, "--log-dir takes a broker's log.dirs entry")
        for check in (DoctorCheck.LOG_SNAPSHOTS, DoctorCheck.INDEX_CACHE):
            assert examined(check, log_dir=[mistyped]).severity is NOT_CHECKED
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "meta.properties").write_text("version=1\n")
    found = examined(DoctorCheck.LOG_DIR_ACCESS, log_dir=[tmp_path / "new"])
    assert (found.severity, found.found) == (OK, "no partitions to read")


def test_metadata_partitions_and_events(capture: Capture, tmp_path: Path) -> None:
    metadata = str(capture("tiered-cluster") / "before")
    number = "rlmm.config.remote.log.metadata.topic.num.partitions"
    for count, severity in ((5, OK), (50, PROBLEM)):
        config = written(tmp_path / "broker", f"{BROKER}{number}={count}\n")
        found = examined(DoctorCheck.METADATA_PARTITIONS, metadata=metadata, broker_config=config)
        assert found.severity is severity
    # A broker without the setting expects 50, if it tiers with Kafka's metadata manager.
    for other, severity in (
        ("", PROBLEM),
        ("remote.log.metadata.manager.class.name=Other\n", NOT_CHECKED),
        ("remote.log.storage.system.enable=false\n", NOT_CHECKED),
    ):
        config = written(tmp_path / "broker", f"{BROKER}{other}")
        found = examined(DoctorCheck.METADATA_PARTITIONS, metadata=metadata, broker_config=config)
        assert found.severity is severity
    assert examined(DoctorCheck.METADATA_PARTITIONS, metadata=metadata).severity is NOT_CHECKED
    assert examined(DoctorCheck.EVENT_CLOCK, metadata=metadata).severity is OK
    # A mistyped folder: the check was asked for, so the exit code is not 0.
    assert examined(DoctorCheck.EVENT_CLOCK, metadata=str(tmp_path / "typo")).error is not None
    # A clock of a year before the events: they are in its future.
    year_ms = 365 * 24 * 3600 * 1000
    found = examined(DoctorCheck.EVENT_CLOCK, metadata=metadata, clock_ms=lambda: 1795257000000 - year_ms)
    assert found.severity is PROBLEM


@pytest.mark.parametrize("at", [20, 100])
def test_events_that_can_not_be_used_are_not_called_good(
    at: int, writable: Capture, capture: Capture
) -> None:
    """The byte is in the head of a batch, or in its records."""
    metadata, log_dir = writable("tiered-cluster/before"), capture("tiered-cluster") / "before"
    (log,) = (metadata / "__remote_log_metadata-2").glob("*0.log")
    data = bytearray(log.read_bytes())
    data[at] ^= 1
    log.write_bytes(data)
    for check in (DoctorCheck.EVENT_CLOCK, DoctorCheck.LEADER_EPOCHS):
        found = examined(check, metadata=str(metadata), log_dir=[log_dir])
        assert (found.severity, found.error) == (NOT_CHECKED, ExitCode.CORRUPT), check
        assert "__remote_log_metadata-2, offset 0" in found.found
        assert "tierctl verify" in str(found.fix)


def test_good_leader_epochs_are_those_of_each_replica(capture: Capture, tmp_path: Path) -> None:
    before = capture("tiered-cluster") / "before"
    for folder, told in (("orders-0", "1 replica has"), ("orders-1", "2 replicas have")):
        shutil.copytree(before / folder, tmp_path / folder)
        found = examined(DoctorCheck.LEADER_EPOCHS, metadata=str(before), log_dir=[tmp_path])
        assert found.found == f"{told} the leader epochs of the tier from the log start on"


def test_a_checkpoint_that_can_not_be_read_is_not_called_good(writable: Capture) -> None:
    log_dir = writable("tiered-cluster/before")
    (log_dir / "orders-1" / "leader-epoch-checkpoint").write_text("7\n1\n0 0\n")
    results = doctor(DoctorRequest(metadata=str(log_dir), log_dir=[log_dir]))
    (found,) = [each for each in results.results if each.subject == str(log_dir / "orders-1")]
    assert (found.check, found.error) == (DoctorCheck.LEADER_EPOCHS, ExitCode.CORRUPT)
    assert "expected version 0, found version 7" in found.found


def test_events_of_tierctl_are_not_those_of_a_broker() -> None:
    found = check_event_clock({-1: 3_600_000, 2: 3_600_000}, now_ms=0)
    assert [each.subject for each in found] == ["tierctl", "broker 2"]


def result(severity: Severity) -> Result:
    made = {OK: ok, NOT_CHECKED: not_checked}.get(severity)
    return (
        made(DoctorCheck.SECRETS, "", "x") if made else fault(DoctorCheck.SECRETS, "", "x", severity=severity)
    )


@pytest.mark.parametrize(
    ("outcomes", "errors", "code"),
    [
        ([OK, NOT_CHECKED], [], ExitCode.OK),
        ([OK, WARNING], [], ExitCode.PARTIAL),
        ([PROBLEM], [], ExitCode.PARTIAL),
        ([OK], [MetadataError("down")], ExitCode.PARTIAL),
        ([], [MetadataError("down"), MetadataError("down")], ExitCode.RETRYABLE),
        ([], [MetadataError("down"), AuthenticationError("no")], ExitCode.PARTIAL),
        ([OK, PROBLEM], [CorruptInputError("x", expected="y", found="z")], ExitCode.CORRUPT),
        ([NOT_CHECKED], [AuthenticationError("no")], ExitCode.AUTHENTICATION),
    ],
)
def test_exit_codes(outcomes: list[Severity], errors: list[MetadataError], code: ExitCode) -> None:
    results = [*map(result, outcomes), *(prevented(DoctorCheck.SECRETS, "", error) for error in errors)]
    assert exit_code_of(results) is code


def test_an_error_prevents_the_checks_that_were_not_made() -> None:
    made, other = DoctorCheck.CLIENT_FILE, DoctorCheck.TOPIC_FILE
    examination = Examination(DoctorCheck, skipped=[DoctorCheck.SECRETS])

    def fail_after_one() -> Iterator[Result]:
        examination.make([made], "two", lambda: [ok(made, "two", "good")])
        raise MetadataError("no answer", hint="start it")
        yield

    def yield_and_fail() -> Iterator[Result]:
        yield ok(made, "three", "good")
        raise MetadataError("no answer", hint="start it")

    def fail() -> list[Result]:
        raise MetadataError("no answer", hint="start it")

    examination.make([made], "one", lambda: [ok(made, "one", "good")])
    examination.make([made, other], "two", fail_after_one)
    examination.make([made, other], "three", yield_and_fail)
    examination.make([made], "four", fail)
    examination.make([DoctorCheck.SECRETS], "", lambda: pytest.fail("skipped"))
    found = [(each.check, each.subject, each.severity) for each in examination.results]
    one, two = (made, "one", OK), [(made, "two", OK), (other, "two", NOT_CHECKED)]
    three = [(made, "three", OK), (other, "three", NOT_CHECKED)]
    assert found == [one, *two, *three, (made, "four", NOT_CHECKED)]
    last = examination.results[-1]
    assert (last.found, last.fix, last.error) == ("no answer", "start it", ExitCode.RETRYABLE)
    complete = {each.check: each for each in examination.complete().results}
    assert "skipped" in complete[DoctorCheck.SECRETS].found


def test_checks_that_were_not_asked_for_are_counted_and_not_listed(capture: Capture, tmp_path: Path) -> None:
    file = written(tmp_path / "server.properties", BROKER + "log.retention.ms=x\n")
    ran = tierctl("doctor", "--broker-config", file)
    severities = [line.split()[0] for line in ran.out.splitlines()[1:]]
    assert severities == sorted(severities, key=["error", "warning", "ok"].index)
    assert {"error", "ok"} <= set(severities)
    whole = tierctl("doctor", "--broker-config", file, "--all")
    hidden = whole.out.splitlines()[1 + len(severities) :]
    assert {line.split()[0] for line in hidden} == {"not_checked"}
    assert f"; {len(hidden)} checks not made (--all lists them and why)" in ran.raw_err
    assert all("needs" in line for line in hidden)
    assert "not made" not in whole.raw_err
    as_json = json.loads(tierctl("doctor", "--broker-config", file, "--output", "json").out)
    assert len(as_json) == len(whole.out.splitlines()) - 1 == len(severities) + len(hidden)
    # A source that was named does not make every check of it possible.
    ran = tierctl("doctor", "--remote", capture("tiered-cluster") / "before-remote")
    assert (ran.code, "not_checked" in ran.out + ran.raw_err) == (ExitCode.OK, False)
    assert "store_list" in ran.out
    # A check that was asked for and could not be made is never hidden.
    ran = tierctl("doctor", "--metadata", tmp_path / "none")
    assert any(line.startswith("not_checked") and "event_clock" in line for line in ran.out.splitlines())
