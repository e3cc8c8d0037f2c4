"""Measure the state of a tier."""

from tierctl.model import RemoteLogSegmentState
from tierctl.report.metrics import families
from tierctl.report.metrics.meter import Labels, Meter
from tierctl.state.sizes import sizes_by_group
from tierctl.state.tier import TierState

_LIVE_STATES = [s for s in RemoteLogSegmentState if s is not RemoteLogSegmentState.DELETE_SEGMENT_FINISHED]


def measure_tier(meter: Meter, state: TierState) -> None:
    """Set the gauges of every topic that has segments in `state`."""
    groups: dict[str, int] = {}
    members = [
        (groups.setdefault(part.topic_id_partition.topic, len(groups)), part)
        for part in state
        if part.segment_count
    ]
    sizes = sizes_by_group(state, members, len(groups))
    segments: dict[Labels, float] = {}
    sizes_bytes: dict[Labels, float] = {}
    for topic, group in groups.items():
        for name in _LIVE_STATES:
            segments[topic, str(name)], sizes_bytes[topic, str(name)] = sizes.of(group, name)
    meter.set(families.TIER_SEGMENTS, segments)
    meter.set(families.TIER_BYTES, sizes_bytes)
    meter.set(
        families.METADATA_COUNT, {(topic,): int(sizes.counts[group].sum()) for topic, group in groups.items()}
    )
    finished = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
    meter.set(
        families.SIZE_BYTES, {(topic,): sizes.of(group, finished)[1] for topic, group in groups.items()}
    )
    meter.set(families.DAMAGED_RECORDS, {(): len(state.quarantined)})
