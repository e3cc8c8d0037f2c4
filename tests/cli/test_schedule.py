"""`tierctl schedule`: systemd accepts and runs the units, a shell runs the cron lines."""

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import tierctl as package

from tests.cli.shell import environment, tierctl
from tests.support.systemd import analyze, booted

SHARE = Path(package.__file__).parent / "share"
SWEEP = ("sweep", "--metadata", "/srv/meta data", "--remote", "file:///srv/tier", "--apply")
DELETE = ("delete", *SWEEP[1:])
PIPELINE = ("pipeline", "run", "--metadata", "/m", "--warehouse", "/w")
SUBMIT = ("submit", "--run", "--master", "yarn")
ON_SPARK = ("--engine", "spark")
SECRET, TOKEN = ("--spark-conf", "spark.x.password=hush"), ("--master", "sc://spark:15002/;token=hush")


def units(text: str, folder: Path) -> list[Path]:
    """Write each printed unit to a file with its name."""
    found = []
    for part in text.split("# /etc/systemd/system/")[1:]:
        name, _, content = part.partition("\n")
        (folder / name).write_text(content)
        found.append(folder / name)
    return found


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    """The printed ones, and those in share."""
    ran = tierctl("schedule", "--systemd", "--every", "daily", "--user", "root", *SWEEP)
    service, timer = units(ran.out, tmp_path)
    assert (service.suffix, timer.suffix) == (".service", ".timer")
    assert "OnCalendar=daily\n" in timer.read_text()
    # The exposure score times ten: 100 means no sandbox, and systemd calls values below 50 "OK".
    analyze("security", "--offline=yes", "--threshold=30", unit=service)
    shared = []
    for file in sorted((SHARE / "systemd").iterdir()):
        shared.append(tmp_path / file.name.replace("@", "@sweep"))
        shared[-1].write_text(file.read_text().replace("User=kafka", "User=root"))
    assert shared
    for unit in (service, timer, *shared):
        analyze("verify", "--man=no", unit=unit)


def setting(text: str, name: str) -> str:
    (found,) = [line.partition("=")[2] for line in text.splitlines() if line.startswith(f"{name}=")]
    return found


