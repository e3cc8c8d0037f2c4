"""Creates confluent-kafka's clients from ClientSettings, translates their errors, and consumes records.

librdkafka retries every failure and reports its cause only to a callback: each client has an `ErrorWatch`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Set
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tierctl import kafka as sdk
from tierctl.errors import AuthenticationError, MetadataError, NotFoundError, TierctlError, UsageError
from tierctl.kafka.client_settings import BearerLogin, ClientSettings, PasswordLogin, Right
from tierctl.model import IsolationLevel, TopicPartition
from tierctl.model.progress import WAITS

if TYPE_CHECKING:
    from confluent_kafka import KafkaError


R = TypeVar("R")
C = TypeVar("C")

# Errors with the same meaning for every request.
_REFUSED = frozenset(
    {
        "_AUTHENTICATION",
        "CLUSTER_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "SASL_AUTHENTICATION_FAILED",
        "TOPIC_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    }
)
_UNKNOWN = frozenset({"UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"})
# Errors of ListOffsets while a leader is elected.
_LEADERLESS = frozenset(
    {
        "FENCED_LEADER_EPOCH",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION",
        "OFFSET_NOT_AVAILABLE",
        "UNKNOWN_LEADER_EPOCH",
        "_NOENT",
    }
)
_WAIT_S = 0.1
_HEARING_S = 10.0
"""A broker may hear of a new topic so much later than the one that described it."""
_STUCK_S = 1.0
_UNREACHABLE = ("Connection refused", "Failed to resolve")
_UNREACHABLE_FOR_S = 1.5
"""How long brokers may refuse connections before they count as down: they may be restarting."""
_AUTHENTICATION_HINT = (
    "check user, password and mechanism in --command-config, and what the broker allows them"
)
_HANDSHAKE = "SSL handshake failed"
_BROKEN_HANDSHAKES_MAX = 2
"""Handshakes that the other side may end: a broker that is stopping ends one."""
_PROTOCOL_HINT = "check that security.protocol in --command-config is that of the listener with this port"


def _tls_hint(text: str) -> str:
    """Return what to do about an error of TLS, by the client's message."""
    if "certificate verify failed" in text:
        return (
            "check ssl.truststore.* in --command-config, and that the broker's certificate has the name by "
            "which it is addressed"
        )
    if "alert" in text:
        return "check ssl.keystore.* in --command-config: the broker refuses the certificate of this client"
    return _PROTOCOL_HINT


class NoLeaderError(MetadataError):
    """A partition has no leader at the moment, or the partition does not exist."""


class ErrorWatch:
    """Record the last error that a client reported, for the message of the error that it causes.

    `settings` has the servers, and the origin of their addresses.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self.last: str | None = None
        self._settings = settings
        self._began_s = time.monotonic()
        self._has_connected = False
        self._refusal: AuthenticationError | None = None
        self._unreachable: MetadataError | None = None
        self._broken_handshakes = 0

    def __call__(self, error: KafkaError) -> None:
        """Receive an error, as librdkafka's error_cb."""
        name, text = error.name(), error.str()
        if name == "_AUTHENTICATION":
            self._refusal = AuthenticationError(text, hint=_AUTHENTICATION_HINT)
        elif name == "_SSL" or ("SSL routines" in text and " alert " in text):
            self._refusal = AuthenticationError(text, hint=_tls_hint(text))
        elif _HANDSHAKE in text and not self._has_connected:
            self._broken_handshakes += 1
            if self._broken_handshakes == _BROKEN_HANDSHAKES_MAX:
                self._refusal = AuthenticationError(text, hint=_PROTOCOL_HINT)
        # _ALL_BROKERS_DOWN is a consequence of the error before it, which is more specific.
        if name == "_ALL_BROKERS_DOWN":
            self._unreachable = self._why_unreachable()
        else:
            self.last = text

    def check(self) -> None:
        """Raise AuthenticationError if the broker refused the client: retrying would not help."""
        if self._refusal is not None:
            raise self._refusal

    def _why_unreachable(self) -> MetadataError | None:
        """Return the error for brokers that are all down, by the error before; None if it may pass.

        The client reports no other error if the broker accepts a connection and closes it.
        """
        where = f"{self._settings.bootstrap} ({self._settings.servers_from})"
        if self.last is None:
            return MetadataError(
                f"the broker at {where} accepts connections and closes them, without an answer to "
                f"security.protocol={self._settings.security_protocol}",
                hint=f"{_PROTOCOL_HINT}, or look whether a proxy in front of the broker closes them",
            )
        cause = next((cause for cause in _UNREACHABLE if cause in self.last), None)
        if cause is None:
            return None
        return MetadataError(
            f"no broker accepts connections at {where}: {cause}",
            hint=f"check that the brokers are running, and check {self._settings.servers_from}",
        )

    def require_reachable(self) -> None:
        """Raise MetadataError if no broker has answered a connection in the first _UNREACHABLE_FOR_S."""
        if self._has_connected or self._unreachable is None:
            return
        if time.monotonic() > self._began_s + _UNREACHABLE_FOR_S:
            raise self._unreachable

    def connected(self) -> None:
        """Note that a broker has answered: later refusals are a restart, which the client waits for."""
        self._has_connected = True

    @property
    def facts(self) -> str:
        """Return the last error as the end of a sentence, "" if there is none."""
        return f"; the client says: {self.last}" if self.last else ""


