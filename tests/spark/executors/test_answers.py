"""The driver receives facts and answers instead of segments, and commands print the same on both engines."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from tierctl.metadata.parallel_fold import FoldResult, FoldTask
from tierctl.spark.fold import SparkFold

from tests.spark.executors.bulk import METADATA, Capture, assert_same, small_pieces, within
from tests.spark.executors.test_verify import DAMAGE, MISPLACED, TIERS
from tests.spark.worlds import NOW_MS as PAST_MS
from tests.verify.cases import CASES
from tests.verify.tiers import NOW_MS, Spoilt

__all__ = ["small_pieces"]

pytestmark = pytest.mark.usefixtures("spark", "small_pieces", "no_segments")


@pytest.fixture
def no_segments(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FoldResult]]:
    """Require that executors return no state that has segments, and some answers."""
    fold, received = SparkFold.__call__, list[FoldResult]()

    def noting(self: SparkFold, tasks: Sequence[FoldTask]) -> Iterator[FoldResult]:
        for result in fold(self, tasks):
            received.append(result)
            yield result

    monkeypatch.setattr(SparkFold, "__call__", noting)
    yield received
    assert all(table.sums is not None for result in received for table in result.state.tables.values())
    assert any(result.answers for result in received)


LOGS = ("--now", NOW_MS, "-o", "json", "--log-dir")


@pytest.mark.parametrize("command", ["status", "verify"])
@pytest.mark.parametrize("place", METADATA)
def test_captures(command: str, place: str, capture: Capture, tmp_path: Path) -> None:
    configs = tmp_path / "topics.properties"
    configs.write_text("orders.remote.storage.enable=true\npayments.remote.storage.enable=true\n")
    logs = within(capture, TIERS[place][1])
    where = ("--metadata", within(capture, place), *LOGS, logs, "--topic-configs", configs)
    if "orders" not in "".join(each.name for each in logs.iterdir()):
        where = where[:-2]
    assert assert_same(command, *where).code in {0, 3}


@pytest.mark.parametrize("command", ["status", "verify"])
@pytest.mark.parametrize("spoils", [DAMAGE, MISPLACED], ids=["damage", "misplaced"])
def test_spoilt(
    command: str, spoils: tuple[str, ...], writable: Callable[[str], Path], no_segments: list[FoldResult]
) -> None:
    tier = Spoilt(writable("tiered-cluster/before"), writable("tiered-cluster/before-remote"))
    for name in spoils:
        CASES[name].spoil(tier)
    said = assert_same(command, "--metadata", tier.metadata, *LOGS, tier.metadata)
    assert said.code == (7 if spoils is DAMAGE else 3)
    assert said.out.strip()
    assert len(no_segments) > 1


def test_the_tier_is_recognised_by_segments_elsewhere(capture: Capture) -> None:
    where = ("--metadata", within(capture, "tiered-cluster/after"), "-o", "json", "--remote")
    assert assert_same("status", *where, within(capture, "tiered-cluster/after-remote")).code == 0
    other = assert_same("status", *where, within(capture, "aiven-plain/bucket"))
    assert other.code == 5


@pytest.mark.parametrize("inputs", ["logs", "tier", "both"])
@pytest.mark.parametrize("place", ["tiered-cluster/before", "unclean-leader/after/broker-1"])
def test_plans_of_sweep(inputs: str, place: str, capture: Capture, tmp_path: Path) -> None:
    configs = tmp_path / "topics.properties"
    configs.write_text("clicks.retention.bytes=2097152\nmetrics.retention.ms=172800000\n")
    remote, logs = (within(capture, each) for each in TIERS[place])
    where = [*("--remote", remote)] if inputs != "logs" else []
    where += [*("--log-dir", logs)] if inputs != "tier" else []
    more = ("--topic-configs", configs) if "tiered" in place else ()
    said = assert_same(
        *("sweep", "--metadata", within(capture, place), *where, *more),
        *("--now", PAST_MS, "-o", "csv"),
    )
    assert not more or len(said.lines) > 1


@pytest.mark.parametrize("is_damaged", [False, True])
def test_plans_of_delete(is_damaged: bool, writable: Callable[[str], Path]) -> None:
    tier = Spoilt(writable("tiered-cluster/before"), writable("tiered-cluster/before-remote"))
    for name in ("partition marked", *["metadata unreadable"] * is_damaged):
        CASES[name].spoil(tier)
    said = assert_same("delete", "--metadata", tier.metadata, "--remote", tier.remote, "-o", "csv")
    assert said.code == (7 if is_damaged else 0)
    assert "delete_partition" in said.out
