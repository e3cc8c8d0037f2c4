"""Ship the tierctl package to executors as a zip, so that they need no installation of the same version."""

from __future__ import annotations

import atexit
import hashlib
import io
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING

from tierctl import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EPOCH = (1980, 1, 1, 0, 0, 0)
_METADATA = ("METADATA", "entry_points.txt")


def pack() -> bytes:
    """Return the installed package and its entry points as a zip; the bytes depend on the content only."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in sorted((*_members(files("tierctl"), "tierctl"), *_metadata())):
            # All members have the same time and mode and are not compressed, because these differ between
            # machines.
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content)
    return buffer.getvalue()


def _members(folder: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    for item in folder.iterdir():
        name = f"{path}/{item.name}"
        if item.is_file():
            yield name, item.read_bytes()
        elif item.name != "__pycache__":
            yield from _members(item, name)


def _metadata() -> Iterator[tuple[str, bytes]]:
    """Yield the files that importlib.metadata reads; none if tierctl is not installed."""
    try:
        installed = distribution("tierctl")
    except PackageNotFoundError:
        return
    for name in _METADATA:
        text = installed.read_text(name)
        if text is not None:
            yield f"tierctl-{__version__}.dist-info/{name}", text.encode()


@cache
def archive() -> Path:
    """Return the zip as a file, named by its hash; it is deleted when the process ends."""
    content = pack()
    folder = Path(tempfile.mkdtemp(prefix="tierctl-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    file = folder / f"tierctl-{__version__}-{hashlib.sha256(content).hexdigest()[:12]}.zip"
    file.write_bytes(content)
    return file


def is_connect(session: SparkSession) -> bool:
    """Return True for a session of Spark Connect."""
    return type(session).__module__.startswith("pyspark.sql.connect.")


def ship(session: SparkSession) -> None:
    """Let the Python workers of a session import this tierctl; a repeated call changes nothing."""
    file = str(archive())
    if is_connect(session):
        session.addArtifacts(file, pyfile=True)
    else:
        session.sparkContext.addPyFile(file)
