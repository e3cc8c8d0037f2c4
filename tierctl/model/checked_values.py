"""Check values from outside: numbers in texts, files and folders that options name, and the types of JSON
fields that others may have changed.
"""

import errno
import os
import select
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from stat import S_ISREG
from typing import Any, TypeVar

from tierctl.errors import AuthenticationError, SafetyRefusal, UsageError, output_error
from tierctl.files import (
    FileBytes,
    exists,
    is_dir,
    open_regular,
    require_plain,
    why_distrusted,
    write_durably,
)

Key = TypeVar("Key", bound=Hashable)

Types = type | tuple[type, ...]
TEXT_OR_NULL = (str, type(None))
NUMBER_MAX = (1 << 63) - 1
"""The largest number of Kafka's own files and records."""
PORT_MAX = (1 << 16) - 1
_HEAD_BYTES = 4096
_PIPE_BYTES_MAX = 64 << 20
_PIPE_WAIT_S = 60.0
_OF_SHELL = (Path("/dev/fd"), Path("/proc/self/fd"))
_OWN = "give the file and its folder to this user or root, and take the right to write from all others"


def require_types(raw: Mapping[str, Any], types: Mapping[str, Types], where: str = "") -> None:
    """Raise ValueError if a field of `raw` that `types` names has another type; a bool is no int.

    A missing field is no error here. `where` is put before the field's name.
    """
    for name, expected in types.items():
        value = raw.get(name, raw)
        if value is raw:
            continue
        accepted = expected if isinstance(expected, tuple) else (expected,)
        if not isinstance(value, accepted) or (isinstance(value, bool) and bool not in accepted):
            names = " or ".join("null" if each is type(None) else each.__name__ for each in accepted)
            raise ValueError(f"{where}{name}: expected {names}, found {value!r}")


def require_no_newer(source: str, found: object, known: int, option: str = "--state-dir") -> None:
    """Raise SafetyRefusal if `found`, the version of `source`, is above `known`: that is no damage."""
    if isinstance(found, int) and found > known:
        raise SafetyRefusal(
            f"{source}: expected version {known}, found version {found}, which a newer tierctl wrote",
            hint=f"run that tierctl, or use another {option}",
        )


def natural_number(text: str, most: int = NUMBER_MAX) -> int | None:
    """Return the number from 0 to `most` that ASCII digits state; None for any other text.

    Python takes other scripts' digits for digits, and refuses to convert thousands of them.
    """
    if not (text.isascii() and text.isdigit()):
        return None
    digits = text.lstrip("0")
    if len(digits) > len(str(most)):
        return None
    number = int(digits or "0")
    return number if number <= most else None


def one_offset_each(pairs: Iterable[tuple[Key, int]], naming: str) -> Iterator[tuple[Key, int]]:
    """Yield the pairs of a partition and an offset; raise UsageError for another offset of the same one.

    `naming` begins the message, as "--set names".
    """
    found: dict[Key, int] = {}
    for partition, offset in pairs:
        if found.setdefault(partition, offset) != offset:
            raise UsageError(
                f"{naming} {partition} twice: {found[partition]} and {offset}",
                hint="give one offset for each partition",
            )
        yield partition, offset


def require_no_file(option: str, folder: Path) -> None:
    """Raise UsageError if the folder that `option` names, or a folder above it, is a file."""
    there = next(filter(exists, (folder, *folder.absolute().parents)))
    if not is_dir(there):
        raise UsageError(
            f"{option} {folder}: expected a folder, found the file {there}",
            hint=f"name a folder with {option}, or move the file away",
        )


def require_output(option: str, path: Path, kind: str, is_own: Callable[[bytes], bool]) -> None:
    """Raise an error unless the file that `option` names can be written, as far as is known before the work.

    Raise UsageError if its folder does not exist, AuthenticationError if this user may not write there, and
    the errors of `require_replaceable`.
    """
    folder = path.absolute().parent
    try:
        is_folder = is_dir(folder)
    except OSError as e:
        raise output_error(f"{option} {path}", e) from e
    if not is_folder:
        why = f"{option} {path}: the folder {folder} does not exist"
        raise UsageError(why, hint="make it, or name another")
    require_replaceable(option, path, kind, is_own)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise AuthenticationError(
            f"{option} {path}: this user may not write in {folder}",
            hint="the file is replaced by a rename, which needs the right to write in its folder",
        )


