"""Decode the events of a metadata topic several times, and check each CRC: `decode_log.py URI N`.

Prints the number of events. The first time the loops are loaded, as a JVM compiles its methods.
"""

import sys
from contextlib import closing

from tierctl.metadata.topic import open_topic
from tierctl.model.location import TopicLocation
from tierctl.wire.metadata.decode import decode_values

uri, passes = sys.argv[1], int(sys.argv[2])
with closing(open_topic(TopicLocation(uri=uri))) as topic:
    ends = topic.end_offsets()

    def events_of(partition: int) -> int:
        """Decode a metadata partition; return how many events it has."""
        chunks = topic.read(partition, 0, ends[partition])
        return sum(len(decode_values(chunk.slices).rows) for chunk in chunks)

    print(sum(map(events_of, [*ends] * passes)))
