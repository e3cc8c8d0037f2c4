"""Pipes in place of files, and files that options name: a full disk, a wrong path, a lock."""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from io import BufferedWriter
from pathlib import Path
from types import FrameType

import pytest
from tierctl.errors import AuthenticationError, LockedError, OutputError, UsageError, output_error
from tierctl.files import (
    PLAIN,
    FileSystem,
    exclusive_replacement,
    exists,
    is_dir,
    is_file,
    is_link,
)
from tierctl.model import checked_values
from tierctl.model.checked_values import read_named, require_replaceable
from tierctl.model.local import SavedTopics
from tierctl.wire.files.topics_file import begins_backup, write_topics_file

from tests.cli.shell import Ran, environment, tierctl

ROOT, STATE = "{root}", "{state}"
METADATA, REMOTE = "--metadata={root}/before", "--remote={root}/before-remote"
LOGS, KEPT = "--log-dir={root}/before", "--state-dir={state}"
READING: dict[str, Sequence[str]] = {
    "segments": ("segments", METADATA),
    "format": ("format", METADATA),
    "verify": ("verify", METADATA, REMOTE, LOGS),
    "status": ("status", METADATA, REMOTE, LOGS),
    "explain": ("explain", "orders-0", METADATA, REMOTE, LOGS),
    "sweep": ("sweep", METADATA, REMOTE, LOGS),
    "copy": ("copy", METADATA, REMOTE, LOGS, "--topic=orders", "--assume-enabled"),
    "rebuild": ("rebuild", METADATA, REMOTE, LOGS),
    "fetch": ("fetch", METADATA, REMOTE, LOGS, "--topic=orders", "--partition=0", "--limit=1"),
    "doctor": ("doctor", METADATA, REMOTE, LOGS),
}
FOUND = (
    "before/__remote_log_metadata-0/*.log",
    "before/__remote_log_metadata-0/leader-epoch-checkpoint",
    "before/__remote_log_metadata-0/partition.metadata",
    "before/orders-0/*.log",
    "before/orders-0/*.index",
    "before/orders-0/*.snapshot",
    "before/orders-0/leader-epoch-checkpoint",
    "before/orders-0/partition.metadata",
    "before/log-start-offset-checkpoint",
    "before/replication-offset-checkpoint",
    "before-remote/*/orders-0-*/*.log",
    "before-remote/*/orders-0-*/*.leader_epoch_checkpoint",
)


def run(words: Sequence[object]) -> Ran:
    """Run a command in this process; raise TimeoutError if it takes longer than 30 s."""

    def give_up(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"{words}: blocked")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(30)
    try:
        ran = tierctl(*words)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert ran.code != 1, ran.err
    assert "internal" not in ran.err
    return ran


@pytest.fixture(scope="module")
def cluster(capture: Callable[[str], Path], module_folder: Path) -> Path:
    """Return a copy of a captured tier, whose files a test may replace for a while."""
    for name in ("before", "before-remote"):
        shutil.copytree(capture("tiered-cluster") / name, module_folder / name)
    return module_folder


@pytest.mark.parametrize("pattern", FOUND)
def test_a_pipe_in_place_of_a_file_blocks_no_command(pattern: str, cluster: Path, tmp_path: Path) -> None:
    path, aside = min(cluster.glob(pattern)), tmp_path / "aside"
    path.rename(aside)
    os.mkfifo(path)
    try:
        for words in list(READING.values())[FOUND.index(pattern) % 2 :: 2]:
            run([word.format(root=cluster, state=tmp_path / "state") for word in words])
    finally:
        aside.rename(path)


