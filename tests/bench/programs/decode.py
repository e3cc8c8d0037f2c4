"""Decode every event of a topic to columns: `decode.py FOLDER PASSES` prints the median seconds of a pass."""

import json
import statistics
import sys
import time
from contextlib import closing
from pathlib import Path

from tierctl.metadata.topic import IfMissing, open_topic
from tierctl.model.location import TopicLocation
from tierctl.wire.metadata import decode_column
from tierctl.wire.metadata.decode_columns import KnownLayouts


def decode_topic(folder: Path) -> int:
    """Decode all events chunk by chunk, as commands do; return their number."""
    events, known = 0, KnownLayouts()
    location = TopicLocation(uri=folder.as_uri())
    with closing(open_topic(location, writable=False, complete=True, if_missing=IfMissing.FAIL)) as topic:
        for partition, end in topic.end_offsets().items():
            for chunk in topic.read(partition, 0, end):
                table = decode_column(chunk.values, known)
                assert table.column("error").null_count == table.num_rows
                events += table.num_rows
    return events


def main() -> None:
    """Time each pass; the first pass loads caches and does not count."""
    folder, passes = Path(sys.argv[1]), int(sys.argv[2])
    seconds = []
    for _ in range(passes):
        began_s = time.perf_counter()
        events = decode_topic(folder)
        seconds.append(time.perf_counter() - began_s)
        print(f"{events} events in {seconds[-1]:.3f} s")
    print(json.dumps({"seconds": statistics.median(seconds[1:])}))


main()
