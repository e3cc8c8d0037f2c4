"""Default values of a run's options, in a module without imports so that `--help` starts quickly."""

NOT_A_BROKER_ID = -1
"""The broker id in events that tierctl writes; Kafka's own ids begin at 0."""

WAVE_SIZE = 16
"""Segments that are copied as one wave."""

DELETE_WAVE_SIZE = 1_000
"""Segments that are deleted as one wave: some requests of 1,000 keys each, which S3 deletes at once."""

THREADS = 4

ATTEMPTS = 5
"""The number of times a call to the store is tried."""

REMOVER_INTERVAL_MS = 3_600_000
"""Default of remote.partition.remover.task.interval.ms (KIP-405)."""

CUSTOM_METADATA_MAX_BYTES = 128
"""Default of remote.log.metadata.custom.metadata.max.bytes (KIP-917)."""