ANSWERS: dict[str, Sequence[str]] = {
    "segments": ("segments", METADATA, "-o", "jsonl"),
    "format": ("format", METADATA, "-o", "jsonl"),
    "verify": ("verify", METADATA, REMOTE, LOGS, "-o", "jsonl"),
    "status": ("status", METADATA, REMOTE, LOGS, "-o", "jsonl"),
    "cache build": ("cache", "build", METADATA, "--out={state}"),
}


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
@pytest.mark.parametrize("command", ANSWERS)
def test_what_is_no_metadata_log_is_not_understood_and_the_other_partitions_are_read(
    command: str, make: Callable[[Path], None], cluster: Path, tmp_path: Path
) -> None:
    words = [word.format(root=cluster, state=tmp_path / "state") for word in ANSWERS[command]]
    folders = sorted(cluster.glob("before/__remote_log_metadata-*"))
    path = next(path for folder in folders for path in folder.glob("*.log") if path.stat().st_size)
    path.rename(tmp_path / "aside")
    make(path)
    try:
        ran = run(words)
    finally:
        (path.rmdir if path.is_dir() else path.unlink)()
        (tmp_path / "aside").rename(path)
    assert ran.code == 7, ran.err
    assert "again may help" not in ran.err
    # status refers to the command that names it.
    assert ("tierctl verify" if command == "status" else path.name) in ran.err + ran.out + ran.summary
    assert command == "cache build" or ran.lines


def test_a_pipe_in_the_state_directory_blocks_no_command(
    capture: Callable[[str], Path], tmp_path: Path
) -> None:
    root = capture("tiered-cluster")
    places = {"root": root, "state": tmp_path / "state"}
    made = ("sweep", METADATA, REMOTE, LOGS, KEPT, "--apply")
    assert run([word.format(**places) for word in made]).code == 0
    names = [path for path in sorted((tmp_path / "state").rglob("*")) if path.is_file()]
    assert names
    for path in names:
        content = path.read_bytes()
        path.unlink()
        os.mkfifo(path)
        for command in (f"status {METADATA} {REMOTE}", f"sweep {METADATA} {REMOTE} {LOGS}"):
            run([word.format(**places) for word in [*command.split(), KEPT]])
        path.unlink()
        path.write_bytes(content)


OUTPUTS = {
    "plan": ("sweep", METADATA, REMOTE, LOGS, "--plan-out"),
    "metrics": ("segments", METADATA, "--metrics-file"),
    "segment": ("fetch", METADATA, REMOTE, LOGS, "--raw-segment=first", "--out"),
    "page": ("report", METADATA, "--html"),
}


def output(name: str, cluster: Path) -> list[str]:
    """Return the words of a command of OUTPUTS, without the file."""
    segment = json.loads(tierctl("segments", f"--metadata={cluster / 'before'}", "-o", "json").out)[0]
    return [word.format(root=cluster).replace("first", segment["segment_id"]) for word in OUTPUTS[name]]


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_output_replaces_no_file_beside_it(name: str, cluster: Path, tmp_path: Path) -> None:
    """A temporary file with a known name would replace the user's file of that name."""
    beside = tmp_path / "out.tmp"
    beside.write_bytes(b"mine")
    assert run([*output(name, cluster), tmp_path / "out"]).code == 0
    assert beside.read_bytes() == b"mine"
    assert {each.name for each in tmp_path.iterdir()} == {"out", "out.tmp"}


@pytest.mark.parametrize("kind", ["pipe", "link to a pipe", "output of the process"])
@pytest.mark.parametrize("name", [name for name in OUTPUTS if name != "page"])
def test_an_output_replaces_no_pipe(name: str, kind: str, cluster: Path, tmp_path: Path) -> None:
    """As root, a run made files of devices such as /dev/null, and of the link /dev/stdout."""
    os.mkfifo(pipe := tmp_path / "pipe")
    links = {"link to a pipe": pipe, "output of the process": Path("/proc/self/fd/1")}
    target = pipe if kind == "pipe" else tmp_path / "link"
    if kind != "pipe":
        target.symlink_to(links[kind])
    before = target.lstat()
    ran = run([*output(name, cluster), target])
    assert re.search("no (regular|plain) file", ran.err), ran.err
    assert ran.code == (0 if name == "metrics" else 2)
    after = target.lstat()
    assert (after.st_mode, after.st_ino) == (before.st_mode, before.st_ino)
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted({"pipe", target.name})


