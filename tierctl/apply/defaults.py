"""How a run goes about its work when nobody says; apart, so that `--help` needs nothing else of this room."""

NOT_A_BROKER_ID = -1
"""The broker id of events that no broker wrote; Kafka's own ids begin at 0."""

WAVE_SIZE = 16
THREADS = 4

ATTEMPTS = 5
"""How often a call to the store is tried."""

REMOVER_INTERVAL_MS = 3_600_000
"""Default of remote.partition.remover.task.interval.ms (KIP-405)."""
