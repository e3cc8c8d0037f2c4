"""Checks the names of the topics in --topic-configs for typing errors."""

from collections.abc import Collection
from difflib import get_close_matches

from tierctl.errors import UsageError
from tierctl.model.selection import names_text
from tierctl.model.settings import topic
from tierctl.plan.preconditions import INTERNAL_TOPICS

_SIMILAR = 0.8
"""Names of at least this similarity count as typing errors of each other."""


def require_known_names(
    stated: Collection[str], known: Collection[str], without_settings: Collection[str]
) -> str | None:
    """Raise UsageError if the topic names in --topic-configs, `stated`, look mistyped.

    Return a note about other names that are not among the `known` topics, or None. A name looks mistyped if
    it is not among the `known` topics and is similar to one of the selected topics `without_settings`. If
    none of several known topics is stated, the file belongs to another cluster.
    """
    unknown = sorted(set(stated) - set(known) - INTERNAL_TOPICS)
    for name in unknown:
        near = get_close_matches(name, sorted(without_settings), n=1, cutoff=_SIMILAR)
        if near:
            raise UsageError(
                f'--topic-configs states settings of topic "{name}", which neither the metadata nor the log '
                f'directories have, and none of topic "{near[0]}"',
                hint=f'did you mean "{near[0]}"? If not, state one of its settings, too, such as '
                f"{near[0]}.{topic.REMOTE_STORAGE_ENABLE.name}=false",
            )
    if known and stated and len(unknown) == len(set(stated)):
        raise UsageError(
            f"--topic-configs states settings of {names_text(unknown)} only, which neither the metadata nor "
            "the log directories have",
            hint=f"known topics: {names_text(known)}",
        )
    if not unknown:
        return None
    return (
        f"--topic-configs states settings of {names_text(unknown)}, which neither the metadata nor the log "
        "directories have"
    )