PAYMENTS = ("--topic=payments", "--partition=0", "--offset=100")
OTHERS = {
    "plan": OUTPUTS["plan"],
    "plan of repairs": ("verify", METADATA, REMOTE, "--plan-out"),
    "page": ("report", METADATA, "--html"),
    "listing": ("restore", "check", REMOTE, "--listing-out"),
    "index": ("fetch", METADATA, REMOTE, *PAYMENTS, "--index=offset", "--out"),
    "follower": ("fetch", METADATA, REMOTE, *PAYMENTS[:2], "--auxiliary-state=1000", "--out"),
}
SETTINGS = "orders.retention.ms=5\n"


@pytest.mark.parametrize("name", OTHERS)
def test_an_output_replaces_no_file_of_another_kind(name: str, cluster: Path, tmp_path: Path) -> None:
    """A file of topic settings, or a segment in a broker's log directory, became a plan."""
    named = tmp_path if name == "follower" else tmp_path / "file"
    file = tmp_path / ("leader-epoch-checkpoint" if name == "follower" else "file")
    words = [*(word.format(root=cluster) for word in OTHERS[name]), named]
    file.write_text(SETTINGS)
    ran = run(words)
    assert (ran.code, file.read_text()) == (4, SETTINGS), ran.err
    assert re.search(f"error: {words[-2].rsplit('=')[0]} {file}: .* is not replaced\n.*hint: ", ran.err), (
        ran.err
    )
    assert [*tmp_path.iterdir()] == [file]
    file.write_text("")
    first, second = run(words), run(words)
    assert first.code == second.code != 4, second.err
    assert file.stat().st_size


def test_a_longer_file_is_not_replaced_by_its_beginning(cluster: Path, tmp_path: Path) -> None:
    words = [*(word.format(root=cluster) for word in OTHERS["index"]), tmp_path / "file"]
    assert run(words).code == 0
    written = (tmp_path / "file").read_bytes()
    for other in (written + b"\0", written[:-1]):
        (tmp_path / "file").write_bytes(other)
        assert run(words).code == 4
        assert (tmp_path / "file").read_bytes() == other