@pytest.mark.parametrize(
    ("options", "folders"),
    [
        ((), '"-/srv/meta data" -/srv/tier'),
        (
            ("--state-dir", "/s", "--log-dir", "/l1", "--log-dir", "/l2"),
            '-/l1 -/l2 -/s "-/srv/meta data" -/srv/tier',
        ),
        (("--metrics-file", "/m/t.prom"), '-/m "-/srv/meta data" -/srv/tier'),
        # The parent of this file is the root, to which a sandbox must give no access.
        (("--plan-out", "/x.json"), '"-/srv/meta data" -/srv/tier -/x.json'),
        (("--plan-out", "/p/x%.json"), '-/p "-/srv/meta data" -/srv/tier'),
        (("--remote", "s3://bucket/folder"), '"-/srv/meta data"'),
        # Only command lines have variables.
        (("--state-dir", "/a$b%"), '-/a$b%% "-/srv/meta data" -/srv/tier'),
        # A plain path has no escapes, query or fragment, and a URI has.
        (("--state-dir", "/a#b?c%20d"), '-/a#b?c%%20d "-/srv/meta data" -/srv/tier'),
        (("--state-dir", "/a:b c"), '"-/a:b c" "-/srv/meta data" -/srv/tier'),
        (("--remote", "file:///my%20tier%25/a"), '"-/my tier%%/a" "-/srv/meta data"'),
        (("--remote", "file://localhost/a%23b"), '-/a#b "-/srv/meta data"'),
    ],
)
def test_a_unit_may_write_what_its_options_name(options: tuple[str, ...], folders: str) -> None:
    text = tierctl("schedule", "--systemd", *SWEEP, *options).out
    assert setting(text, "ReadWritePaths") == folders
    assert setting(text, "ProtectSystem") == "strict"
    started = setting(text, "ExecStart")
    assert ' sweep --metadata "/srv/meta data" --remote file:///srv/tier --apply' in started
    assert "x%.json" not in started


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--cron", "stats"), 'did you mean "status"?'),
        (("--cron", "cache", "verfy"), 'did you mean "cache verify"?'),
        (("--cron",), "no command of tierctl"),
        (("--cron", "schedule", "--cron", "verify"), "no command of tierctl"),
        (("--cron", "sweep", "--aply"), "No such option"),
        (("--systemd", "sweep", "--threads", "x"), "expected a whole number, found 'x'"),
        (("sweep",), "--systemd or --cron is missing"),
        (("--cron", *SWEEP, "--now", "+1d"), "must not have --now"),
        (("--cron", "status", "--metadata", "/m", "--watch", "1h"), "--watch, status continues until"),
        (("--cron", *DELETE, "--interval"), "--interval, delete continues until"),
        (("--systemd", "format", "--metadata", "/m", "--follow"), "--follow, format continues until"),
        (("--cron", "format", "--bootstrap-server", "h:1"), "add --timeout-ms or --limit"),
        (("--cron", *PIPELINE, "--follow"), "--follow, pipeline continues until"),
        (("--cron", *SUBMIT), "no command"),
        (("--cron", "segments", "--metadata", "/m", "--columns", "nosuch"), "no column 'nosuch'"),
        (("--cron", *SUBMIT, "--", "sweeep"), 'did you mean "sweep"?'),
        (("--cron", *SUBMIT, "--", "sweep", "--aply"), "No such option"),
        (("--cron", *SUBMIT, "--", *SWEEP, "--now", "+1d"), "must not have --now"),
        (("--cron", "--no-check", "submit", "--master", "yarn", "--", *SWEEP), "without --run runs nothing"),
        (("--systemd", "--no-check", *SUBMIT, "--", *SWEEP), "--submit-dir /var/lib/tierctl/submit"),
        (("--systemd", "--no-check", *SWEEP, *ON_SPARK, *SECRET), "--spark-conf spark.x.password"),
        (("--cron", "--no-check", *SWEEP, *ON_SPARK, *TOKEN), "--master sc://...: the address"),
        (("--cron", "--no-check", "submit", *SECRET, "--", *SWEEP), "--spark-conf spark.x.password"),
        (("--systemd", "--no-check", "submit", *TOKEN, "--", *SWEEP), "--master sc://...: the address"),
    ],
)
def test_a_command_that_would_fail_is_refused_now(args: tuple[str, ...], message: str) -> None:
    ran = tierctl("schedule", *args)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert "hush" not in ran.err


@pytest.mark.parametrize("bound", ["--limit", "--timeout-ms"])
def test_a_consumer_that_ends_can_be_scheduled(bound: str) -> None:
    consumer = ("format", "--bootstrap-server", "h:1", bound, "5")
    assert tierctl("schedule", "--no-check", "--cron", *consumer).code == 0


@pytest.mark.parametrize("control", ["\n", "\r", "\x1b", "\x85", "\u2028", "\udcf6"])
@pytest.mark.parametrize(
    "words", [("status", "--metadata", "/m{}ExecStartPre=/bin/false"), ("{}status", "--metadata", "/m")]
)
def test_control_characters_are_refused(words: tuple[str, ...], control: str) -> None:
    """A line end in a word would begin another directive of systemd, or another line of cron.

    The last of these stands for a byte that is no UTF-8, which would be printed as an escape.
    """
    ran = tierctl("schedule", "--no-check", "--systemd", *(word.format(control) for word in words))
    assert (ran.code, ran.out) == (2, "")


@pytest.mark.parametrize("user", ["root\n* * * * * root id", "root ALL", "", "-x", "a%b", "a;b"])
def test_a_user_that_is_no_name_is_refused(user: str) -> None:
    ran = tierctl("schedule", "--systemd", "--cron", "--user", user, "status", "--metadata", "/m")
    assert (ran.code, ran.out) == (2, "")
    assert "--user" in ran.err


