"""confluent-kafka's clients made from ClientSettings, and its errors told in ours.

librdkafka goes on trying whatever happens and tells why only to a callback: every client has an `ErrorWatch`.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

from tierctl.errors import AuthenticationError, MetadataError, NotFoundError, TierctlError, UsageError
from tierctl.kafka.acls import Right
from tierctl.kafka.client_settings import BearerLogin, ClientSettings, PasswordLogin
from tierctl.kafka.extras import require

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

R = TypeVar("R")
C = TypeVar("C")

# Their meaning is the same for whoever asks.
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
# What a list of offsets says while a leader is being found.
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
_STUCK_S = 1.0
_AUTHENTICATION_HINT = (
    "check user, password and mechanism in --command-config, and what the broker allows them"
)


class NoLeaderError(MetadataError):
    """A partition has no leader, which often passes; or there is no such partition."""


class ErrorWatch:
    """The last thing a client complained about, for the error that follows from it."""

    def __init__(self) -> None:
        self.last: str | None = None
        self._refusal: AuthenticationError | None = None

    def __call__(self, error: "KafkaError") -> None:
        """librdkafka's error_cb."""
        name, text = error.name(), error.str()
        if name == "_AUTHENTICATION":
            self._refusal = AuthenticationError(text, hint=_AUTHENTICATION_HINT)
        elif name == "_SSL" or ("SSL routines" in text and " alert " in text):
            self._refusal = AuthenticationError(
                text, hint="check ssl.truststore.* and ssl.keystore.* in --command-config"
            )
        # "all brokers are down" is what follows from the complaint before it.
        if name != "_ALL_BROKERS_DOWN" or self.last is None:
            self.last = text

    def check(self) -> None:
        """Raise AuthenticationError when the other side refused us: trying on won't change that."""
        if self._refusal is not None:
            raise self._refusal

    @property
    def facts(self) -> str:
        """The last complaint as the end of a sentence."""
        return f"; the client says: {self.last}" if self.last else ""


def make_client(
    factory: Callable[[dict[str, Any]], C], settings: ClientSettings, more: Mapping[str, Any] | None = None
) -> tuple[C, ErrorWatch]:
    """A client and its watch; UsageError when librdkafka refuses the settings."""
    require("confluent_kafka")
    from confluent_kafka import KafkaException

    watch = ErrorWatch()
    with TemporaryDirectory(prefix="tierctl-") as folder:
        config = {**configuration(settings, Path(folder)), **(more or {}), "error_cb": watch}
        try:
            return factory(config), watch
        except KafkaException as e:
            # Only librdkafka's own sentence: it names the setting and not its value.
            raise UsageError(f"the Kafka client refused its settings: {e.args[0].str()}") from None


def configuration(settings: ClientSettings, folder: Path) -> dict[str, Any]:
    """librdkafka's names and values; certificates are put into `folder`, where it reads them once."""
    config: dict[str, Any] = {
        "bootstrap.servers": settings.bootstrap,
        "security.protocol": settings.security_protocol.value,
        "client.id": "tierctl",
        "reconnect.backoff.max.ms": 1000,
        # What it has to say comes by way of the watch.
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
    if bearer.subject is not None:
        return {
            "sasl.mechanism": "OAUTHBEARER",
            "enable.sasl.oauthbearer.unsecure.jwt": True,
            "sasl.oauthbearer.config": f"principal={bearer.subject}",
        }
    found: dict[str, Any] = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": bearer.token_endpoint_url,
        "sasl.oauthbearer.client.id": bearer.client_id,
        "sasl.oauthbearer.client.secret": bearer.client_secret,
    }
    return found if bearer.scope is None else {**found, "sasl.oauthbearer.scope": bearer.scope}


def answer(
    client: Any,
    watch: ErrorWatch,
    future: "Future[R]",
    doing: str,
    *,
    timeout_ms: int,
    needs: Right | None = None,
) -> R:
    """What an admin call found; raises as `translated`, and at once when the other side refuses us."""
    began_s = looked_s = time.monotonic()
    with translated(doing, watch, needs):
        while True:
            try:
                return future.result(_WAIT_S)
            except FutureTimeoutError:
                client.poll(0)
                watch.check()
                now_s = time.monotonic()
                if now_s - looked_s > _STUCK_S:
                    _look_around(client)
                    looked_s = time.monotonic()
                if now_s > began_s + timeout_ms / 1000:
                    raise MetadataError(
                        f"{doing}: no answer within {timeout_ms} ms{watch.facts}", hint=_RETRY_HINT
                    ) from None


def _look_around(client: Any) -> None:
    """Have an admin client hear who is there now.

    It sends most requests to the broker that it once heard was the controller; when that one is gone it
    waits for it, and by itself asks nobody who is in its place.
    """
    from confluent_kafka import KafkaException

    with suppress(KafkaException):
        client.list_topics(timeout=_STUCK_S)


_RETRY_HINT = (
    "are the brokers up and is that their address? request.timeout.ms in --command-config waits longer"
)


@contextmanager
def translated(doing: str, watch: ErrorWatch, needs: Right | None = None) -> Iterator[None]:
    """Errors of confluent-kafka in the body as ours, saying what was being done and what right it needs."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as e:
        watch.check()
        raise error_of(e.args[0], doing, watch, needs) from e


def error_of(error: "KafkaError", doing: str, watch: ErrorWatch, needs: Right | None = None) -> TierctlError:
    """AuthenticationError, NotFoundError, or MetadataError for everything that may pass."""
    name, text = error.name(), error.str()
    if name in _REFUSED:
        lacks_right = needs is not None and name.endswith("_AUTHORIZATION_FAILED")
        return AuthenticationError(
            f"{doing}: {text}", hint=needs.hint if needs and lacks_right else _AUTHENTICATION_HINT
        )
    if name in _UNKNOWN:
        return NotFoundError(
            f"{doing}: {text}", hint="is that the right cluster? topics are listed by kafka-topics"
        )
    kind = NoLeaderError if name in _LEADERLESS else MetadataError
    return kind(f"{doing}: {text} ({name}){watch.facts}", hint=_RETRY_HINT)
