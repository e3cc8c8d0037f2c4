"""Places where tierctl works: a metadata folder, log directories and the URI of a tier, with its objects."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tierctl.storage.open_tier import TierSpec, open_tier

from tests.cli.shell import tierctl
from tests.metadata.topics import topic_in
from tests.support.topic_settings import enabled

IDENTITY = ".tierctl-identity"
in_each_place = pytest.mark.parametrize("place", ["folder", "s3"], indirect=True)


@dataclass(frozen=True, slots=True)
class Site:
    """A metadata folder, log directories and the URI of a tier."""

    metadata: Path
    logs: Path
    remote: str

    def at(self, remote: str) -> "Site":
        return replace(self, remote=remote)

    def command(self, name: str, *more: object) -> tuple[object, ...]:
        where = ("--metadata", self.metadata, "--remote", self.remote)
        own: Sequence[object] = {
            "copy": ("--log-dir", self.logs, *enabled(self.logs)),
            "sweep": ("--log-dir", self.logs, "--topic-configs", self.logs / "configs"),
            "segments": ("--sizes",),
        }.get(name, ())
        return (name, *where, *own, *more)


MUTATING = ("copy", "sweep", "delete")
READING = ("verify", "fetch", "segments")


def keys(remote: str) -> list[str]:
    """Return the key of every object in a tier, including those of tierctl."""
    tier = open_tier(TierSpec(remote))
    return [found.key for found in tier.store.list_objects("")]


def body(remote: str) -> dict[str, Any]:
    tier = open_tier(TierSpec(remote, layout="kafka"))
    with tier.store.open(IDENTITY) as stream:
        found: dict[str, Any] = json.loads(stream.read())
    return found


def copied(site: Site, *more: object) -> Site:
    tierctl(*site.command("copy", "--layout", "kafka", "--apply", *more)).ok()
    return site


def another(site: Site, folder: Path, place: str) -> Site:
    """Return a second metadata folder with the same log, and its own tier beside the first one."""
    topic_in(folder, writable=True, partition_count=2).close()
    return copied(Site(folder, site.logs, f"{place}/other"))
