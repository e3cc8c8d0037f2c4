"""A Kafka client's settings, as in the `--command-config` of Kafka's own tools.

This module parses the settings; `librdkafka.py` and `leader_log.py` convert them to the settings of each
client library. Source: org.apache.kafka.clients.CommonClientConfigs, SaslConfigs and SslConfigs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Self
from urllib.parse import quote_plus, urlsplit

from tierctl import kafka as sdk
from tierctl.errors import UsageError
from tierctl.model.checked_values import PORT_MAX, natural_number, read_named
from tierctl.model.location import BOOTSTRAP_SERVER, METADATA, split_uri
from tierctl.model.settings import clients
from tierctl.model.settings.known import require_no_references
from tierctl.model.settings.scopes import StatedSettings, place_of
from tierctl.wire.files.properties import read_client_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.x509 import Certificate

# Converts Java's key stores and trust stores to PEM: PKCS12 and PEM files, and PEM text in settings.
#
# Files in Java's own JKS format are refused with a hint; keytool converts them.

_JKS_MAGIC = b"\xfe\xed\xfe\xed"
_BYTES_MAX = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """A client's certificate chain and its unencrypted key, both PEM; `repr` omits the key."""

    chain_pem: str
    key_pem: str = field(repr=False)


def read_truststore(path: Path, password: str | None, setting: str) -> str:
    """Return a truststore's certificates as PEM; raise UsageError if it is unreadable or has none."""
    data = _read(path, setting)
    if data.startswith(_JKS_MAGIC):
        raise _jks(path, setting)
    certificates = (
        _pem_certificates(data) if _is_pem(data) else _open_pkcs12(path, data, password, setting)[1]
    )
    if not certificates:
        raise UsageError(f"{setting}: {path} holds no certificates")
    return _to_pem(certificates)


def read_keystore(path: Path, password: str | None, key_password: str | None, setting: str) -> KeyPair:
    """Return the first key of a keystore file with its chain; raise UsageError if there is no key."""
    data = _read(path, setting)
    if data.startswith(_JKS_MAGIC):
        raise _jks(path, setting)
    if _is_pem(data):
        return pem_key_pair(data.decode("latin-1"), data.decode("latin-1"), key_password or password, setting)
    key, certificates = _open_pkcs12(path, data, password, setting)
    if key is None or not certificates:
        raise UsageError(f"{setting}: {path} holds no key with its certificate")
    return KeyPair(chain_pem=_to_pem(certificates), key_pem=_key_to_pem(key))


def pem_key_pair(chain: str, key: str, password: str | None, setting: str) -> KeyPair:
    """Return a chain and a key from PEM text; raise UsageError if either is missing or unreadable."""

    certificates = _pem_certificates(chain.encode("latin-1", "replace"))
    try:
        private = sdk.serialization.load_pem_private_key(
            _key_block(key), None if password is None else password.encode()
        )
    except (ValueError, TypeError) as e:
        raise UsageError(
            f"{setting}: the private key can't be read: {type(e).__name__}", hint="check ssl.key.password"
        ) from None
    if not certificates:
        raise UsageError(f"{setting}: no certificate belongs to the key")
    return KeyPair(chain_pem=_to_pem(certificates), key_pem=_key_to_pem(private))


def pem_certificates(text: str, setting: str) -> str:
    """Return the certificates in a setting's value as PEM; raise UsageError if there are none."""
    certificates = _pem_certificates(text.encode("latin-1", "replace"))
    if not certificates:
        raise UsageError(f"{setting} holds no certificates", hint="expected PEM: -----BEGIN CERTIFICATE-----")
    return _to_pem(certificates)


def _read(path: Path, setting: str) -> bytes:
    try:
        data = read_named(path, _BYTES_MAX + 1)
    except OSError as e:
        raise UsageError(f"{setting}: {path} can't be read: {e.strerror}") from None
    if len(data) > _BYTES_MAX:
        raise UsageError(f"{setting}: {path} is larger than {_BYTES_MAX} bytes: no key store")
    return data


