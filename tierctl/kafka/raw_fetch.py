"""Fetches the batches of a topic unparsed, for offsets for which a consumer delivered no record.

A consumer skips control records, compacted offsets and damage alike. Deletions in a metadata partition may be
decided only if nothing is missing, so the bytes themselves are examined.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tierctl.errors import MetadataError
from tierctl.kafka import sdk
from tierctl.kafka.acls import Right
from tierctl.kafka.client_settings import ClientSettings
from tierctl.kafka.python_client import NotReadyError, connect, translated
from tierctl.model.progress import WAITS
from tierctl.wire.batches.chunks import DamagedRange, RecordChunk, chunk_of, empty_chunk
from tierctl.wire.batches.head_columns import scan_heads
from tierctl.wire.batches.segment_file import Window, without_edge

FETCH_BYTES_MAX = 8 << 20
_WAIT_S = 0.2


class RawFetcher:
    """Read one topic with Fetch requests; connect at the first request. Only one thread may use it."""

    def __init__(self, settings: ClientSettings, topic: str) -> None:
        self._settings = settings
        self._topic = topic
        self._client: Any = None

    def read(self, partition: int, start_offset: int, end_offset: int) -> Iterator[RecordChunk]:
        """Yield the records in [start_offset, end_offset) with every gap and damaged range.

        At least one chunk is yielded; the last chunk ends at `end_offset`.
        """
        source = f"{self._topic}-{partition}"
        while start_offset < end_offset:
            window = self._window(partition, start_offset)
            chunk = chunk_of(window, partition, start_offset, end_offset, source)
            if not len(window.heads) and chunk.damage:
                # There is no valid batch after the damage, so all offsets up to `end_offset` are reported as
                # damaged.
                chunk = empty_chunk(
                    partition, end_offset, DamagedRange(start_offset, end_offset, chunk.damage[-1].error)
                )
            if chunk.next_offset <= start_offset:
                raise MetadataError(
                    f"{source}: the broker returned no batch at offset {start_offset}, although its log has "
                    "this offset",
                    hint="run again; look at the partition with kafka-dump-log on the broker",
                )
            yield chunk
            start_offset = chunk.next_offset

    def _window(self, partition: int, offset: int) -> Window:
        data = self._fetch(partition, offset)
        # The first batch may begin before the requested offset.
        expected = min(offset, int.from_bytes(data[:8], "big", signed=True))
        heads, _ = without_edge(scan_heads(data, expected_offset=expected), len(data))
        if not len(heads):
            # The response has damaged bytes only, and it is unknown where the damage ends: report all of
            # them.
            heads = replace(scan_heads(data, expected_offset=expected), torn=None)
        return Window(data, 0, heads, expected)

    def _fetch(self, partition: int, offset: int) -> bytes:
        deadline = time.monotonic() + self._settings.stall_timeout_ms / 1000
        doing = f"reading {self._topic}-{partition} from offset {offset} on"
        with WAITS.waiting(doing):
            while True:
                data = self._try_fetch(doing, partition, offset)
                if data:
                    return data
                if time.monotonic() > deadline:
                    raise MetadataError(f"{doing}: no data arrived", hint="run again")
                time.sleep(_WAIT_S)

    def _try_fetch(self, doing: str, partition: int, offset: int) -> bytes:
        """Return the bytes of one Fetch; empty if there were none yet or the leader is unavailable."""
        try:
            if self._client is None:
                self._client = connect(self._settings)
            with translated(doing, Right("Read", self._topic)):
                return fetch(self._client, self._topic, partition, offset)
        except NotReadyError:
            self.close()
            return b""

    def close(self) -> None:
        """Disconnect."""
        if self._client is not None:
            self._client.close()
            self._client = None


def fetch(client: Any, topic: str, partition: int, offset: int) -> bytes:
    """Send one Fetch for one partition to its leader; return no bytes if none arrive within half a second.

    Raises kafka-python's errors.
    """

    wanted = sdk.kafka_consumer_protocol.FetchRequest.FetchTopic.FetchPartition(
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=FETCH_BYTES_MAX,
        current_leader_epoch=-1,
        log_start_offset=-1,
        last_fetched_epoch=-1,
    )
    request = sdk.kafka_consumer_protocol.FetchRequest(
        replica_id=-1,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=FETCH_BYTES_MAX,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[sdk.kafka_consumer_protocol.FetchRequest.FetchTopic(topic=topic, partitions=[wanted])],
        forgotten_topics_data=[],
        rack_id="",
        # Version 13 and later name topics only by id.
        max_version=12,
    )

    partition_of = sdk.kafka_python.TopicPartition(topic, partition)

    async def ask() -> Any:
        leaders = await client._async_get_leader_for_partitions([partition_of])  # noqa: SLF001
        (leader,) = leaders
        if leader < 0:
            raise sdk.kafka_errors.LeaderNotAvailableError(f"{topic}-{partition} has no leader")
        return await client._manager.send(request, node_id=leader)  # noqa: SLF001

    response = client._manager.run(ask)  # noqa: SLF001
    found = response.responses[0].partitions[0]
    error = sdk.kafka_errors.for_code(found.error_code)
    if error is not sdk.kafka_errors.NoError:
        raise error
    return bytes(found.records or b"")
