"""Settings of a broker: RemoteLogManagerConfig, and those of ServerLogConfigs about retention and logs."""

from collections.abc import Mapping

from tierctl.model.settings.scopes import Scope, Setting, Table, Type

TABLE = Table(Scope.BROKER)
_LONG_MAX = (1 << 63) - 1
_OWN_THREADS = "tierctl has its own number of threads, --threads"
_TEN_THREADS = f"{_OWN_THREADS}; brokers have 10 by default since Kafka 4.0, and refuse -1"
_OFFLINE = "the value in force of each topic comes from the cluster or from --topic-configs"
_TOPIC_DEFAULT = "copy uses it as the default of topics for which --topic-configs does not state the setting"
_LAG_OF_RETENTION = (
    "copy uses it if the copy lag is -1; sweep does not use it and needs limits that a topic states"
)
_CLASS = "tierctl implements the layouts and the metadata topic itself"
_BURST = "after a pause, the bytes of this many seconds may be transferred at once"
_AVERAGE = "tierctl keeps the quota at every moment, not on the average of several windows"

REMOTE_LOG_STORAGE_SYSTEM_ENABLE = TABLE.flag(
    "remote.log.storage.system.enable",
    False,
    since="3.0",
    acted_on="if a partition's leader has true, tierctl changes nothing there without --allow-live-brokers; "
    "in a file, doctor checks it",
)
STORAGE_MANAGER_PREFIX = TABLE.text(
    "remote.log.storage.manager.impl.prefix",
    "rsm.config.",
    since="3.0",
    acted_on="the prefix of the settings of Aiven's plugin",
)
METADATA_MANAGER_PREFIX = TABLE.text(
    "remote.log.metadata.manager.impl.prefix",
    "rlmm.config.",
    since="3.0",
    acted_on="the prefix of the settings of the metadata manager",
)
METADATA_MANAGER_LISTENER = TABLE.text(
    "remote.log.metadata.manager.listener.name",
    since="3.0",
    acted_on="names the listener whose address and protocol the clients of the metadata topic use",
)
CUSTOM_METADATA_MAX_BYTES = TABLE.whole(
    "remote.log.metadata.custom.metadata.max.bytes",
    128,
    type=Type.INT,
    least=0,
    since="3.6",
    acted_on="if the custom metadata of a segment is larger, copy deletes the copy and stops the partition",
)
INDEX_CACHE_SIZE_BYTES = TABLE.whole(
    "remote.log.index.file.cache.total.size.bytes",
    1 << 30,
    least=1,
    since="3.0",
    acted_on="the limit of the cache of remote indexes in --state-dir",
)
INDEX_CACHE_SIZE_MB = TABLE.whole(
    "remote.log.index.file.cache.total.size.mb",
    None,
    least=1,
    since="KIP-405",
    acted_on="KIP-405's name of remote.log.index.file.cache.total.size.bytes, in MiB, for settings without "
    "that one; no release of Kafka has it",
)
TABLE.whole(
    "remote.log.index.file.cache.ttl.ms",
    900_000,
    least=-1,
    since="4.3",
    ignored="the cache of remote indexes in --state-dir keeps them until it is full",
)
TASK_INTERVAL_MS = TABLE.whole(
    "remote.log.manager.task.interval.ms",
    30_000,
    least=1,
    since="3.0",
    acted_on="after ten such intervals without its events, a broker counts as no longer tiering",
)
TASK_RETRY_BACKOFF_MS = TABLE.whole(
    "remote.log.manager.task.retry.backoff.ms",
    500,
    least=1,
    since="3.0",
    acted_on="how long tierctl waits before it repeats a failed call to the store for the first time",
)
TASK_RETRY_BACKOFF_MAX_MS = TABLE.whole(
    "remote.log.manager.task.retry.backoff.max.ms",
    30_000,
    least=1,
    since="3.0",
    acted_on="how long tierctl waits at most before it repeats a failed call to the store",
)
TASK_RETRY_JITTER = TABLE.number(
    "remote.log.manager.task.retry.jitter",
    0.2,
    least=0,
    most=0.5,
    since="3.0",
    acted_on="the random part of the time that tierctl waits before it repeats a failed call",
)
LISTENERS = TABLE.names(
    "listeners", ("PLAINTEXT://:9092",), acted_on="the address of the metadata manager's listener"
)
ADVERTISED_LISTENERS = TABLE.names(
    "advertised.listeners",
    acted_on="the address of the metadata manager's listener; it takes precedence over listeners",
)
_CONTROLLERS = "if it names several controllers, restore into states which file each of them needs"
PROCESS_ROLES = TABLE.names(
    "process.roles",
    (),
    choices=("broker", "controller"),
    since="2.8",
    acted_on="doctor checks that a controller has remote.log.storage.system.enable",
)
CONTROLLER_LISTENER_NAMES = TABLE.names(
    "controller.listener.names",
    (),
    since="2.8",
    acted_on="doctor checks that the metadata manager's listener is none of them",
)
CONTROLLER_QUORUM_VOTERS = TABLE.names("controller.quorum.voters", (), acted_on=_CONTROLLERS)
CONTROLLER_QUORUM_BOOTSTRAP_SERVERS = TABLE.names(
    "controller.quorum.bootstrap.servers", (), since="3.9", acted_on=_CONTROLLERS
)
LISTENER_SECURITY_PROTOCOL_MAP = TABLE.names(
    "listener.security.protocol.map", acted_on="the protocol of the metadata manager's listener"
)

