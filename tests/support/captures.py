"""Files of real brokers, captured in `tests/data`."""

import tarfile
from pathlib import Path

import pyarrow as pa

DATA = Path(__file__).parents[1] / "data"


def unpack(name: str, folder: Path, version: str = "4.3.0") -> Path:
    """Unpack the capture `name` of this version of Kafka into `folder`; return the folder."""
    with (
        pa.CompressedInputStream(DATA / f"{name}-{version}.tar.zst", "zstd") as stream,
        tarfile.open(fileobj=stream, mode="r|") as archive,
    ):
        archive.extractall(folder, filter="data")
    return folder
