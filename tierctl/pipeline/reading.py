"""Read the tables of a warehouse while other programs may write them."""

from dataclasses import dataclass

from tierctl.errors import NotFoundError
from tierctl.model import TopicIdPartition, Uuid
from tierctl.pipeline.tables import PARTITIONS
from tierctl.pipeline.warehouse.layout import STATE, STATE_SCHEMA, PartState
from tierctl.pipeline.warehouse.open import WarehouseSpec, require_deltalake

_PARTITIONS = "partitions"
_NAMED = ("topic", "topic_id", "partition")
_COUNTS = ("copy_segment_started", "copy_segment_finished", "delete_segment_started")


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehouseContents:
    """The last commit of a warehouse.

    `parts` are the metadata partitions by number, `partitions` all user partitions with an event, and `live`
    those with segments that are not being deleted. `committed_ms` is the time of the newest part.
    """

    number: int
    parts: dict[int, PartState]
    partitions: tuple[TopicIdPartition, ...]
    live: frozenset[TopicIdPartition]
    committed_ms: int


def read_warehouse(spec: WarehouseSpec) -> WarehouseContents:
    """Return the last commit. Create nothing.

    Raise NotFoundError if there is no commit, and UsageError if deltalake is not installed.
    """
    require_deltalake()
    # They import deltalake, which is optional.
    from tierctl.pipeline.warehouse.commits import latest_commit
    from tierctl.pipeline.warehouse.delta import LakeTable, TablePlace

    warehouse = spec.open()
    place = TablePlace(warehouse.tables_uri, warehouse.table_options, warehouse.synced)
    state, partitions = LakeTable(place, STATE, STATE_SCHEMA), LakeTable(place, _PARTITIONS, PARTITIONS)
    if not state.refresh() or not partitions.refresh() or not state.number():
        raise NotFoundError(
            f"no tables in {spec.uri}", hint="tierctl pipeline run --warehouse ... writes them"
        )
    commit = latest_commit(state)
    rows = partitions.rows((*_NAMED, *_COUNTS, "delete_state"))
    named = [TopicIdPartition(Uuid.parse(row["topic_id"]), row["topic"], row["partition"]) for row in rows]
    return WarehouseContents(
        number=commit.number,
        parts=dict(commit.parts),
        partitions=tuple(sorted(named)),
        live=frozenset(
            partition
            for partition, row in zip(named, rows, strict=True)
            if row["delete_state"] is None and any(row[name] for name in _COUNTS)
        ),
        committed_ms=max(row["committed_ms"] for row in state.rows(("committed_ms",))),
    )
