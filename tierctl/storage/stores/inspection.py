"""Settings of a store that change or keep the objects of a tier: versioning and lifecycle rules."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from tierctl.storage.stores.base import ObjectStore

ARCHIVE_CLASSES = frozenset({"GLACIER", "DEEP_ARCHIVE"})
"""Storage classes whose objects can't be read before they are restored."""


class Versioning(StrEnum):
    """Whether a bucket keeps earlier versions of objects that are replaced or deleted."""

    ENABLED = "enabled"
    SUSPENDED = "suspended"
    OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleRule:
    """One enabled rule by which the store deletes or moves objects.

    `prefix` is relative to the bucket. `expires_after` says when current objects are deleted, None if they
    are not; `transitions` are the storage classes that objects are moved to.
    """

    name: str
    prefix: str
    is_filtered: bool = False
    """Whether the rule also requires tags or a size, so that it may spare the objects of a tier."""
    expires_after: str | None = None
    transitions: tuple[str, ...] = ()
    expires_noncurrent: bool = False


@dataclass(frozen=True, slots=True)
class UnfinishedUpload:
    """A multipart upload that was neither completed nor aborted; `key` is relative to the bucket."""

    key: str
    begun_ms: int


class Bucket(Protocol):
    """The settings of a bucket, and the folder in it that a store has.

    All methods raise RemoteStorageError if the store fails, and AuthenticationError if the login may not see
    the setting.
    """

    @property
    def folder(self) -> str:
        """The prefix of the store's keys in the bucket."""
        ...

    def clock_ms(self) -> int:
        """Return the store's time in milliseconds since 1970, rounded down to a second."""
        ...

    def versioning(self) -> Versioning | None:
        """Return whether the bucket keeps versions; None if the store does not implement the question."""
        ...

    def lifecycle_rules(self) -> list[LifecycleRule] | None:
        """Return the enabled rules of the whole bucket; None if the store does not implement the question."""
        ...

    def unfinished_uploads(self) -> Iterator[UnfinishedUpload]:
        """Yield the unfinished uploads to keys in the store's folder, by key."""
        ...


@runtime_checkable
class InspectableStore(ObjectStore, Protocol):
    """A store in a bucket that reports its settings."""

    @property
    def bucket(self) -> Bucket:
        """The bucket; each call reads its settings again."""
        ...
