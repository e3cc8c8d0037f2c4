"""What commands that read share: the state, what went wrong on the way, partitions opened for reading."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from tierctl.cli.context import Context
from tierctl.errors import AuthenticationError, TierctlError
from tierctl.model import is_legal_topic_name
from tierctl.report.terminal import printable

if TYPE_CHECKING:
    from tierctl.metadata.cluster import Cluster
    from tierctl.model import LocalLog, TopicIdPartition
    from tierctl.model.cluster import ClusterLog
    from tierctl.read.indexes import IndexFetcher
    from tierctl.read.partitions import Readable
    from tierctl.read.problems import Problems
    from tierctl.read.view import PartitionView
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


def read_state(context: Context, problems: "Problems") -> "TierState":
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
        from tierctl.read.indexes import UncachedIndexes
        from tierctl.storage.index_cache import RemoteIndexCache

        remote = context.remote()
        if context.state_dir is None:
            return cls(remote, UncachedIndexes(remote))
        return cls(remote, RemoteIndexCache(context.state_dir, remote))

    def view(
        self, readable: "Readable", problems: "Problems", log_start_offset: int | None = None
    ) -> "PartitionView":
        """What there is to read of a partition, from `log_start_offset` on if a leader says so."""
        from tierctl.read.view import PartitionView

        return PartitionView.of(
            readable.topic_id_partition,
            readable.cache,
            readable.logs,
            remote=self.remote,
            fetcher=self.fetcher,
            report=problems.report,
            log_start_offset=log_start_offset,
        )


def believed_log(cluster: "Cluster", partition: "TopicIdPartition") -> "ClusterLog | None":
    """The log on a partition's leader; None when there is none, or it does not know where the log starts."""
    from tierctl.model import TopicConfig
    from tierctl.plan.leader import knows_log_start

    if not is_legal_topic_name(partition.topic):
        return None
    topic = cluster.topics([partition.topic]).get(partition.topic)
    if topic is None or topic.topic_id != partition.topic_id:
        return None
    brokers = {broker.broker_id: broker for broker in cluster.brokers()}
    try:
        config = cluster.topic_configs([partition.topic])[partition.topic]
    except AuthenticationError:
        # Who may only read is not told; then only a leader that tiers can be believed.
        config = TopicConfig(remote_storage_enable=True)
    logs = cluster.logs([partition])
    return next((log for log in logs if knows_log_start(brokers.get(log.leader), config)), None)


def log_start_on(cluster: "Cluster | None", partition: "TopicIdPartition") -> int | None:
    """Where a partition's log starts for consumers of the cluster; None where it does not know.

    Below it brokers serve nothing, though the tier may still have it.
    """
    log = None if cluster is None else believed_log(cluster, partition)
    return None if log is None else log.log_start_offset
