"""A folded state as plain data; equal data means that no query distinguishes the states."""

from dataclasses import fields, is_dataclass
from typing import Any

from tierctl.errors import TierctlError
from tierctl.state.lineage import linked
from tierctl.state.table import SegmentTable
from tierctl.state.tier_state import TierState


def picture(state: TierState) -> dict[str, Any]:
    """Return everything in the state, anomalies and quarantined records in their order."""
    # All user partitions are listed once they are read.
    assert state.partitions is state.listed
    names = [field.name for field in fields(state) if not field.name.startswith("_")]
    return {name: _plain(getattr(state, name)) for name in names}


def _plain(value: Any) -> Any:
    match value:
        case SegmentTable():
            return _table(value)
        case TierctlError():
            return type(value).__name__, _plain(value.__dict__)
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
    names = [field.name for field in fields(value)] if is_dataclass(value) else []
    return {name: _plain(getattr(value, name)) for name in names} if names else value


def _table(table: SegmentTable) -> dict[str, Any]:
    """Return the rows of a table, with ids where they have places of other rows."""
    t = table.arrays
    numbers = range(len(table.partitions))
    facts = ("last_offset", "lowest_start", "live", "finished", "latest_epoch", "delete_marked", "is_foreign")
    return {
        "segments": [
            (table.metadata(row), table.segments[row]["offset"].item()) for row in table.live_rows().tolist()
        ],
        "epochs": {
            (epoch["owner"].item(), epoch["epoch"].item()): (
                [
                    table.id_of(int(t.links[link]["segment"]))
                    for link in linked(t, int(epoch["first_readable"]))
                ],
                [
                    table.id_of(int(t.links[link]["segment"]))
                    for link in linked(t, int(epoch["first_waiting"]))
                ],
                [epoch[name].item() for name in ("highest", "left")],
            )
            for at, epoch in enumerate(table.epochs)
        },
        "partitions": [
            (
                table.topic_id_partition(number),
                table.delete_state(number),
                *(table.partitions[number][name].item() for name in facts),
            )
            for number in numbers
        ],
        "sums": None if table.sums is None else table.sums.tolist(),
    }
