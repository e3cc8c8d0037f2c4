"""The shapes of real clusters that rows share, and the tiers and settings that belong to them."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tierctl.wire.files.checkpoints import write_leader_epoch_checkpoint

from tests.bench import cache
from tests.bench.metadata_log import FIRST_EVENT_MS, LIFETIME_MS, MetadataLog, Shape

SCALE: Final = float(os.environ.get("TIERCTL_BENCH_SCALE", "1"))
"""The share of every shape's segments and user partitions that rows use; below 1 only to try a row out."""


def scaled(shape: Shape) -> Shape:
    """Return the shape at SCALE."""
    partitions = max(int(shape.user_partitions * SCALE), 5)
    return replace(
        shape, segments=max(int(shape.segments * SCALE), 5 * partitions), user_partitions=partitions
    )


WIDE: Final = scaled(Shape(segments=2_600_000, user_partitions=10_000))
"""KIP-405's number of segments; 200 user partitions in each metadata partition."""
ONE: Final = replace(WIDE, metadata_partitions=1)
"""The same with all user partitions in one metadata partition."""
HELD_OUT: Final = {
    "few": scaled(
        Shape(segments=1_000_000, user_partitions=500, deleted=0.4, failed=0.01, custom=0.5, seed=7)
    ),
    "many": scaled(Shape(segments=1_500_000, user_partitions=300_000, between=300, spread=1.0, seed=8)),
}
"""Other counts and interleavings, deletes, failed copies and custom metadata: nothing is tuned to them."""

NOW_MS: Final = FIRST_EVENT_MS + LIFETIME_MS
EXPIRED: Final = 0.002
"""Share of a log's lifetime that retention has passed when `sweep` plans."""


@dataclass(frozen=True, slots=True)
class SweepInputs:
    """What `sweep` reads beside the metadata: a tier, and settings with a retention for every topic."""

    remote: Path
    topic_configs: Path

    def words(self) -> list[str]:
        """Return the options that name them."""
        named = ["--remote", self.remote.as_uri(), "--topic-configs", str(self.topic_configs)]
        return [*named, "--now", str(NOW_MS), "--allow-missing-objects"]


def sweep_inputs(log: MetadataLog) -> SweepInputs:
    """Return settings, and a tier with the leader epochs of each partition's newest segment; made once."""

    def make(folder: Path) -> None:
        settings = {}
        tier = folder / "tier" / "kafka-tiered-storage"
        for newest in log.newest():
            own = tier / f"{newest.topic}-{newest.partition}-{newest.topic_id}"
            own.mkdir(parents=True)
            stem = own / f"{newest.start_offset:020d}-{newest.segment_id}"
            stem.with_suffix(".leader_epoch_checkpoint").write_bytes(
                write_leader_epoch_checkpoint(newest.epochs)  # type: ignore[arg-type]
            )
            stem.with_suffix(".log").touch()
            settings[newest.topic] = None
        retention_ms = int(LIFETIME_MS * (1 - EXPIRED))
        (folder / "topics.properties").write_text(
            "".join(f"{t}.remote.storage.enable=true\n{t}.retention.ms={retention_ms}\n" for t in settings)
        )

    made = cache.make_once(f"tiers/{log.folder.parent.name}", make, source=[Path(__file__)])
    return SweepInputs(made / "tier", made / "topics.properties")


def without_newest(log: MetadataLog, share: float) -> MetadataLog:
    """Return a copy of a log that lacks the newest `share` of each metadata partition's bytes; made once."""

    def make(folder: Path) -> None:
        for own in log.folder.iterdir():
            target = folder / "log" / own.name
            target.mkdir(parents=True)
            logs = sorted(own.glob("*.log"))
            for file in logs:
                (target / file.name).write_bytes(file.read_bytes())
            last = target / logs[-1].name
            os.truncate(
                last, _batch_start(logs[-1].with_suffix(".index"), int(last.stat().st_size * (1 - share)))
            )

    made = cache.make_once(f"older/{log.folder.parent.name}-{share:g}", make, source=[Path(__file__)])
    return MetadataLog(made / "log", 0, 0, {})


def _batch_start(index: Path, position: int) -> int:
    """Return the position of the last indexed batch that begins before `position`."""
    entries = index.read_bytes()
    positions = [int.from_bytes(entries[i + 4 : i + 8], "big") for i in range(0, len(entries), 8)]
    return max((each for each in positions if each <= position), default=0)
