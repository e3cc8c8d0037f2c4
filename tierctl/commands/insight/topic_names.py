"""Whether the topics that a request names exist, where no cluster can be asked."""

from collections.abc import Collection, Sequence
from pathlib import Path

from tierctl.commands.resources import Resources
from tierctl.errors import TierctlError
from tierctl.locallog import list_partitions
from tierctl.plan.settings_names import require_known_names


def require_topics_of_files(
    resources: Resources, log_dirs: Sequence[Path], stated: Collection[str]
) -> TierctlError | None:
    """Raise NotFoundError for a requested topic that no file has; do nothing beside a cluster.

    `stated` are the topics in --topic-configs; UsageError if their names look mistyped. The metadata are read
    only for a name that the log directories lack; for a requested topic, the error of reading is returned.
    """
    request = resources.request
    if resources.cluster is not None or not (request.topic_configs or request.metadata or log_dirs):
        return None
    known = {each.topic for each in list_partitions(filter(Path.is_dir, log_dirs))}
    asked = resources.selection_request
    error = None
    if request.metadata is not None and (asked.unmatched_topics({*stated, *known}) or set(stated) - known):
        try:
            known |= resources.metadata(is_whole=True).refresh().topics
        except TierctlError as e:
            error = e
    if error is None:
        note = require_known_names(stated, known, known.difference(stated))
        if note is not None and known:
            resources.progress.note(note)
    if request.topic and error is None:
        asked.require_topics({*stated, *known})
    return error if request.topic else None
