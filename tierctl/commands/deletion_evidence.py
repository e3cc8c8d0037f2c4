"""Gather the evidence that topics were deleted, for `delete --mark` and for `apply` of such a plan."""

from collections.abc import Collection, Sequence

from tierctl.commands.mutation import Mutation
from tierctl.errors import UsageError
from tierctl.locallog import read_log_dir_facts
from tierctl.model import Uuid
from tierctl.plan.partition_deletes import DeletionEvidence


def deletion_evidence(
    run: Mutation, topic_ids: Collection[Uuid], *, all_log_dirs: bool, i_know_it_is_deleted: Sequence[str]
) -> DeletionEvidence:
    """Return what the cluster and the log directories of `run` show of these topics.

    `all_log_dirs` and `i_know_it_is_deleted` are the options of these names. UsageError if there are no log
    directories, or for a text that is no topic id.
    """
    log_dirs = dict.fromkeys(run.request.log_dir)
    if all_log_dirs and not log_dirs:
        raise UsageError(
            "--all-log-dirs: no --log-dir is given", hint="name each log directory of each broker"
        )
    cluster, identity = run.cluster, run.metadata.identity()
    known = {part.topic_id_partition.topic_id for part in run.metadata.state}.difference(topic_ids)
    if known and identity.metadata_topic_id is not None:
        known.add(identity.metadata_topic_id)
    return DeletionEvidence(
        cluster=None if cluster is None else cluster.answer_about(topic_ids, run.metadata.state),
        log_dirs=[read_log_dir_facts(log_dir) for log_dir in log_dirs],
        all_log_dirs=all_log_dirs,
        cluster_id=identity.cluster_id,
        known_topic_ids=frozenset(known),
        overridden=frozenset(map(Uuid.parse, i_know_it_is_deleted)),
    )
