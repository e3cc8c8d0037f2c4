"""Replace cache files by their compacted content."""

from collections.abc import Iterable
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tierctl.errors import CorruptInputError, SafetyRefusal
from tierctl.files import broker_kept_out, exclusive, read_regular, replace_durably
from tierctl.metadata.cache_files.check import against_manifest
from tierctl.metadata.cache_files.compact import Compacted, compacted
from tierctl.metadata.cache_files.files import listed_in_manifest, manifest_of, read_cache
from tierctl.metadata.state_dir.directory import LOCK
from tierctl.metadata.state_dir.manifest import MANIFEST
from tierctl.wire.crc import crc32c


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """The effect of compacting one cache file. Executors return it without a path, so that they name none."""

    reason: str
    """Why the file is compacted or kept."""
    entries: int | None = None
    size_bytes: int = 0
    crc: int = 0
    """CRC-32C of the file as it was read."""
    compacted: Compacted | None = None
    """The new content; None if the file is not changed."""
    is_damaged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """The plan for one cache file."""

    path: Path
    plan: Compaction

    def row(self) -> dict[str, Any]:
        """Return the plan as JSON-ready fields."""
        plan, new = self.plan, self.plan.compacted
        return {
            "action": "keep" if new is None else "compact",
            "file": str(self.path),
            "entries": plan.entries,
            "kept": plan.entries if new is None else new.kept,
            "size_bytes": plan.size_bytes,
            "new_size_bytes": plan.size_bytes if new is None else len(new.data),
            "reason": plan.reason,
        }


def plan_compaction(path: Path) -> Compaction:
    """Read the cache file at `path` and plan its compaction; change nothing.

    Raise UsageError for a form that is not compacted, or OSError.
    """
    size_bytes = path.stat().st_size
    try:
        file = read_cache(path)
        for error in against_manifest(file):
            raise error
        cache = listed_in_manifest(file)
        new = compacted(cache)
    except CorruptInputError as error:
        return Compaction(reason=error.message, size_bytes=size_bytes, is_damaged=True)
    entries = len(cache.entries)
    if len(new.data) >= size_bytes:
        return Compaction(entries=entries, size_bytes=size_bytes, reason="every entry is needed")
    reason = f"{entries - new.kept} entries are not needed"
    return Compaction(entries=entries, size_bytes=size_bytes, crc=cache.crc, compacted=new, reason=reason)


def rewrite(plans: Iterable[Rewrite]) -> None:
    """Replace each cache file atomically; the old files are kept as .bak.

    Raise SafetyRefusal if a broker runs on the folder or a file is not the one that was read, LockedError if
    another tierctl works there, OSError.
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
    manifest = deepcopy(manifest_of(folder))
    for each in plans:
        new = each.plan.compacted
        if new is None:
            continue
        if crc32c(read_regular(each.path)) != each.plan.crc:
            raise SafetyRefusal(
                f"{each.path} is not the file that was read: it its content has changed",
                hint="run the command again; with --engine spark, executors must see the same files",
            )
        replace_durably(each.path, new.data, backup=True)
        entry = manifest.caches.get(each.path.name)
        if entry is not None:
            # The cache is written first: after a crash its CRC differs from the manifest's, and the next run
            # reads this partition from the metadata topic again.
            manifest.caches[each.path.name] = replace(entry, events=new.kept, crc=crc32c(new.body))
            replace_durably(folder / MANIFEST, manifest.dumps())
