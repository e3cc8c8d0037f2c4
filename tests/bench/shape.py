"""The content of a generated metadata log."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The content of a generated metadata log.

    `segments` counts COPY_SEGMENT_STARTED events. `user_partitions` is the number in all metadata partitions
    together, distributed by Kafka's hash: `metadata_partitions=1` puts all of them into one. `deleted` is the
    share of each user partition's segments, oldest first, that retention deleted; `failed` the share of
    copies that failed, were deleted, and were repeated with another id; `custom` the share of segments with
    custom metadata. `spread` is the sigma of the log-normal distribution of segments over user partitions (0:
    all have the same number). `between` is the average number of events of other segments between STARTED and
    FINISHED of a segment.
    """

    segments: int
    user_partitions: int
    metadata_partitions: int = 50
    deleted: float = 0.0
    failed: float = 0.0
    custom: float = 0.0
    spread: float = 0.5
    between: float = 20.0
    seed: int = 1

    @property
    def name(self) -> str:
        """Return a name for the cache, made of the fields that differ from their defaults."""
        words = [f"{self.segments}-in-{self.user_partitions}-over-{self.metadata_partitions}"]
        plain = Shape(segments=1, user_partitions=1)
        for field in ("deleted", "failed", "custom", "spread", "between", "seed"):
            value = getattr(self, field)
            words += [] if value == getattr(plain, field) else [f"{field}-{value:g}"]
        return "-".join(words)

    def __str__(self) -> str:
        millions = self.segments / 1e6
        count = f"{self.segments:,}" if millions < 0.1 else f"{millions:g} M"
        each = max(round(self.user_partitions / self.metadata_partitions), 1)
        extras = ", ".join(
            f"{value:.0%} {word}"
            for value, word in (
                (self.deleted, "deleted"),
                (self.failed, "failed copies"),
                (self.custom, "with custom metadata"),
            )
            if value
        )
        text = f"{count} segments, {self.metadata_partitions} × {each:,} user partitions"
        return f"{text}; {extras}" if extras else text
