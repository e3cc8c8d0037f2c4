"""Whether the topics that a request names exist, where no cluster can be asked."""

from collections.abc import Collection, Sequence
from pathlib import Path

from tierctl.commands.resources import Resources
from tierctl.errors import TierctlError
from tierctl.locallog import list_partitions


def require_topics_of_files(
    resources: Resources, log_dirs: Sequence[Path], stated: Collection[str]
) -> TierctlError | None:
    """Raise NotFoundError for a requested topic that no file has; do nothing beside a cluster.

    `stated` are the topics in --topic-configs. The metadata are read only for a name that neither these nor
    the log directories have; the error of reading them is returned.
    """
    request = resources.request
    if not request.topic or not (request.topic_configs or request.metadata or log_dirs):
        return None
    if resources.cluster is not None:
        return None
    names = {*stated, *(each.topic for each in list_partitions(filter(Path.is_dir, log_dirs)))}
    asked = resources.selection_request
    if request.metadata is not None and asked.unmatched_topics(names):
        try:
            names |= resources.metadata(is_whole=True).refresh().topics
        except TierctlError as e:
            return e
    asked.require_topics(names)
    return None