def _jks(path: Path, setting: str) -> UsageError:
    target = path.with_suffix(".p12")
    return UsageError(
        f"{setting}: {path} is a JKS store, Java's own format",
        hint=f"convert it: keytool -importkeystore -srckeystore {quote(str(path))} "
        f"-destkeystore {quote(str(target))} "
        f"-deststoretype PKCS12, and name {target.name} instead",
    )


def _is_pem(data: bytes) -> bool:
    return b"-----BEGIN " in data[: 1 << 16]


def _key_block(text: str) -> bytes:
    """Return only the lines of the key: a PEM keystore also contains the chain."""
    start = text.find("-----BEGIN ")
    while start >= 0:
        label = text[start + 11 : text.find("-----", start + 11)]
        ending = f"-----END {label}-----"
        end = text.find(ending, start)
        if label.endswith("PRIVATE KEY") and end >= 0:
            return text[start : end + len(ending)].encode("latin-1", "replace") + b"\n"
        start = text.find("-----BEGIN ", start + 11)
    return b""


def _pem_certificates(data: bytes) -> list[Certificate]:

    try:
        certificates: list[Certificate] = sdk.x509.load_pem_x509_certificates(data)
    except ValueError:
        return []
    return certificates


def _open_pkcs12(
    path: Path, data: bytes, password: str | None, setting: str
) -> tuple[PrivateKeyTypes | None, list[Certificate]]:

    try:
        store = sdk.pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError as e:
        raise UsageError(
            f"{setting}: {path} can't be opened as PKCS12: {e}",
            hint="check its password; PKCS12 and PEM are understood",
        ) from None
    found = [store.cert] if store.cert is not None else []
    return store.key, [entry.certificate for entry in [*found, *store.additional_certs]]


def _to_pem(certificates: list[Certificate]) -> str:

    return "".join(c.public_bytes(sdk.serialization.Encoding.PEM).decode("ascii") for c in certificates)


def _key_to_pem(key: PrivateKeyTypes) -> str:

    return key.private_bytes(
        sdk.serialization.Encoding.PEM,
        sdk.serialization.PrivateFormat.PKCS8,
        sdk.serialization.NoEncryption(),
    ).decode("ascii")


def encrypted_key(key_pair: KeyPair, password: str) -> str:
    """Return the key as PEM, encrypted with `password`."""

    key = sdk.serialization.load_pem_private_key(key_pair.key_pem.encode(), None)
    encryption = sdk.serialization.BestAvailableEncryption(password.encode())
    pem: bytes = key.private_bytes(
        sdk.serialization.Encoding.PEM, sdk.serialization.PrivateFormat.PKCS8, encryption
    )
    return pem.decode("ascii")