def make_client(
    factory: Callable[[dict[str, Any]], C], settings: ClientSettings, more: Mapping[str, Any] | None = None
) -> tuple[C, ErrorWatch]:
    """Return a client and its watch; raise UsageError if librdkafka refuses the settings."""

    watch = ErrorWatch(settings)
    with TemporaryDirectory(prefix="tierctl-") as folder:
        config = {**configuration(settings, Path(folder)), **(more or {}), "error_cb": watch}
        try:
            return factory(config), watch
        except sdk.confluent_kafka.KafkaException as e:
            # librdkafka's message names the setting, not its value.
            raise UsageError(f"the Kafka client refused its settings: {e.args[0].str()}") from None


def configuration(settings: ClientSettings, folder: Path) -> dict[str, Any]:
    """Return the settings with librdkafka's names; write certificates to `folder`, which it reads once."""
    config: dict[str, Any] = {
        "bootstrap.servers": settings.bootstrap,
        "security.protocol": settings.security_protocol.value,
        "client.id": "tierctl",
        "reconnect.backoff.max.ms": 1000,
        # With sparse connections, librdkafka 2.16 connects to a broker that is down thousands of times a
        # second while a request waits for it, whatever the back-off.
        "enable.sparse.connections": False,
        # librdkafka's own log is off: errors arrive through `error_cb`.
        "log_level": 0,
        **settings.more,
    }
    if settings.tls is not None:
        config["ssl.endpoint.identification.algorithm"] = (
            "https" if settings.tls.verifies_hostname else "none"
        )
        if settings.tls.truststore_pem is not None:
            config["ssl.ca.location"] = _file(folder / "ca.pem", settings.tls.truststore_pem)
        if settings.tls.key_pair is not None:
            config["ssl.certificate.location"] = _file(folder / "chain.pem", settings.tls.key_pair.chain_pem)
            config["ssl.key.pem"] = settings.tls.key_pair.key_pem
    return config | _login(settings)


def _file(path: Path, text: str) -> str:
    path.write_text(text, encoding="ascii")
    return str(path)


def _login(settings: ClientSettings) -> dict[str, Any]:
    match settings.login:
        case PasswordLogin(mechanism=mechanism, username=username, password=password):
            return {"sasl.mechanism": mechanism, "sasl.username": username, "sasl.password": password}
        case BearerLogin() as bearer:
            return _bearer(bearer)
        case _:
            return {}


def _bearer(bearer: BearerLogin) -> dict[str, Any]:
    found: dict[str, Any] = {"sasl.mechanism": "OAUTHBEARER"}
    if bearer.subject is not None:
        words = [f"principal={bearer.subject}", *(f"extension_{k}={v}" for k, v in bearer.extensions.items())]
        return found | {
            "enable.sasl.oauthbearer.unsecure.jwt": True,
            "sasl.oauthbearer.config": " ".join(words),
        }
    found |= {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": bearer.token_endpoint_url,
        "sasl.oauthbearer.client.id": bearer.client_id,
        "sasl.oauthbearer.client.secret": bearer.client_secret,
    }
    if bearer.scope is not None:
        found["sasl.oauthbearer.scope"] = bearer.scope
    if bearer.extensions:
        found["sasl.oauthbearer.extensions"] = ",".join(f"{k}={v}" for k, v in bearer.extensions.items())
    return found


def until_heard(ask: Callable[[], R], *, waits: bool = True) -> R:
    """Return `ask()`; ask again, if it `waits`, while it raises NotFoundError for a new topic."""
    deadline = time.monotonic() + (_HEARING_S if waits else 0)
    while True:
        try:
            return ask()
        except NotFoundError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(_WAIT_S)


