"""Converts Java's key stores and trust stores to PEM: PKCS12 and PEM files, and PEM text in settings.

Files in Java's own JKS format are refused with a hint; keytool converts them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tierctl.errors import UsageError
from tierctl.kafka import sdk

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.x509 import Certificate

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
        with path.open("rb") as file:
            data = file.read(_BYTES_MAX + 1)
    except OSError as e:
        raise UsageError(f"{setting}: {path} can't be read: {e.strerror}") from None
    if len(data) > _BYTES_MAX:
        raise UsageError(f"{setting}: {path} is larger than {_BYTES_MAX} bytes: no key store")
    return data


def _jks(path: Path, setting: str) -> UsageError:
    target = path.with_suffix(".p12")
    return UsageError(
        f"{setting}: {path} is a JKS store, Java's own format",
        hint=f"convert it: keytool -importkeystore -srckeystore {path} -destkeystore {target} "
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
