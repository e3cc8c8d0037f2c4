"""Settings of Kafka's clients, of the metadata manager and of Aiven's plugin."""

from tierctl.model.settings.scopes import Scope, Table, Type

CLIENTS = Table(Scope.CLIENT)
_PASSED_ON = "tierctl passes it to the client libraries"
_SECURITY = "tierctl uses it to log in and to verify the broker"

BOOTSTRAP_SERVERS = CLIENTS.names(
    "bootstrap.servers", (), acted_on="the brokers that tierctl connects to first"
)
REQUEST_TIMEOUT_MS = CLIENTS.whole(
    "request.timeout.ms", 30_000, type=Type.INT, least=1, acted_on="how long tierctl waits for a response"
)
DELIVERY_TIMEOUT_MS = CLIENTS.whole(
    "delivery.timeout.ms",
    120_000,
    type=Type.INT,
    least=1,
    acted_on="how long tierctl waits for an acknowledgement",
)
DEFAULT_API_TIMEOUT_MS = CLIENTS.whole(
    "default.api.timeout.ms", 60_000, type=Type.INT, least=1, acted_on="how long a read may make no progress"
)
SECURITY_PROTOCOL = CLIENTS.text(
    "security.protocol",
    "PLAINTEXT",
    choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    acted_on=_SECURITY,
)
SASL_MECHANISM = CLIENTS.text("sasl.mechanism", "GSSAPI", acted_on=_SECURITY)
SASL_JAAS_CONFIG = CLIENTS.text("sasl.jaas.config", type=Type.PASSWORD, acted_on=_SECURITY)
SASL_TOKEN_ENDPOINT_URL = CLIENTS.text("sasl.oauthbearer.token.endpoint.url", since="3.1", acted_on=_SECURITY)
SASL_CLIENT_ID = CLIENTS.text(
    "sasl.oauthbearer.client.credentials.client.id", since="4.1", acted_on=_SECURITY
)
SASL_CLIENT_SECRET = CLIENTS.text(
    "sasl.oauthbearer.client.credentials.client.secret", type=Type.PASSWORD, since="4.1", acted_on=_SECURITY
)
SASL_SCOPE = CLIENTS.text("sasl.oauthbearer.scope", since="4.1", acted_on=_SECURITY)
SASL_HEADER_URLENCODE = CLIENTS.flag(
    "sasl.oauthbearer.header.urlencode", False, since="3.9", acted_on=_SECURITY
)
_REFUSED = "tierctl refuses a login that gets its token in another way than by a client's id and secret"
SASL_JWT_RETRIEVER = CLIENTS.text(
    "sasl.oauthbearer.jwt.retriever.class",
    "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
    since="4.1",
    acted_on=_REFUSED,
)
SASL_ASSERTIONS = tuple(
    CLIENTS.text(name, since="4.1", acted_on=_REFUSED).name
    for name in ("sasl.oauthbearer.assertion.file", "sasl.oauthbearer.assertion.claim.iss")
)
SSL_ENDPOINT_ALGORITHM = CLIENTS.text("ssl.endpoint.identification.algorithm", "https", acted_on=_SECURITY)
SSL_KEY_PASSWORD = CLIENTS.text("ssl.key.password", type=Type.PASSWORD, acted_on=_SECURITY)
SSL_KEYSTORE_CHAIN = CLIENTS.text(
    "ssl.keystore.certificate.chain", type=Type.PASSWORD, since="2.7", acted_on=_SECURITY
)
SSL_KEYSTORE_KEY = CLIENTS.text("ssl.keystore.key", type=Type.PASSWORD, since="2.7", acted_on=_SECURITY)
SSL_KEYSTORE_LOCATION = CLIENTS.text("ssl.keystore.location", acted_on=_SECURITY)
SSL_KEYSTORE_PASSWORD = CLIENTS.text("ssl.keystore.password", type=Type.PASSWORD, acted_on=_SECURITY)
SSL_KEYSTORE_TYPE = CLIENTS.text("ssl.keystore.type", "JKS", acted_on=_SECURITY)
SSL_TRUSTSTORE_CERTIFICATES = CLIENTS.text(
    "ssl.truststore.certificates", type=Type.PASSWORD, since="2.7", acted_on=_SECURITY
)
SSL_TRUSTSTORE_LOCATION = CLIENTS.text("ssl.truststore.location", acted_on=_SECURITY)
SSL_TRUSTSTORE_PASSWORD = CLIENTS.text("ssl.truststore.password", type=Type.PASSWORD, acted_on=_SECURITY)
SSL_TRUSTSTORE_TYPE = CLIENTS.text("ssl.truststore.type", "JKS", acted_on=_SECURITY)
CLIENT_DNS_LOOKUP = CLIENTS.text("client.dns.lookup", "use_all_dns_ips", acted_on=_PASSED_ON)
CLIENT_ID = CLIENTS.text("client.id", "", acted_on=_PASSED_ON)
CLIENT_RACK = CLIENTS.text("client.rack", "", acted_on=_PASSED_ON)
CONNECTIONS_MAX_IDLE_MS = CLIENTS.whole("connections.max.idle.ms", 540_000, acted_on=_PASSED_ON)
METADATA_MAX_AGE_MS = CLIENTS.whole("metadata.max.age.ms", 300_000, least=0, acted_on=_PASSED_ON)
RECONNECT_BACKOFF_MAX_MS = CLIENTS.whole("reconnect.backoff.max.ms", 1000, least=0, acted_on=_PASSED_ON)
RECONNECT_BACKOFF_MS = CLIENTS.whole("reconnect.backoff.ms", 50, least=0, acted_on=_PASSED_ON)
RETRY_BACKOFF_MAX_MS = CLIENTS.whole("retry.backoff.max.ms", 1000, least=0, since="3.7", acted_on=_PASSED_ON)
RETRY_BACKOFF_MS = CLIENTS.whole("retry.backoff.ms", 100, least=0, acted_on=_PASSED_ON)
SOCKET_SETUP_TIMEOUT_MS = CLIENTS.whole(
    "socket.connection.setup.timeout.ms", 10_000, since="2.7", acted_on=_PASSED_ON
)
PASSED_ON = tuple(row.name for row in CLIENTS if row.use == _PASSED_ON)
"""Settings with the same name and meaning in Java's clients and in librdkafka."""
UNDERSTOOD = frozenset(row.name for row in CLIENTS if row.acted_on)
"""Settings that tierctl acts on; it ignores all others of a client's .properties, with a note."""

