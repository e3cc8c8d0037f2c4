"""`verify --kind` prints some findings, and always reports that there are others."""

from collections.abc import Callable
from pathlib import Path

from tests.cli.shell import tierctl
from tests.verify.cases import CASES
from tests.verify.tiers import NOW_MS, Spoilt


def test_only_findings_of_a_kind_are_printed(writable: Callable[[str], Path]) -> None:
    tier = Spoilt(writable("tiered-cluster/before"), writable("tiered-cluster/before-remote"))
    for name in ("snapshot gone", "foreign object"):
        CASES[name].spoil(tier)
    verify = ("verify", "--metadata", tier.metadata, "--remote", tier.remote, "--now", NOW_MS, "-o", "json")
    every = tierctl(*verify)
    kinds = {row["check"] for row in every.json}
    assert len(kinds) >= 2
    for kind in kinds:
        ran = tierctl(*verify, "--kind", kind)
        assert ran.json == [row for row in every.json if row["check"] == kind]
        assert ran.code == every.code == 3
        others = len(every.json) - len(ran.json)
        assert f", and {others} of other kinds that are not printed" in ran.summary
    assert tierctl(*verify, *(word for kind in kinds for word in ("--kind", kind))).out == every.out
    none = tierctl(*verify, "--kind", "stuck_delete")
    assert (none.code, none.json) == (3, [])
    assert f"no problems, and {len(every.json)} of other kinds" in none.summary


def test_objects_whose_events_were_lost_are_left_to_rebuild(capture: Callable[[str], Path]) -> None:
    """rebuild says of the same partitions that their objects may be live data."""
    root = capture("finite-metadata")
    where = ("--metadata", root / "after", "--remote", root / "after-remote", "--log-dir", root / "after")
    ran = tierctl("verify", *where, "--now", (root / "now_ms").read_text().strip(), "-o", "json")
    leaked = [row for row in ran.json if row["check"] == "leaked"]
    assert {row["fix"].split(",")[0] for row in leaked} == {"run rebuild first"}
    assert "next: tierctl rebuild --metadata" in ran.summary
    rebuilt = tierctl("rebuild", *where, "--broker-config", root / "server.properties")
    for row in leaked:
        assert row["segment_id"] in rebuilt.out or f"skipped {row['subject']}: the log start" in rebuilt.err


def test_an_unknown_kind_is_an_error() -> None:
    ran = tierctl("verify", "--metadata", "/none", "--kind", "stuck_delet")
    assert ran.code == 2
    assert "did you mean stuck_delete?" in ran.err
