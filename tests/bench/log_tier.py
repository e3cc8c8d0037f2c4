"""A tier with a day of records of one partition."""

import random
from pathlib import Path

from tierctl.model import TopicIdPartition, Uuid

from tests.bench import cache
from tests.read.made import day, made_tier

RECORDS_A_MINUTE = 3000
PARTITION = TopicIdPartition(Uuid.from_bytes(bytes(15) + b"\x01"), "orders", 0)


def logs_in_a_tier() -> list[str]:
    """Return the metadata's URI, the tier's, and the topic; they are made once."""

    def make(folder: Path) -> None:
        made_tier(folder, PARTITION, day(random.Random(1), records_a_minute=RECORDS_A_MINUTE))

    made = cache.make_once(f"tiers/records-{RECORDS_A_MINUTE}", make, source=[Path(__file__)])
    return [(made / "metadata").as_uri(), (made / "remote").as_uri(), PARTITION.topic]
