"""Every error that tierctl raises on purpose, with its exit code.

TierctlError                         1  internal
├── UsageError                       2  the command line or a setting is wrong
├── PartialFailure                   3  some steps were done, some failed
├── SafetyRefusal                    4  a rule that protects data forbids the change
├── RemoteStorageError               5  the store failed (KIP-405 RemoteStorageException); a retry may help
│   ├── RemoteResourceNotFound      10  the object does not exist (KIP-405 RemoteResourceNotFoundException)
│   ├── RemoteTierMissing            5  --remote holds no tier: it is not mounted, or mistyped
│   ├── RemoteObjectDiffers          5  an object differs from its source; a retry does not help
│   ├── StoreRefused                 3  the store refuses or lacks the operation; a retry does not help
│   │   ├── ConditionsRefused        3  the store has no writes on a condition
│   │   └── ObjectUnreadable         7  a link or a folder has the name of the object
│   │       └── ObjectArchived       7  the object can't be read before it is restored from an archive class
│   ├── TransferStopped              5  the run was stopped while a limit of bytes per second was waited for
│   ├── StoreWriteFailed             5  nothing was stored
│   └── StoreWriteUnknown            5  the object may or may not be stored; check before any clean-up
├── MetadataError                    5  the metadata log could not be read or written; a retry may help
│   ├── MetadataWriteFailed          5  nothing was appended
│   └── MetadataWriteUnknown         5  the record may or may not be appended; read on before anything else
├── EngineError                      5  Spark could not be reached, or a Spark job failed
├── SpoolError                       5  the folder for temporary files failed
├── OutputError                      5  a file that the run was asked for could not be written
├── LockedError                      6  another process holds the lock
├── CorruptInputError                7  bytes violate their format
│   ├── UnsupportedFormatError       7  the format is known and not supported
│   ├── TruncatedInputError          7  the bytes end before what they state themselves
│   └── IllegalEventError            7  an event can be decoded, but Kafka refuses it
├── MissingEventsError               7  the oldest events of a metadata partition are gone
├── LimitExceeded                    8  a bound such as --max-deletes stopped the run
│   └── CustomMetadataTooLarge       8  a segment's custom metadata exceed KIP-917's limit
├── NotFoundError                   10  a requested topic, partition or segment does not exist
└── AuthenticationError             11  a broker, a store or the system refused tierctl's identity or rights
    └── FileNotAllowed              11  this user may not read or write a file; others may be allowed

Exit code 0 is "done or nothing to do" and 9 "plan pending"; neither is an error.
Errors carry facts: what was expected, what was found, where, and what to do (`hint`).
"""

import errno
from collections.abc import Iterable
from enum import IntEnum
from typing import Any, ClassVar, Self


class IrregularFileError(OSError):
    """What a path names is no regular file: a pipe, a device, or a link to nothing."""


NOT_ALLOWED = "this user may not do that: check owner and mode of the folder"
"""The hint of an error of the operating system about rights."""
_HINTS = {
    errno.ENOENT: "nothing is there: check the path, and the links in it",
    errno.EACCES: NOT_ALLOWED,
    errno.EPERM: NOT_ALLOWED,
    errno.ENOSPC: "the disk is full: free space, then run again",
    errno.EDQUOT: "the quota is used up: raise it, then run again",
    errno.EFBIG: "raise the limit on the size of a file (ulimit -f), then run again",
    errno.EMFILE: "raise the limit on open files (ulimit -n), then run again",
    errno.ENAMETOOLONG: "a name in this path, or the whole path, is too long: check the path",
    errno.EIO: "the disk reported an input/output error: check it (dmesg) before running again",
    errno.ELOOP: "a symbolic link is not followed here, or leads to itself: name another path",
    errno.EROFS: "the folder is mounted read-only",
}


def hint_of(error: OSError) -> str | None:
    """Return the remedy of an error of the operating system; None for one that no operator can mend."""
    if isinstance(error, IrregularFileError):
        return "name a regular file, or mount the disk that its link leads to"
    return _HINTS.get(error.errno or 0)


def disk_message(doing: str, error: OSError) -> str:
    """Return what failed while `doing` something, and on which file, without the number of the error."""
    where = f" ({error.filename})" if error.filename else ""
    return f"{doing}: {error.strerror or error}{where}"


