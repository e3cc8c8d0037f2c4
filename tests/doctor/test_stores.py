"""Checks of stores, each once with the fault and once without, on real servers where possible."""

import errno
from collections.abc import Callable, Collection, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from tierctl.checks import store
from tierctl.checks.registry import DoctorCheck
from tierctl.commands import DoctorRequest, doctor
from tierctl.errors import ExitCode
from tierctl.model.choices import Severity
from tierctl.model.times import system_clock_ms
from tierctl.storage.stores.s3 import store as s3_store
from tierctl.storage.stores.s3.client import s3_client

from tests.doctor.cases import NOT_CHECKED, OK, PROBLEM, WARNING, examined, worst
from tests.support.lacking_store import BUCKET, Lack, LackingStore
from tests.support.servers import S3Server, keys_in, s3_call

_HOUR_MS = 3_600_000
PROBED = (
    DoctorCheck.STORE_WRITE,
    DoctorCheck.STORE_DELETE,
    DoctorCheck.STORE_CONDITIONS,
    DoctorCheck.STORE_LEASE,
)
READ_ONLY = (
    DoctorCheck.STORE_LIST,
    DoctorCheck.STORE_CLOCK,
    DoctorCheck.STORE_VERSIONING,
    DoctorCheck.STORE_UPLOADS,
)


class Answer(BytesIO):
    """The body of a response, with the attributes that urllib3's responses have."""

    def stream(self, **_: object) -> Iterator[bytes]:
        yield self.read()


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replace the server's response to one operation by another one."""

    def answer(operation: str, status: int, body: str) -> None:
        def made(*args: Any) -> Any:
            client = s3_client(*args)

            def respond(request: Any, **_: object) -> AWSResponse:
                return AWSResponse(
                    request.url, status, {"Content-Type": "application/xml"}, Answer(body.encode())
                )

            client.meta.events.register(f"before-send.s3.{operation}", respond)
            return client

        monkeypatch.setattr(s3_store, "s3_client", made)

    return answer


def denied(operation: str) -> tuple[str, int, str]:
    return operation, 403, "<Error><Code>AccessDenied</Code><Message>no</Message></Error>"


def test_s3_without_faults(s3_versioned_server: S3Server) -> None:
    bucket = s3_versioned_server.bucket()
    remote = f"s3://{bucket}/tier"
    results = doctor(DoctorRequest(remote=remote, probe_writes=True)).results
    for check in (*PROBED, *READ_ONLY, DoctorCheck.STORE_READ):
        assert worst(results, check).severity is OK, check
    assert keys_in(bucket) == []
    # Features that the server does not implement, and checks that need an object, do not count as ok.
    assert worst(results, DoctorCheck.STORE_LIFECYCLE).severity is NOT_CHECKED
    results = doctor(DoctorRequest(remote=remote)).results
    for check in (*PROBED, DoctorCheck.STORE_READ):
        assert worst(results, check).severity is NOT_CHECKED, check
    s3_call("put_object", bucket, Key="tier/topic/object", Body=b"x")
    assert examined(DoctorCheck.STORE_READ, remote=remote).severity is OK


def test_versions(s3_versioned_server: S3Server) -> None:
    bucket = s3_versioned_server.bucket()
    for status, severity in (("Enabled", WARNING), ("Suspended", OK)):
        s3_call("put_bucket_versioning", bucket, VersioningConfiguration={"Status": status})
        assert examined(DoctorCheck.STORE_VERSIONING, remote=f"s3://{bucket}/tier").severity is severity


def test_unfinished_uploads(s3_server: S3Server) -> None:
    bucket = s3_server.bucket()
    s3_call("create_multipart_upload", bucket, Key="tier/a")

    def severity(folder: str, later_ms: int) -> Severity:
        remote = f"s3://{bucket}/{folder}"
        clock = lambda: system_clock_ms() + later_ms  # noqa: E731
        return examined(DoctorCheck.STORE_UPLOADS, remote=remote, clock_ms=clock).severity

    assert severity("tier", 0) is OK
    assert severity("tier", 25 * _HOUR_MS) is WARNING
    assert severity("other", 25 * _HOUR_MS) is OK


@pytest.mark.parametrize(
    ("ahead_ms", "severity"),
    [(0, OK), (60_000, WARNING), (-60_000, WARNING), (_HOUR_MS, PROBLEM), (-_HOUR_MS, PROBLEM)],
)
def test_the_clock_of_s3(ahead_ms: int, severity: Severity, s3_server: S3Server) -> None:
    remote = f"s3://{s3_server.bucket()}/tier"
    clock = lambda: system_clock_ms() - ahead_ms  # noqa: E731
    assert examined(DoctorCheck.STORE_CLOCK, remote=remote, clock_ms=clock).severity is severity


