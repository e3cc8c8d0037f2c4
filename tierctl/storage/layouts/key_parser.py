"""Parse the keys of listed objects and folders, in every layout.

`kafka`: `…/<topic>-<partition>-<topicId>/<start %020d>-<segmentId><suffix>`;
`aiven`: `{prefix}<topic>-<topicId>/<partition>/<start %020d>-<segmentId>.{log|indexes|rsm-manifest}`.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from tierctl.files import TEMP_SUFFIX
from tierctl.model import IndexType, ObjectPart, SegmentObjectName, Uuid
from tierctl.storage.layouts.kafka import INDEX_SUFFIXES, LOG_SUFFIX

_FILE = r"/(\d{20})-([A-Za-z0-9_-]{22})\Z"
_KAFKA = re.compile(r"(?:.*/)?[a-zA-Z0-9._-]{1,249}-(\d{1,10})-([A-Za-z0-9_-]{22})" + _FILE)
_AIVEN = re.compile(r".*[a-zA-Z0-9._-]-([A-Za-z0-9_-]{22})/(\d{1,10})" + _FILE)

_KAFKA_FOLDER = re.compile(r"(?:.*/)?[a-zA-Z0-9._-]{1,249}-(\d{1,10})-([A-Za-z0-9_-]{22})/\Z")
_AIVEN_FOLDER = re.compile(r".*[a-zA-Z0-9._-]-([A-Za-z0-9_-]{22})/(?:(\d{1,10})/)?\Z")

_KAFKA_PARTS: Mapping[str, int] = {
    LOG_SUFFIX: int(ObjectPart.LOG),
    INDEX_SUFFIXES[IndexType.OFFSET]: int(ObjectPart.OFFSET),
    INDEX_SUFFIXES[IndexType.TIMESTAMP]: int(ObjectPart.TIMESTAMP),
    INDEX_SUFFIXES[IndexType.LEADER_EPOCH]: int(ObjectPart.LEADER_EPOCH),
    INDEX_SUFFIXES[IndexType.PRODUCER_SNAPSHOT]: int(ObjectPart.PRODUCER_SNAPSHOT),
    INDEX_SUFFIXES[IndexType.TRANSACTION]: int(ObjectPart.TRANSACTION),
}
_AIVEN_PARTS: Mapping[str, int] = {
    LOG_SUFFIX: int(ObjectPart.LOG),
    ".indexes": int(ObjectPart.INDEXES),
    ".rsm-manifest": int(ObjectPart.MANIFEST),
}


class SegmentStem(NamedTuple):
    """The facts in the stem that the keys of a segment's objects share.

    `parts` has the bit of each `ObjectPart` of the layout by the suffix of its keys: listings are long, and
    operations on members of an enumeration take ten times as long as those on their numbers.
    """

    topic_id: Uuid
    partition: int
    start_offset: int
    segment_id: Uuid
    parts: Mapping[str, int]


def split_key(key: str) -> tuple[str, str]:
    """Return the stem and the suffix of a key, which begins with the last dot."""
    stem, dot, suffix = key.rpartition(".")
    return stem, dot + suffix


def segment_stem(stem: str) -> SegmentStem | None:
    """Parse the stem of a key; return None if no layout gives such keys to the objects of a segment."""
    found = _KAFKA.match(stem)
    if found is not None:
        partition, topic_id, start, segment_id = found.groups()
        return SegmentStem(Uuid(topic_id), int(partition), int(start), Uuid(segment_id), _KAFKA_PARTS)
    found = _AIVEN.match(stem)
    if found is None:
        return None
    topic_id, partition, start, segment_id = found.groups()
    return SegmentStem(Uuid(topic_id), int(partition), int(start), Uuid(segment_id), _AIVEN_PARTS)


def segment_object_name(key: str) -> SegmentObjectName | None:
    """Parse the key of an object; return None if no layout gives such a key to a segment's object."""
    stem, suffix = split_key(key)
    found = segment_stem(stem)
    part = None if found is None else found.parts.get(suffix)
    if found is None or part is None:
        return None
    return SegmentObjectName(
        topic_id=found.topic_id,
        partition=found.partition,
        start_offset=found.start_offset,
        segment_id=found.segment_id,
        part=ObjectPart(part),
        stem=stem,
    )


def owner_of_folder(folder: str) -> tuple[Uuid, int | None] | None:
    """Return the topic id, and the partition if one, whose segments belong in `folder`.

    Return None if `folder` is not the folder of a topic or partition in any layout. Objects below
    `folder` may still have the ids of other topics in their names.
    """
    found = _KAFKA_FOLDER.match(folder)
    if found is not None:
        return Uuid(found[2]), int(found[1])
    found = _AIVEN_FOLDER.match(folder)
    if found is None:
        return None
    return Uuid(found[1]), None if found[2] is None else int(found[2])


def is_temporary(key: str) -> bool:
    """Return whether the key is a temporary name of a segment's object, used while the object is written."""
    return key.endswith(TEMP_SUFFIX) and segment_object_name(key.removesuffix(TEMP_SUFFIX)) is not None