@pytest.mark.parametrize("ask", [exists, is_dir, is_file, is_link])
def test_what_may_not_be_read_is_not_absent(
    ask: Callable[[Path], bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("none", "file/none", "loop/none", "\0"):
        assert not ask(tmp_path / name)

    def refuse(path: Path, **_: object) -> None:
        raise PermissionError(errno.EACCES, "", str(path))

    monkeypatch.setattr(Path, "stat", refuse)
    with pytest.raises(PermissionError):
        ask(tmp_path / "file")


def test_a_backup_replaces_only_a_backup(tmp_path: Path) -> None:
    file = tmp_path / "topics"
    words = ("backup-config", "--bootstrap-server=localhost:1", "--output-file", file)
    file.write_text(f"version: 1\n# {SETTINGS}")
    before = file.read_text()
    ran = run(words)
    assert (ran.code, file.read_text()) == (4, before), ran.err
    assert f"--output-file {file}: the file is no backup of tierctl, and is not replaced" in ran.err
    backup = write_topics_file(SavedTopics(topics={}, cluster_id="c", saved_ms=0))
    require_replaceable("", tmp_path / "none", "backup", begins_backup)
    file.write_bytes(backup)
    require_replaceable("", file, "backup", begins_backup)


@pytest.mark.parametrize(
    ("line", "error", "hint"),
    [
        (" ".join(OUTPUTS["segment"]) + " {tmp}/folder", "{tmp}/folder: Is a directory", "name a file"),
        (f"cache build {METADATA} --out {{tmp}}/file", "--out {tmp}/file: expected a folder", "with --out"),
        (
            f"cache build {METADATA} --out {{tmp}}/file/x",
            "--out {tmp}/file/x: expected a folder",
            "with --out",
        ),
        *(
            (f"{words} {{tmp}}/none/file", f"{words.split()[-1]} {{tmp}}/none/file: the folder", "make it")
            for words in (
                f"sweep --metadata /none {REMOTE} {LOGS} --plan-out",
                "restore check --bootstrap-server 127.0.0.1:1 --listing-out",
                "backup-config --bootstrap-server 127.0.0.1:1 --output-file",
                "report --metadata /none --html",
            )
        ),
        ("report --metadata /none --html {tmp}/folder", "--html {tmp}/folder is a folder", "name a file in"),
        ("report --metadata /none --html /dev/null", "--html /dev/null: it is no regular file", "name a"),
        (
            "restore into {tmp} --remote {tmp} --log-dir {tmp} --topics-file {tmp}/folder",
            "--topics-file {tmp}/folder: Is a directory",
            "name the file that backup-config wrote",
        ),
        (
            "format --metadata {tmp}/pipe",
            "{tmp}/pipe has no metadata topic: it is no folder",
            "name a broker's",
        ),
        (
            "segments --metadata /dev/null",
            "/dev/null has no metadata topic: it is no folder",
            "name a broker's",
        ),
        ("format {tmp}/pipe", "{tmp}/pipe: it is no plain file", "name a regular file"),
        ("offsets show /dev/zero", "/dev/zero: it is no plain file", "name a regular file"),
        ("format {tmp}/link", "{tmp}/link: it is a symbolic link to nothing", "name a regular file"),
        ("format {tmp}/" + 300 * "a", "{tmp}/" + 300 * "a" + ": File name too long", "check the path"),
        (
            f"{' '.join(OUTPUTS['plan'])} {{tmp}}/link",
            "--plan-out {tmp}/link: it is a symbolic link to nothing",
            "name a regular file",
        ),
        (
            f"{' '.join(OUTPUTS['segment'])} {{tmp}}/no/x",
            "--out {tmp}/no/x: No such file or directory",
            "in a folder that exists",
        ),
    ],
)
def test_what_is_of_another_kind_is_named(
    line: str, error: str, hint: str, cluster: Path, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("nothing")
    segment = json.loads(tierctl("segments", f"--metadata={cluster / 'before'}", "-o", "json").out)[0]
    words = line.format(root=cluster, tmp=tmp_path).replace("first", segment["segment_id"])
    ran = tierctl(*words.split())
    message, hinted = ran.err.splitlines()
    assert ran.code == 2
    assert message.startswith(f"error: {error.format(tmp=tmp_path)}")
    assert hint in hinted
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "folder", "link", "pipe"]


@pytest.mark.parametrize("text", ["# TYPE orders\n", "0\n1\nclicks 0 7\n", "# comment\n", "\udcff"])
def test_a_file_that_has_no_metrics_is_not_replaced_by_them(text: str, cluster: Path, tmp_path: Path) -> None:
    file = tmp_path / "topics.properties"
    file.write_bytes(data := text.encode(errors="surrogateescape"))
    ran = tierctl("segments", f"--metadata={cluster / 'before'}", "--metrics-file", file)
    assert ran.code == 0
    assert f"--metrics-file {file} could not be written: it is no Prometheus text" in ran.err
    assert (file.read_bytes(), list(tmp_path.iterdir())) == (data, [file])


@pytest.mark.parametrize(
    "line",
    [
        f"status {METADATA} --topic-configs=/dev/zero",
        f"status {METADATA} --broker-config=/dev/zero",
        "status --bootstrap-server=localhost:1 --command-config=/dev/zero",
        f"restore into {{tmp}} {REMOTE} {LOGS} --topics-file=/dev/zero",
        f"restore check {REMOTE} --before=/dev/zero",
        f"apply {METADATA} {REMOTE} /dev/zero",
        f"apply {METADATA} {REMOTE} {{tmp}}/pipe",
    ],
)
def test_an_endless_device_or_a_pipe_is_no_file(line: str, cluster: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    ran = run(line.format(root=cluster, tmp=tmp_path).split())
    assert (ran.code, "plain file" in ran.err) == (2, True), ran.err


@pytest.fixture
def pipe() -> Iterator[tuple[Path, BufferedWriter]]:
    """Return the two ends of a pipe: the path is as that of <(...) in a shell."""
    read, write = os.pipe()
    with os.fdopen(write, "wb") as file:
        yield Path(f"/dev/fd/{read}"), file
    os.close(read)


def test_settings_come_from_a_pipe(pipe: tuple[Path, BufferedWriter], cluster: Path) -> None:
    path, file = pipe
    file.write(SETTINGS.encode())
    file.close()
    words = ("config", "show", f"--topic-configs={path}", "--output=json")
    found = {row["setting"]: row["value"] for row in tierctl(*words).ok().json if row["topic"] == "orders"}
    assert found["retention.ms"] == "5"
    again = tierctl(*words)
    assert (again.code, f"{path} can't be read: the pipe is empty" in again.err) == (2, True)


def test_a_pipe_is_waited_for_and_ends(
    pipe: tuple[Path, BufferedWriter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checked_values, "_PIPE_WAIT_S", 0.2)
    monkeypatch.setattr(checked_values, "_PIPE_BYTES_MAX", 1000)
    os.mkfifo(fifo := tmp_path / "fifo")
    path, file = pipe
    for silent in (fifo, path):
        with pytest.raises(OSError, match="nothing was written into the pipe"):
            read_named(silent)
    file.write(bytes(1000))
    file.flush()
    with pytest.raises(OSError, match="nothing was written into the pipe"):
        read_named(path)
    file.write(bytes(1001))
    file.flush()
    with pytest.raises(OSError, match="more than"):
        read_named(path)
    file.write(bytes(1000))
    file.close()
    assert read_named(path) == bytes(1000)
    (tmp_path / "plain").write_bytes(b"plain")
    assert (read_named(tmp_path / "plain"), read_named(tmp_path / "plain", 2)) == (b"plain", b"pl")


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EIO, OutputError),
        (errno.EACCES, AuthenticationError),
        (errno.ENOENT, UsageError),
    ],
)
def test_the_error_of_a_file(number: int, kind: type) -> None:
    error = output_error("--html x", OSError(number, "why"))
    assert (type(error), error.message) == (kind, "--html x: why")
    assert error.hint


@pytest.mark.parametrize("args", [("sweep", "--plan-out"), ("report", "--html")], ids=lambda args: args[1])
def test_a_full_disk_ends_with_5(
    args: tuple[str, str], capture: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = capture("tiered-cluster") / "before"
    write = FileSystem.write

    def fill(self: FileSystem, fd: int, data: bytes | memoryview, path: Path) -> None:
        if path.name.startswith("asked-for"):
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, fd, data, path)

    monkeypatch.setattr(FileSystem, "write", fill)
    remote = ("--remote", root.with_name("before-remote")) if args[0] == "sweep" else ()
    where = ("--metadata", root, "--log-dir", root, *remote)
    ran = tierctl(args[0], *where, args[1], tmp_path / "asked-for")
    assert ran.code == 5, ran.err
    assert f"{args[1]} {tmp_path / 'asked-for'}: No space left on device" in ran.err


COUNT = """
import sys
from pathlib import Path
from tierctl.files import exclusive_replacement
path = Path(sys.argv[1])
for _ in range(int(sys.argv[2])):
    with exclusive_replacement(path, timeout_s=60):
        path.write_text(str(int(path.read_text()) + 1))
"""


def test_processes_exclude_each_other_and_leave_no_lock(tmp_path: Path) -> None:
    path, rounds = tmp_path / "count", 60
    path.write_text("0")
    command = [sys.executable, "-c", COUNT, str(path), str(rounds)]
    runs = [subprocess.Popen(command) for _ in range(4)]
    assert [run.wait(timeout=120) for run in runs] == [0] * 4
    assert path.read_text() == str(4 * rounds)
    assert list(tmp_path.iterdir()) == [path]


def test_a_lock_of_a_killed_run_is_taken_over_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "page"
    (tmp_path / ".page.lock").touch()
    with exclusive_replacement(path, timeout_s=0), pytest.raises(LockedError, match=str(tmp_path)):  # noqa: SIM117
        with exclusive_replacement(path, timeout_s=0):
            pass
    assert list(tmp_path.iterdir()) == []


def test_another_programs_lock_is_not_removed(tmp_path: Path) -> None:
    """A file of a lock that tierctl made is empty."""
    (tmp_path / ".page.lock").write_text("4711")
    with exclusive_replacement(tmp_path / "page", timeout_s=0):
        pass
    assert (tmp_path / ".page.lock").read_text() == "4711"


@pytest.mark.parametrize(
    ("args", "unbuffered"),
    [(("segments", "--metadata"), ""), (("format", "--metadata"), "1"), (("--help",), "")],
)
def test_a_full_standard_output_is_named(
    args: tuple[str, ...], unbuffered: str, capture: Callable[[str], Path]
) -> None:
    where = [capture("tiered-cluster") / "before"] if "--metadata" in args else []
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tierctl", *args, *where],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(PYTHONUNBUFFERED=unbuffered),
            check=False,
        )
    assert done.returncode == 5
    assert done.stderr.endswith(
        "error: standard output: No space left on device\n"
        "hint: the disk is full: free space, then run again\n"
    )


