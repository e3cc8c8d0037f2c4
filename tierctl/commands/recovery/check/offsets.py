"""Check the offsets and leader epochs that leaders report, and the leader epochs in log directories."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tierctl.commands.recovery.check.checks import RestoreCheck
from tierctl.commands.recovery.check.expected import ExpectedLog
from tierctl.commands.recovery.check.results import Results
from tierctl.errors import TierctlError
from tierctl.files import read_regular
from tierctl.kafka.cluster import Cluster
from tierctl.model import EpochEntry
from tierctl.model.local import PartitionOffsets
from tierctl.model.settings.kafka_version import KafkaVersion
from tierctl.state.lineage import Lineage
from tierctl.wire.files.checkpoints import LEADER_EPOCHS_FILE, read_leader_epoch_checkpoint

_SETTLED_S = 30
_PAUSE_S = 1.0
_FIRST_WITH_LATEST_TIERED = KafkaVersion(3, 9)
"""The first version whose brokers report the latest tiered offset (KIP-1005)."""


def check_offsets(results: Results, logs: Sequence[ExpectedLog], leaders: Cluster) -> None:
    """Compare the offsets that leaders report with the tier's; wait while brokers still read the metadata."""
    deadline = time.monotonic() + _SETTLED_S
    waiting = list(logs)
    while waiting:
        is_last = time.monotonic() >= deadline
        wrong = []
        try:
            found = leaders.partition_offsets([each.name for each in waiting])
            configs = leaders.topic_configs(sorted({each.name.topic for each in waiting}))
            reports_tier = leaders.kafka_version() >= _FIRST_WITH_LATEST_TIERED
        except TierctlError as e:
            for each in waiting:
                results.prevented(RestoreCheck.OFFSETS, each.name, e)
            return
        for each in waiting:
            offsets = found[each.name]
            is_copying = not configs[each.name.topic].is_copy_disabled
            faults = list(offset_faults(each, offsets, is_copying=is_copying and reports_tier))
            if faults and not is_last:
                wrong.append(each)
            else:
                results.decided(RestoreCheck.OFFSETS, each.name, faults, _text(offsets))
        waiting = wrong
        if waiting:
            time.sleep(_PAUSE_S)


def offset_faults(expected: ExpectedLog, found: PartitionOffsets, *, is_copying: bool) -> Iterator[str]:
    """Yield the faults in the offsets that a leader reports.

    Unless `is_copying`, the leader need not report its latest tiered offset.
    """
    start, end, tiered = expected.start_offset, expected.end_offset, found.latest_tiered_offset
    if found.log_start_offset != start:
        yield f"earliest is {found.log_start_offset}, expected {start}"
    if found.high_watermark < end:
        yield f"latest is {found.high_watermark}, expected {end} or more"
    if not expected.is_materialised:
        if tiered is None and is_copying:
            yield f"latest-tiered is not reported, expected {end - 1}"
        if tiered is not None and tiered < end - 1:
            yield f"latest-tiered is {tiered}, expected {end - 1}"
    local = found.local_log_start_offset
    reached = max(end, -1 if tiered is None else tiered + 1)
    if local is not None and not start <= local <= reached:
        yield f"earliest-local is {local}, expected {start} to {reached}"


def _text(found: PartitionOffsets) -> str:
    def known(offset: int | None) -> str:
        return "not reported" if offset is None else str(offset)

    return (
        f"earliest {found.log_start_offset}, latest-tiered {known(found.latest_tiered_offset)}, "
        f"earliest-local {known(found.local_log_start_offset)}, latest {found.high_watermark}"
    )


def check_epochs(results: Results, logs: Sequence[ExpectedLog], leaders: Cluster) -> None:
    """Compare the leader epochs in the leaders' OffsetForLeaderEpoch responses with the tier's epochs."""
    for each in logs:
        with results.making(RestoreCheck.LEADER_EPOCHS, each.name):
            _decide(results, each, leaders.leader_epochs(each.name), "its leader")


def check_epoch_files(results: Results, logs: Sequence[ExpectedLog], log_dirs: Sequence[Path]) -> None:
    """Compare leader-epoch-checkpoint in each log directory that has the partition with the tier's epochs."""
    for each in logs:
        for log_dir in log_dirs:
            path = log_dir / str(each.name) / LEADER_EPOCHS_FILE
            if path.is_file():
                with results.making(RestoreCheck.LEADER_EPOCHS, each.name):
                    _decide(results, each, read_leader_epoch_checkpoint(read_regular(path)), str(path))


def _decide(results: Results, expected: ExpectedLog, found: Sequence[EpochEntry], where: str) -> None:
    results.decided(
        RestoreCheck.LEADER_EPOCHS,
        expected.name,
        epoch_faults(expected, found, where),
        f"{where} has {epochs_text(found)}",
    )


def epoch_faults(expected: ExpectedLog, found: Sequence[EpochEntry], where: str) -> Iterator[str]:
    """Yield the faults in the leader epochs of a log: below the tier's end they must equal the tier's."""
    own = Lineage(found).truncate_from_start(expected.start_offset).truncate_from_end(expected.end_offset)
    if own != expected.lineage:
        yield (
            f"{where} has {epochs_text(own.entries)} below offset {expected.end_offset}, the tier's log has "
            f"{epochs_text(expected.lineage.entries)}"
        )


def epochs_text(entries: Sequence[EpochEntry]) -> str:
    """Return leader epochs as `epoch 0 from 0, epoch 2 from 1500`."""
    return ", ".join(f"epoch {each.epoch} from {each.start_offset}" for each in entries) or "no epochs"
