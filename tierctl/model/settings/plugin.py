"""Settings of Aiven's RemoteStorageManager, without their prefix (default rsm.config.).

`since` is the release of Kafka from which the plugin can be used.
"""

from tierctl.model.settings.table import Scope, Table, Type

TABLE = Table(Scope.PLUGIN)
_SINCE = "3.6"
_CACHE = "tierctl has its own bounded caches"
_STORE = "--remote and the environment of the store's client state where the store is"

KEY_PREFIX = TABLE.text(
    "key.prefix",
    "",
    since=_SINCE,
    acted_on="the prefix of every object's key; no slash is added to it",
)
CHUNK_SIZE = TABLE.whole(
    "chunk.size",
    4 << 20,
    type=Type.INT,
    least=1,
    most=(1 << 30) - 1,
    since=_SINCE,
    acted_on="the size of the chunks into which copy splits a log to compress it",
)
COMPRESSION = TABLE.flag(
    "compression.enabled", False, since=_SINCE, acted_on="copy compresses each chunk with zstd"
)
COMPRESSION_HEURISTIC = TABLE.flag(
    "compression.heuristic.enabled",
    False,
    since=_SINCE,
    acted_on="copy leaves a log uncompressed if its first batch is compressed",
)
ENCRYPTION = TABLE.flag(
    "encryption.enabled",
    False,
    since=_SINCE,
    acted_on="copy refuses to run if it is true, because it cannot encrypt",
)
CUSTOM_METADATA_FIELDS = TABLE.names(
    "custom.metadata.fields.include",
    (),
    since=_SINCE,
    acted_on="the fields of the custom metadata that copy writes",
)
SEGMENT_FORMAT = TABLE.text(
    "segment.format",
    "kafka",
    since=_SINCE,
    acted_on="tierctl refuses iceberg, whose segments contain no Kafka logs",
)

KEY_PAIR_PREFIX = "encryption.key.pairs."
PRIVATE_KEY_SUFFIX = ".private.key.file"
"""`encryption.key.pairs.<key id>.private.key.file` names the PEM file of a private key."""

TABLE.text("encryption.key.pair.id", since=_SINCE, ignored="copy does not encrypt")
TABLE.text("storage.backend.class", since=_SINCE, ignored=_STORE)
TABLE.text("storage.root", since=_SINCE, ignored=_STORE)
TABLE.whole(
    "upload.rate.limit.bytes.per.second",
    None,
    type=Type.INT,
    least=1 << 20,
    since=_SINCE,
    ignored="copy has no quota",
)
TABLE.text("fetch.chunk.cache.class", since=_SINCE, ignored=_CACHE)
TABLE.whole("segment.manifest.cache.size", 1000, since=_SINCE, ignored=_CACHE)
TABLE.whole("segment.manifest.cache.retention.ms", 3_600_000, since=_SINCE, ignored=_CACHE)
