"""Runs tierctl command lines in forked processes, each of which may kill itself around a side effect.

Python and its libraries are loaded once; a fork costs milliseconds. One JSON object a line on stdin:
{"argv": [...], "kills": [[label, moment, nth]], "files": nth | null, "out": file, "err": file}
and one on stdout for each: {"status": exit code, or the negative number of the signal that ended it}.
`kills` end the process by SIGKILL at the nth time a side effect is about to begin or has just ended; with
"file" as label and "write NAME" (or another operation of tierctl.files.FileSystem) as moment, before the nth
such change of files of that name. `files` does so at the nth change of a file, wherever in the program. The
last line of `err` lists what was met.
"""

import gc
import importlib
import json
import os
import pkgutil
import signal
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

DELETE_BATCH = 1
"""Segments per deletion call of the tier, so that a wave of few segments needs several calls."""

LATE = (
    *("javaproperties", "numpy.ma", "pyarrow.compute", "rich.progress"),
    *("pydantic.fields", "pydantic.type_adapter"),
)
"""What commands import when they parse options, read settings or print: not in each fork again."""

CHANGES = ("file", "changes")
"""What is counted at each change of any file."""

_LOCK = threading.Lock()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _watch(kills: list[list[Any]], met: Counter[tuple[str, str]]) -> None:
    from tierctl import files
    from tierctl.apply import run_context

    wanted = {(what, when): nth for what, when, nth in kills}

    def meet(what: str, when: str) -> None:
        with _LOCK:
            met[what, when] += 1
            if met[what, when] == wanted.get((what, when)):
                _die()

    def change(operation: str, path: Path) -> None:
        meet(*CHANGES)
        meet("file", f"{operation} {path.name}")

    run_context.observe(meet)
    files.PLAIN._observe = change


def _child(job: dict[str, Any]) -> int:
    for stream, name in ((1, "out"), (2, "err")):
        fd = os.open(job[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(fd, stream)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False)
    met: Counter[tuple[str, str]] = Counter()
    _watch([*job["kills"], [*CHANGES, job["files"]]], met)
    from tierctl.cli.entry import run

    code = run(job["argv"])
    sys.stdout.flush()
    print(json.dumps([[*key, count] for key, count in met.items()]), file=sys.stderr, flush=True)
    return code


def main() -> None:
    """Serve until stdin ends."""
    import tierctl.cli.app
    from tierctl.storage.remote_storage_manager import RemoteStorageManager

    for name in LATE:
        importlib.import_module(name)
    for module in pkgutil.walk_packages(tierctl.__path__, "tierctl."):
        if not module.name.endswith("__main__") and not module.name.startswith("tierctl.spark"):
            importlib.import_module(module.name)
    RemoteStorageManager.delete_batch = DELETE_BATCH
    # fsync is skipped: a killed process loses no written data; only a power cut would.
    os.fsync = lambda _fd: None
    for _, command in tierctl.cli.app.leaves():
        for option in command.params:
            # Typer makes the parser of an option when it is first used.
            getattr(option, "get_runtime_param", lambda: None)()
    # Objects loaded so far are excluded from garbage collection, so that forks share their memory.
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        child = _fork(json.loads(line))
        print(json.dumps({"status": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}), flush=True)


def _fork(job: dict[str, Any]) -> int:
    child = os.fork()
    if child == 0:
        code = 99
        try:
            code = _child(job)
        finally:
            os._exit(code)
    return child


if __name__ == "__main__":
    main()
