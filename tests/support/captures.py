"""Captured files of brokers, unpacked and copied with holes: brokers preallocate indexes of 10 MiB."""

import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa

DATA = Path(__file__).parents[1] / "data"
BLOCK_BYTES = 1 << 16


def unpack(name: str, folder: Path, version: str = "4.3.0") -> Path:
    """Unpack the capture `name` of this version of Kafka into `folder`; return the folder."""
    with (
        pa.CompressedInputStream(DATA / f"{name}-{version}.tar.zst", "zstd") as stream,
        tarfile.open(fileobj=stream, mode="r|") as archive,
    ):
        for member in archive:
            archive.extract(member, folder, filter="data")
            if member.isfile() and member.size > BLOCK_BYTES:
                _dig_holes(folder / member.name)
    return folder


def _dig_holes(path: Path) -> None:
    """Write a file anew without its blocks of zeros; its bytes and times stay the same."""
    data, times = path.read_bytes(), path.stat()
    with path.open("wb") as file:
        for at in range(0, len(data), BLOCK_BYTES):
            block = data[at : at + BLOCK_BYTES]
            if block.strip(b"\0"):
                file.seek(at)
                file.write(block)
        file.truncate(len(data))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def copy_tree(source: Path, target: Path, **more: Any) -> Path:
    """Copy a folder as shutil.copytree does, which fills holes, and keep the holes of its files."""
    return Path(shutil.copytree(source, target, copy_function=_copy_file, **more))


def _copy_file(source: str, target: str) -> str:
    with Path(source).open("rb") as from_file, Path(target).open("wb") as to_file:
        at, size = 0, os.fstat(from_file.fileno()).st_size
        while at < size:
            try:
                at = os.lseek(from_file.fileno(), at, os.SEEK_DATA)
            except OSError:
                # ENXIO: only a hole follows.
                break
            end = os.lseek(from_file.fileno(), at, os.SEEK_HOLE)
            to_file.seek(from_file.seek(at))
            to_file.write(from_file.read(end - at))
            at = end
        to_file.truncate(size)
    shutil.copystat(source, target)
    return target
