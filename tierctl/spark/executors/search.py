"""Search segments for keys on executors."""

from tierctl.model import RemoteLogSegmentMetadata
from tierctl.read.key_search import SearchedSegment, search_segment
from tierctl.spark.executors.resources import shared_tier
from tierctl.storage import TierSpec

_REQUEST_US, _BYTES_PER_US = 20_000, 100


def search_for(
    spec: TierSpec, digests: frozenset[bytes], segment: RemoteLogSegmentMetadata
) -> SearchedSegment:
    """Return the result of `search_segment`, or raise its errors."""
    return search_segment(segment, shared_tier(spec), digests)


def search_us(segment: RemoteLogSegmentMetadata) -> int:
    """Return the estimated duration of the search of a segment in microseconds."""
    return _REQUEST_US + segment.segment_size_in_bytes // _BYTES_PER_US
