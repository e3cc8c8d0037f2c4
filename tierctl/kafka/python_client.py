"""Creates kafka-python's client from ClientSettings and translates its errors.

tierctl uses it for requests that librdkafka does not offer: offsets of tiered storage, leader epochs, log
directories, raw batches.
"""

import base64
import json
import logging
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_urlsafe
from tempfile import TemporaryDirectory
from typing import Any

from tierctl.errors import AuthenticationError, MetadataError, NotFoundError, UsageError
from tierctl.kafka import sdk
from tierctl.kafka.client_settings import (
    BearerLogin,
    ClientSettings,
    KeyPair,
    PasswordLogin,
    Right,
    Tls,
    encrypted_key,
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
    config |= {name: _number(settings, key) for key, name in _NUMBERS.items() if key in settings.more}
    if settings.tls is not None:
        config["ssl_context"] = tls_context(settings.tls)
    match settings.login:
        case PasswordLogin(mechanism=mechanism, username=username, password=password):
            config["sasl_mechanism"] = mechanism
            config |= {"sasl_plain_username": username, "sasl_plain_password": password}
        case BearerLogin() as bearer:
            config |= {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": _token_provider(bearer)}
        case None:
            pass
    return config


def _number(settings: ClientSettings, key: str) -> int:
    try:
        return int(settings.more[key])
    except ValueError:
        raise UsageError(f"{key}={settings.more[key]!r} is no whole number") from None


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Return the TLS context for `tls`."""
    context = ssl.create_default_context(cadata=tls.truststore_pem)
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

    return Tokens()


def fetch_token(bearer: BearerLogin, *, now_s: float) -> str:
    """Return a token: unsigned for a subject (KIP-255), otherwise from the token endpoint (KIP-768).

    Raises AuthenticationError if the endpoint returns no token.
    """
    if bearer.subject is not None:
        claims = {"sub": bearer.subject, "iat": now_s, "exp": now_s + _TOKEN_LIFETIME_S}
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
        passes = isinstance(e, (sdk.kafka_errors.RetriableError, OSError))
        raise (NotReadyError if passes else MetadataError)(f"{doing}: {_text(e)}", hint=_HINT) from None


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
