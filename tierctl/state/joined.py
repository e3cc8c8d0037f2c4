"""Joins the states of disjoint user partitions of one metadata partition."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from tierctl.state.segments.arrays import Rows, view
from tierctl.state.sizes import SizesTable
from tierctl.state.table import SegmentTable
from tierctl.state.tier import ANOMALIES_KEPT, TierState
from tierctl.wire.arrays import Bools


def joined_states(states: Sequence[TierState], metadata_partition: int) -> TierState:
    """Return one state of the user partitions of `states`, which are not used afterwards.

    Each state has other user partitions of `metadata_partition`, and was folded from their events among the
    same records: the missing events are the same in all. The anomalies kept are the first of all states.
    """
    tables = [state.table(metadata_partition) for state in states]
    if not isinstance(tables[0], SizesTable):
        for one, other in combinations(tables, 2):
            _separate(one, other)
    whole, *others = tables
    joined = TierState(
        read={metadata_partition: max(state.read[metadata_partition] for state in states)},
        quarantined=sorted((q for s in states for q in s.quarantined), key=lambda q: q.metadata_offset),
        missing=states[0].missing,
        anomalies=sorted((a for s in states for a in s.anomalies), key=lambda a: a.metadata_offset),
        anomaly_count=sum(state.anomaly_count for state in states),
        tables={metadata_partition: whole},
    )
    del joined.anomalies[ANOMALIES_KEPT:]
    for other in others:
        whole.append_table(other)
    for state in states:
        for key, part in state.partitions.items():
            number = whole.numbers[part.topic_id_partition.topic_id.bytes, key[1]]
            joined.partitions[key] = replace(part, table=whole, number=number)
    return joined


def _separate(one: SegmentTable, other: SegmentTable) -> None:
    """Make the user partitions of the two tables that use one segment id irregular, as the fold does."""
    pairs = (one, _live_rows(one)), (other, _live_rows(other))
    firsts = np.sort(np.concatenate([table.columns.ids.as_words()[rows, 0] for table, rows in pairs]))
    if not (firsts[1:] == firsts[:-1]).any():
        # No two ids have the same first 8 bytes, so no id is in both tables. This check is ten times faster
        # than looking up each id.
        return
    rows = _live_rows(other)
    found = one.columns.ids.find_many(other.columns.ids.as_words()[rows])
    is_shared: Bools = found >= 0
    for table, shared in ((one, found[is_shared]), (other, rows[is_shared])):
        for number in np.unique(view(table.columns.owners)[shared]).tolist():
            table.make_irregular(number)


def _live_rows(table: SegmentTable) -> Rows:
    return table.columns.live_rows()
