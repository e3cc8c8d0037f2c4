"""Ed25519 signatures of files, which OpenSSL verifies with the public key alone (RFC 8032)."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tierctl.errors import UsageError

_BYTES_MAX = 1 << 16
_HINT = "make one: openssl genpkey -algorithm ed25519 -out key.pem"


@dataclass(frozen=True, slots=True)
class SigningKey:
    """An Ed25519 private key; `repr` omits it."""

    _key: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the key in the PEM file `path`; UsageError if it has no unencrypted Ed25519 private key."""
        try:
            with path.open("rb") as file:
                key = load_pem_private_key(file.read(_BYTES_MAX), None)
        except OSError as e:
            raise UsageError(f"--sign-with {path} can't be read: {e.strerror}", hint=_HINT) from None
        except (ValueError, TypeError, UnsupportedAlgorithm) as e:
            raise UsageError(
                f"--sign-with {path}: expected an unencrypted private key in PEM, found none "
                f"({type(e).__name__})",
                hint=_HINT,
            ) from None
        if not isinstance(key, Ed25519PrivateKey):
            raise UsageError(f"--sign-with {path}: expected an Ed25519 key, found another kind", hint=_HINT)
        return cls(key)

    def sign(self, data: bytes) -> bytes:
        """Return the signature of `data`, 64 bytes."""
        return self._key.sign(data)

    def has_signed(self, data: bytes, signature: bytes) -> bool:
        """Return whether `signature` is that of `data` by this key."""
        try:
            self._key.public_key().verify(signature, data)
        except InvalidSignature:
            return False
        return True
