"""Identifiers: Kafka's Uuid, TopicPartition and TopicIdPartition; the identities of a cluster and of a
tier.
"""

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Self

from tierctl.errors import UsageError

_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}\Z")


def is_legal_topic_name(name: str) -> bool:
    """Return whether a topic name is legal in Kafka (Topic.isValid).

    Only legal names may become part of a path or an object key, since names in metadata may be hostile.
    """
    return _LEGAL_TOPIC.match(name) is not None and name not in {".", ".."}


INTERNAL_TOPICS = frozenset(
    {
        "__cluster_metadata",
        "__consumer_offsets",
        "__remote_log_metadata",
        "__share_group_state",
        "__transaction_state",
    }
)
"""Topics that brokers never tier (UnifiedLog.isRemoteLogEnabled)."""


class Uuid(str):
    """Kafka's Uuid in its printed form: 16 bytes in unpadded base64url (org.apache.kafka.common.Uuid).

    As a str it is compared, sorted and serialised in the form that operators see.
    """

    __slots__ = ()

    @classmethod
    def from_bytes(cls, raw: bytes | memoryview) -> Self:
        """Return the id that consists of these 16 bytes; ValueError for another length."""
        if len(raw) != 16:
            raise ValueError(f"a Kafka Uuid has 16 bytes, found {len(raw)}")
        return cls(base64.urlsafe_b64encode(raw)[:22].decode("ascii"))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the id that an operator typed, in the form in which Kafka prints it.

        UsageError for padding, another length, a character outside base64url, and for a last character
        with bits that 16 bytes do not fill: another spelling of the same id would match no printed id.
        """
        try:
            raw = base64.b64decode(text.encode("ascii") + b"==", altchars=b"-_", validate=True)
        except (UnicodeEncodeError, binascii.Error):
            raw = b""
        if len(raw) != 16 or cls.from_bytes(raw) != text:
            raise UsageError(
                f"not a Kafka id: {text!r}",
                hint="expected 22 characters of base64url without padding, as 2QZ5FAXaQrqgUzsReWnweA",
            )
        return cls(text)

    @property
    def bytes(self) -> bytes:
        """The 16 bytes, most significant first."""
        return base64.urlsafe_b64decode(self + "==")


ZERO_UUID = Uuid("AAAAAAAAAAAAAAAAAAAAAA")


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A topic's partition by name; prints as Kafka's `topic-partition`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the partition that a text `topic-partition` names; UsageError for another form."""
        topic, dash, number = text.rpartition("-")
        if not dash or not topic or not (number.isascii() and number.isdigit()):
            raise UsageError(f"not a topic partition: {text!r}", hint="expected TOPIC-PARTITION, as orders-1")
        return cls(topic, int(number))


@dataclass(frozen=True, slots=True, order=True)
class TopicIdPartition:
    """A user partition, identified by topic id and number; a recreated topic of the same name has another id.

    It prints as Kafka's `topicId:topic-partition`.
    """

    topic_id: Uuid
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic_id}:{self.topic}-{self.partition}"

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition by name."""
        return TopicPartition(self.topic, self.partition)

    @property
    def key(self) -> tuple[Uuid, int]:
        """Topic id and number, which identify the partition."""
        return (self.topic_id, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterIdentity:
    """The ids of a cluster and of its metadata topic; None for an id that is unknown.

    `cluster_id` is `cluster.id` of meta.properties, which brokers also report. An unknown id is neither equal
    to another id nor different from it.
    """

    cluster_id: str | None
    metadata_topic_id: Uuid | None

    def is_same_as(self, other: "ClusterIdentity") -> bool | None:
        """Return whether both name the same metadata topic of the same cluster.

        Compare the ids that both have; return None if they have none in common.
        """
        pairs = (
            (self.cluster_id, other.cluster_id),
            (self.metadata_topic_id, other.metadata_topic_id),
        )
        known = [mine == others for mine, others in pairs if mine is not None and others is not None]
        return all(known) if known else None

    def __str__(self) -> str:
        cluster, topic = self.cluster_id or "unknown", self.metadata_topic_id or "unknown"
        return f"cluster {cluster}, metadata topic {topic}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TierIdentity:
    """The owner of a remote tier, as tierctl records it in the tier; `layout` names the objects' layout."""

    cluster: ClusterIdentity
    layout: str

    def __str__(self) -> str:
        return f"{self.cluster}, layout {self.layout}"
