"""The private keys that decrypt an encrypted tier, as operators name them."""

from collections.abc import Iterable
from pathlib import Path


def private_keys_of(texts: Iterable[str]) -> dict[str, Path]:
    """Return the files of private keys by key id from texts `[ID=]FILE`; "" is the id of a text without one.

    The file of id "" is for every key id that has no file of its own.
    """
    pairs = (text.rpartition("=") for text in texts)
    return {key_id: Path(file) for key_id, _, file in pairs}