_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})
_TOKEN = re.compile(
    r"""(?:\s | /\*.*?\*/ | /[^\r\n]*)*
    (?: "(?P<double>(?:\\.|[^"\\\r\n])*)"
      | '(?P<single>(?:\\.|[^'\\\r\n])*)'
      | (?P<word>[A-Za-z0-9_$.\u00a0-\uffff-]+)
      | (?P<sign>[=;])
      | (?P<other>\S) )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b", "a": "\a", "v": "\v"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginModule:
    """One entry; `repr` omits `options`, which may contain secrets."""

    name: str
    options: dict[str, str] = field(repr=False)

    @property
    def short_name(self) -> str:
        """Return the class name without its package, such as PlainLoginModule."""
        return self.name.rpartition(".")[2]


def parse_jaas(text: str) -> LoginModule:
    """Return the first login module; raise UsageError, without the text, if JaasConfig would refuse it."""
    tokens = _tokens(text)
    kind, name = next(tokens, ("end", ""))
    if kind != "word":
        raise _refused("it does not begin with a login module's class")
    kind, flag = next(tokens, ("end", ""))
    if flag.lower() not in _FLAGS:
        raise _refused("no control flag (as `required`) follows the login module")
    options: dict[str, str] = {}
    for kind, key in tokens:
        if (kind, key) == ("sign", ";"):
            return LoginModule(name=name, options=options)
        is_option = kind != "sign" and next(tokens, None) == ("sign", "=")
        is_what, value = next(tokens, ("end", "")) if is_option else ("end", "")
        if is_what not in {"word", "text"}:
            raise _refused(f"option {len(options) + 1} has no value")
        options[key] = value
    raise _refused("it does not end with a semicolon")


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    position = 0
    while match := _TOKEN.match(text, position):
        position = match.end()
        if match["other"] is not None:
            raise _refused(f"character {match.start('other') + 1} can't be there")
        if match["word"] is not None:
            yield "word", match["word"]
        elif match["sign"] is not None:
            yield "sign", match["sign"]
        else:
            quoted = match["double"] if match["double"] is not None else match["single"]
            yield "text", _ESCAPE.sub(_unescape, quoted)


def _unescape(match: re.Match[str]) -> str:
    escaped = match[1]
    return chr(int(escaped, 8)) if escaped[0] in "01234567" else _ESCAPED.get(escaped, escaped)


def _refused(why: str) -> UsageError:
    return UsageError(
        f"sasl.jaas.config: {why}",
        hint='expected: some.package.LoginModule required username="…" password="…";',
    )


_BEARER_LOGIN = "OAuthBearerLoginModule"
_PASSWORD_LOGINS = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
}
_SUBJECT = "unsecuredLoginStringClaim_sub"
_EXTENSION = "extension_"
_DELEGATION_TOKEN = "tokenauth"
_RETRIEVERS = frozenset({"DefaultJwtRetriever", "ClientCredentialsJwtRetriever"})


class SecurityProtocol(StrEnum):
    """Values of security.protocol."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def is_encrypted(self) -> bool:
        """Return whether the connection uses TLS."""
        return self in {SecurityProtocol.SSL, SecurityProtocol.SASL_SSL}

    @property
    def has_login(self) -> bool:
        """Return whether the connection uses SASL."""
        return self in {SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL}


@dataclass(frozen=True, slots=True, kw_only=True)
class PasswordLogin:
    """A login with user name and password: PLAIN or SCRAM."""

    mechanism: str
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BearerLogin:
    """An OAUTHBEARER login: a token from an endpoint, or an unsigned token that names `subject`."""

    subject: str | None = None
    token_endpoint_url: str | None = None
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    scope: str | None = None
    extensions: Mapping[str, str] = field(default_factory=dict)
    """Texts for the broker beside the token (KIP-342), which managed clusters ask for."""


Login = PasswordLogin | BearerLogin


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """The certificates that verify the server (None: the system's authorities), and the client's key."""

    truststore_pem: str | None = field(default=None, repr=False)
    key_pair: KeyPair | None = None
    verifies_hostname: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """A client's settings; `repr` omits the secrets.

    `request_timeout_ms` limits the wait for one response,
    `delivery_timeout_ms` the wait for acknowledgements, `stall_timeout_ms` the time that reading makes no
    progress. `more` are settings that both client libraries take unchanged.
    """

    bootstrap_servers: tuple[str, ...] = ()
    servers_from: str = clients.BOOTSTRAP_SERVERS.name
    """The option or setting that names the servers, for messages."""
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    login: Login | None = None
    tls: Tls | None = None
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 120_000
    stall_timeout_ms: int = 60_000
    more: Mapping[str, str] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        """Return the servers as `host:port,…`; raise UsageError if there are none."""
        if not self.bootstrap_servers:
            raise UsageError("no bootstrap servers", hint="name them: kafka://host:port[,host:port…]")
        return ",".join(self.bootstrap_servers)

    @classmethod
    def of(cls, bootstrap: str, command_config: Path | None = None, option: str | None = None) -> Self:
        """Return the settings in `command_config`, a .properties file, for the servers `bootstrap`.

        `bootstrap` is `host:port,…` or kafka://host:port,…; without servers, the file's apply. Messages name
        the `option` that states it, by default that of its form. Raises UsageError.
        """
        given = StatedSettings({}, {}) if command_config is None else read_client_file(command_config)
        option = option or option_of(bootstrap)
        servers = split_uri(option, bootstrap).netloc if bootstrap.startswith("kafka://") else bootstrap
        if servers:
            given |= {clients.BOOTSTRAP_SERVERS.name: ",".join(split_servers(servers, option))}
        found = cls.from_properties(given, str(command_config or option))
        return replace(found, servers_from=option) if servers else found

    @classmethod
    def from_properties(cls, settings: Mapping[str, str], source: str = "client settings") -> Self:
        """Return the settings among Kafka's names and values; `source` names their origin in errors.

        Raises UsageError for an invalid or unsupported value. Unknown settings are ignored.
        """
        given = StatedSettings.of(settings).stripped()
        require_no_references(given, clients.UNDERSTOOD, source)
        protocol = _protocol(given, source)
        return cls(
            bootstrap_servers=split_servers(given.get(clients.BOOTSTRAP_SERVERS.name, ""), source),
            servers_from=f"{clients.BOOTSTRAP_SERVERS.name} in {source}",
            security_protocol=protocol,
            login=_login(given, source) if protocol.has_login else None,
            tls=_tls(given, source) if protocol.is_encrypted else None,
            request_timeout_ms=clients.REQUEST_TIMEOUT_MS.value(given, source),
            delivery_timeout_ms=clients.DELIVERY_TIMEOUT_MS.value(given, source),
            stall_timeout_ms=clients.DEFAULT_API_TIMEOUT_MS.value(given, source),
            more=_passed_on(given, source),
        )


def option_of(bootstrap: str) -> str:
    """Return the option that takes servers in the form of `bootstrap`: kafka://host:port, or host:port."""
    return METADATA if bootstrap.startswith("kafka://") else BOOTSTRAP_SERVER


_LISTENER = re.compile(r"^[0-9A-Za-z%._-]*://")


def split_servers(text: str, source: str) -> tuple[str, ...]:
    """Split `host:port,…`; raise UsageError for an address that is no host:port.

    The name of a listener or a protocol before an address, as in SASL_SSL://host:port, is left out: Java's
    clients ignore it (Utils.getHost); librdkafka ignores an address with another protocol than its own.
    """
    if "@" in text:
        raise UsageError(
            f"{source}: the address contains a user name", hint="put the user name into --command-config"
        )
    parts = [part.strip() for part in text.split(",") if part.strip()]
    servers = tuple(_LISTENER.sub("", part) for part in parts)
    for server in servers:
        host, colon, port = server.rpartition(":")
        has_brackets = host.startswith("[") == host.endswith("]")
        if not (colon and host and has_brackets and natural_number(port, PORT_MAX)):
            hint = "as in broker1:9092" if has_brackets else "put an IPv6 address in brackets: [::1]:9092"
            raise UsageError(f"{source}: {server!r} is no host:port", hint=hint)
    return servers


_INT_MAX = (1 << 31) - 1
_RANGES = (
    (clients.CONNECTIONS_MAX_IDLE_MS, 0, _INT_MAX),
    (clients.METADATA_MAX_AGE_MS, 1, 86_400_000),
    (clients.RECONNECT_BACKOFF_MS, 0, 3_600_000),
    (clients.RECONNECT_BACKOFF_MAX_MS, 0, 3_600_000),
    (clients.RETRY_BACKOFF_MS, 1, 300_000),
    (clients.RETRY_BACKOFF_MAX_MS, 1, 300_000),
    (clients.SOCKET_SETUP_TIMEOUT_MS, 1000, _INT_MAX),
)
"""The values that librdkafka takes of settings in which Java's clients take more (its CONFIGURATION.md)."""


def _passed_on(given: Mapping[str, str], source: str) -> dict[str, str]:
    """Return the settings for the client libraries, each number as the nearest one that librdkafka takes.

    As in Java's clients, connections without a limit are never idle, and a longest wait that is below the
    first one does not count. UsageError for what is no number.
    """
    found = {key: given[key] for key in clients.PASSED_ON if key in given}
    for row, least, most in _RANGES:
        value = row.given(given, source)
        if value is not None:
            found[row.name] = str(max(least, min(value, most)))
    if found.get(clients.CONNECTIONS_MAX_IDLE_MS.name) == "0":
        # For librdkafka 0 is no limit, too; kafka-python would look for idle connections without a pause.
        found[clients.CONNECTIONS_MAX_IDLE_MS.name] = str(_INT_MAX)
    first, longest = clients.RECONNECT_BACKOFF_MS, clients.RECONNECT_BACKOFF_MAX_MS
    if first.name in found:
        found[longest.name] = str(max(int(first.text(found)), int(longest.text(found))))
    return found


def _protocol(given: Mapping[str, str], source: str) -> SecurityProtocol:
    text = clients.SECURITY_PROTOCOL.text(given).upper()
    if text not in set(SecurityProtocol):
        raise UsageError(f"{source}: security.protocol={text} is none of {', '.join(SecurityProtocol)}")
    return SecurityProtocol(text)


def _login(given: Mapping[str, str], source: str) -> Login:
    mechanism = clients.SASL_MECHANISM.text(given).upper()
    if mechanism not in {*_PASSWORD_LOGINS, "OAUTHBEARER"}:
        raise UsageError(
            f"{source}: sasl.mechanism={mechanism} is not supported",
            hint=f"tierctl has {', '.join(_PASSWORD_LOGINS)} and OAUTHBEARER",
        )
    if clients.SASL_JAAS_CONFIG.name not in given:
        raise UsageError(
            f"{source}: sasl.jaas.config is missing", hint="it states the user name and password"
        )
    module = parse_jaas(given[clients.SASL_JAAS_CONFIG.name])
    wanted = _PASSWORD_LOGINS.get(mechanism, _BEARER_LOGIN)
    if module.short_name != wanted:
        raise UsageError(f"{source}: sasl.mechanism={mechanism} needs {wanted}, not {module.short_name}")
    if mechanism == "OAUTHBEARER":
        return _bearer(given, module.options, source)
    if module.options.get(_DELEGATION_TOKEN, "").lower() == "true" and mechanism != "PLAIN":
        raise UsageError(
            f"{source}: sasl.jaas.config logs in with a delegation token ({_DELEGATION_TOKEN}), which is not "
            "supported: expected the name and the password of a user",
            hint="give tierctl a file of its own with such a login",
        )
    username, password = (_required(module.options, key, source) for key in ("username", "password"))
    return PasswordLogin(mechanism=mechanism, username=username, password=password)


def _bearer(given: Mapping[str, str], options: Mapping[str, str], source: str) -> BearerLogin:
    """Return the login; as in Java's ConfigOrJaas, the settings (Kafka 4.1) count before the JAAS options."""
    extensions = {
        key.removeprefix(_EXTENSION): value for key, value in options.items() if key.startswith(_EXTENSION)
    }
    if _SUBJECT in options:
        return BearerLogin(subject=options[_SUBJECT], extensions=extensions)
    url = given.get(clients.SASL_TOKEN_ENDPOINT_URL.name)
    if url is None:
        raise UsageError(
            f"{source}: OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url",
            hint=f"or {_SUBJECT} for unsigned tokens",
        )
    _refuse_other_tokens(given, url, source)
    client_id = given.get(clients.SASL_CLIENT_ID.name) or _required(options, "clientId", source)
    secret = given.get(clients.SASL_CLIENT_SECRET.name) or _required(options, "clientSecret", source)
    if clients.SASL_HEADER_URLENCODE.value(given, source):
        client_id, secret = quote_plus(client_id), quote_plus(secret)
    return BearerLogin(
        token_endpoint_url=url,
        client_id=client_id,
        client_secret=secret,
        scope=given.get(clients.SASL_SCOPE.name) or options.get("scope"),
        extensions=extensions,
    )


def _refuse_other_tokens(given: Mapping[str, str], url: str, source: str) -> None:
    """Raise UsageError for a login that gets its token without a client's id and secret."""
    found = [name for name in clients.SASL_ASSERTIONS if name in given]
    if urlsplit(url).scheme.lower() not in {"http", "https"}:
        found = [clients.SASL_TOKEN_ENDPOINT_URL.name]
    retriever = clients.SASL_JWT_RETRIEVER.text(given).rpartition(".")[2]
    if retriever not in _RETRIEVERS:
        found = [clients.SASL_JWT_RETRIEVER.name]
    if found:
        raise UsageError(
            f"{place_of(given, found[0], source)}: this {found[0]} is not supported: expected an endpoint "
            "for tokens with an http(s) address, and the id and secret of a client",
            hint="give tierctl a file of its own with such a login",
        )


def _required(options: Mapping[str, str], key: str, source: str) -> str:
    if key not in options:
        raise UsageError(f"{source}: sasl.jaas.config has no {key}")
    return options[key]


def _tls(given: Mapping[str, str], source: str) -> Tls:
    _check_types(given, (clients.SSL_TRUSTSTORE_TYPE.name, clients.SSL_KEYSTORE_TYPE.name), source)
    algorithm = clients.SSL_ENDPOINT_ALGORITHM.text(given).lower()
    if algorithm not in {"https", "", "none"}:
        raise UsageError(
            f"{source}: ssl.endpoint.identification.algorithm={algorithm} is neither https nor empty"
        )
    return Tls(
        truststore_pem=_truststore(given, source),
        key_pair=_key_pair(given, source),
        verifies_hostname=algorithm == "https",
    )


def _check_types(given: Mapping[str, str], keys: Iterable[str], source: str) -> None:
    for key in keys:
        # JKS is Java's default type, so it is also stated for PKCS12 files: the first bytes decide.
        if given.get(key, "JKS").upper() not in {"JKS", "PKCS12", "PEM"}:
            raise UsageError(f"{source}: {key}={given[key]} is not supported", hint="use PKCS12 or PEM")


def _truststore(given: Mapping[str, str], source: str) -> str | None:
    if clients.SSL_TRUSTSTORE_CERTIFICATES.name in given:
        setting = f"{source}: ssl.truststore.certificates"
        return pem_certificates(given[clients.SSL_TRUSTSTORE_CERTIFICATES.name], setting)
    path = given.get(clients.SSL_TRUSTSTORE_LOCATION.name)
    if not path:
        return None
    password = given.get(clients.SSL_TRUSTSTORE_PASSWORD.name)
    return read_truststore(Path(path), password, f"{source}: ssl.truststore.location")


def _key_pair(given: Mapping[str, str], source: str) -> KeyPair | None:
    key_password = given.get(clients.SSL_KEY_PASSWORD.name)
    if clients.SSL_KEYSTORE_KEY.name in given:
        chain = given.get(clients.SSL_KEYSTORE_CHAIN.name, "")
        return pem_key_pair(
            chain, given[clients.SSL_KEYSTORE_KEY.name], key_password, f"{source}: ssl.keystore.key"
        )
    path = given.get(clients.SSL_KEYSTORE_LOCATION.name)
    if not path:
        return None
    password = given.get(clients.SSL_KEYSTORE_PASSWORD.name)
    return read_keystore(Path(path), password, key_password, f"{source}: ssl.keystore.location")


@dataclass(frozen=True, slots=True)
class Right:
    """An operation, named as in kafka-acls, on a topic or a group, or on the cluster if both are None."""

    operation: str
    topic: str | None = None
    group: str | None = None

    @property
    def command(self) -> str:
        """The kafka-acls command that grants the right."""
        resource = "--cluster" if self.topic is None else f"--topic {quote(self.topic)}"
        if self.group is not None:
            # Any client can give a group any name.
            resource = f"--group {quote(self.group)}"
        return f"kafka-acls --add --allow-principal User:... --operation {self.operation} {resource}"

    @property
    def hint(self) -> str:
        """The advice to a login that lacks the right."""
        return f"the user lacks a right: {self.command}"
