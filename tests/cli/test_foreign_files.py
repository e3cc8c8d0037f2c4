"""Files that somebody else can write: settings, and the options that come from none of them."""

import grp
import json
import os
import pwd
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl import files
from tierctl.cli.app import leaves
from tierctl.cli.profiles import option_key
from tierctl.metadata.state_dir import MANIFEST
from tierctl.wire.files.checkpoints import LOG_STARTS_FILE

from tests.cli.shell import environment, tierctl

OTHER = 12345
"""A user, and a group, without a name."""
PRIMARY = {user.pw_gid for user in pwd.getpwall()}
WITHOUT_MEMBERS = next(
    (each.gr_gid for each in grp.getgrall() if not each.gr_mem and each.gr_gid not in PRIMARY), OTHER
)
"""A group with an entry that lists nobody, as every group of a directory service may look."""
HARMFUL = {
    *("log-start-offset", "max-deletes", "max-fraction", "no-lease", "yes", "allow-live-brokers"),
    *("allow-missing-objects", "adopt-tier", "i-know-it-is-deleted", "off-lineage", "unreferenced-epochs"),
    *("truncated-metadata", "now", "override", "force", "orphan-age", "broker-id", "deletes-are-denied"),
    *("after-hole", "apply", "all-log-dirs", "assume", "assume-enabled", "clean-dangling", "mark"),
    *("custom-metadata-max-bytes", "copy-of-objects", "find", "log-start", "max-age", "set", "until"),
    "without-keys",
}

SHARED = {"interval"}
"""Options that one command takes from the command line only, and other commands also from elsewhere."""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file of another user")

Change = tuple[str, int | None, tuple[int, int] | None, str | None]
CHANGES: list[Change] = [
    ("", None, None, None),
    ("file", 0o664, None, None),
    ("folder", 0o775, None, None),
    ("file", 0o666, None, "can be written by every user (mode 0666)"),
    ("file", 0o664, (0, OTHER), "can be written by its group (mode 0664)"),
    ("file", None, (OTHER, 0), f"belongs to user {OTHER}"),
    ("folder", 0o777, None, "can be written by every user (mode 0777)"),
    ("folder", 0o1777, None, "can be written by every user (mode 1777)"),
    ("file", 0o664, (0, WITHOUT_MEMBERS), "can be written by its group (mode 0664)"),
    ("folder", 0o775, (0, OTHER), "can be written by its group (mode 0775)"),
    ("folder", None, (OTHER, 0), f"belongs to user {OTHER}"),
    ("link", 0o666, None, "can be written by every user (mode 0666)"),
    ("link", None, (OTHER, 0), f"belongs to user {OTHER}"),
]
"""Whose mode and owner are changed, and why others may change a file then; None if they may not."""


def changed(file: Path, what: str, mode: int | None, owner: tuple[int, int] | None) -> None:
    """Change mode and owner of `file` or its folder; with "link", of a new target of `file`."""
    target = file.parent if what == "folder" else file
    if what == "link":
        target = file.parent / "elsewhere"
        file.rename(target)
        file.symlink_to(target)
    if mode is not None:
        target.chmod(mode)
    if owner is not None:
        os.chown(target, *owner)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "shared"
    made.mkdir(mode=0o755)
    (made / "tierctl.toml").write_text('[profiles.default]\nlimit = 1\nmetadata = "/planted"\n')
    (made / "tierctl.toml").chmod(0o644)
    return made


@as_root
@pytest.mark.parametrize("case", CHANGES)
def test_settings_that_others_can_change_are_not_used(case: Change, folder: Path) -> None:
    *change, why = case
    file = folder / "tierctl.toml"
    changed(file, *change)
    here = tierctl("segments", cwd=folder)
    home = folder.parent / "home"
    home.mkdir()
    (home / "tierctl").symlink_to(folder)
    named = [
        tierctl("segments", "--config-file", file),
        tierctl("segments", env=environment(TIERCTL_CONFIG_FILE=str(file))),
        tierctl("segments", cwd=folder, env=environment(TIERCTL_CONFIG_FILE="tierctl.toml")),
        tierctl("segments", cwd=folder.parent, env=environment(XDG_CONFIG_HOME=str(home))),
    ]
    if why is None:
        assert here.raw_err.count(f"note: settings of {file} are used") == 1
        assert all("/planted" in ran.err for ran in (here, *named))
        assert not any("settings of" in ran.err for ran in named)
    else:
        assert here.err.startswith("warning: ./tierctl.toml is not read: ")
        assert why in here.err
        assert "--metadata is missing" in here.err
        for ran in named:
            assert (ran.code, ran.out) == (2, "")
            assert "tierctl.toml is not read: " in ran.err
            assert why in ran.err
            assert "/planted" not in ran.err


