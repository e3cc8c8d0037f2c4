"""Requests that librdkafka does not offer, through kafka-python: mostly to the leader of a partition.

These are offsets of tiered storage, leader epochs, log directories and raw batches.
"""

import base64
import json
import logging
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from secrets import token_urlsafe
from tempfile import TemporaryDirectory
from typing import Any, TypeVar
from uuid import UUID

from tierctl import kafka as sdk
from tierctl.errors import AuthenticationError, MetadataError, NotFoundError, UsageError
from tierctl.kafka.client_settings import (
    BearerLogin,
    ClientSettings,
    KeyPair,
    PasswordLogin,
    Right,
    Tls,
    encrypted_key,
)
from tierctl.model import EpochEntry, TopicPartition, Uuid
from tierctl.model.progress import WAITS
from tierctl.model.settings import clients
from tierctl.wire.batches.scan import OffsetBounds, scan_heads
from tierctl.wire.batches.segment_file import (
    DamagedRange,
    RecordChunk,
    Window,
    chunk_of,
    empty_chunk,
    without_edge,
    without_unproven,
)

_TOKEN_LIFETIME_S = 3600
_TOKEN_BYTES_MAX = 1 << 20
_HINT = "are the brokers up and is that their address? request.timeout.ms in --command-config waits longer"
_NUMBERS = {
    "connections.max.idle.ms": "connections_max_idle_ms",
    "metadata.max.age.ms": "metadata_max_age_ms",
    "reconnect.backoff.max.ms": "reconnect_backoff_max_ms",
    "reconnect.backoff.ms": "reconnect_backoff_ms",
    "retry.backoff.ms": "retry_backoff_ms",
}


class NotReadyError(MetadataError):
    """A temporary failure, such as no leader or no connection; retry with a new client."""


def connect(settings: ClientSettings) -> Any:
    """Return a connected KafkaAdminClient; raise as `translated`, and UsageError without kafka-python."""
    # kafka-python logs its settings, with passwords, below this level; errors arrive as exceptions.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    with translated(f"connecting to {settings.bootstrap}"):
        return sdk.kafka_python.KafkaAdminClient(**configuration(settings))


