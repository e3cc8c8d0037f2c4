"""Replace cache files by their compacted content."""

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tierctl.errors import CorruptInputError
from tierctl.files import broker_kept_out, exclusive, replace_durably
from tierctl.metadata.cache_files.compact import Compacted, compacted
from tierctl.metadata.cache_files.files import listed_in_manifest, manifest_of, read_cache
from tierctl.metadata.state_dir.directory import LOCK
from tierctl.metadata.state_dir.manifest import MANIFEST
from tierctl.wire.crc import crc32c


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """The plan for one cache file."""

    path: Path
    reason: str
    """Why the file is compacted or kept."""
    entries: int | None = None
    size_bytes: int = 0
    compacted: Compacted | None = None
    """The new content; None if the file is kept as it is."""
    is_damaged: bool = False

    def row(self) -> dict[str, Any]:
        """Return the plan as JSON-ready fields."""
        new = self.compacted
        return {
            "action": "keep" if new is None else "compact",
            "file": str(self.path),
            "entries": self.entries,
            "kept": self.entries if new is None else new.kept,
            "size_bytes": self.size_bytes,
            "new_size_bytes": self.size_bytes if new is None else len(new.data),
            "reason": self.reason,
        }


def plan_rewrite(path: Path) -> Rewrite:
    """Read the cache file at `path` and plan its compaction; change nothing.

    Raise UsageError for a form that is not compacted, or OSError.
    """
    size_bytes = path.stat().st_size
    try:
        cache = listed_in_manifest(read_cache(path))
        new = compacted(cache)
    except CorruptInputError as error:
        return Rewrite(path=path, reason=error.message, size_bytes=size_bytes, is_damaged=True)
    entries = len(cache.entries)
    if len(new.data) >= size_bytes:
        return Rewrite(path=path, entries=entries, size_bytes=size_bytes, reason="every entry is needed")
    reason = f"{entries - new.kept} entries are not needed"
    return Rewrite(path=path, entries=entries, size_bytes=size_bytes, compacted=new, reason=reason)


def rewrite(plans: Iterable[Rewrite]) -> None:
    """Replace each cache file atomically; the old files are kept as .bak.

    Raise SafetyRefusal if a broker runs on the folder, LockedError if another tierctl works there, OSError.
    """
    by_folder: dict[Path, list[Rewrite]] = {}
    for plan in plans:
        by_folder.setdefault(plan.path.absolute().parent, []).append(plan)
    for folder, mine in by_folder.items():
        with ExitStack() as held:
            held.enter_context(exclusive(folder, LOCK))
            # A snapshot is in a partition's folder; the broker locks the log directory above that folder.
            for locked in (folder, folder.parent):
                held.enter_context(broker_kept_out(locked))
            _replace(folder, mine)


def _replace(folder: Path, plans: Iterable[Rewrite]) -> None:
    manifest = manifest_of(folder)
    for plan in plans:
        if plan.compacted is None:
            continue
        replace_durably(plan.path, plan.compacted.data, backup=True)
        entry = manifest.caches.get(plan.path.name)
        if entry is not None:
            # The cache is written first: after a crash its CRC differs from the manifest's, and the next run
            # reads this partition from the metadata topic again.
            new = replace(entry, events=plan.compacted.kept, crc=crc32c(plan.compacted.body))
            manifest.caches[plan.path.name] = new
            replace_durably(folder / MANIFEST, manifest.dumps())