STORAGE_MANAGER_CLASS = TABLE.text(
    "remote.log.storage.manager.class.name",
    since="3.0",
    acted_on="doctor warns if tiering is enabled without a plugin, or with Kafka's plugin for tests",
)
TABLE.text("remote.log.storage.manager.class.path", since="3.0", ignored=_CLASS)
METADATA_MANAGER_CLASS = TABLE.text(
    "remote.log.metadata.manager.class.name",
    "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
    since="3.0",
    acted_on="doctor checks the listener of the default class; tierctl implements the metadata topic itself",
)
TABLE.text("remote.log.metadata.manager.class.path", since="3.0", ignored=_CLASS)
TABLE.whole(
    "remote.log.manager.thread.pool.size",
    10,
    type=Type.INT,
    least=1,
    since="3.0",
    ignored=f"{_OWN_THREADS}; brokers have 2 by default since Kafka 4.0",
)
COPIER_THREADS = TABLE.whole(
    "remote.log.manager.copier.thread.pool.size",
    -1,
    type=Type.INT,
    least=1,
    besides=-1,
    since="3.9",
    ignored=_TEN_THREADS,
)
EXPIRATION_THREADS = TABLE.whole(
    "remote.log.manager.expiration.thread.pool.size",
    -1,
    type=Type.INT,
    least=1,
    besides=-1,
    since="3.9",
    ignored=_TEN_THREADS,
)
TABLE.whole(
    "remote.log.manager.follower.thread.pool.size",
    2,
    type=Type.INT,
    least=1,
    since="4.2",
    ignored=_OWN_THREADS,
)
TABLE.whole("remote.log.reader.threads", 10, type=Type.INT, least=1, since="3.0", ignored=_OWN_THREADS)
TABLE.whole(
    "remote.log.reader.max.pending.tasks",
    100,
    type=Type.INT,
    least=1,
    since="3.0",
    ignored="tierctl has no queue of consumers' requests",
)
COPY_MAX_BYTES_PER_SECOND = TABLE.whole(
    "remote.log.manager.copy.max.bytes.per.second",
    _LONG_MAX,
    least=1,
    since="3.8",
    acted_on="the maximum bytes per second that a run stores in tiers (--throttle-copy)",
)
FETCH_MAX_BYTES_PER_SECOND = TABLE.whole(
    "remote.log.manager.fetch.max.bytes.per.second",
    _LONG_MAX,
    least=1,
    since="3.8",
    acted_on="the maximum bytes per second that a run reads from tiers (--throttle-fetch)",
)
COPY_QUOTA_WINDOW_S = TABLE.whole(
    "remote.log.manager.copy.quota.window.size.seconds",
    1,
    type=Type.INT,
    least=1,
    since="3.8",
    acted_on=_BURST,
)
FETCH_QUOTA_WINDOW_S = TABLE.whole(
    "remote.log.manager.fetch.quota.window.size.seconds",
    1,
    type=Type.INT,
    least=1,
    since="3.8",
    acted_on=_BURST,
)
TABLE.whole(
    "remote.log.manager.copy.quota.window.num", 11, type=Type.INT, least=1, since="3.8", ignored=_AVERAGE
)
TABLE.whole(
    "remote.log.manager.fetch.quota.window.num", 11, type=Type.INT, least=1, since="3.8", ignored=_AVERAGE
)
TABLE.whole(
    "remote.fetch.max.wait.ms",
    500,
    type=Type.INT,
    least=1,
    since="3.8",
    ignored="tierctl waits for a store as long as the store's own timeout",
)
TABLE.whole(
    "remote.list.offsets.request.timeout.ms",
    30_000,
    least=1,
    since="4.0",
    ignored="tierctl waits for a store as long as the store's own timeout",
)
TABLE.whole(
    "remote.partition.remover.task.interval.ms",
    3_600_000,
    least=1,
    since="KIP-405",
    ignored="delete removes marked partitions once per run: schedule the runs, or repeat them with "
    "--interval; no release of Kafka has the setting",
)
LOG_RETENTION_MS = TABLE.whole("log.retention.ms", None, acted_on=_LAG_OF_RETENTION)
LOG_RETENTION_MINUTES = TABLE.whole("log.retention.minutes", None, type=Type.INT, acted_on=_LAG_OF_RETENTION)
LOG_RETENTION_HOURS = TABLE.whole("log.retention.hours", 168, type=Type.INT, acted_on=_LAG_OF_RETENTION)
LOG_RETENTION_BYTES = TABLE.whole("log.retention.bytes", -1, acted_on=_LAG_OF_RETENTION)
LOG_LOCAL_RETENTION_MS = TABLE.whole(
    "log.local.retention.ms", -2, least=-2, since="3.0", acted_on=_TOPIC_DEFAULT
)
LOG_LOCAL_RETENTION_BYTES = TABLE.whole(
    "log.local.retention.bytes", -2, least=-2, since="3.0", acted_on=_TOPIC_DEFAULT
)
LOG_REMOTE_COPY_LAG_MS = TABLE.whole(
    "log.remote.copy.lag.ms", 0, least=-1, since="4.4", acted_on=_TOPIC_DEFAULT
)
LOG_REMOTE_COPY_LAG_BYTES = TABLE.whole(
    "log.remote.copy.lag.bytes", -1, least=-1, since="4.4", acted_on=_TOPIC_DEFAULT
)
TABLE.whole("log.segment.bytes", 1 << 30, type=Type.INT, least=14, ignored=_OFFLINE)
LOG_CLEANUP_POLICY = TABLE.names(
    "log.cleanup.policy",
    ("delete",),
    choices=("compact", "delete"),
    acted_on="the cleanup.policy of topics for which --topic-configs states none",
)
TABLE.whole(
    "log.retention.check.interval.ms", 300_000, least=1, ignored="brokers apply it to their local segments"
)
TABLE.names("log.dirs", ignored="tierctl reads only the log directories that --log-dir names")
TABLE.text(
    "log.dir", "/tmp/kafka-logs", ignored="tierctl reads only the log directories that --log-dir names"
)


