"""A folder for what rows need and make only once."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from tests.support import made_once

FOLDER = Path(__file__).parents[2] / ".cache" / "bench"


def make_once(name: str, make: Callable[[Path], None], *depends_on: object) -> Path:
    """Return the entry `name`; if there is none, call `make` with the empty folder that becomes it.

    Another value of `depends_on`, or another content of a file in it, is another entry.
    """
    facts = [each.read_bytes() if isinstance(each, Path) else repr(each).encode() for each in depends_on]
    digest = hashlib.sha256(b"\n".join(facts)).hexdigest()[:12]
    return made_once.make_once(FOLDER / f"{name}-{digest}", make)