def configuration(settings: ClientSettings) -> dict[str, Any]:
    """Return the settings with kafka-python's names and values."""
    config: dict[str, Any] = {
        "bootstrap_servers": list(settings.bootstrap.split(",")),
        "security_protocol": settings.security_protocol.value,
        "client_id": settings.more.get("client.id", "tierctl"),
        "request_timeout_ms": settings.request_timeout_ms,
        "bootstrap_timeout_ms": settings.request_timeout_ms,
        "reconnect_backoff_max_ms": 1000,
    }
    config |= {name: int(settings.more[key]) for key, name in _NUMBERS.items() if key in settings.more}
    if clients.CLIENT_DNS_LOOKUP.name in settings.more:
        config["client_dns_lookup"] = settings.more[clients.CLIENT_DNS_LOOKUP.name]
    if settings.tls is not None:
        config["ssl_context"] = tls_context(settings.tls)
    match settings.login:
        case PasswordLogin(mechanism=mechanism, username=username, password=password):
            config["sasl_mechanism"] = mechanism
            if mechanism != "PLAIN":
                # kafka-python does not write the name as RFC 5802 has it, and the broker refuses the request.
                username = username.replace("=", "=3D").replace(",", "=2C")
            config |= {"sasl_plain_username": username, "sasl_plain_password": password}
        case BearerLogin() as bearer:
            config |= {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": _token_provider(bearer)}
        case None:
            pass
    return config


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Return the TLS context for `tls`."""
    context = ssl.create_default_context(cadata=tls.truststore_pem)
    # From Python 3.13 on, certificates without all extensions of RFC 5280 are refused: those of a CA that was
    # made with `openssl req -x509`. Java and librdkafka take them.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = tls.verifies_hostname
    if tls.key_pair is not None:
        _load_key_pair(context, tls.key_pair)
    return context


def _load_key_pair(context: ssl.SSLContext, key_pair: KeyPair) -> None:
    # Python's ssl reads keys only from files: the key is encrypted there, and the file is removed at once.
    password = token_urlsafe(24)
    with TemporaryDirectory(prefix="tierctl-") as folder:
        path = Path(folder) / "key.pem"
        path.write_text(encrypted_key(key_pair, password) + key_pair.chain_pem, encoding="ascii")
        context.load_cert_chain(path, password=password)


def _token_provider(bearer: BearerLogin) -> Any:
    class Tokens(sdk.kafka_oauth.AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return fetch_token(bearer, now_s=time.time())

        def extensions(self) -> dict[str, str]:
            return dict(bearer.extensions)

    return Tokens()


def fetch_token(bearer: BearerLogin, *, now_s: float) -> str:
    """Return a token: unsigned for a subject (KIP-255), otherwise from the token endpoint (KIP-768).

    Raises AuthenticationError if the endpoint returns no token.
    """
    if bearer.subject is not None:
        # A broker refuses a token that was issued after its own time, and allows no difference of the clocks.
        issued_s = int(now_s)
        claims = {"sub": bearer.subject, "iat": issued_s, "exp": issued_s + _TOKEN_LIFETIME_S}
        return f"{_base64url({'alg': 'none'})}.{_base64url(claims)}."
    url = bearer.token_endpoint_url or ""
    if urllib.parse.urlsplit(url).scheme not in {"http", "https"}:
        raise UsageError(f"sasl.oauthbearer.token.endpoint.url={url!r} is no http(s) address")
    request = urllib.request.Request(url, data=_token_request(bearer), headers=_token_headers(bearer))
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return str(json.loads(response.read(_TOKEN_BYTES_MAX))["access_token"])
    except (OSError, urllib.error.URLError, ValueError, KeyError, TypeError) as e:
        raise AuthenticationError(
            f"{url} gave no token: {e}", hint="check clientId and clientSecret"
        ) from None


def _token_request(bearer: BearerLogin) -> bytes:
    fields = {"grant_type": "client_credentials"}
    if bearer.scope is not None:
        fields["scope"] = bearer.scope
    return urllib.parse.urlencode(fields).encode()


def _token_headers(bearer: BearerLogin) -> dict[str, str]:
    who = base64.b64encode(f"{bearer.client_id}:{bearer.client_secret}".encode()).decode()
    return {"Authorization": f"Basic {who}", "Content-Type": "application/x-www-form-urlencoded"}


def _base64url(claims: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()


@contextmanager
def translated(doing: str, needs: Right | None = None) -> Iterator[None]:
    """Translate kafka-python's errors in the body: AuthenticationError, NotFoundError, MetadataError.

    `doing` describes the operation for the message; `needs` is the right that it requires.
    """

    try:
        yield
    except (
        sdk.kafka_errors.SaslAuthenticationFailedError,
        sdk.kafka_errors.AuthorizationError,
        sdk.kafka_errors.UnsupportedSaslMechanismError,
        sdk.kafka_errors.IllegalSaslStateError,
        ssl.SSLError,
    ) as e:
        hint = "check user, password, mechanism and certificates in --command-config"
        if needs is not None and isinstance(e, sdk.kafka_errors.AuthorizationError):
            hint = needs.hint
        raise AuthenticationError(f"{doing}: {_text(e)}", hint=hint) from None
    except (sdk.kafka_errors.UnknownTopicOrPartitionError, sdk.kafka_errors.UnknownTopicIdError) as e:
        raise NotFoundError(f"{doing}: {_text(e)}", hint="check that this is the right cluster") from None
    except (sdk.kafka_errors.KafkaError, OSError) as e:
        # A broker id is unknown if a partition has no leader (-1), or one that came after the connection.
        passing = (sdk.kafka_errors.RetriableError, sdk.kafka_errors.UnknownBrokerIdError, OSError)
        passes = isinstance(e, passing)
        raise (NotReadyError if passes else MetadataError)(f"{doing}: {_text(e)}", hint=_HINT) from None


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


# Fetches the batches of a topic unparsed, for offsets for which a consumer delivered no record.
#
# A consumer skips control records, compacted offsets and damage alike. Deletions in a metadata partition
# may be decided only if nothing is missing, so the bytes themselves are examined.

FETCH_BYTES_MAX = 8 << 20
_WAIT_S = 0.2


class RawFetcher:
    """Read one topic with Fetch requests; connect at the first request. Only one thread may use it."""

    def __init__(self, settings: ClientSettings, topic: str) -> None:
        self._stall_timeout_ms = settings.stall_timeout_ms
        self._topic = topic
        self._leaders = LeaderLogs(settings)

    def read(self, partition: int, start_offset: int, end_offset: int) -> Iterator[RecordChunk]:
        """Yield the records in [start_offset, end_offset) with every gap and damaged range.

        At least one chunk is yielded; the last chunk ends at `end_offset`.
        """
        source = f"{self._topic}-{partition}"
        while start_offset < end_offset:
            window = self._window(partition, start_offset)
            chunk = chunk_of(window, partition, start_offset, end_offset, source)
            if not len(window.heads) and chunk.damage:
                # There is no valid batch after the damage, so all offsets up to `end_offset` are reported as
                # damaged.
                chunk = empty_chunk(
                    partition, end_offset, DamagedRange(start_offset, end_offset, chunk.damage[-1].error)
                )
            if chunk.next_offset <= start_offset:
                raise MetadataError(
                    f"{source}: the broker returned no batch at offset {start_offset}, although its log has "
                    "this offset",
                    hint="run again; look at the partition with kafka-dump-log on the broker",
                )
            yield chunk
            start_offset = chunk.next_offset

    def _window(self, partition: int, offset: int) -> Window:
        data = self._fetch(partition, offset)
        # The first batch may begin before the requested offset.
        expected = min(offset, int.from_bytes(data[:8], "big", signed=True))
        whole, end = without_edge(scan_heads(data, OffsetBounds(expected), is_window=True), len(data))
        # A response may have one batch only, which is then used without its follower.
        heads = without_unproven(whole, end, expected)[0] or whole
        if not len(heads):
            # The response has damaged bytes only, and it is unknown where the damage ends: report all of
            # them.
            heads = replace(scan_heads(data, OffsetBounds(expected)), torn=None)
        return Window(data, 0, heads, expected)

    def _fetch(self, partition: int, offset: int) -> bytes:
        deadline = time.monotonic() + self._stall_timeout_ms / 1000
        asked = TopicPartition(self._topic, partition)
        while not (data := self._leaders.fetch(asked, offset, self._stall_timeout_ms)):
            if time.monotonic() > deadline:
                raise MetadataError(
                    f"reading {asked} from offset {offset} on: no data arrived", hint="run again"
                )
            time.sleep(_WAIT_S)
        return data

    def close(self) -> None:
        """Disconnect."""
        self._leaders.close()


def _fetch(client: Any, *, topic: str, partition: int, offset: int) -> bytes:
    """Send one Fetch for one partition to its leader; return no bytes if none arrive within half a second.

    Raises kafka-python's errors.
    """
    wanted = sdk.kafka_consumer_protocol.FetchRequest.FetchTopic.FetchPartition(
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=FETCH_BYTES_MAX,
        current_leader_epoch=-1,
        log_start_offset=-1,
        last_fetched_epoch=-1,
    )
    request = sdk.kafka_consumer_protocol.FetchRequest(
        replica_id=-1,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=FETCH_BYTES_MAX,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[sdk.kafka_consumer_protocol.FetchRequest.FetchTopic(topic=topic, partitions=[wanted])],
        forgotten_topics_data=[],
        rack_id="",
        # Version 13 and later name topics only by id.
        max_version=12,
    )

    partition_of = sdk.kafka_python.TopicPartition(topic, partition)

    async def ask() -> Any:
        leaders = await client._async_get_leader_for_partitions([partition_of])  # noqa: SLF001
        (leader,) = leaders
        if leader < 0:
            raise sdk.kafka_errors.LeaderNotAvailableError(f"{topic}-{partition} has no leader")
        return await client._manager.send(request, node_id=leader)  # noqa: SLF001

    response = client._manager.run(ask)  # noqa: SLF001
    found = response.responses[0].partitions[0]
    error = sdk.kafka_errors.for_code(found.error_code)
    if error is not sdk.kafka_errors.NoError:
        raise error
    return bytes(found.records or b"")


EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
_FIRST_VERSIONS = {EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
"""The first version of ListOffsets with each of these offsets (KIP-405, KIP-1005, KIP-1023)."""
_EPOCHS_A_REQUEST = 1000

R = TypeVar("R")


class LeaderLogs:
    """A connection to the cluster, made by the first request.

    Raises AuthenticationError, NotFoundError, MetadataError, UsageError.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._client: Any = None

    def _ask(
        self,
        doing: str,
        question: Callable[[Any], R],
        needs: Right | None = None,
        timeout_ms: int | None = None,
    ) -> R:
        """Return the answer to `question`; retry while the leader or the connection is lost.

        Retries end after `timeout_ms`, by default `request_timeout_ms`. `needs` is the right that the request
        requires.
        """
        timeout_ms = self._settings.request_timeout_ms if timeout_ms is None else timeout_ms
        with WAITS.waiting(f"{doing} ({self._settings.bootstrap})"):
            return self._answer(doing, question, needs, time.monotonic() + timeout_ms / 1000)

    def _answer(self, doing: str, question: Callable[[Any], R], needs: Right | None, deadline: float) -> R:
        while True:
            try:
                if self._client is None:
                    self._client = connect(self._settings)
                with translated(doing, needs):
                    return question(self._client)
            except NotReadyError:
                self.close()
                if time.monotonic() > deadline:
                    raise
                time.sleep(_WAIT_S)

    def close(self) -> None:
        """Disconnect."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def offsets(self, partitions: Collection[TopicPartition], spec: int) -> dict[TopicPartition, int | None]:
        """Return the offsets of the kind `spec`, EARLIEST_LOCAL or a later one.

        None where the leader has no such offset, or is too old for the kind.
        """
        if not partitions:
            return {}
        found = self._ask(f"asking for offsets {spec}", lambda client: _offsets(client, partitions, spec))
        return {p: found[p] if found.get(p, -1) >= 0 else None for p in partitions}

    def leader_epochs(self, partition: TopicPartition, log_start_offset: int) -> tuple[EpochEntry, ...]:
        """Return the leader's epochs, as in its leader-epoch-checkpoint, from `log_start_offset` on.

        Epoch e starts where epoch e - 1 ends, or the last earlier epoch with records (OffsetForLeaderEpoch,
        LeaderEpochFileCache.endOffsetFor).
        """
        ends = self._ask(
            f"asking for the leader epochs of {partition}",
            lambda client: _ends(client, partition),
            Right("Describe", partition.topic),
        )
        return lineage_of(ends, log_start_offset)

    def current_epochs(self, topics: Collection[str]) -> dict[TopicPartition, int]:
        """Return the leader epoch of each partition of `topics` that has a leader now."""
        doing = "asking for the leader epochs of topics"
        return self._ask(doing, lambda client: client._manager.run(_epochs_of, client, topics))  # noqa: SLF001

    def metadata_version_level(self) -> int | None:
        """Return the highest metadata.version that the answering broker supports; None if it has none."""
        doing = "asking for the version of the brokers"
        features = self._ask(doing, lambda client: client.describe_features())
        supported = features.get("metadata.version", {}).get("supported")
        return None if supported is None else int(supported[1])

    def controller_clock(self) -> tuple[int, int]:
        """Return the id of the active controller, and its clock in milliseconds since 1970.

        The leader of the metadata quorum reports its own time as the time when it had caught up (KIP-836).
        """
        doing = "asking the controller for its time"
        answer = self._ask(doing, lambda client: client.describe_metadata_quorum(), Right("Describe"))
        quorum = answer["topics"][0]["partitions"][0]
        leader = int(quorum["leader_id"])
        times = {each["replica_id"]: each["last_caught_up_timestamp"] for each in quorum["current_voters"]}
        if times.get(leader, -1) < 0:
            raise MetadataError(f"{doing}: controller {leader} does not report it")
        return leader, int(times[leader])

    def transactional_id(self, producer_id: int) -> str | None:
        """Return the transactional id of a producer; None if no coordinator knows it."""
        answers = self._ask(
            "asking the coordinators for transactions",
            lambda client: client.list_transactions(producer_id_filters=[producer_id]),
        )
        return next((str(each.transactional_id) for found in answers.values() for each in found), None)

    def groups(self) -> list[str]:
        """Return the ids of the groups that may have committed offsets: all but share groups, ascending.

        librdkafka lists those of consumers only, and so none of Kafka Streams' own protocol (KIP-1071).
        """
        doing = "listing the consumer groups"
        found = self._ask(doing, lambda client: client.list_groups(), Right("Describe"))
        return sorted({each["group_id"] for each in found if each["protocol_type"] != "share"})

    def unknown_topic_ids(self, topic_ids: Collection[Uuid], *, by_any: bool = False) -> frozenset[Uuid]:
        """Return the ids that every broker, or any broker, answers with UNKNOWN_TOPIC_ID (Metadata by id).

        Their topics were deleted or never existed. A topic which this client may not describe is known by its
        id, but missing in a list of names. One which a broker does not know yet does not count as deleted,
        unless `by_any`.
        """
        return self._ask("asking for topics by their ids", lambda client: _unknown(client, topic_ids, by_any))

    def log_bytes(self, partitions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return the size of each partition's segments on the given broker, None if it is unknown."""
        found = self._ask("asking for the sizes of log directories", _sizes)
        return {p: found.get((p.topic, p.partition, leader)) for p, leader in partitions.items()}

    def fetch(self, partition: TopicPartition, offset: int, timeout_ms: int | None = None) -> bytes:
        """Return batches from the one with `offset` on; none if none arrive within half a second."""
        question = partial(_fetch, topic=partition.topic, partition=partition.partition, offset=offset)
        doing = f"reading {partition} from offset {offset} on"
        return self._ask(doing, question, Right("Read", partition.topic), timeout_ms)

    def batch_bytes(
        self, partition: TopicPartition, start_offset: int, end_offset: int, *, bytes_max: int
    ) -> int:
        """Return the size of the batches with offsets in [start, end), read one after the other.

        The first batch may begin below `start_offset`: DeleteRecords raises a log start inside a batch, too.
        Reading stops above `bytes_max`. Replicas and the tier have the same bytes. Raise MetadataError if the
        leader serves no batch before that: the size is unknown then.
        """
        total = 0
        while start_offset < end_offset and total <= bytes_max:
            data = self.fetch(partition, start_offset)
            # An answer ends within a batch.
            heads, _ = without_edge(scan_heads(data, is_window=True), len(data))
            mine = (heads.next_offsets > start_offset) & (heads.base_offsets < end_offset)
            total += int(heads.sizes_bytes[mine].sum())
            if not len(heads) or int(heads.next_offsets[-1]) <= start_offset:
                raise MetadataError(
                    f"{partition}: its leader serves no batch at offset {start_offset}", hint="run again"
                )
            start_offset = int(heads.next_offsets[-1])
        return total


def lineage_of(ends: Mapping[int, tuple[int, int]], log_start_offset: int) -> tuple[EpochEntry, ...]:
    """Return the epochs and their start offsets; `ends` has a leader's answer for each epoch asked.

    An answer is (the last epoch with records up to the asked epoch, its end offset). An epoch that is
    answered with itself is in the leader's log, and starts where the previous epoch ends. The first epoch
    starts at the log start offset. Only the latest epoch may have no records.
    """
    known = [epoch for epoch in sorted(ends) if ends[epoch][0] == epoch]
    entries: list[EpochEntry] = []
    for epoch in known:
        start = max(ends[epoch - 1][1] if epoch - 1 in ends else log_start_offset, log_start_offset)
        if start < ends[epoch][1] or epoch == known[-1]:
            entries.append(EpochEntry(epoch, start))
    return tuple(entries)


def _offsets(client: Any, partitions: Collection[TopicPartition], spec: int) -> dict[TopicPartition, int]:
    found = client._manager.run(_listed_offsets, client, partitions, spec)  # noqa: SLF001
    return {TopicPartition(key.topic, key.partition): value.offset for key, value in found.items()}


def _ends(client: Any, partition: TopicPartition) -> dict[int, tuple[int, int]]:
    leader, latest = client._manager.run(_leader_of, client, partition)  # noqa: SLF001
    ends: dict[int, tuple[int, int]] = {}
    for first in range(0, latest + 1, _EPOCHS_A_REQUEST):
        epochs = range(first, min(first + _EPOCHS_A_REQUEST, latest + 1))
        ends |= client._manager.run(_epoch_ends, client, partition, leader, epochs)  # noqa: SLF001
    return ends


def _unknown(client: Any, topic_ids: Collection[Uuid], by_any: bool) -> frozenset[Uuid]:

    brokers = [broker.node_id for broker in client._manager.cluster.brokers()]  # noqa: SLF001
    if not brokers:
        raise sdk.kafka_errors.MetadataEmptyBrokerList
    asked = frozenset(topic_ids)
    for broker in brokers:
        if asked:
            unknown = client._manager.run(_unknown_ids, client, broker, asked)  # noqa: SLF001
            asked = asked - unknown if by_any else asked & unknown
    return frozenset(topic_ids) - asked if by_any else asked


def _sizes(client: Any) -> dict[tuple[str, int, int], int]:
    """Return the sizes in bytes by topic, partition and broker."""
    return {
        (topic["name"], part["partition_index"], broker["broker"]): part["partition_size"]
        for broker in client.describe_log_dirs()
        for folder in broker["log_dirs"]
        for topic in folder["topics"]
        for part in topic["partitions"]
        if not part["is_future_key"]
    }


async def _listed_offsets(client: Any, partitions: Collection[TopicPartition], spec: int) -> dict[Any, Any]:
    # list_partition_offsets can't be used: it supports the kinds of offsets only up to LATEST_TIERED.
    asked = {sdk.kafka_python.TopicPartition(p.topic, p.partition) for p in partitions}
    topic = sdk.kafka_consumer_protocol.ListOffsetsRequest.ListOffsetsTopic
    found: dict[Any, Any] = {}
    leaders = await client._async_get_leader_for_partitions(asked)  # noqa: SLF001
    for leader, its_partitions in leaders.items():
        by_topic: dict[str, list[Any]] = {}
        for each in its_partitions:
            wanted = topic.ListOffsetsPartition(partition_index=each.partition, timestamp=spec)
            by_topic.setdefault(each.topic, []).append(wanted)
        request = sdk.kafka_consumer_protocol.ListOffsetsRequest(
            isolation_level=0,
            topics=[topic(name=name, partitions=wanted) for name, wanted in by_topic.items()],
            min_version=_FIRST_VERSIONS[spec],
        )
        # Of brokers that are being upgraded, only some may be too old.
        with suppress(sdk.kafka_errors.UnsupportedVersionError):
            response = await client._manager.send(request, node_id=leader)  # noqa: SLF001
            found |= client._list_partition_offsets_process_response(response)  # noqa: SLF001
    return found


async def _unknown_ids(client: Any, broker: int, topic_ids: Collection[Uuid]) -> frozenset[Uuid]:

    topics = [
        sdk.kafka_metadata_protocol.MetadataRequest.MetadataRequestTopic(
            topic_id=UUID(bytes=i.bytes), name=None
        )
        for i in topic_ids
    ]
    # Requests by id need version 12 or later.
    request = sdk.kafka_metadata_protocol.MetadataRequest(
        topics=topics, allow_auto_topic_creation=False, min_version=12
    )
    response = await client._manager.send(request, node_id=broker)  # noqa: SLF001
    return frozenset(
        Uuid.from_bytes(topic.topic_id.bytes)
        for topic in response.topics
        if sdk.kafka_errors.for_code(topic.error_code) is sdk.kafka_errors.UnknownTopicIdError
    )


async def _leader_of(client: Any, partition: TopicPartition) -> tuple[int, int]:
    """Return the leader's id and epoch."""

    (topic,) = (await client._get_cluster_metadata([partition.topic]))["topics"]  # noqa: SLF001
    for part in topic["partitions"]:
        if part["partition_index"] == partition.partition:
            if part["leader_id"] < 0:
                raise sdk.kafka_errors.LeaderNotAvailableError(f"{partition} has no leader")
            return part["leader_id"], part["leader_epoch"]
    raise sdk.kafka_errors.UnknownTopicOrPartitionError(str(partition))


async def _epochs_of(client: Any, topics: Collection[str]) -> dict[TopicPartition, int]:
    found = (await client._get_cluster_metadata(sorted(topics)))["topics"]  # noqa: SLF001
    return {
        TopicPartition(topic["name"], part["partition_index"]): part["leader_epoch"]
        for topic in found
        for part in topic["partitions"]
        if part["leader_id"] >= 0
    }


async def _epoch_ends(
    client: Any, partition: TopicPartition, leader: int, epochs: Iterable[int]
) -> dict[int, tuple[int, int]]:

    topic: Callable[..., Any] = sdk.kafka_consumer_protocol.OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    wanted = [
        sdk.kafka_consumer_protocol.OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition(
            partition=partition.partition, current_leader_epoch=-1, leader_epoch=epoch
        )
        for epoch in epochs
    ]
    request = sdk.kafka_consumer_protocol.OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[topic(topic=partition.topic, partitions=wanted)]
    )
    response = await client._manager.send(request, node_id=leader)  # noqa: SLF001
    answers = response.topics[0].partitions
    for answer in answers:
        error = sdk.kafka_errors.for_code(answer.error_code)
        if error is not sdk.kafka_errors.NoError:
            raise error(str(partition))
    return {
        epoch: (answer.leader_epoch, answer.end_offset) for epoch, answer in zip(epochs, answers, strict=True)
    }