def is_wrong_path(error: OSError) -> bool:
    """Return whether the error means a wrong path, which the operator must correct, not a failing disk."""
    kinds = IsADirectoryError | NotADirectoryError | FileExistsError | IrregularFileError
    return isinstance(error, kinds) or error.errno == errno.ENAMETOOLONG


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

    @property
    def meaning(self) -> str:
        """The meaning of the code for an operator, as in the man pages."""
        return _MEANINGS[self]


def combined_exit_code(codes: Iterable[int], *, is_partly_done: bool) -> ExitCode:
    """Return the exit code of a run with errors of these exit codes; OK without errors.

    AUTHENTICATION if there was nothing but refusals for lack of rights, and nothing was done beside them.
    Otherwise CORRUPT if anything was not understood. Otherwise the code of all errors if they have the same
    one and nothing was done beside them, and PARTIAL if not.
    """
    found = {ExitCode(code) for code in codes} - {ExitCode.OK}
    if ExitCode.CORRUPT in found:
        return ExitCode.CORRUPT
    if len(found) == 1 and not is_partly_done:
        return found.pop()
    return ExitCode.PARTIAL if found else ExitCode.OK


_MEANINGS = {
    ExitCode.OK: "done, or nothing to do",
    ExitCode.INTERNAL: "internal error (--verbose shows the traceback)",
    ExitCode.USAGE: "the command line or a setting is wrong",
    ExitCode.PARTIAL: "some steps were done, some failed, or an operator must act; run it again",
    ExitCode.REFUSED: "refused for safety; nothing was changed",
    ExitCode.RETRYABLE: "a store or a log failed; trying again may help",
    ExitCode.LOCKED: "another process holds the lock",
    ExitCode.CORRUPT: "input is corrupt, incomplete or not understood; what is affected was left out, or is "
    "in the output",
    ExitCode.LIMIT: "a limit stopped the run before it began, or KIP-917's limit stops copies of a partition",
    ExitCode.PLAN_PENDING: "with --detailed-exitcode: the plan has something to do",
    ExitCode.NOT_FOUND: "not found",
    ExitCode.AUTHENTICATION: "not authenticated, or nothing may be read or written for lack of rights",
}


class TierctlError(Exception):
    """Base of the tree; `message` states what happened, `hint` what the operator can do about it.

    `meets_all` is True for errors of a store, a host or the settings that each further object would meet,
    too, until an operator corrects them.
    """

    exit_code = ExitCode.INTERNAL
    meets_all: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors are pickled between processes, and their constructors take other arguments than `args`.
        return _restored, (type(self), self.args), self.__dict__

    def advised(self, also: str) -> Self:
        """Add `also` to the hint; return the error."""
        self.hint = also if self.hint is None else f"{self.hint}; {also}"
        return self


def _restored(kind: type[TierctlError], args: tuple[Any, ...]) -> TierctlError:
    return kind.__new__(kind, *args)


class UsageError(TierctlError):
    """The command line or a setting is wrong."""

    exit_code = ExitCode.USAGE


class PartialFailure(TierctlError):
    """Some steps were done and some failed; the next run continues."""

    exit_code = ExitCode.PARTIAL


class SafetyRefusal(TierctlError):
    """A rule that protects data forbids the change; nothing was changed."""

    exit_code = ExitCode.REFUSED


class RemoteStorageError(TierctlError):
    """The remote store failed (KIP-405 RemoteStorageException)."""

    exit_code = ExitCode.RETRYABLE


class RemoteResourceNotFound(RemoteStorageError):
    """The object or the segment does not exist (KIP-405 RemoteResourceNotFoundException)."""

    exit_code = ExitCode.NOT_FOUND


class RemoteTierMissing(RemoteStorageError):
    """The location holds no tier, so missing objects must not count as deleted; a retry does not help."""

    meets_all = True


class RemoteObjectDiffers(RemoteStorageError):
    """An object differs from its source; only a new copy helps."""


class StoreRefused(RemoteStorageError):
    """The store refuses the request for good, or does not implement it; nothing was changed by it."""

    exit_code = ExitCode.PARTIAL
    meets_all = True


