"""Bounds on what a few bytes of input may cost in memory and time.

What exceeds a bound is reported where it is, and reading goes on after it. All bounds are far above what
Kafka and its plugins write with settings that work.
"""

DECOMPRESSED_BYTES_MAX = 64 << 20
"""The decompressed records of one batch; Kafka's message.max.bytes is 1 MiB by default."""

PIECE_BYTES = 1 << 20
"""A decompressor is read in pieces of this size, so that its output is counted before it is kept."""

GZIP_MEMBERS_MAX = 10_000
"""Gzip members of one batch; producers write one."""

RECORD_HEADERS_MAX = 1 << 16
"""Headers of one record."""

BATCH_HEADERS_MAX = 1 << 20
"""Headers of one batch, in addition to RECORD_HEADERS_COMMON for each of its records."""

RECORD_HEADERS_COMMON = 64
"""Headers that every record of a batch may have."""

WRAPPED_MESSAGES_MAX = 1 << 18
"""Messages in one compressed message of the formats 0 and 1; producers wrote up to some thousands."""

METADATA_BATCH_BYTES_MAX = 16 << 20
"""The decompressed records of one batch of the metadata topic, which has one event."""

METADATA_WINDOW_BYTES_MAX = 64 << 20
"""The decompressed records of the batches in one window of 2 MiB of the metadata topic."""

METADATA_RECORD_BYTES = 256
"""The memory that a record takes besides its bytes."""

CHUNKS_MAX = 1 << 17
"""Chunks of one log in a manifest of Aiven's plugin, whose chunks have 4 MiB by default."""

CHUNK_BYTES_MAX = 64 << 20
"""One chunk that must be decompressed or decrypted as a whole."""