DELETES = "<Expiration><Days>30</Days></Expiration>"
TAGGED = "<Filter><And><Prefix>t</Prefix><Tag><Key>a</Key><Value>b</Value></Tag></And></Filter>"
ABORTS = "<DaysAfterInitiation>1</DaysAfterInitiation>"
ABORTS = f"<AbortIncompleteMultipartUpload>{ABORTS}</AbortIncompleteMultipartUpload>"
REMOVES = "<NoncurrentDays>1</NoncurrentDays>"
REMOVES = f"<NoncurrentVersionExpiration>{REMOVES}</NoncurrentVersionExpiration>"


def moves(storage_class: str) -> str:
    return f"<Transition><Days>1</Days><StorageClass>{storage_class}</StorageClass></Transition>"


@pytest.mark.parametrize(
    ("rule", "lifecycle", "versioning"),
    [
        (f"<Filter><Prefix></Prefix></Filter>{DELETES}", PROBLEM, WARNING),
        (f"<Prefix>tier/topic</Prefix>{DELETES}", PROBLEM, WARNING),
        (f"<Filter><Prefix>other/</Prefix></Filter>{DELETES}", OK, WARNING),
        ("<Filter/><Expiration><Date>2030-01-01T00:00:00Z</Date></Expiration>", PROBLEM, WARNING),
        (TAGGED + DELETES, WARNING, WARNING),
        (f"<Filter/>{moves('GLACIER')}", PROBLEM, WARNING),
        (f"<Filter/>{moves('STANDARD_IA')}", OK, WARNING),
        (f"<Filter/>{ABORTS}", OK, WARNING),
        (f"<Filter/>{REMOVES}", OK, OK),
        (f"<Filter><Prefix>tier/topic</Prefix></Filter>{REMOVES}", OK, WARNING),
    ],
)
def test_lifecycle_rules(
    rule: str,
    lifecycle: Severity,
    versioning: Severity,
    s3_versioned_server: S3Server,
    answering: Callable[..., None],
) -> None:
    bucket = s3_versioned_server.bucket()
    s3_call("put_bucket_versioning", bucket, VersioningConfiguration={"Status": "Enabled"})
    remote = f"s3://{bucket}/tier"
    for status, outcomes in (("Enabled", (lifecycle, versioning)), ("Disabled", (OK, WARNING))):
        text = f"<Rule><ID>r</ID><Status>{status}</Status>{rule}</Rule>"
        text = f"<LifecycleConfiguration>{text}</LifecycleConfiguration>"
        answering("GetBucketLifecycleConfiguration", 200, text)
        results = doctor(DoctorRequest(remote=remote)).results
        found_outcomes = (
            worst(results, DoctorCheck.STORE_LIFECYCLE).severity,
            worst(results, DoctorCheck.STORE_VERSIONING).severity,
        )
        assert found_outcomes == outcomes, status


def test_a_bucket_without_rules(s3_server: S3Server, answering: Callable[..., None]) -> None:
    answering(
        "GetBucketLifecycleConfiguration",
        404,
        "<Error><Code>NoSuchLifecycleConfiguration</Code><Message>none</Message></Error>",
    )
    assert examined(DoctorCheck.STORE_LIFECYCLE, remote=f"s3://{s3_server.bucket()}/tier").severity is OK


def test_a_right_to_read_that_is_missing(s3_server: S3Server, answering: Callable[..., None]) -> None:
    bucket = s3_server.bucket()
    s3_call("put_object", bucket, Key="tier/object", Body=b"x")
    answering(*denied("GetObject"))
    assert examined(DoctorCheck.STORE_READ, remote=f"s3://{bucket}/tier").severity is PROBLEM


def test_settings_that_may_not_be_seen_are_not_checked_and_exit_with_3(
    s3_server: S3Server, answering: Callable[..., None]
) -> None:
    answering(*denied("GetBucketLifecycleConfiguration"))
    diagnosis = doctor(DoctorRequest(remote=f"s3://{s3_server.bucket()}/tier"))
    result = worst(diagnosis.results, DoctorCheck.STORE_LIFECYCLE)
    assert (result.severity, result.error) == (NOT_CHECKED, ExitCode.AUTHENTICATION)
    assert diagnosis.exit_code is ExitCode.PARTIAL