@pytest.mark.parametrize(
    ("name", "members", "user", "is_trusted"),
    [
        ("kafka", (), "kafka", True),
        ("users", (), "kafka", False),
        ("users", (), None, False),
        ("ops", ("kafka", "root"), None, True),
        ("ops", ("kafka", "anna"), None, False),
        ("kafka", ("anna",), "kafka", False),
    ],
)
def test_a_group_is_trusted_if_it_is_known_who_is_in_it(
    name: str,
    members: tuple[str, ...],
    user: str | None,
    *,
    is_trusted: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The group has `members`, and is the primary one of `user`; this user is kafka."""
    monkeypatch.setattr(os, "geteuid", lambda: 77)
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group((name, "", gid, list(members))))
    users = {
        uid: pwd.struct_passwd((each, "", uid, OTHER if each == user else uid, "", "", ""))
        for uid, each in ((0, "root"), (77, "kafka"))
    }
    monkeypatch.setattr(pwd, "getpwuid", users.__getitem__)
    monkeypatch.setattr(pwd, "getpwall", lambda: list(users.values()))
    assert files._is_own_group(OTHER) is is_trusted


@as_root
def test_the_own_file_is_read_in_place_of_one_that_is_not_used(folder: Path) -> None:
    os.chown(folder / "tierctl.toml", OTHER, 0)
    own = folder.parent / ".config" / "tierctl"
    own.mkdir(parents=True)
    (own / "tierctl.toml").write_text('[profiles.default]\nmetadata = "/mine"\n')
    ran = tierctl("segments", cwd=folder, env=environment(HOME=str(folder.parent)))
    assert "./tierctl.toml is not read" in ran.err
    assert "/mine" in ran.err


@pytest.mark.parametrize("command", [("doctor",), ("segments", "--limit", "x")])
def test_every_command_says_that_the_file_of_the_folder_is_used(
    command: tuple[str, ...], folder: Path
) -> None:
    assert "/shared/tierctl.toml are used" in tierctl(*command, cwd=folder).err


def test_what_decides_about_deletes_comes_from_the_command_line_only() -> None:
    typed, others = set(), set()
    for _, command in leaves():
        for param in command.params:
            if param.param_type_name == "option":
                is_typed = param.name in command.typed_only
                (typed if is_typed else others).add(option_key(param.opts).replace("_", "-"))
                assert (param.envvar is None) == is_typed
    assert typed >= HARMFUL
    assert typed & others == SHARED
    assert not {name for name in others if name.startswith(("allow-", "i-know-", "no-l", "max-d", "max-f"))}


@pytest.mark.parametrize("name", ["apply", "max-deletes", "set", "yes"])
def test_such_an_option_in_a_file_or_in_the_environment_is_an_error(name: str, tmp_path: Path) -> None:
    file = tmp_path / "tierctl.toml"
    option, variable = f"--{name}", f"TIERCTL_{name.upper().replace('-', '_')}"
    for key in (name, name.replace("-", "_")):
        file.write_text(f'[profiles.unused]\n{key} = "1"\n')
        ran = tierctl("segments", "--metadata", tmp_path, cwd=tmp_path)
        assert (ran.code, ran.out) == (2, "")
        assert f"tierctl.toml, line 2: {name} = 1: " in ran.err
        assert option in ran.err
    file.unlink()
    ran = tierctl("segments", "--metadata", tmp_path, env=environment(**{variable: "1"}))
    assert (ran.code, ran.out) == (2, "")
    assert f"{variable} is set: " in ran.err
    assert option in ran.err


@pytest.mark.parametrize("is_in_profile", [False, True])
def test_the_interval_of_other_commands_does_not_repeat_deletes(is_in_profile: bool, tmp_path: Path) -> None:
    """As an option of delete, it would need --apply, and each run of cron would go on for ever."""
    (tmp_path / "__remote_log_metadata-0").mkdir()
    (tmp_path / "tier" / "kafka-tiered-storage").mkdir(parents=True)
    if is_in_profile:
        (tmp_path / "tierctl.toml").write_text('[profiles.default]\ninterval = "5ms"\n')
    env = environment(**({} if is_in_profile else {"TIERCTL_INTERVAL": "5ms"}))
    where = ("--metadata", tmp_path, "--remote", tmp_path / "tier")
    for more in ([], ["--apply", "--yes", "--no-lease"]):
        ran = tierctl("delete", *where, *more, cwd=tmp_path, env=env)
        assert ran.code == 0, ran.err
    ran = tierctl("format", "--metadata", tmp_path, "--follow", cwd=tmp_path, env=env)
    assert (ran.code, "5ms is not from 10 to 60000" in ran.err) == (2, True)


def test_the_manual_lists_these_options() -> None:
    page = (Path(__file__).parents[2] / "man" / "tierctl-settings.7").read_text().replace("\\-", "-")
    assert [name for name in sorted(HARMFUL) if f"--{name}" not in page] == []
    assert "--help-all" not in page


def test_a_large_file_of_settings_is_read_in_a_short_time(tmp_path: Path) -> None:
    """The time once grew with the square of the lines: 20,000 took minutes."""
    file = tmp_path / "tierctl.toml"
    file.write_text("[profiles.default]\n" + "".join(f"x{i} = [\n  1,\n]\n" for i in range(4000)))
    began_s = time.process_time()
    ran = tierctl("doctor", "--config-file", file, "--limit", "1")
    assert (ran.code, time.process_time() - began_s < 5) == (3, True)


KEY = "a" + 20_000 * ".a"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"x = 1\n{KEY} = 1\n", "line 2: not TOML that is read: a key has more than 32 dots"),
        (f"[{KEY}]\n", "line 1: not TOML that is read: a key has more than 32 dots"),
        (KEY.replace("a", '"a"') + " = 1", "line 1: not TOML that is read: a key has more than 32 dots"),
        ("#" * ((1 << 20) + 1), "expected at most 1048576 bytes, found 1048577"),
    ],
    ids=["key", "table", "quoted key", "large file"],
)
def test_a_file_of_settings_with_long_keys_or_of_a_large_size_is_refused(
    text: str, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "tierctl.toml"
    file.write_text(text)
    for command, code in ((("segments", "--metadata", tmp_path), 2), (("doctor",), 3)):
        ran = tierctl(*command, "--config-file", file)
        assert ran.code == code
        assert message.rsplit(": ", maxsplit=1)[-1] in ran.err + ran.out
    file.write_text('[profiles.default]\nmetadata = "/' + "a." * 1000 + '"\n')
    assert "a.a." in tierctl("segments", "--config-file", file).err


PLAN_CHANGES = [
    *(case for case in CHANGES if case[0] in {"", "link"} or case[1] == 0o666),
    ("folder", 0o1777, None, None),
]
"""The rules are those of settings, but for a sticky folder."""


@pytest.fixture
def plan(tier: list[str], folder: Path) -> Path:
    (folder / "tierctl.toml").unlink()
    file = folder / "plan.json"
    asked = ("--log-start-offset", "orders-0=50", "--off-lineage")
    ran = tierctl("sweep", *tier, *_logs(tier), *asked, "--plan-out", file)
    assert ran.code == 0, ran.err
    return file


def _logs(tier: list[str]) -> list[str]:
    return ["--log-dir", tier[1]]


@as_root
@pytest.mark.parametrize("case", PLAN_CHANGES)
def test_a_plan_that_others_can_change_is_not_applied(case: Change, plan: Path, tier: list[str]) -> None:
    *change, why = case
    changed(plan, *change)
    ran = tierctl("apply", plan, *tier, *_logs(tier))
    if why is None:
        assert ran.code == 0, ran.err
    else:
        assert (ran.code, ran.out) == (4, "")
        assert f"plan {plan} is not read: " in ran.err
        assert why in ran.err


@as_root
@pytest.mark.parametrize("what", ["settings", "plan"])
def test_the_file_that_is_judged_is_the_one_that_is_read(
    what: str, plan: Path, tier: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who can replace the file until its folder is judged puts another one in its place."""
    file = plan
    if what == "settings":
        file = plan.with_name("tierctl.toml")
        file.write_text('[profiles.default]\nmetadata = "/mine"\n')
    judge = files.why_folder_distrusted

    def replacing(folder: Path, *, sticky: bool = False) -> str | None:
        if not (foreign := file.with_name("foreign")).exists():
            foreign.write_text('[profiles.default]\nmetadata = "/planted"\n')
            os.chown(foreign, OTHER, OTHER)
            os.link(foreign, file.with_name("second name"))
            file.with_name("second name").replace(file)
        return judge(folder, sticky=sticky)

    monkeypatch.setattr(files, "why_folder_distrusted", replacing)
    if what == "settings":
        assert "/mine" in tierctl("segments", "--config-file", file).err
    else:
        ran = tierctl("apply", file, *tier, *_logs(tier))
        assert ran.code == 0, ran.err


def test_a_plan_has_a_digest_that_apply_compares(plan: Path, tier: list[str]) -> None:
    digest = json.loads(plan.read_text())["digest"]
    again = tierctl("sweep", *tier, *_logs(tier), "--plan-out", plan.with_name("other.json"))
    other = json.loads(plan.with_name("other.json").read_text())["digest"]
    assert f"note: the digest of {plan.with_name('other.json')}, for apply --digest: {other}" in again.err
    good = tierctl("apply", plan, *tier, *_logs(tier), "--digest", digest.upper())
    assert good.code == 0, good.err
    assert "the plan was made by sweep with log-start-offset=orders-0=50; off-lineage=True" in good.err
    bad = tierctl("apply", plan, *tier, *_logs(tier), "--digest", other)
    assert (bad.code, bad.out) == (4, "")
    assert other in bad.err
    assert digest in bad.err


@as_root
def test_a_file_that_somebody_made_in_advance_gets_owner_and_mode_of_the_run(
    tier: list[str], folder: Path
) -> None:
    """Each file that a run writes, made in advance by another user who may write it."""
    where = (*tier, *_logs(tier))
    mask = os.umask(0o027)
    os.umask(mask)
    allowed = 0o666 & ~mask
    cases = {
        "plan": (("sweep", *where, "--plan-out"), 0o600),
        "page": (("report", *where, "--html"), allowed),
        "metrics": (("segments", "--metadata", tier[1], "--metrics-file"), allowed),
        "segment": (
            ("fetch", *tier, "--topic", "orders", "--partition", "0", "--offset", "0", "--index"),
            0o644,
        ),
    }
    for name, (words, mode) in cases.items():
        file = folder / name
        file.touch()
        os.chown(file, OTHER, OTHER)
        file.chmod(0o666)
        more = ("offset", "--out", file) if name == "segment" else (file,)
        ran = tierctl(*words, *more)
        found = file.stat()
        assert (ran.code, found.st_size > 0) == (0, True), ran.err
        assert (name, found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (name, 0, 0, mode)


@as_root
@pytest.mark.parametrize(
    "case",
    [
        (0o775, (0, 0), None),
        (0o1777, (0, 0), "can be written by every user (mode 1777)"),
        (0o775, (0, OTHER), "can be written by its group (mode 0775)"),
        (0o755, (OTHER, 0), f"belongs to user {OTHER}"),
    ],
)
def test_a_state_directory_that_others_can_write_is_refused(
    case: tuple[int, tuple[int, int], str | None], tier: list[str], tmp_path: Path
) -> None:
    mode, owner, why = case
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(mode)
    os.chown(state, *owner)
    ran = tierctl("sweep", *tier, *_logs(tier), "--state-dir", state)
    if why is None:
        assert ran.code in {0, 3}, ran.err
    else:
        assert (ran.code, ran.out) == (4, "")
        assert f"--state-dir {state} is not used: {state} {why}" in ran.err
        assert list(state.iterdir()) == []


@as_root
@pytest.mark.parametrize("case", [*PLAN_CHANGES, ("pipe", None, None, "it is no plain file")])
def test_settings_of_topics_that_others_can_change_decide_nothing(
    case: Change, tier: list[str], folder: Path
) -> None:
    """A run that only shows a plan reads the file."""
    *change, why = case
    file = folder / "topics.properties"
    file.write_text("orders.retention.ms=1\norders.remote.storage.enable=true\n")
    words = ("sweep", *tier, *_logs(tier), "--topic-configs", file)
    if change[0] == "pipe":
        _pipe(file)
    else:
        changed(file, *change)
        assert tierctl(*words).code == 0
    for command in ("sweep", "verify"):
        ran = tierctl(command, *words[1:], "--plan-out", folder.parent / f"{command}.json")
        if why is None:
            assert ran.code in {0, 3}, ran.err
        else:
            assert (ran.code, ran.out) == (2 if change[0] == "pipe" else 4, "")
            assert why in ran.err
        assert (folder.parent / f"{command}.json").exists() is (why is None)
    node = folder.parent
    ran = tierctl("restore", "into", node, "--log-dir", node, *tier[2:], "--topics-file", file, "--apply")
    assert why is None or why in ran.err
    assert (ran.code == 4) is (why is not None and change[0] != "pipe")


@as_root
@pytest.mark.parametrize("case", PLAN_CHANGES[:-1])
@pytest.mark.parametrize("name", [LOG_STARTS_FILE, MANIFEST, "_tierctl_state-*[0-9]"])
def test_a_file_of_the_state_that_others_can_change_is_not_read(
    name: str, case: Change, tier: list[str], folder: Path
) -> None:
    (folder / "tierctl.toml").unlink()
    words = ("sweep", *tier, *_logs(tier), "--state-dir", folder)
    assert tierctl(*words).code == 0
    (folder / LOG_STARTS_FILE).write_text("0\n0\n")
    *change, why = case
    file = max(folder.glob(name))
    changed(file, *change)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    ran = tierctl(*words)
    if why is None:
        assert ran.code == 0, ran.err
    else:
        assert (ran.code, ran.out) == (4, "")
        assert f"{file} is not read: " in ran.err
        assert why in ran.err
        assert {path: path.read_bytes() for path in folder.iterdir()} == before


def _link(file: Path) -> None:
    file.rename(file.parent / "bashrc")
    file.symlink_to(file.parent / "bashrc")


def _pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@as_root
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda file: file.chmod(0o660), None),
        (lambda file: file.chmod(0o602), "it can be written by every user (mode 0602)"),
        (lambda file: (file.chmod(0o660), os.chown(file, 0, OTHER)), "it can be written by its group"),
        (lambda file: os.chown(file, OTHER, 0), f"it belongs to user {OTHER}"),
        (lambda file: os.link(file, file.parent / "bashrc"), "it has 2 names (hard links)"),
        (_link, "it is a link"),
        (_pipe, "it is no regular file"),
        (lambda file: file.write_bytes(bytes(8) + b"segment"), "it does not begin with a message"),
    ],
    ids=["own", "world", "group", "owner", "hard link", "link", "pipe", "segment of Kafka's log"],
)
def test_messages_are_appended_only_to_a_file_of_this_user(
    change: Callable[[Path], object], why: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "log"
    file.write_text("2026-01-01T before\n")
    change(file)
    before = file.read_bytes() if file.is_file() else b""
    ran = tierctl("segments", "--metadata", tmp_path / "$(touch x)", "--log-file", file)
    if why is None:
        assert ran.code == 10
        assert file.read_text().startswith("2026-01-01T before\n20")
    else:
        assert (ran.code, ran.out) == (2, "")
        assert f"--log-file {file}: {why}" in ran.err
        assert not file.is_file() or file.read_bytes() == before