def metadata_listener(settings: Mapping[str, str]) -> tuple[str, str] | None:
    """Return `host:port` and the security protocol of the listener that the metadata manager connects to.

    None if the settings name no listener, or another one than those that they have. Source:
    RemoteLogManager.configureRLMM.
    """
    name = settings.get(METADATA_MANAGER_LISTENER.name, "").strip().upper()
    pairs = [each.upper().rpartition(":") for each in LISTENER_SECURITY_PROTOCOL_MAP.given(settings) or ()]
    protocols = {of.strip(): protocol.strip() for of, colon, protocol in pairs if colon}
    for listener in endpoints_row(settings).value(settings):
        its_name, _, address = listener.strip().partition("://")
        if name and its_name.upper() == name:
            host, _, port = address.rpartition(":")
            host = "localhost" if host in {"", "0.0.0.0", "[::]"} else host
            return f"{host}:{port}", protocols.get(name, name)
    return None


def has_own_metadata_manager(settings: Mapping[str, str]) -> bool:
    """Return whether the metadata manager is Kafka's own, TopicBasedRemoteLogMetadataManager."""
    return METADATA_MANAGER_CLASS.value(settings) == METADATA_MANAGER_CLASS.kafka_default


def endpoints_row(settings: Mapping[str, str]) -> Setting[tuple[str, ...]]:
    """Return the setting with the listeners that a broker advertises (KafkaConfig.advertisedListeners)."""
    return ADVERTISED_LISTENERS if ADVERTISED_LISTENERS.given(settings) else LISTENERS
