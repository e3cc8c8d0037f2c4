"""`backup-config`: save the topic properties of a running cluster that are not in the tier's objects."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import typer

from tierctl.commands.request import Request
from tierctl.commands.resources import Resources, required
from tierctl.errors import CorruptInputError, SafetyRefusal, UsageError
from tierctl.files import read_decoded
from tierctl.model.checked_values import require_output, write_output
from tierctl.model.events import INTERNAL_TOPICS
from tierctl.model.local import SavedTopic, SavedTopics, TopicFacts
from tierctl.model.progress import Progress, SilentProgress
from tierctl.model.selection import names_text
from tierctl.report import columns as f
from tierctl.report.columns import Columns, Field, Kind, Shown
from tierctl.report.render import SHOW
from tierctl.report.results import TableResult, TableRows
from tierctl.wire.files.topics_file import begins_backup, read_topics_file, write_topics_file

if TYPE_CHECKING:
    from tierctl.kafka.cluster import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupConfigRequest(Request):
    """A request to save the topics of a cluster; `output_file` is replaced atomically."""

    output_file: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="The YAML file to write. An earlier backup of the same cluster is replaced atomically; any "
            "other file that is not empty is refused.",
            rich_help_panel=SHOW,
        ),
    ]


class SavedTopicRow(TypedDict):
    """A saved topic."""

    topic: Annotated[str, f.TOPIC, Shown(0)]
    topic_id: Annotated[str, f.TOPIC_ID, Shown(1)]
    partitions: Annotated[int, f.PARTITIONS, Shown(0)]
    own_settings: Annotated[
        list[dict[str, Any]],
        Field(Kind.LIST, "settings that were set for the topic itself: objects with name and value"),
        Shown(2),
    ]


SAVED_TOPICS = Columns(
    SavedTopicRow,
    name="saved-topics",
    title="Saved topics",
    commands="backup-config",
    noun="topic",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupConfig(TableResult):
    """The saved topics."""

    saved: SavedTopics

    @property
    def topics(self) -> Sequence[SavedTopic]:
        """Return the saved topics by name."""
        return [topic for _, topic in sorted(self.saved.topics.items())]

    def table_rows(self) -> TableRows:
        """Implement `TableResult.table_rows`: a row per topic."""
        return SAVED_TOPICS, [_row(topic) for topic in self.topics]


def backup_config(request: BackupConfigRequest, progress: Progress | None = None) -> BackupConfig:
    """Write ids, partition counts and own settings of the selected topics of a cluster to a file.

    Internal topics are left out, since brokers create them. Raise NotFoundError if a selected topic does not
    exist, AuthenticationError if a right is missing, MetadataError if no broker answers, SafetyRefusal if the
    file has content that is no such backup, is one of another cluster, or has topics of which this one's list
    lacks some, and UsageError if it can't be written.
    """
    required("--bootstrap-server", request.cluster_servers)
    _require_replaceable(request.output_file)
    with Resources(request=request, progress=progress or SilentProgress()) as resources:
        cluster = resources.cluster
        if cluster is None:
            raise ValueError("a request with a bootstrap server has a cluster")
        listed, cluster_id = cluster.topics(), cluster.cluster_id()
        _require_nothing_lost(request.output_file, listed, cluster, cluster_id)
        known = {
            name: facts
            for name, facts in listed.items()
            if name not in INTERNAL_TOPICS and not facts.is_internal
        }
        selection = resources.resolve_selection(*(facts.topic_id_partitions for facts in known.values()))
        chosen = {
            name: facts
            for name, facts in known.items()
            if any(partition in selection for partition in facts.topic_id_partitions)
        }
        settings = cluster.own_topic_settings(chosen)
        saved = SavedTopics(
            topics={
                name: SavedTopic(
                    topic=name,
                    topic_id=facts.topic_id,
                    partitions=len(facts.partitions),
                    settings=settings[name],
                )
                for name, facts in chosen.items()
            },
            cluster_id=cluster_id,
            saved_ms=resources.now_ms,
        )
    _require_replaceable(request.output_file)
    data = file_of(saved, request.output_file)
    write_output("--output-file", request.output_file, [data], mode=0o666)
    return BackupConfig(saved=saved)


def _require_replaceable(file: Path) -> None:
    require_output("--output-file", file, "backup", begins_backup)


def _require_nothing_lost(
    file: Path, listed: Mapping[str, TopicFacts], cluster: "Cluster", cluster_id: str
) -> None:
    """Raise SafetyRefusal if an earlier backup is of another cluster, or has topics that the list lacks.

    A new cluster under the address of a lost one knows none of its topics. Brokers leave topics that
    this user may not describe out of the list, without an error (KafkaApis); they tell that they know their
    ids, and do not know those of deleted topics.
    """
    try:
        before = read_decoded(file, lambda data: read_topics_file(data, str(file)) if data else None)
    except UsageError as e:
        why = f"--output-file: {e.message}; what a new backup would lack is unknown"
        raise SafetyRefusal(why, hint="mend the file, move it away, or name another") from e
    if before is not None and before.cluster_id not in {None, cluster_id}:
        raise SafetyRefusal(
            f"--output-file {file} is the backup of cluster {before.cluster_id}, expected was one of this "
            f"cluster, {cluster_id}",
            hint="name another file: if that cluster is lost, this one has its only list of topics",
        )
    missing = {} if before is None else {topic.topic_id: name for name, topic in before.topics.items()}
    for facts in listed.values():
        missing.pop(facts.topic_id, None)
    unknown = cluster.leaders.unknown_topic_ids(missing) if missing else ()
    hidden = [name for topic_id, name in missing.items() if topic_id not in unknown]
    if hidden:
        raise SafetyRefusal(
            f"--output-file {file} has topics which exist, and which the cluster's list for this user lacks: "
            f"{names_text(hidden)}",
            hint="give this user the right Describe on all topics (kafka-acls), or name another file",
        )


def file_of(saved: SavedTopics, path: Path) -> bytes:
    """Return the bytes to write to `path`; raise CorruptInputError unless reading them gives the same topics.

    Without this check, an unreadable file would be noticed only after the cluster is lost.
    """
    data = write_topics_file(saved)
    found = read_topics_file(data, str(path))
    if found.topics != saved.topics:
        odd = sorted(name for name, topic in saved.topics.items() if found.topics.get(name) != topic)
        raise CorruptInputError(
            f"{path} as written",
            expected="the topics of the cluster",
            found=f"others instead of {', '.join(odd) or 'none'}",
            hint="the file was left as it was; this is a fault of tierctl: report it",
        )
    return data


def _row(topic: SavedTopic) -> SavedTopicRow:
    settings = [{"name": name, "value": value} for name, value in sorted(topic.settings.items())]
    return {
        "topic": topic.topic,
        "topic_id": topic.topic_id,
        "partitions": topic.partitions,
        "own_settings": settings,
    }
