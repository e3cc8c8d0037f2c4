"""Decryption of the segments that Aiven's plugin encrypted.

Chunks and indexes are encrypted by AES-256-GCM; the AES key is wrapped by RSA-OAEP with SHA3-512.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from Crypto.Cipher import AES, PKCS1_OAEP
from Crypto.Hash import SHA3_512
from Crypto.PublicKey import RSA

from tierctl.errors import (
    CorruptInputError,
    UnsupportedFormatError,
    UsageError,
)
from tierctl.model.checked_values import read_named
from tierctl.wire.aiven import Encryption

IV_BYTES, TAG_BYTES = 12, 16
_PEM = re.compile(rb"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?-----END \1-----", re.DOTALL)


class SegmentCipher:
    """Decrypts the chunks and indexes of one segment; each is stored as IV, ciphertext, tag."""

    def __init__(self, aes_key: bytes, aad: bytes) -> None:
        if len(aes_key) not in AES.key_size:
            raise CorruptInputError(
                "AES key of a segment", expected="32 bytes", found=f"{len(aes_key)} bytes"
            )
        self._aes_key = aes_key
        self._aad = aad

    def decrypt(self, stored: bytes) -> bytes:
        """Return the plain bytes of `stored`; raise CorruptInputError if its tag does not match."""
        if len(stored) < IV_BYTES + TAG_BYTES:
            raise CorruptInputError(
                "encrypted chunk", expected=f"at least {IV_BYTES + TAG_BYTES} bytes", found=str(len(stored))
            )
        cipher = AES.new(self._aes_key, AES.MODE_GCM, nonce=stored[:IV_BYTES])
        cipher.update(self._aad)
        try:
            return cipher.decrypt_and_verify(stored[IV_BYTES:-TAG_BYTES], stored[-TAG_BYTES:])
        except ValueError:
            raise CorruptInputError(
                "encrypted chunk", expected="what its tag says", found="other bytes"
            ) from None


class Keyring:
    """RSA private keys by key id, each read from its PEM file when it is first needed.

    The file for the key id "" is used for every id without its own file.
    """

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = dict(files)
        self._keys: dict[str, RSA.RsaKey] = {}

    def cipher(self, encryption: Encryption) -> SegmentCipher:
        """Return the cipher that decrypts a segment's chunks and indexes.

        Raise UnsupportedFormatError if no private key is given for the segment, or if the private key does
        not open the segment's AES key, and UsageError for a file that is no private key.
        """
        private_key = self._key(encryption.key_id)
        try:
            aes_key = PKCS1_OAEP.new(private_key, SHA3_512).decrypt(encryption.encrypted_data_key)
        except ValueError:
            raise UnsupportedFormatError(
                "encrypted segment",
                expected=f"the private key {encryption.key_id!r}, which decrypts the segment's data key",
                found=f"another key in {self._file(encryption.key_id)}",
                hint=f"--aiven-private-key {encryption.key_id}=FILE with the key that encrypted it",
            ) from None
        return SegmentCipher(aes_key, encryption.aad)

    def _file(self, key_id: str) -> Path | None:
        return self._files.get(key_id, self._files.get(""))

    def _key(self, key_id: str) -> RSA.RsaKey:
        if key_id not in self._keys:
            file = self._file(key_id)
            if file is None:
                raise UnsupportedFormatError(
                    "encrypted segment",
                    expected=f"the private key {key_id!r}",
                    found="none that is given",
                    hint=f"--aiven-private-key {key_id}=FILE, or name it in --broker-config "
                    "server.properties",
                )
            self._keys[key_id] = _read_private_key(file)
        return self._keys[key_id]


def _read_private_key(file: Path) -> RSA.RsaKey:
    try:
        content = read_named(file)
        # As for the plugin, text may surround the key, such as the attributes that openssl pkcs12 prints.
        pem = _PEM.search(content)
        key = RSA.import_key(content if pem is None else pem[0])
    except OSError as e:
        raise UsageError(f"reading the private key {file}: {e.strerror or e}") from e
    except (ValueError, IndexError, TypeError):
        key = None
    if key is None or not key.has_private():
        # The library's message is left out: it might quote the file.
        raise UsageError(f"{file} is not an unencrypted RSA private key in PEM") from None
    return key