def answer(
    client: Any,
    watch: ErrorWatch,
    future: Future[R],
    doing: str,
    *,
    timeout_ms: int,
    needs: Right | None = None,
) -> R:
    """Wait for the result of an admin call; raise as `translated`, at once if the broker refuses."""
    began_s = refreshed_s = time.monotonic()
    with translated(doing, watch, needs), WAITS.waiting(doing):
        while True:
            try:
                found = future.result(_WAIT_S)
            except FutureTimeoutError:
                client.poll(0)
                watch.check()
                watch.require_reachable()
                now_s = time.monotonic()
                if now_s - refreshed_s > _STUCK_S:
                    _refresh_metadata(client)
                    refreshed_s = time.monotonic()
                if now_s > began_s + timeout_ms / 1000:
                    raise MetadataError(
                        f"{doing}: no answer within {timeout_ms} ms{watch.facts}", hint=_RETRY_HINT
                    ) from None
            else:
                watch.connected()
                return found


def _refresh_metadata(client: Any) -> None:
    """Refresh the cluster metadata of an admin client.

    The client sends most requests to the controller that it knows. If that broker is down, the client waits
    and does not search for the new controller.
    """

    with suppress(sdk.confluent_kafka.KafkaException):
        client.list_topics(timeout=_STUCK_S)


_RETRY_HINT = (
    "are the brokers up and is that their address? request.timeout.ms in --command-config waits longer"
)


@contextmanager
def translated(doing: str, watch: ErrorWatch, needs: Right | None = None) -> Iterator[None]:
    """Translate confluent-kafka's errors in the body; `doing` and `needs` describe the operation."""

    try:
        yield
    except sdk.confluent_kafka.KafkaException as e:
        watch.check()
        raise error_of(e.args[0], doing, watch, needs) from e


def error_of(error: KafkaError, doing: str, watch: ErrorWatch, needs: Right | None = None) -> TierctlError:
    """Return AuthenticationError, NotFoundError, or MetadataError for an error that may be temporary."""
    name, text = error.name(), error.str()
    if name in _REFUSED:
        lacks_right = needs is not None and name.endswith("_AUTHORIZATION_FAILED")
        return AuthenticationError(
            f"{doing}: {text}", hint=needs.hint if needs and lacks_right else _AUTHENTICATION_HINT
        )
    if name in _UNKNOWN:
        return NotFoundError(
            f"{doing}: {text}", hint="check that this is the right cluster; kafka-topics lists its topics"
        )
    kind = NoLeaderError if name in _LEADERLESS else MetadataError
    return kind(f"{doing}: {text} ({name}){watch.facts}", hint=_RETRY_HINT)


