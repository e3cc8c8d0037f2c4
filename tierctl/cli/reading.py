"""What commands that read share: the state, what went wrong on the way, partitions opened for reading."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from tierctl.cli.context import Context
from tierctl.errors import TierctlError
from tierctl.report.terminal import printable

if TYPE_CHECKING:
    from tierctl.model import LocalLog
    from tierctl.read.index_lookup import IndexFetcher
    from tierctl.read.partitions import ReadablePartition
    from tierctl.read.readable_log import ReadableLog
    from tierctl.read.tolerated_errors import ToleratedErrors
    from tierctl.state.tier import TierState
    from tierctl.storage.base import RemoteStorageManager


def show_problem(error: TierctlError) -> None:
    """One error on stderr, as one that ends a run is shown."""
    typer.echo(f"error: {printable(error.message)}", err=True)
    if error.hint:
        typer.echo(f"hint: {printable(error.hint)}", err=True)


def note(text: str) -> None:
    """Something worth knowing that is no error, on stderr."""
    typer.echo(f"note: {printable(text)}", err=True)


def read_state(context: Context, problems: "ToleratedErrors") -> "TierState":
    """The state of the tier; metadata records that can't be used are problems."""
    state = context.metadata().refresh()
    for quarantined in state.quarantined:
        source = (
            f"__remote_log_metadata-{quarantined.metadata_partition}, offset {quarantined.metadata_offset}"
        )
        problems.report(quarantined.error.within(source))
    return state


def logs_if_given(context: Context) -> list["LocalLog"]:
    """The selected logs of --log-dir, none without it."""
    return context.logs() if context.log_dir else []


@dataclass(frozen=True, slots=True)
class Tier:
    """The store, and where its indexes come from."""

    remote: "RemoteStorageManager"
    fetcher: "IndexFetcher"

    @classmethod
    def of(cls, context: Context) -> "Tier":
        """With --state-dir indexes are kept there, in a cache of bounded size."""
        from tierctl.read.index_lookup import UncachedIndexes
        from tierctl.storage.index_cache import RemoteIndexCache

        remote = context.remote()
        if context.state_dir is None:
            return cls(remote, UncachedIndexes(remote))
        return cls(remote, RemoteIndexCache(context.state_dir, remote))

    def view(
        self, readable: "ReadablePartition", problems: "ToleratedErrors", log_start_offset: int | None = None
    ) -> "ReadableLog":
        """What there is to read of a partition, from `log_start_offset` on if a leader says so."""
        from tierctl.read.readable_log import ReadableLog

        return ReadableLog.of(
            readable.topic_id_partition,
            readable.cache,
            readable.logs,
            remote=self.remote,
            fetcher=self.fetcher,
            report=problems.report,
            log_start_offset=log_start_offset,
        )
