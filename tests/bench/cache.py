"""A folder outside the repository for what benches make or install once.

It is $TIERCTL_BENCH_CACHE, or ~/.cache/tierctl-bench. An entry is made in a folder of its own, which gets its
name when it is whole; folders that an interrupted process left are deleted.
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support import made_once


def folder() -> Path:
    """Return the cache folder, which exists."""
    found = Path(os.environ.get("TIERCTL_BENCH_CACHE") or Path.home() / ".cache" / "tierctl-bench")
    found.mkdir(parents=True, exist_ok=True)
    return found


def make_once(name: str, make: Callable[[Path], None], *, source: Sequence[Path] = ()) -> Path:
    """Return the entry `name`; if there is none, call `make` with the empty folder that becomes it.

    An entry made by other versions of the files in `source` is not the same entry.
    """
    if source:
        digest = hashlib.sha256(b"".join(path.read_bytes() for path in source)).hexdigest()
        name = f"{name}-{digest[:10]}"
    return made_once.make_once(folder() / name, make)
