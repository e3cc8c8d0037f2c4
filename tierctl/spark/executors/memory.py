"""Set how a Python worker allocates memory."""

import ctypes
from functools import cache
from typing import Final

# The parameters of glibc's mallopt.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3

KEPT_BYTES: Final = 256 << 20
# Larger blocks are always returned. Some versions of glibc accept no larger threshold.
_BLOCK_BYTES_MAX: Final = 32 << 20


@cache
def keep_freed_memory() -> bool:
    """Let this process reuse up to KEPT_BYTES of freed memory; return False if it has no `mallopt`.

    By default glibc returns the memory of large arrays to the system, which clears each page that it hands
    out again: a worker that folds many small metadata partitions spends a twentieth of its time on that.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_TRIM_THRESHOLD, KEPT_BYTES)) and bool(mallopt(_MMAP_THRESHOLD, _BLOCK_BYTES_MAX))
