"""doctor --probe-writes at stores that lack or refuse something: problems with a fix, and nothing is left."""

from collections.abc import Collection

import pytest
from tierctl.checks.registry import DoctorCheck
from tierctl.commands import DoctorRequest, doctor
from tierctl.model.choices import Severity

from tests.support.lacking_store import BUCKET, Lack, LackingStore


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