class ConditionsRefused(StoreRefused):
    """The store does not implement writes on a condition (If-None-Match, If-Match)."""


class ObjectUnreadable(StoreRefused):
    """The entry with the object's name can't be read as an object, as a link or a folder; others can."""

    exit_code = ExitCode.CORRUPT
    meets_all = False


class ObjectArchived(ObjectUnreadable):
    """The object is in an archive class, and can't be read before it is restored."""


class TransferStopped(RemoteStorageError):
    """The run was told to stop while a transfer waited for a limit of bytes per second."""


class StoreWriteFailed(RemoteStorageError):
    """A write failed, and nothing was stored."""


class StoreWriteUnknown(RemoteStorageError):
    """The outcome of a write is unknown: check the store before any clean-up."""


class MetadataError(TierctlError):
    """The metadata log could not be read or written."""

    exit_code = ExitCode.RETRYABLE


class MetadataWriteFailed(MetadataError):
    """An append was refused, and no record was written to the metadata log."""


class MetadataWriteUnknown(MetadataError):
    """The outcome of an append is unknown: read the metadata to their end before any other change."""


class EngineError(TierctlError):
    """Spark could not be reached, or a Spark job failed."""

    exit_code = ExitCode.RETRYABLE
    meets_all = True


class SpoolError(TierctlError):
    """The folder for temporary files failed: it is full, or not writable."""

    exit_code = ExitCode.RETRYABLE


class OutputError(TierctlError):
    """A file that the run was asked for could not be written: the disk is full, or fails."""

    exit_code = ExitCode.RETRYABLE


def output_error(what: str, error: OSError) -> "UsageError | AuthenticationError | OutputError":
    """Return the error for an output file, named by `what`.

    UsageError for a wrong path, AuthenticationError for a missing right, else OutputError.
    """
    message = f"{what}: {error.strerror or error}"
    if isinstance(error, PermissionError):
        return AuthenticationError(message, hint="name a file that this user may write")
    if isinstance(error, FileNotFoundError) or is_wrong_path(error):
        return UsageError(message, hint="name a regular file, in a folder that exists")
    return OutputError(message, hint=hint_of(error) or "look at the disk, then run again")


class LockedError(TierctlError):
    """Another process holds the lock."""

    exit_code = ExitCode.LOCKED


class CorruptInputError(TierctlError):
    """Bytes violate their format; `at` is the position of the first wrong byte in `source`, if known."""

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

    def within(self, source: str | None, *, base: int = 0) -> Self:
        """Return the same error with its position in `source`, in which the decoded bytes begin at `base`."""
        at = None if self.at is None else self.at + base
        return type(self)(
            self.what, expected=self.expected, found=self.found, at=at, source=source, hint=self.hint
        )


class UnsupportedFormatError(CorruptInputError):
    """The format is known and not supported."""


class TruncatedInputError(CorruptInputError):
    """The bytes end before what they, or the metadata beside them, state: later bytes were never written."""


class IllegalEventError(CorruptInputError):
    """A metadata event can be decoded, but Kafka refuses it with IllegalArgumentException."""


class MissingEventsError(TierctlError):
    """The metadata topic's retention deleted events, and it is unknown whether the others are sufficient."""

    exit_code = ExitCode.CORRUPT


class LimitExceeded(TierctlError):
    """A limit such as --max-deletes stopped the run before its first side effect."""

    exit_code = ExitCode.LIMIT


class CustomMetadataTooLarge(LimitExceeded):
    """A segment's custom metadata, of `size_bytes`, exceed KIP-917's limit of `limit_bytes`."""

    def __init__(self, message: str, *, size_bytes: int, limit_bytes: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class NotFoundError(TierctlError):
    """A requested topic, partition, segment or file does not exist."""

    exit_code = ExitCode.NOT_FOUND
    meets_all = True


class AuthenticationError(TierctlError):
    """A broker, a store or the operating system refused tierctl's identity or rights."""

    exit_code = ExitCode.AUTHENTICATION
    meets_all = True


class FileNotAllowed(AuthenticationError):
    """This user may not read or write a file of a broker; other files may be allowed."""

    meets_all = False