CHUNK_BYTES_MAX = 8 << 20
"""The limit of the records of one chunk, and of fetched records that wait in memory."""
# librdkafka always looks for the group's coordinator, although a client that may read the topic may have no
# right on groups.
PASSING = frozenset({"GROUP_AUTHORIZATION_FAILED", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_TRANSPORT"})
CONSUMER_CONFIG = {
    # A consumer must name a group. It never joins: partitions are assigned and nothing is committed.
    "group.id": "tierctl",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "isolation.level": "read_uncommitted",
    "allow.auto.create.topics": False,
    "check.crcs": True,
    "fetch.wait.max.ms": 20,
    "queued.max.messages.kbytes": CHUNK_BYTES_MAX >> 10,
}
_POLL_S = 0.2
_AT_ONCE = 2000
_CONFIG = {
    **CONSUMER_CONFIG,
    # Leader epochs come with the cluster's metadata: the consumer must learn of an election soon (KIP-320).
    "topic.metadata.refresh.interval.ms": 1000,
}
_LAST_OFFSET = (1 << 63) - 1
_NOT_SERVED = frozenset({"OFFSET_OUT_OF_RANGE", "_AUTO_OFFSET_RESET", "_BAD_MSG", "_LOG_TRUNCATION"})


class NotServedError(MetadataError):
    """The leader does not serve an offset: it is out of range, truncated or damaged, or no data arrived."""


class ServedRecord(NamedTuple):
    """A record as its leader serves it; null keys, values and header values are None.

    `leader_epoch` is None where the client does not report it.
    """

    offset: int
    timestamp_ms: int
    leader_epoch: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


HeldPositions = dict[TopicPartition, ServedRecord | NotServedError]
"""The record that was read last of each partition, or why none was."""


class RecordConsumer:
    """One consumer; only one thread may use it, for one call at a time.

    Calls raise NotServedError, AuthenticationError, NotFoundError, and MetadataError for other failures.
    """

    def __init__(self, settings: ClientSettings, isolation: IsolationLevel) -> None:
        self._settings = settings
        config = {**_CONFIG, "isolation.level": str(isolation)}
        self._consumer, self._watch = make_client(sdk.confluent_kafka.Consumer, settings, config)

    def close(self) -> None:
        """Disconnect."""
        self._consumer.close()

    def read(self, partition: TopicPartition, start_offset: int, end_offset: int) -> Iterator[ServedRecord]:
        """Yield the records in [start_offset, end_offset), or up to the end of what is readable."""
        self._assign({partition: start_offset})
        position = start_offset
        while position < end_offset:
            for message in self._messages(f"reading {partition} from offset {position} on", partition.topic):
                if self._is_end(message) or message.offset() >= end_offset:
                    return
                position = message.offset() + 1
                yield _record(message)

    def first(self, partition: TopicPartition, offset: int) -> ServedRecord | None:
        """Return the first record at or after `offset`, as after a seek; None at the end."""
        return next(self.read(partition, offset, _LAST_OFFSET), None)

    def hold(self, offsets: Mapping[TopicPartition, int]) -> HeldPositions:
        """Read one record of each partition from its offset on, and keep the position after it.

        Partitions whose end comes first are left out.
        """
        self._assign(offsets)
        return self._one_of_each(set(offsets))

    def resume(self, partitions: Set[TopicPartition]) -> HeldPositions:
        """Continue from the kept positions; return each partition's next record, and keep the new positions.

        A client that learns of a new leader epoch first asks the leader whether it still has the records up
        to the position; if not, the result for the partition is the error (truncation, KIP-320).
        """
        with translated("going on after the election", self._watch):
            self._consumer.resume([_client_partition(each) for each in partitions])
        return self._one_of_each(partitions)

    def poll(self) -> None:
        """Let the client process responses while its partitions are paused; raise errors that it reports."""
        with translated("holding a position", self._watch):
            message = self._consumer.poll(_POLL_S)
        if message is not None and not _is_passing(message):
            self._is_end(message)

    def _one_of_each(self, partitions: Set[TopicPartition]) -> HeldPositions:
        """Return the next record of each partition that is not at its end, and pause it there."""
        found: HeldPositions = {}
        ended: set[TopicPartition] = set()
        while waiting := partitions - found.keys() - ended:
            names = ", ".join(sorted(map(str, waiting)))
            try:
                (message,) = self._messages(f"reading a record of {names}", min(waiting).topic, at_once=1)
            except NotServedError as e:
                return found | dict.fromkeys(waiting, e)
            partition = TopicPartition(message.topic(), message.partition())
            if partition not in waiting:
                continue
            try:
                if self._is_end(message):
                    ended.add(partition)
                else:
                    found[partition] = _record(message)
            except NotServedError as e:
                found[partition] = e
            self._consumer.pause([_client_partition(partition)])
        return found

    def _assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        with translated("assigning partitions", self._watch):
            self._consumer.assign([_client_partition(each, offset) for each, offset in offsets.items()])

    def _messages(self, doing: str, topic: str, *, at_once: int = _AT_ONCE) -> list[Any]:
        """Return up to `at_once` messages; raise NotServedError if none arrive for `stall_timeout_ms`."""
        deadline = time.monotonic() + self._settings.stall_timeout_ms / 1000
        with translated(doing, self._watch, Right("Read", topic)), WAITS.waiting(doing):
            while (first := self._consumer.poll(_POLL_S)) is None or _is_passing(first):
                self._watch.check()
                if time.monotonic() > deadline:
                    raise NotServedError(
                        f"{doing}: no data arrived for {self._settings.stall_timeout_ms} "
                        f"ms{self._watch.facts}"
                    )
            more = self._consumer.consume(at_once - 1, 0) if at_once > 1 else []
        return [first, *(message for message in more if not _is_passing(message))]

    def _is_end(self, message: Any) -> bool:
        """Return whether a message reports the end of its partition; raise for any other error."""
        error = message.error()
        if error is None:
            return False
        name = error.name()
        if name == "_PARTITION_EOF":
            return True
        where = f"{message.topic()}-{message.partition()}"
        if name in _NOT_SERVED:
            raise NotServedError(f"{where}: {error.str()}")
        raise error_of(error, f"reading {where}", self._watch)


def _is_passing(message: Any) -> bool:
    """Return whether a message is about an error after which the client continues."""
    return message.error() is not None and message.error().name() in PASSING


def _client_partition(partition: TopicPartition, offset: int | None = None) -> Any:
    made = sdk.confluent_kafka.TopicPartition
    if offset is None:
        return made(partition.topic, partition.partition)
    return made(partition.topic, partition.partition, offset)


def _record(message: Any) -> ServedRecord:
    return ServedRecord(
        offset=message.offset(),
        timestamp_ms=message.timestamp()[1],
        leader_epoch=message.leader_epoch(),
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),
    )