def test_only_a_run_that_changes_something_may_write_to_the_tier_and_the_logs(tmp_path: Path) -> None:
    """The driver of a command after submit runs in the sandbox, and submit writes its files there before."""
    (offsets := tmp_path / "_rlmm_committed_offsets").touch()
    where = ("--metadata", "/m", "--remote", "/t", "--log-dir", "/l", "--state-dir", "/s")
    submit = (*SUBMIT, "--submit-dir", "/u", "--")
    metered = (*where[:4], *where[6:], "--metrics-file", "/p/t.prom")
    for words, folders in (
        (("verify", *where), "-/s"),
        (("sweep", *where), "-/s"),
        (("sweep", *where, "--apply"), "-/l -/m -/s -/t"),
        (("report", *where[:2], "--html", "/srv/tier.html"), "-/srv"),
        (("cache", "build", *where[:2], "--out", "/srv/caches"), "-/srv"),
        (("backup-config", "--bootstrap-server", "b:9092", "--output-file", "/srv/topics.yaml"), "-/srv"),
        (("restore", "log", *where, "--left-out", "/o", "--apply"), "-/l -/m -/o -/s -/t"),
        (
            ("offsets", "repair", str(offsets), *where[:2], "--apply"),
            " ".join(sorted(["-/m", f"-{tmp_path}"])),
        ),
        (("cache", "compact", "/caches"), ""),
        (("cache", "compact", "/caches", "--apply"), "-/caches"),
        ((*submit, "sweep", *metered), "-/p -/s -/u"),
        ((*submit, "sweep", *metered, "--apply"), "-/m -/p -/s -/t -/u"),
        ((*submit, *PIPELINE), "-/u -/w"),
    ):
        text = tierctl("schedule", "--no-check", "--systemd", *words).out
        assert setting(text, "ReadWritePaths") == folders, words
    relative = tierctl(
        "schedule", "--no-check", "--systemd", *submit, "verify", *where[:4], "--state-dir", "s"
    )
    assert setting(relative.out, "WorkingDirectory") == str(Path.cwd())