def require_replaceable(option: str, path: Path, kind: str, is_own: Callable[[bytes], bool]) -> None:
    """Raise SafetyRefusal if the file that `option` names has content that is not of the kind to be written.

    A missing file, an empty one and an earlier one of that `kind` may be replaced: `is_own` tells the kind by
    the first bytes of a file. Raise the errors of `output_error` for what is no regular file, or can't be
    read.
    """
    try:
        require_plain(path)
        with FileBytes(path) as file:
            head = file.read(0, _HEAD_BYTES)
    except FileNotFoundError:
        return
    except PermissionError as e:
        why = f"{option} {path}: {e.strerror}: it is not known to be a {kind}"
        raise AuthenticationError(why, hint="name another file, or remove this one") from e
    except OSError as e:
        raise output_error(f"{option} {path}", e) from e
    if head and not is_own(head):
        raise not_replaced(option, path, f"is no {kind} of tierctl")


def write_output(option: str, path: Path, chunks: Iterable[bytes], *, mode: int) -> None:
    """Write the file that `option` names, as `write_durably`; raise the errors of `output_error`."""
    try:
        write_durably(path.absolute(), chunks, mode=mode)
    except OSError as e:
        raise output_error(f"{option} {path}", e) from e


def not_replaced(option: str, path: Path, why: str) -> SafetyRefusal:
    """Return the error for a file that `option` names and that `why` is not to be replaced."""
    return SafetyRefusal(
        f"{option} {path}: the file {why}, and is not replaced",
        hint="name another file, or move this one away first",
    )


def must_be_written(option: str, path: Path, chunks: Iterable[bytes]) -> bool:
    """Return whether the joined `chunks` must be written to `path`; False if the file has just these bytes.

    Raise SafetyRefusal, which names `option`, for a file with other bytes: what it is can't be told. Raise
    OSError. `chunks` are read only if the file is not empty.
    """
    require_plain(path)
    try:
        file = FileBytes(path)
    except FileNotFoundError:
        return True
    with file:
        if not file.size_bytes:
            return True
        end = 0
        for chunk in chunks:
            if file.read(end, len(chunk)) != chunk:
                raise not_replaced(option, path, "has other content")
            end += len(chunk)
        if file.size_bytes != end:
            raise not_replaced(option, path, "has other content")
    return False


def require_file(option: str, path: Path, *, hint: str) -> None:
    """Raise UsageError with `hint` if the regular file that `option` names is missing or not reachable."""
    try:
        reason = None if S_ISREG(path.stat().st_mode) else "it is no regular file"
    except OSError as e:
        reason = e.strerror or str(e)
    if reason is not None:
        raise UsageError(f"{option} {path} can't be read: {reason}", hint=hint)


def absolute_path(text: str) -> str:
    """Return an absolute path, which means the same when a plan is carried out in another folder."""
    return str(Path(text).absolute())


def read_named(path: Path, size_bytes: int = -1, *, trusted: bool = False) -> bytes:
    """Return the content of a file that an option names, or with `size_bytes` only its beginning.

    It is a regular file, or a pipe, such as that of <(...) in a shell; raise OSError for any other kind, and
    for a pipe that is silent for a minute, ends without a byte or does not end after 64 MiB. A pipe is empty
    if it is read twice. If it must be `trusted`, because what is changed depends on it, raise SafetyRefusal
    as `read_trusted`, and OSError for a pipe that is not the shell's.
    """
    if trusted and path.parent not in _OF_SHELL:
        return read_trusted(path, hint=_OWN, sticky_folder=True)
    if path.is_fifo():
        return _read_pipe(path)
    with os.fdopen(open_regular(path), "rb") as file:
        return file.read(size_bytes)


def read_trusted(path: Path, *, hint: str, sticky_folder: bool = False, kind: str = "") -> bytes:
    """Return the content of a regular file; raise SafetyRefusal, with `hint`, if somebody else may change it.

    Its text begins with `kind`, such as "plan ". The open file is judged, as `why_distrusted` does. Raise
    OSError as `open_regular`.
    """
    with os.fdopen(open_regular(path), "rb") as file:
        why = why_distrusted(path, sticky_folder=sticky_folder, fd=file.fileno())
        if why is not None:
            raise SafetyRefusal(f"{kind}{path} is not read: {why}", hint=hint)
        return file.read()


def _read_pipe(path: Path) -> bytes:
    found = bytearray()
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        ready = select.poll()
        ready.register(fd, select.POLLIN)
        while len(found) <= _PIPE_BYTES_MAX:
            if not ready.poll(_PIPE_WAIT_S * 1000):
                why = f"nothing was written into the pipe for {_PIPE_WAIT_S:.0f} s"
                raise OSError(errno.ETIMEDOUT, why, str(path))
            part = os.read(fd, 1 << 20)
            if not part and not found:
                raise OSError(errno.ENODATA, "the pipe is empty, or was read before: name a file", str(path))
            if not part:
                return bytes(found)
            found += part
    finally:
        os.close(fd)
    raise OSError(errno.EFBIG, "more than 64 MiB come from the pipe: name a file", str(path))
