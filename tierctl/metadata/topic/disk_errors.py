"""Translates OSErrors of metadata files to MetadataError."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from tierctl.errors import NOT_ALLOWED, MetadataError

_HINTS = {
    errno.ENOSPC: "the disk is full: free space, then run again",
    errno.EDQUOT: "the quota is used up: raise it, then run again",
    errno.EIO: "the disk reported an input/output error: check it (dmesg) before running again",
    errno.EACCES: NOT_ALLOWED,
    errno.EPERM: NOT_ALLOWED,
    errno.EROFS: "the folder is mounted read-only",
}


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Raise MetadataError for an OSError in the body; the message has `doing`, the hint a remedy."""
    try:
        yield
    except OSError as e:
        where = f" ({e.filename})" if e.filename else ""
        hint = _HINTS.get(e.errno or 0, "look at the disk, then run again")
        raise MetadataError(f"{doing}: {e.strerror or e}{where}", hint=hint) from e