SERIALIZERS = tuple(
    CLIENTS.text(name, ignored="tierctl reads and writes bytes").name
    for name in ("key.serializer", "value.serializer", "key.deserializer", "value.deserializer")
)
CONFIG_PROVIDERS = CLIENTS.names(
    "config.providers",
    (),
    ignored="tierctl supports no config providers and refuses values that refer to one",
)


METADATA_MANAGERS = Table(Scope.METADATA_MANAGER)
_WAITING = "tierctl has no such consumer: it waits for acknowledgements and reads to the end of partitions"

TOPIC_PARTITIONS = METADATA_MANAGERS.whole(
    "remote.log.metadata.topic.num.partitions",
    50,
    type=Type.INT,
    least=1,
    since="3.0",
    acted_on="the number of partitions of a new metadata topic; an existing topic must have the same number",
)
TOPIC_REPLICATION_FACTOR = METADATA_MANAGERS.whole(
    "remote.log.metadata.topic.replication.factor",
    3,
    type=Type.INT,
    least=1,
    most=(1 << 15) - 1,
    since="3.0",
    acted_on="the number of replicas of a new metadata topic",
)
TOPIC_RETENTION_MS = METADATA_MANAGERS.whole(
    "remote.log.metadata.topic.retention.ms",
    -1,
    least=1,
    besides=-1,
    since="3.0",
    acted_on="the retention of a new metadata topic; -1 is unlimited",
)
TOPIC_MIN_ISR = METADATA_MANAGERS.whole(
    "remote.log.metadata.topic.min.isr",
    2,
    type=Type.INT,
    least=1,
    most=(1 << 15) - 1,
    since="4.2",
    acted_on="min.insync.replicas of a new metadata topic",
)
METADATA_MANAGERS.whole(
    "remote.log.metadata.consume.wait.ms", 120_000, least=0, since="3.0", ignored=_WAITING
)
METADATA_MANAGERS.whole(
    "remote.log.metadata.initialization.retry.max.timeout.ms", 120_000, least=0, since="3.0", ignored=_WAITING
)
METADATA_MANAGERS.whole(
    "remote.log.metadata.initialization.retry.interval.ms", 100, least=0, since="3.0", ignored=_WAITING
)

