"""Delete all segments of a metadata topic by key in waves, then list the rest: METADATA REMOTE."""

import json
import sys
import time
from pathlib import Path

from tierctl.apply.defaults import DELETE_WAVE_SIZE
from tierctl.apply.run_context import slices
from tierctl.storage import TierSpec, open_tier

from tests.metadata.topics import manager_at


def main() -> None:
    """Time the calls that each wave makes to the tier."""
    manager = manager_at(Path(sys.argv[1]))
    segments = [s for part in manager.refresh() for s in part.cache.list_remote_log_segments()]
    segments.sort(key=lambda segment: (segment.partition, segment.start_offset))
    manager.close()
    tier = open_tier(TierSpec(Path(sys.argv[2]).as_uri(), layout="kafka"))
    began_s = time.perf_counter()
    for wave in slices(segments, DELETE_WAVE_SIZE):
        for batch in slices(wave, tier.delete_batch):
            assert not any(tier.delete_log_segments(batch))
        assert not any(tier.objects_of_each(wave))
    print(json.dumps({"seconds": time.perf_counter() - began_s}))


main()
