"""Files of real brokers, captured in `tests/data`."""

import tarfile
from pathlib import Path

import pyarrow as pa

DATA = Path(__file__).parents[1] / "data"


def private_keys(root: Path) -> list[object]:
    """Return the options with the keys of a capture whose objects are encrypted."""
    return [word for key in root.glob("keys/private*") for word in ("--aiven-private-key", key)]


def unpack(name: str, folder: Path, version: str = "4.3.0") -> Path:
    """Unpack the capture `name` of this version of Kafka into `folder`; return the folder."""
    with (
        pa.CompressedInputStream(DATA / f"{name}-{version}.tar.zst", "zstd") as stream,
        tarfile.open(fileobj=stream, mode="r|") as archive,
    ):
        archive.extractall(folder, filter="data")
    return folder