COMMON_CLIENT_PREFIX = "remote.log.metadata.common.client."
"""Prefix of client settings for all clients of the metadata topic."""
PRODUCER_PREFIX = "remote.log.metadata.producer."
CONSUMER_PREFIX = "remote.log.metadata.consumer."
ADMIN_PREFIX = "remote.log.metadata.admin."
CLIENT_PREFIXES = (COMMON_CLIENT_PREFIX, PRODUCER_PREFIX, CONSUMER_PREFIX, ADMIN_PREFIX)


PLUGINS = Table(Scope.PLUGIN)
# Settings of Aiven's RemoteStorageManager, without their prefix (default rsm.config.).
#
# `since` is the release of Kafka from which the plugin can be used.

_SINCE = "3.6"
_CACHE = "tierctl has its own bounded caches"
_STORE = "--remote and the environment of the store's client state where the store is"

KEY_PREFIX = PLUGINS.text(
    "key.prefix",
    "",
    since=_SINCE,
    acted_on="the prefix of every object's key; no slash is added to it",
)
CHUNK_SIZE = PLUGINS.whole(
    "chunk.size",
    4 << 20,
    type=Type.INT,
    least=1,
    most=(1 << 30) - 1,
    since=_SINCE,
    acted_on="the size of the chunks into which copy splits a log to compress it",
)
COMPRESSION = PLUGINS.flag(
    "compression.enabled", False, since=_SINCE, acted_on="copy compresses each chunk with zstd"
)
COMPRESSION_HEURISTIC = PLUGINS.flag(
    "compression.heuristic.enabled",
    False,
    since=_SINCE,
    acted_on="copy leaves a log uncompressed if its first batch is compressed",
)
ENCRYPTION = PLUGINS.flag(
    "encryption.enabled",
    False,
    since=_SINCE,
    acted_on="copy refuses to run if it is true, because it cannot encrypt",
)
CUSTOM_METADATA_FIELDS = PLUGINS.names(
    "custom.metadata.fields.include",
    (),
    since=_SINCE,
    acted_on="the fields of the custom metadata that copy writes",
)
SEGMENT_FORMAT = PLUGINS.text(
    "segment.format",
    "kafka",
    since=_SINCE,
    acted_on="tierctl refuses iceberg, whose segments contain no Kafka logs",
)

KEY_PAIR_PREFIX = "encryption.key.pairs."
PRIVATE_KEY_SUFFIX = ".private.key.file"
"""`encryption.key.pairs.<key id>.private.key.file` names the PEM file of a private key."""

PLUGINS.text("encryption.key.pair.id", since=_SINCE, ignored="copy does not encrypt")
PLUGINS.text("storage.backend.class", since=_SINCE, ignored=_STORE)
PLUGINS.text("storage.root", since=_SINCE, ignored=_STORE)
PLUGINS.whole(
    "upload.rate.limit.bytes.per.second",
    None,
    type=Type.INT,
    least=1 << 20,
    since=_SINCE,
    ignored="--throttle-copy or remote.log.manager.copy.max.bytes.per.second limits copy",
)
PLUGINS.text("fetch.chunk.cache.class", since=_SINCE, ignored=_CACHE)
PLUGINS.whole("segment.manifest.cache.size", 1000, since=_SINCE, ignored=_CACHE)
PLUGINS.whole("segment.manifest.cache.retention.ms", 3_600_000, since=_SINCE, ignored=_CACHE)
