"""Every error tierctl raises on purpose.

TierctlError                         1  internal
├── UsageError                       2  the command line or a setting is wrong
├── PartialFailure                   3  some steps were done, some failed
├── SafetyRefusal                    4  a rule that protects data said no
├── RemoteStorageError               5  the store failed, it may work again (KIP-405 RemoteStorageException)
│   ├── RemoteResourceNotFound      10  the object is not there (KIP-405 RemoteResourceNotFoundException)
│   ├── RemoteTierMissing            5  no tier is where --remote says; not mounted, or mistyped
│   ├── RemoteObjectDiffers          5  an object is not what was stored; trying the same again won't help
│   ├── StoreWriteFailed             5  nothing was stored
│   └── StoreWriteUnknown            5  whether it was stored is not known; never clean up by guess
├── MetadataError                    5  the metadata log could not be read or written; trying again may help
│   ├── MetadataWriteFailed          5  nothing was appended
│   └── MetadataWriteUnknown         5  whether it was appended is not known; read on before anything else
├── EngineError                      5  Spark could not be reached, or a job of it failed
├── LockedError                      6  another process holds the lock
├── CorruptInputError                7  bytes that are not what the format says
│   ├── UnsupportedFormatError       7  a format that is known and refused by name
│   └── IllegalEventError            7  an event that decodes and that Kafka refuses all the same
├── LimitExceeded                    8  a bound such as --max-deletes stopped the run
├── NotFoundError                   10  what was asked for does not exist
└── AuthenticationError             11  the other side refused who we are

Exit code 0 is "done or nothing to do" and 9 "plan pending"; neither is an error.
Errors carry facts: what was expected, what was found, where, and what to do (`hint`).
"""

from enum import IntEnum
from typing import Any


class ExitCode(IntEnum):
    """Process exit codes; scripts and cron rely on them."""

    OK = 0
    INTERNAL = 1
    USAGE = 2
    PARTIAL = 3
    REFUSED = 4
    RETRYABLE = 5
    LOCKED = 6
    CORRUPT = 7
    LIMIT = 8
    PLAN_PENDING = 9
    NOT_FOUND = 10
    AUTHENTICATION = 11


class TierctlError(Exception):
    """Base of the tree.

    `message` says what happened; `hint`, when there is one, what the operator can do about it.
    """

    exit_code = ExitCode.INTERNAL

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors travel between processes, and what their constructors take is not what they keep.
        return _restored, (type(self), self.args), self.__dict__


def _restored(kind: type[TierctlError], args: tuple[Any, ...]) -> TierctlError:
    return kind.__new__(kind, *args)


class UsageError(TierctlError):
    """The command line or a setting is wrong."""

    exit_code = ExitCode.USAGE


class PartialFailure(TierctlError):
    """Some steps were done, some failed; a second run continues."""

    exit_code = ExitCode.PARTIAL


class SafetyRefusal(TierctlError):
    """A rule that protects data said no; nothing was changed."""

    exit_code = ExitCode.REFUSED


class RemoteStorageError(TierctlError):
    """The remote store failed (KIP-405 RemoteStorageException)."""

    exit_code = ExitCode.RETRYABLE


class RemoteResourceNotFound(RemoteStorageError):
    """The object or the segment is not there (KIP-405 RemoteResourceNotFoundException)."""

    exit_code = ExitCode.NOT_FOUND


class RemoteTierMissing(RemoteStorageError):
    """No tier is where it should be: nothing may be taken for deleted, and asking again won't help."""


class RemoteObjectDiffers(RemoteStorageError):
    """An object is not what its source is: only a new copy helps."""


class StoreWriteFailed(RemoteStorageError):
    """A write failed and left nothing behind."""


class StoreWriteUnknown(RemoteStorageError):
    """A write's outcome is not known: look before cleaning anything up."""


class MetadataError(TierctlError):
    """The metadata log could not be read or written."""

    exit_code = ExitCode.RETRYABLE


class MetadataWriteFailed(MetadataError):
    """An append was refused and left nothing in the metadata log."""


class MetadataWriteUnknown(MetadataError):
    """An append's outcome is not known: read the metadata on before doing or cleaning up anything."""


class EngineError(TierctlError):
    """What does the work, Spark, could not be reached or gave up."""

    exit_code = ExitCode.RETRYABLE


class LockedError(TierctlError):
    """Another process holds the lock."""

    exit_code = ExitCode.LOCKED


class CorruptInputError(TierctlError):
    """Bytes that are not what the format says.

    `at` is the byte position within `source` where the first wrong byte lies (None: not known).
    """

    exit_code = ExitCode.CORRUPT

    def __init__(
        self,
        what: str,
        *,
        expected: str,
        found: str,
        at: int | None = None,
        source: str | None = None,
        hint: str | None = None,
    ) -> None:
        where = f" at byte {at}" if at is not None else ""
        place = f" of {source}" if source else ""
        super().__init__(f"{what}{where}{place}: expected {expected}, found {found}", hint=hint)
        self.what = what
        self.expected = expected
        self.found = found
        self.at = at
        self.source = source

    def within(self, source: str, *, base: int = 0) -> "CorruptInputError":
        """The same error seen from `source`, where the decoded bytes begin at `base`."""
        at = None if self.at is None else self.at + base
        return type(self)(
            self.what, expected=self.expected, found=self.found, at=at, source=source, hint=self.hint
        )


class UnsupportedFormatError(CorruptInputError):
    """A format that is known, and refused by name."""


class IllegalEventError(CorruptInputError):
    """A metadata event that decodes and that Kafka refuses all the same (its IllegalArgumentException)."""


class LimitExceeded(TierctlError):
    """A bound set by the operator, or by default, stopped the run before the first side effect."""

    exit_code = ExitCode.LIMIT


class NotFoundError(TierctlError):
    """What was asked for does not exist."""

    exit_code = ExitCode.NOT_FOUND


class AuthenticationError(TierctlError):
    """The other side refused who we are."""

    exit_code = ExitCode.AUTHENTICATION
