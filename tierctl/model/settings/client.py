"""Settings of Kafka's clients in --command-config (CommonClientConfigs, SaslConfigs, SslConfigs)."""

from tierctl.model.settings.table import Scope, Table, Type

TABLE = Table(Scope.CLIENT)
_PASSED_ON = "tierctl passes it to the client libraries"
_SECURITY = "tierctl uses it to log in and to verify the broker"

BOOTSTRAP_SERVERS = TABLE.names(
    "bootstrap.servers", (), acted_on="the brokers that tierctl connects to first"
)
REQUEST_TIMEOUT_MS = TABLE.whole(
    "request.timeout.ms", 30_000, type=Type.INT, least=1, acted_on="how long tierctl waits for a response"
)
DELIVERY_TIMEOUT_MS = TABLE.whole(
    "delivery.timeout.ms",
    120_000,
    type=Type.INT,
    least=1,
    acted_on="how long tierctl waits for an acknowledgement",
)
DEFAULT_API_TIMEOUT_MS = TABLE.whole(
    "default.api.timeout.ms", 60_000, type=Type.INT, least=1, acted_on="how long a read may make no progress"
)
SECURITY_PROTOCOL = TABLE.text(
    "security.protocol",
    "PLAINTEXT",
    choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    acted_on=_SECURITY,
)
SASL_MECHANISM = TABLE.text("sasl.mechanism", "GSSAPI", acted_on=_SECURITY)
SASL_JAAS_CONFIG = TABLE.text("sasl.jaas.config", type=Type.PASSWORD, acted_on=_SECURITY)
SASL_TOKEN_ENDPOINT_URL = TABLE.text("sasl.oauthbearer.token.endpoint.url", since="3.1", acted_on=_SECURITY)
SSL_ENDPOINT_ALGORITHM = TABLE.text("ssl.endpoint.identification.algorithm", "https", acted_on=_SECURITY)
SSL_KEY_PASSWORD = TABLE.text("ssl.key.password", type=Type.PASSWORD, acted_on=_SECURITY)
SSL_KEYSTORE_CHAIN = TABLE.text(
    "ssl.keystore.certificate.chain", type=Type.PASSWORD, since="2.7", acted_on=_SECURITY
)
SSL_KEYSTORE_KEY = TABLE.text("ssl.keystore.key", type=Type.PASSWORD, since="2.7", acted_on=_SECURITY)
SSL_KEYSTORE_LOCATION = TABLE.text("ssl.keystore.location", acted_on=_SECURITY)
SSL_KEYSTORE_PASSWORD = TABLE.text("ssl.keystore.password", type=Type.PASSWORD, acted_on=_SECURITY)
SSL_KEYSTORE_TYPE = TABLE.text("ssl.keystore.type", "JKS", acted_on=_SECURITY)
SSL_TRUSTSTORE_CERTIFICATES = TABLE.text(
    "ssl.truststore.certificates", type=Type.PASSWORD, since="2.7", acted_on=_SECURITY
)
SSL_TRUSTSTORE_LOCATION = TABLE.text("ssl.truststore.location", acted_on=_SECURITY)
SSL_TRUSTSTORE_PASSWORD = TABLE.text("ssl.truststore.password", type=Type.PASSWORD, acted_on=_SECURITY)
SSL_TRUSTSTORE_TYPE = TABLE.text("ssl.truststore.type", "JKS", acted_on=_SECURITY)
CLIENT_DNS_LOOKUP = TABLE.text("client.dns.lookup", "use_all_dns_ips", acted_on=_PASSED_ON)
CLIENT_ID = TABLE.text("client.id", "", acted_on=_PASSED_ON)
CLIENT_RACK = TABLE.text("client.rack", "", acted_on=_PASSED_ON)
CONNECTIONS_MAX_IDLE_MS = TABLE.whole("connections.max.idle.ms", 540_000, acted_on=_PASSED_ON)
METADATA_MAX_AGE_MS = TABLE.whole("metadata.max.age.ms", 300_000, least=0, acted_on=_PASSED_ON)
RECONNECT_BACKOFF_MAX_MS = TABLE.whole("reconnect.backoff.max.ms", 1000, least=0, acted_on=_PASSED_ON)
RECONNECT_BACKOFF_MS = TABLE.whole("reconnect.backoff.ms", 50, least=0, acted_on=_PASSED_ON)
RETRY_BACKOFF_MAX_MS = TABLE.whole("retry.backoff.max.ms", 1000, least=0, since="3.7", acted_on=_PASSED_ON)
RETRY_BACKOFF_MS = TABLE.whole("retry.backoff.ms", 100, least=0, acted_on=_PASSED_ON)
SOCKET_SETUP_TIMEOUT_MS = TABLE.whole(
    "socket.connection.setup.timeout.ms", 10_000, since="2.7", acted_on=_PASSED_ON
)
PASSED_ON = tuple(row.name for row in TABLE if row.use == _PASSED_ON)
"""Settings with the same name and meaning in Java's clients and in librdkafka."""
UNDERSTOOD = frozenset(row.name for row in TABLE if row.acted_on)
"""Settings that tierctl acts on; it ignores all others of a client's .properties, with a note."""

SERIALIZERS = tuple(
    TABLE.text(name, ignored="tierctl reads and writes bytes").name
    for name in ("key.serializer", "value.serializer", "key.deserializer", "value.deserializer")
)
CONFIG_PROVIDERS = TABLE.names(
    "config.providers",
    (),
    ignored="tierctl supports no config providers and refuses values that refer to one",
)