@pytest.mark.parametrize(("folder", "code"), [("", 0), ("missing", 10)])
def test_messages_for_which_the_disk_has_no_room_do_not_end_a_run(
    folder: str, code: int, capture: Callable[[str], Path]
) -> None:
    where = capture("tiered-cluster") / "before" / folder
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tierctl", "--verbose", "segments", "--metadata", where],
            stdout=subprocess.PIPE,
            stderr=full,
            env=environment(),
            check=False,
        )
    assert (done.returncode, bool(done.stdout)) == (code, code == 0)


def test_a_current_folder_that_was_deleted_is_named(tmp_path: Path) -> None:
    script = f'rmdir "$PWD" && exec {sys.executable} -m tierctl segments --metadata topic'
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    error = "error: the current folder: No such file or directory\n"
    assert (done.returncode, done.stderr) == (
        10,
        f"{error}hint: it was deleted: change to another one (cd)\n",
    )


def test_the_errors_of_an_open_file_name_it(tmp_path: Path) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    for act in (
        lambda: PLAIN.write(full, b"x", tmp_path / "named"),
        lambda: PLAIN.truncate(full, 1, tmp_path / "named"),
    ):
        with pytest.raises(OSError, match="named"):
            act()
    os.close(full)


@pytest.mark.parametrize("uri", ["{}", "file://{}"])
def test_a_folder_whose_name_is_no_utf8(uri: str, tmp_path: Path, capture: Callable[[str], Path]) -> None:
    folder = tmp_path / os.fsdecode(b"t\xf6r")
    shutil.copytree(capture("tiered-cluster"), folder)
    places = ("--metadata", uri.format(folder / "before"), "--remote", uri.format(folder / "before-remote"))
    assert tierctl("verify", *places, "--log-dir", folder / "before").code == 0


def test_a_page_at_a_loop_of_links_is_an_error_of_its_path(
    tmp_path: Path, capture: Callable[[str], Path]
) -> None:
    page = tmp_path / "r.html"
    page.symlink_to(page.name)
    ran = tierctl("report", "--html", page, "--metadata", capture("tiered-cluster") / "before")
    assert ran.code == 5
    assert f"error: --html {page}: Too many levels of symbolic links" in ran.err.splitlines()
    assert "hint: a symbolic link is not followed here, or leads to itself" in ran.err
