"""Interactive shells on pseudo-terminals, as an operator uses them."""

import os
import pty
import select
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

SHELLS = {
    "bash": ("bash", "--norc", "--noprofile", "-i"),
    "zsh": ("zsh", "-f", "-i"),
    "fish": ("fish", "--no-config", "--interactive"),
}
_TIMEOUT_S = 15.0


def require_shell(name: str) -> None:
    """Skip a test whose shell is not installed; bash always is."""
    if name != "bash" and shutil.which(name) is None:
        pytest.skip(f"{name} is not installed: its completion script was not tried")


class Shell:
    """A shell with a terminal. `type` sends keys; `wait_for` waits for a file that a command makes."""

    def __init__(self, name: str, folder: Path, env: Mapping[str, str]) -> None:
        require_shell(name)
        self._terminal, end = pty.openpty()
        self._shell = subprocess.Popen(
            # fish works only on its controlling terminal.
            ("setsid", "--ctty", *SHELLS[name]),
            stdin=end,
            stdout=end,
            stderr=end,
            cwd=folder,
            env={"PATH": os.environ["PATH"], "TERM": "dumb", "LANG": "C.UTF-8"} | dict(env),
        )
        os.close(end)
        self.printed = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shell.kill()
        self._shell.wait()
        os.close(self._terminal)

    def type(self, keys: str) -> None:
        """Send keys, and read what the shell prints until it is silent."""
        os.write(self._terminal, keys.encode())
        self._read(0.2)

    def wait_for(self, file: Path) -> str:
        """Return the text of a file as soon as it is not empty."""
        deadline_s = time.monotonic() + _TIMEOUT_S
        while not (file.exists() and file.read_text().endswith("\n")):
            assert time.monotonic() < deadline_s, self.printed[-2000:].decode(errors="replace")
            self._read(0.05)
        return file.read_text()

    def _read(self, silence_s: float) -> None:
        while select.select([self._terminal], [], [], silence_s)[0]:
            try:
                self.printed += os.read(self._terminal, 1 << 16)
            except OSError:
                return
