"""Decryption of what Aiven's plugin encrypts: AES-256-GCM, its key wrapped by RSA-OAEP with SHA3-512."""

from collections.abc import Mapping
from functools import cached_property
from hashlib import sha3_512
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tierctl.errors import AuthenticationError, CorruptInputError, UsageError
from tierctl.wire.aiven.manifest import Encryption

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

IV_BYTES, TAG_BYTES = 12, 16
_HASH_BYTES = 64


class Keyring:
    """RSA private keys by id, read from their PEM files when one is needed; "" serves every id."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = dict(files)
        self._keys: dict[str, RSAPrivateKey] = {}

    def cipher(self, encryption: Encryption) -> "ChunkCipher":
        """What decrypts a segment's chunks; UsageError without its private key, AuthenticationError with a
        wrong one.
        """
        _require_cryptography()
        data_key = _unwrap(encryption.encrypted_data_key, self._key(encryption.key_id))
        if data_key is None:
            raise AuthenticationError(
                f"the private key for {encryption.key_id!r} does not open this segment's key",
                hint="is it the key the plugin encrypted with?",
            )
        return ChunkCipher(data_key, encryption.aad)

    def _key(self, key_id: str) -> "RSAPrivateKey":
        if key_id not in self._keys:
            file = self._files.get(key_id, self._files.get(""))
            if file is None:
                raise UsageError(
                    f"the segment is encrypted with the key {key_id!r}, whose private key is not given",
                    hint=f"--aiven-private-key {key_id}=FILE, or name it in --config server.properties",
                )
            self._keys[key_id] = _read_private_key(file)
        return self._keys[key_id]


def _unwrap(wrapped: bytes, key: "RSAPrivateKey") -> bytes | None:
    """RSAES-OAEP-DECRYPT of RFC 8017 with SHA3-512 and MGF1 of it, and no label; None when it fails.

    By hand, since OpenSSL's OAEP knows no SHA-3. Whoever could time it holds the private key already.
    """
    private = key.private_numbers()
    length = (key.key_size + 7) // 8
    number = int.from_bytes(wrapped, "big")
    if len(wrapped) != length or number >= private.public_numbers.n or length < 2 * _HASH_BYTES + 2:
        return None
    # The two halves of the Chinese remainder theorem are four times as fast as one power.
    first, second = pow(number, private.dmp1, private.p), pow(number, private.dmq1, private.q)
    decrypted = second + private.q * ((first - second) * private.iqmp % private.p)
    message = decrypted.to_bytes(length, "big")
    seed = _xor(message[1 : 1 + _HASH_BYTES], _mask(message[1 + _HASH_BYTES :], _HASH_BYTES))
    block = _xor(message[1 + _HASH_BYTES :], _mask(seed, length - _HASH_BYTES - 1))
    padding, one, data_key = block[_HASH_BYTES:].partition(b"\1")
    good = message[0] == 0 and block[:_HASH_BYTES] == sha3_512().digest() and one and not any(padding)
    return data_key if good else None


def _mask(seed: bytes, length: int) -> bytes:
    """MGF1."""
    blocks = (sha3_512(seed + at.to_bytes(4, "big")).digest() for at in range(-(-length // _HASH_BYTES)))
    return b"".join(blocks)[:length]


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def _read_private_key(file: Path) -> "RSAPrivateKey":
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(file.read_bytes(), password=None)
    except OSError as e:
        raise UsageError(f"reading the private key {file}: {e.strerror or e}") from e
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # What the library says of it might quote the file.
        raise UsageError(f"{file} is not an unencrypted private key in PEM") from None
    if not isinstance(key, RSAPrivateKey):
        raise UsageError(f"{file} is not an RSA key")
    return key


def _require_cryptography() -> None:
    if find_spec("cryptography") is None:
        raise UsageError(
            "encrypted segments need cryptography, which is not installed", hint="pip install tierctl[aiven]"
        )


class ChunkCipher:
    """Decrypts the chunks and indexes of one segment: each is IV, ciphertext, tag."""

    def __init__(self, data_key: bytes, aad: bytes) -> None:
        self._data_key = data_key
        self._aad = aad

    def decrypt(self, stored: bytes) -> bytes:
        """CorruptInputError when it is not what was encrypted."""
        from cryptography.exceptions import InvalidTag

        if len(stored) < IV_BYTES + TAG_BYTES:
            raise CorruptInputError(
                "encrypted chunk", expected=f"at least {IV_BYTES + TAG_BYTES} bytes", found=str(len(stored))
            )
        try:
            return self._aes.decrypt(stored[:IV_BYTES], stored[IV_BYTES:], self._aad)
        except InvalidTag:
            raise CorruptInputError(
                "encrypted chunk", expected="what its tag says", found="other bytes"
            ) from None

    @cached_property
    def _aes(self) -> "AESGCM":
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            return AESGCM(self._data_key)
        except ValueError:
            found = f"{len(self._data_key)} bytes"
            raise CorruptInputError("AES key of a segment", expected="32 bytes", found=found) from None
