"""The messages of runs in a file, as text or JSON lines."""

import errno
import json
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from tierctl.files import why_foreign
from tierctl.report.terminal import printable

_MODE = 0o640


class LogFormat(StrEnum):
    """The form of one message."""

    TEXT = "text"
    JSON = "json"


@dataclass(slots=True)
class LogFile:
    """Append messages to the file at `path`, one line each.

    The file is opened for each message, so that after a rename, by logrotate or by hand, the next message is
    in a new file. One write per line keeps the lines of several runs apart. A message that can't be written
    is lost, and the error is in `error`: a full disk must not end a run. Only a regular file of this user is
    appended to, if nobody else may write it, and not through a link: an error text may contain a command.
    """

    path: Path
    form: LogFormat = LogFormat.TEXT
    command: str = ""
    """The words of the command that runs."""
    error: OSError | None = field(default=None, init=False)

    def open(self) -> None:
        """Make the file if it is not there; raise OSError if it can't be written."""
        os.close(self._opened())

    def write(self, level: str, message: str, **facts: Any) -> None:
        """Append a message of a level (debug, info, warning or error), with further facts about it."""
        data = f"{self._line(level, message, facts)}\n".encode()
        try:
            fd = self._opened()
            try:
                if os.write(fd, data) < len(data):
                    raise OSError(f"the end of a line of {len(data)} bytes was not written")
            finally:
                os.close(fd)
        except OSError as e:
            self.error = e

    def _opened(self) -> int:
        # A pipe without a reader must not stop the run, and a link may lead to any file of this user.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            fd = os.open(self.path, flags, _MODE)
        except OSError as e:
            why = {errno.ELOOP: "is a link", errno.ENXIO: "is no regular file"}.get(e.errno or 0)
            raise e if why is None else OSError(e.errno, f"it {why}") from e
        why = why_foreign(fd)
        if why is not None:
            os.close(fd)
            raise OSError(errno.EPERM, f"it {why}")
        return fd

    def _line(self, level: str, message: str, facts: dict[str, Any]) -> str:
        time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        known = {name: value for name, value in facts.items() if value is not None}
        if self.form is LogFormat.JSON:
            entry = {"time": time, "level": level, "command": self.command, "pid": os.getpid()}
            return json.dumps(entry | {"message": message} | known, default=str)
        more = "".join(f" {name}={json.dumps(value, default=str)}" for name, value in known.items())
        return f"{time} {level.upper()} {self.command}[{os.getpid()}]: {printable(message)}{more}"
