"""Stopped brokers of a captured cluster, which a test may change, and damage of their metadata topic."""

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

from tierctl.metadata.topic import METADATA_TOPIC

from tests.cli.shell import Ran, tierctl
from tests.commands.ended import ended
from tests.wire.batches.same import scan

COUNT = 3
"""Number of metadata partitions of the capture."""
LOG = f"{'0' * 20}.log"


def digests(folder: Path) -> dict[str, str]:
    """Return the digest of each file, without the locks of tierctl."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".lock")
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def metadata_bytes(log_dir: Path) -> dict[str, bytes]:
    """Return the logs of the metadata partitions."""
    files = (path for path in log_dir.glob(f"{METADATA_TOPIC}-*/*.log"))
    return {f"{path.parent.name}/{path.name}": path.read_bytes() for path in files}


def lose_events(*log_dirs: Path) -> None:
    """Delete all files of the metadata partitions except those with the topic's id."""
    for log_dir in log_dirs:
        for path in log_dir.glob(f"{METADATA_TOPIC}-*/*"):
            if path.name != "partition.metadata":
                path.unlink()


def lose_folders(*log_dirs: Path) -> None:
    for log_dir in log_dirs:
        for folder in log_dir.glob(f"{METADATA_TOPIC}-*"):
            shutil.rmtree(folder)


class Stopped:
    """Three stopped brokers with replicas of the metadata topic, and their tier."""

    def __init__(self, root: Path) -> None:
        self.root, self.remote = root, root / "remote"
        self.brokers = {node: root / f"broker-{node}" for node in (1, 2, 3)}
        self.log_dirs = list(self.brokers.values())

    def where(self, *log_dirs: Path) -> tuple[object, ...]:
        """Return the options that name the tier and these log directories, or all."""
        logs = [word for path in log_dirs or self.log_dirs for word in ("--log-dir", path)]
        return ("--metadata", self.log_dirs[0], "--remote", self.remote, *logs)

    def rebuild(self, *more: object) -> Ran:
        return tierctl("rebuild", *self.where(), *more)

    def refuses(self, text: str, *options: object) -> Ran:
        """Check that a rebuild says `text`, whether planned or applied, and changes no file."""
        before = self.everything()
        for apply in ((), ("--apply",)):
            ran = ended(self.rebuild(*options, *apply), 4, text)
            assert self.everything() == before
        return ran

    def logs(self) -> list[dict[str, bytes]]:
        """Return the logs of the metadata partitions of each broker."""
        return [metadata_bytes(log_dir) for log_dir in self.log_dirs]

    def written(self) -> dict[str, bytes]:
        """Return the logs of the metadata partitions, which are the same in all replicas."""
        first, *others = self.logs()
        assert others == [first, first]
        return first

    def everything(self) -> dict[str, str]:
        return digests(self.root)


def empty(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


def changed(change: Callable[[bytes, list[int]], bytes]) -> Callable[[Path], None]:
    """Return a function that changes the log file, whose batches end at the given positions."""

    def apply(folder: Path) -> None:
        data = (folder / LOG).read_bytes()
        ends = [0, *(head.position + head.size_bytes for head in scan(data))]
        (folder / LOG).write_bytes(change(data, ends))
        for suffix in (".index", ".timeindex"):
            (folder / LOG).with_suffix(suffix).unlink(missing_ok=True)

    return apply


def split(folder: Path) -> None:
    """Lose the middle one of three segments."""
    data = (folder / LOG).read_bytes()
    heads = scan(data)
    (folder / LOG).write_bytes(data[: heads[8].position])
    last = heads[20]
    (folder / f"{last.base_offset:020d}.log").write_bytes(data[last.position :])


def flip(data: bytes, at: int, to: int = 0xFF) -> bytes:
    return data[:at] + bytes([to]) + data[at + 1 :]


LOSSES: dict[str, Callable[[Path], None]] = {
    "no folder": shutil.rmtree,
    "emptied": empty,
    "cut between batches": changed(lambda data, ends: data[: ends[9]]),
    "cut in a batch": changed(lambda data, ends: data[: ends[9] + 70]),
    "first bytes lost": changed(lambda data, ends: data[ends[0] + 300 :]),
    "first batches lost": changed(lambda data, ends: data[ends[9] :]),
    "a batch lost": changed(lambda data, ends: data[: ends[9]] + data[ends[10] :]),
    "a bit flipped": changed(lambda data, ends: flip(data, ends[9] + 80)),
    "a bit of the magic flipped": changed(lambda data, ends: flip(data, ends[9] + 16, 3)),
    "zeros": changed(lambda data, ends: data[: ends[9]] + bytes(ends[12] - ends[9]) + data[ends[12] :]),
    "last batch damaged": changed(
        lambda data, ends: data[: ends[-2] + 61] + bytes(9) + data[ends[-2] + 70 :]
    ),
    "a segment lost": split,
}
"""What the folder of a metadata partition may lose."""