def test_systemd_takes_the_folders_of_paths_with_dots(tmp_path: Path) -> None:
    """It ignores a path with `..`, so that the folder could not be written."""
    (folder := tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to(folder)
    where = (
        "--metadata",
        "../m",
        "--remote",
        "file:///t/../r",
        "--log-dir",
        "../../link/../l",
        "--state-dir",
        "..",
    )
    words = ("sweep", *where, "--metrics-file", "../../p/t.prom", "--apply")
    ran = tierctl("schedule", "--no-check", "--systemd", "--user", "root", *words, cwd=folder)
    named = (tmp_path / "a", tmp_path / "a" / "l", tmp_path / "a" / "m", tmp_path / "p", "/r")
    assert setting(ran.out, "ReadWritePaths") == " ".join(sorted(f"-{each}" for each in named))
    service, _ = units(ran.out, tmp_path)
    analyze("verify", "--man=no", unit=service)


def test_a_run_has_the_folder_and_the_tierctl_toml_of_the_command(tmp_path: Path) -> None:
    """systemd starts a unit in /, and cron starts a command in the home folder of its user."""
    (tmp_path / "tierctl.toml").write_text('[profiles.default]\nmetadata = "meta"\n')
    for options in (("status",), ("status", "--config-file", tmp_path / "tierctl.toml")):
        text = tierctl("schedule", "--systemd", *options, cwd=tmp_path).out
        assert setting(text, "WorkingDirectory") == str(tmp_path)
        assert setting(text, "ExecStart").endswith(f" status --config-file {tmp_path}/tierctl.toml")
        line = tierctl("schedule", "--cron", *options, cwd=tmp_path).out.splitlines()[-1]
        assert f" cd {tmp_path} && " in line
    words = ("status", "--metadata", "/m", "--topic-configs")
    absolute = tierctl("schedule", "--systemd", "--cron", *words, "/t")
    assert setting(absolute.out, "WorkingDirectory") == "/"
    assert " cd " not in absolute.out
    relative = tierctl("schedule", "--systemd", *words, "t%x")
    assert setting(relative.out, "WorkingDirectory") == str(Path.cwd()).replace("%", "%%")


@pytest.mark.parametrize(("command", "is_before"), [("segments", True), ("cache build", False)])
def test_the_run_has_the_profile_of_the_command(command: str, is_before: bool, tmp_path: Path) -> None:
    (tmp_path / "tierctl.toml").write_text('[profiles.staging]\nmetadata = "/m"\nstate-dir = "/s"\n')
    words, profile = command.split(), ("--profile", "staging")
    line = (*profile, *words) if is_before else (*words, *profile)
    text = tierctl("schedule", "--systemd", *line, cwd=tmp_path).out
    assert setting(text, "ReadWritePaths") == "-/s"
    started = setting(text, "ExecStart").split()
    assert [word for word in started if word in words] == words
    assert started.count("--profile") == 1
    assert started[started.index("--profile") + 1] == "staging"


def test_variables_that_the_run_will_not_have_are_named() -> None:
    ran = tierctl("schedule", "--cron", "status", env=environment(TIERCTL_METADATA="/m"))
    assert (ran.code, "the run does not have TIERCTL_METADATA of this shell" in ran.err) == (0, True)


@pytest.mark.parametrize(
    ("words", "is_missing"), [("status", True), ("status --metadata /m", False), ("doctor", False)]
)
def test_a_run_without_the_metadata_that_it_needs_is_announced(words: str, is_missing: bool) -> None:
    ran = tierctl("schedule", "--cron", *words.split())
    assert (ran.code, "names --metadata: status ends with exit code 2" in ran.err) == (0, is_missing)


def cron_command(text: str) -> str:
    """Return the command that cron passes to the shell: the text after times and user, with % unescaped."""
    return text.splitlines()[-1].split(maxsplit=6)[-1].replace("\\%", "%")


@pytest.mark.parametrize("doubled", ["%", "%\\"])
@pytest.mark.parametrize("topic", ["a\\%b", "a\\\\b", "\\\\\\", "a\\%\\\\%%'\\", "%\\%", "a\\b$c"])
def test_every_cron_gives_the_shell_the_same_words(topic: str, doubled: str, tmp_path: Path) -> None:
    """All crons take a backslash before a percent sign away, and some also one of two."""
    folder = tmp_path / topic
    folder.mkdir()
    ran = tierctl(
        "schedule", "--no-check", "--cron", "status", "--metadata", "m", "--topic", topic, cwd=folder
    )
    raw = ran.out.splitlines()[-1].split(maxsplit=6)[-1]
    read, at = "", 0
    while at < len(raw) and raw[at] != "%":
        is_escape = raw[at] == "\\" and at + 1 < len(raw)
        read += raw[at + 1] if is_escape and raw[at + 1] in doubled else raw[at : at + 1 + is_escape]
        at += 1 + is_escape
    words = shlex.split(read)
    assert words[words.index("--topic") + 1] == topic
    assert words[:3] == ["cd", str(folder), "&&"]
    assert words[-1] == "}"


def test_a_command_that_cron_would_cut_is_refused() -> None:
    """Cron reads 999 bytes of a command; the rest may be the options that limit a deletion."""
    words = ["sweep", "--metadata", "/m", "--remote", "/t", "--apply"]

    def printed(*more: str) -> tuple[int, str, str]:
        ran = tierctl("schedule", "--no-check", "--cron", *words, *more)
        return ran.code, ran.out, ran.err

    code, text, _ = printed("--topic", "x")
    room = 998 - len(text.splitlines()[-1].split(maxsplit=6)[-1])
    # An escaped percent sign and a letter of two bytes count as cron reads them; quotes are about them.
    longest = "x" * (room - 5) + "%é"
    code, text, _ = printed("--topic", longest)
    assert (code, len(text.splitlines()[-1].split(maxsplit=6)[-1].encode())) == (0, 998)
    code, text, told = printed("--topic", f"x{longest}")
    assert (code, text) == (2, "")
    assert "the command has 999 bytes, and cron drops what is beyond 998" in told
    assert "a profile of tierctl.toml" in told
    ran = tierctl("schedule", "--no-check", "--systemd", "--cron", *words, "--topic", f"x{longest}")
    assert (ran.code, ran.out) == (2, "")


@pytest.fixture
def line(capture: Callable[[str], Path], tmp_path: Path) -> Callable[..., str]:
    """Return the shell command of a cron line for a sweep of a captured tier."""
    root = tmp_path / "a 100% tier"
    shutil.copytree(capture("tiered-cluster"), root)
    places = ("--metadata", str(root / "before"), "--remote", str(root / "before-remote"))

    def made(*more: str) -> str:
        ran = tierctl(
            *("schedule", "--no-check", "--cron", "sweep"),
            *(*places, "--metrics-file", str(tmp_path / "t.prom"), *more),
        )
        return cron_command(ran.out)

    return made


def run_as_cron(command: str, tmp_path: Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a line as cron does: with sh, almost no environment, in the home folder, stdin closed."""
    start = f"{sys.executable} -P -m tierctl"
    words = shlex.split(command)
    if not command.startswith(start):
        command = command.replace(shlex.quote(words[0]), start, 1)
    source = str(Path(package.__file__).parents[1])
    return subprocess.run(
        ["sh", "-c", f"exec 0<&-; {command}"],
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "PYTHONPATH": source},
        cwd=cwd or tmp_path,
        capture_output=True,
        timeout=120,
        check=False,
        text=True,
    )


def test_the_printed_unit_runs(capture: Callable[[str], Path], tmp_path: Path) -> None:
    """Run ExecStart as systemd does: split by its rules, in WorkingDirectory, with an empty environment."""
    root = tmp_path / "a 100% $HOME 'tier'"
    shutil.copytree(capture("tiered-cluster"), root)
    file = tmp_path / "t.prom"
    where = ("--metadata", root / "before", "--remote", root / "before-remote", "--metrics-file", file)
    text = tierctl("schedule", "--systemd", "sweep", *where, "--apply").out
    words = shlex.split(setting(text, "ExecStart").replace("%%", "%").replace("$$", "$"))
    folder = Path(setting(text, "WorkingDirectory"))
    assert str(folder) == "/"
    ran = run_as_cron(shlex.join(words), tmp_path, cwd=folder)
    assert ran.returncode == 0, ran.stderr
    assert "sweep: nothing to do" in ran.stderr
    assert 'tierctl_last_apply_timestamp_seconds{command="sweep"}' in file.read_text()


def test_a_cron_line_that_fails_says_so_on_stderr(line: Callable[..., str], tmp_path: Path) -> None:
    ran = run_as_cron(line("--topic", "absent", "--apply"), tmp_path)
    assert (ran.returncode, ran.stdout) == (10, "")
    assert ran.stderr.startswith('error: unknown topic "absent"\nhint: ')
    text = (tmp_path / "t.prom").read_text()
    assert 'tierctl_errors_total{command="sweep",kind="NotFoundError"} 1.0' in text
    assert "last_success" not in text


def test_a_cron_line_says_that_there_are_findings(
    writable: Callable[[str], Path], capture: Callable[[str], Path], tmp_path: Path
) -> None:
    """--quiet suppresses the summary, and the rows are discarded, so stderr must name the exit code."""
    tier = writable("tiered-cluster/before-remote")
    next(tier.rglob("*.log")).unlink()
    where = ("--metadata", str(capture("tiered-cluster") / "before"), "--remote", str(tier))
    ran = run_as_cron(cron_command(tierctl("schedule", "--cron", "verify", *where).out), tmp_path)
    told = "tierctl verify: exit code 3, see man tierctl-exit-codes\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (3, "", told)


def test_a_cron_line_beside_a_second_tierctl_is_silent_but_for_the_error(
    line: Callable[..., str], tmp_path: Path
) -> None:
    """The line adds no message for exit code 6, because the next run does the work."""
    state = tmp_path / "state"
    state.mkdir()
    with (state / ".tierctl-state.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        ran = run_as_cron(line("--apply", "--state-dir", str(state)), tmp_path)
    assert (ran.returncode, ran.stdout) == (6, "")
    assert "is being written by another tierctl" in ran.stderr
    assert "exit code" not in ran.stderr


def test_logrotate_accepts_its_configuration(tmp_path: Path) -> None:
    text = (SHARE / "logrotate" / "tierctl").read_text()
    assert "/var/log/tierctl/*.log {" in text
    program = shutil.which("logrotate", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None:
        pytest.skip("NOT TESTED WITH LOGROTATE: it is not there")
    file = tmp_path / "tierctl"
    file.write_text(text.replace("    su kafka kafka\n", ""))
    debug = [program, "--debug", "--state", tmp_path / "state", file]
    done = subprocess.run(debug, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


SOON = "[Timer]\nOnCalendar=\nOnCalendar=*:*:0/2\nRandomizedDelaySec=0\nAccuracySec=100ms\n"
"""A drop-in, so that a test need not wait for the next hour; the printed units stay as they are."""
OUTPUT = (
    "[Service]\nStandardError=append:/srv/writable/stderr\n"
    "ExecStartPost=sh -c 'touch /srv/outside || echo refused >> /srv/writable/refused'\n"
)
"""A drop-in that keeps the messages, and tries to write outside of the folders that options name."""
TIMEOUT_S = 90


def write_units(folder: Path, *command: str) -> str:
    """Write the units that schedule prints for `command` to `folder`; return the name of the timer."""
    printed = tierctl("schedule", "--systemd", "--every", "hourly", "--user", "root", *command).out
    files = {file.suffix: file.name for file in units(printed, folder)}
    for name, content in ((files[".timer"], SOON), (files[".service"], OUTPUT)):
        (folder / f"{name}.d").mkdir()
        (folder / f"{name}.d" / "test.conf").write_text(content)
    return files[".timer"]


def runs_of(metrics: Path) -> float:
    """Return the counter of runs in a file of metrics, 0 before the first run."""
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("tierctl_runs_total{"))


@pytest.mark.slow
def test_a_timer_runs_the_printed_service(capture: Callable[[str], Path], tmp_path: Path) -> None:
    folder, data = tmp_path / "units", tmp_path / "data"
    metrics, refused = data / "writable" / "tierctl.prom", data / "writable" / "refused"
    for name in ("before", "before-remote"):
        shutil.copytree(capture("tiered-cluster") / name, data / name)
    folder.mkdir()
    metrics.parent.mkdir()
    where = ("--metadata", "/srv/before", "--remote", "/srv/before-remote")
    timer = write_units(folder, "verify", *where, "--metrics-file", "/srv/writable/tierctl.prom")
    with booted(folder, data, starts=timer):
        deadline_s = time.monotonic() + TIMEOUT_S
        while runs_of(metrics) < 2 and time.monotonic() < deadline_s:
            time.sleep(0.2)
    said = (metrics.parent / "stderr").read_text()
    assert runs_of(metrics) >= 2, said
    assert said.count("verify: 36 segments of 5 topics") >= 2
    # The sandbox: a folder that no option names can't be written.
    assert refused.read_text().startswith("refused")
    assert {each.name for each in data.iterdir()} == {"before", "before-remote", "writable"}
