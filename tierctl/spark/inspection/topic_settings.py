"""Read the settings of topics on executors, each of which connects to the brokers itself."""

from collections.abc import Collection, Sequence
from functools import partial
from uuid import uuid4

from tierctl.model.location import TopicLocation
from tierctl.spark.executors.resources import shared_cluster
from tierctl.spark.executors.transport import Executors

TOPICS_PER_CHUNK = 500
"""The topics of one input: brokers get their requests at the same time."""


def own_topic_settings(
    executors: Executors, location: TopicLocation, names: Collection[str]
) -> dict[str, dict[str, str]]:
    """Return the settings of each topic itself, as `Cluster.own_topic_settings` does; raises as it does.

    `location` names the cluster, and the files of client settings, which executors need under the same path.
    """
    ordered = sorted(names)
    chunks = [ordered[at : at + TOPICS_PER_CHUNK] for at in range(0, len(ordered), TOPICS_PER_CHUNK)]
    found: dict[str, dict[str, str]] = {}
    for settings in executors.run(partial(_read, location, uuid4().hex), chunks, cost=len):
        found |= settings
    return found


def _read(location: TopicLocation, job: str, names: Sequence[str]) -> dict[str, dict[str, str]]:
    return shared_cluster(location, job).own_topic_settings(names)