@pytest.mark.parametrize("ignored", ["IfNoneMatch", "IfMatch"])
def test_a_store_that_ignores_conditions(
    ignored: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = s3_server.bucket()

    def made(*args: Any) -> Any:
        client = s3_client(*args)
        drop = lambda params, **_: params.pop(ignored, None) and None  # noqa: E731
        client.meta.events.register("provide-client-params.s3.PutObject", drop)
        return client

    monkeypatch.setattr(s3_store, "s3_client", made)
    results = doctor(DoctorRequest(remote=f"s3://{bucket}/tier", probe_writes=True)).results
    for check in (DoctorCheck.STORE_CONDITIONS, DoctorCheck.STORE_LEASE):
        assert worst(results, check).severity is PROBLEM
    assert worst(results, DoctorCheck.STORE_DELETE).severity is OK
    assert keys_in(bucket) == []


def test_a_bucket_that_does_not_exist(s3_server: S3Server) -> None:
    diagnosis = doctor(DoctorRequest(remote="s3://tier-that-is-not-there/tier"))
    assert worst(diagnosis.results, DoctorCheck.STORE_LIST).severity is PROBLEM
    assert diagnosis.exit_code is ExitCode.PARTIAL


def test_a_server_that_is_down(monkeypatch: pytest.MonkeyPatch, s3_server: S3Server) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    diagnosis = doctor(DoctorRequest(remote="s3://bucket/tier"))
    assert diagnosis.exit_code is ExitCode.RETRYABLE
    assert all(each.severity is NOT_CHECKED for each in diagnosis.results)


@pytest.fixture
def tier(tmp_path: Path) -> Path:
    """Return a tier on local disk with one object."""
    folder = tmp_path / "kafka-tiered-storage" / "t-0-AAAAAAAAAAAAAAAAAAAAAA"
    folder.mkdir(parents=True)
    (folder / "object").write_text("x")
    return tmp_path


def test_a_folder_without_faults(tier: Path) -> None:
    for probe_writes in (False, True):
        results = doctor(DoctorRequest(remote=str(tier), probe_writes=probe_writes)).results
        for check in (*PROBED, DoctorCheck.STORE_LIST, DoctorCheck.STORE_READ):
            is_unknown = check is DoctorCheck.STORE_CONDITIONS and not probe_writes
            assert worst(results, check).severity is (NOT_CHECKED if is_unknown else OK), check
    assert [each.name for each in tier.iterdir()] == ["kafka-tiered-storage"]


def test_a_folder_with_faults(tier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # root may write everywhere, and all disks here support locks, so these cases use fakes.
    monkeypatch.setattr(store.os, "access", lambda path, _: "t-0" not in str(path))
    assert examined(DoctorCheck.STORE_WRITE, remote=str(tier)).severity is PROBLEM
    assert examined(DoctorCheck.STORE_DELETE, remote=str(tier)).severity is PROBLEM

    def no_locks(_fd: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(store.fcntl, "flock", no_locks)
    assert examined(DoctorCheck.STORE_LEASE, remote=str(tier)).severity is PROBLEM


def test_a_folder_that_does_not_exist_is_not_made(tmp_path: Path) -> None:
    missing = tmp_path / "none"
    for probe_writes in (False, True):
        diagnosis = doctor(DoctorRequest(remote=str(missing), probe_writes=probe_writes))
        assert worst(diagnosis.results, DoctorCheck.STORE_LIST).severity is PROBLEM
        assert worst(diagnosis.results, DoctorCheck.STORE_WRITE).severity is NOT_CHECKED
        assert not missing.exists()


@pytest.mark.matrix
def test_hdfs(hdfs: str) -> None:
    results = doctor(DoctorRequest(remote=hdfs, probe_writes=True)).results
    for check in (*PROBED, DoctorCheck.STORE_LIST, DoctorCheck.STORE_READ, DoctorCheck.STORE_CLOCK):
        assert worst(results, check).severity is OK, (check, worst(results, check))
    from tierctl.storage.stores.base import open_store

    assert open_store(hdfs).list_folder("").objects == ()
    assert examined(DoctorCheck.STORE_LIST, remote=f"{hdfs}/none").severity is PROBLEM
    for check in (
        DoctorCheck.STORE_VERSIONING,
        DoctorCheck.STORE_LIFECYCLE,
        DoctorCheck.STORE_UPLOADS,
        *PROBED,
    ):
        assert examined(check, remote=hdfs).severity is NOT_CHECKED


@pytest.mark.parametrize(
    ("lacks", "problems"),
    [
        ([], set()),
        ([Lack.CONDITIONS, Lack.DELETE_OBJECTS_400], {DoctorCheck.STORE_CONDITIONS, DoctorCheck.STORE_LEASE}),
        ([Lack.CHECKSUMS], {DoctorCheck.STORE_WRITE}),
        ([Lack.WRITES_FORBIDDEN], {DoctorCheck.STORE_WRITE}),
        ([Lack.READS_FORBIDDEN], {DoctorCheck.STORE_READ}),
        ([Lack.LISTINGS], {DoctorCheck.STORE_LIST}),
        ([Lack.DELETES_FORBIDDEN], {DoctorCheck.STORE_DELETE}),
    ],
    ids=lambda each: ",".join(sorted(one.name for one in each)) if each else "none",
)
def test_refusals_are_problems_with_a_fix(
    monkeypatch: pytest.MonkeyPatch, lacks: Collection[Lack], problems: set[DoctorCheck]
) -> None:
    with LackingStore(lacks) as store:
        store.found(monkeypatch)
        results = doctor(DoctorRequest(remote=f"s3://{BUCKET}/tier", probe_writes=True)).results
        found = {each.check: each for each in results if each.severity is Severity.ERROR}
        assert found.keys() == problems
        assert all(each.fix for each in found.values())
        assert bool(store.objects) is (Lack.DELETES_FORBIDDEN in lacks)
