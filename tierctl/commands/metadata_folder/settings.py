"""Find the id of the metadata topic in a folder, and its replicas in other log directories."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tierctl.commands.metadata_folder.count import folder_of, is_of_a_broker
from tierctl.commands.request import MutationRequest
from tierctl.commands.resources import Resources
from tierctl.errors import RemoteTierMissing, SafetyRefusal
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.metadata.topic.folder import partitions_in
from tierctl.metadata.topic.folder_writer import FolderSettings
from tierctl.storage.identity import read_identity


def folder_settings(request: MutationRequest, resources: Resources) -> FolderSettings:
    """Return the settings for the folder of `metadata`.

    A broker's metadata topic has replicas in the other log directories. A new topic gets the id in the tier's
    identity object, if the tier has one, so that the tier belongs to the new topic without a change. Raise
    SafetyRefusal if a broker's folder lacks partitions of the topic.
    """
    folder = folder_of(request.metadata)
    if folder is None or is_of_a_broker(folder):
        if folder is not None:
            _require_all_partitions(folder, request)
        return FolderSettings(replicas=tuple(request.log_dir))
    settings = FolderSettings()
    with suppress(RemoteTierMissing):
        identity = read_identity(resources.remote)
        topic_id = None if identity is None else identity.cluster.metadata_topic_id
        if topic_id is not None:
            settings = replace(settings, new_topic_id=lambda: topic_id)
    return settings


def _require_all_partitions(folder: Path, request: MutationRequest) -> None:
    """Raise SafetyRefusal if `folder` has fewer metadata partitions than the brokers use.

    The folders of one broker are in one of its log directories, or in several.
    """
    own = partitions_in(folder)
    for other in request.log_dir:
        missing = sorted(set(partitions_in(other)) - set(own)) if other.is_dir() else []
        if missing:
            raise SafetyRefusal(
                f"{other} has {METADATA_TOPIC}-{missing[0]}, which {folder} lacks: the number of metadata "
                "partitions is unknown, and it decides which events each has",
                hint="name a log directory with all partitions of the metadata topic as --metadata, or start "
                "the brokers with copying disabled and use --metadata kafka://host:port",
            )
