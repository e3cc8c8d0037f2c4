"""Keys of records that a command line gives, as their SHA-256."""

import base64
import hashlib
from collections.abc import Callable

from tierctl.errors import UsageError

KEY_FORMS = "text, or hex:, base64: or sha256: and the key's bytes or their digest"
_DIGEST_BYTES = 32


def parse_key(text: str) -> bytes:
    """Return the SHA-256 of the key that `text` gives in one of KEY_FORMS; UsageError for any other text."""
    form, colon, rest = text.partition(":")
    decode = _FORMS.get(form) if colon else None
    if decode is None:
        return hashlib.sha256(text.encode()).digest()
    try:
        digest = decode(rest)
    except ValueError as e:
        raise UsageError(
            f"{form}:... is no key: {e}", hint=f"{KEY_FORMS}; a key that begins so itself: as base64:"
        ) from e
    return digest


def _digest(text: str) -> bytes:
    digest = bytes.fromhex(text)
    if len(digest) != _DIGEST_BYTES:
        raise ValueError(f"expected 64 hex digits, found {len(text)} characters")
    return digest


_FORMS: dict[str, Callable[[str], bytes]] = {
    "hex": lambda text: hashlib.sha256(bytes.fromhex(text)).digest(),
    "base64": lambda text: hashlib.sha256(base64.b64decode(text, validate=True)).digest(),
    "sha256": _digest,
}
