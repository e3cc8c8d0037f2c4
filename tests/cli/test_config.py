"""`tierctl config`: every setting with its origin; `tierctl doctor`: every problem of files of settings."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from tierctl.model.settings.known import shown

from tests.cli.shell import environment, tierctl
from tests.support.faults import without_right_to_look_into

SECRET = "hunter2"
RLMM, BROKER = "remote.log.metadata", "broker settings file"
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{SECRET}";'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tierctl.toml").write_text(
        'profile = "staging"\n\n[profiles.staging]\nbroker-config = "server.properties"\n'
        f'remote = "s3://archive/tier"\ncommand-config = "client.properties"\n'
        'topic-configs = "topics.properties"\ntopic = "orders"\nthreads = 3\n'
        f'spark-conf = ["spark.executor.memory=4g", "spark.hadoop.fs.s3a.secret.key={SECRET}"]\n'
        '[profiles.none]\n[profiles.files]\nbroker-config = "server.properties"\n'
        'command-config = "client.properties"\n'
        'topic-configs = "topics.properties"\n'
    )
    (tmp_path / "server.properties").write_text(
        f"log.local.retention.ms=7\nrsm.config.chunk.size=100\nrsm.config.storage.azure.account.key={SECRET}\n"
        f"rlmm.config.remote.log.metadata.consumer.sasl.jaas.config={JAAS}\n"
        "rlmm.config.remote.log.metadata.topic.num.partitions=7\n"
    )
    (tmp_path / "client.properties").write_text(f"ssl.keystore.password={SECRET}\nclient.id=me\n")
    (tmp_path / "topics.properties").write_text("orders.retention.ms=9\n")
    for file in tmp_path.glob("*.properties"):
        file.chmod(0o600)
    return tmp_path


def rows(*args: object, code: int = 0, **options: Any) -> dict[tuple[str, str], tuple[str, str, str | None]]:
    """Return value, source and place of each setting, by scope and setting."""
    ran = tierctl("config", "show", "--output", "json", *args, **options)
    assert ran.code == code, ran.err
    assert SECRET not in ran.out + ran.raw_err
    return {(r["scope"], r["setting"]): (r["value"], r["source"], r["place"]) for r in ran.json}


def test_a_setting_of_the_metadata_manager_needs_its_prefix(tmp_path: Path) -> None:
    """Brokers do not use it otherwise: it is no setting in force, and no option sets it."""
    name = "remote.log.metadata.topic.num.partitions"
    (file := tmp_path / "server.properties").write_text(f"{name}=7\n")
    assert rows("--broker-config", file)["metadata manager", name] == ("50", "default", None)
    ran = tierctl("config", "show", "--override", f"{name}=7")
    assert (ran.code, ran.out) == (2, "")
    assert f"--override rlmm.config.{name}=7" in ran.err
    found = rows("--override", f"rlmm.config.{name}=7")
    assert found["metadata manager", name] == ("7", "option", "--override")


@pytest.mark.parametrize("is_before", [True, False])
def test_an_option_of_every_command_is_shown_as_typed(is_before: bool) -> None:
    words, typed = ("config", "show", "-o", "json"), ("--lock-timeout", "3s")
    line = (*typed, *words) if is_before else (*words, *typed)
    ran = tierctl(*line, env=environment(TIERCTL_LOCK_TIMEOUT="9s"))
    (row,) = (each for each in ran.json if each["setting"] == "lock-timeout")
    assert (row["value"], row["source"], row["place"]) == ("3s", "option", "--lock-timeout")


def test_every_setting_has_the_place_that_states_it(folder: Path) -> None:
    env = environment(TIERCTL_METADATA="/m", TIERCTL_THREADS="5")
    found = rows("--override", "remote.log.manager.task.retry.jitter=0.1", cwd=folder, env=env)
    assert {key: found[key] for key in found if found[key][1] != "default"} == {
        ("option", "profile"): ("staging", "profile", "tierctl.toml:1"),
        ("option", "broker-config"): ("server.properties", "profile", "tierctl.toml:4"),
        ("option", "remote"): ("s3://archive/tier", "profile", "tierctl.toml:5"),
        ("option", "command-config"): ("client.properties", "profile", "tierctl.toml:6"),
        ("option", "topic-configs"): ("topics.properties", "profile", "tierctl.toml:7"),
        ("option", "topic"): ("orders", "profile", "tierctl.toml:8"),
        ("option", "threads"): ("5", "environment", "TIERCTL_THREADS"),
        ("option", "spark-conf"): (
            "spark.executor.memory=4g, spark.hadoop.fs.s3a.secret.key=[hidden]",
            "profile",
            "tierctl.toml:10",
        ),
        ("option", "metadata"): ("/m", "environment", "TIERCTL_METADATA"),
        ("option", "output"): ("json", "option", "--output"),
        ("option", "override"): ("remote.log.manager.task.retry.jitter=0.1", "option", "--override"),
        ("broker", "log.local.retention.ms"): ("7", BROKER, "server.properties:1"),
        ("broker", "remote.log.manager.task.retry.jitter"): ("0.1", "option", "--override"),
        ("plugin", "chunk.size"): ("100", BROKER, "server.properties:2"),
        ("plugin", "storage.azure.account.key"): ("[hidden]", BROKER, "server.properties:3"),
        ("metadata manager", f"{RLMM}.consumer.sasl.jaas.config"): (
            "[hidden]",
            BROKER,
            "server.properties:4",
        ),
        ("metadata manager", f"{RLMM}.topic.num.partitions"): ("7", BROKER, "server.properties:5"),
        ("client", "ssl.keystore.password"): ("[hidden]", "client settings file", "client.properties:1"),
        ("client", "client.id"): ("me", "client settings file", "client.properties:2"),
        ("topic", "retention.ms"): ("9", "topic settings file", "topics.properties:1"),
        ("topic", "local.retention.ms"): ("7", BROKER, "server.properties:1"),
    }
    assert found["option", "attempts"] == ("5", "default", None)
    assert found["broker", "remote.log.manager.task.retry.backoff.ms"] == ("500", "default", None)
    assert found["topic", "cleanup.policy"] == ("delete", "default", None)


def test_csv_has_the_path_of_a_file_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "café" / "server.properties"
    file.parent.mkdir()
    file.write_text("log.local.retention.ms=7\n")
    options = ("--output", "csv", "--columns", "setting,file", "--broker-config", file)
    assert f"log.local.retention.ms,{file}" in tierctl("config", "show", *options).lines


def test_the_settings_of_one_command_line(folder: Path) -> None:
    found = rows("sweep", "--threads", 9, "--remote", "/tier", cwd=folder)
    assert found["option", "threads"] == ("9", "option", "--threads")
    assert found["option", "remote"] == ("/tier", "option", "--remote")
    assert ("option", "max-records") not in found
    assert tierctl("config", "show", "sweep", "--treads", 9, cwd=folder).code == 2
    assert "no command" in tierctl("config", "show", "sweeep", cwd=folder).err


REFUSED = {
    "remote": (f'"s3://user:{SECRET}@bucket/tier"', "a URI must not contain a user, a password"),
    "log-dir": (f'["/a", "s3://user:{SECRET}@bucket/b"]', "a URI must not contain a user, a password"),
    "metadata": ('["/a", "/b"]', "the option takes one value, not a list"),
    "partition": ('"x"', "is no partition"),
    "output": ('"jsn"', "'jsn' is not one of"),
    "kafka-version": ('"99"', '"99" is not known'),
}


@pytest.mark.parametrize(
    ("command", "lacking"),
    [
        ((), "output"),  # this run has another output
        (("verify", "--output", "csv"), "output"),
        (("doctor",), "partition"),
    ],
)
def test_a_refused_value_is_shown_with_the_reason(
    command: tuple[str, ...], lacking: str, tmp_path: Path
) -> None:
    """No command begins with these values, except doctor, which reports them and exits with 3, too."""
    lines = [f"{key} = {value}" for key, (value, _) in REFUSED.items()]
    (tmp_path / "tierctl.toml").write_text("\n".join(["[profiles.default]", "quiet = true", *lines]))
    found = rows(*command, cwd=tmp_path, code=3)
    assert found["option", "quiet"] == ("true", "profile", "tierctl.toml:2")
    for line, (key, (_, why)) in enumerate(REFUSED.items(), 3):
        if key != lacking:
            value, *origin = found["option", key]
            assert value.startswith("refused: ")
            assert why in value
            assert origin == ["profile", f"tierctl.toml:{line}"]


@pytest.mark.parametrize("command", [("config", "show"), ("doctor",)])
def test_no_format_shows_a_secret(command: tuple[str, ...], folder: Path) -> None:
    for output in ("table", "csv"):
        ran = tierctl(*command, "--output", output, "--profile", "files", cwd=folder)
        assert ran.out
        assert SECRET not in ran.out + ran.raw_err


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("ssl.key.password", "x", "[hidden]"),
        ("listener.name.a.plain.sasl.jaas.config", "x", "[hidden]"),
        ("storage.aws.access.key.id", "x", "[hidden]"),
        ("storage.azure.sas.token", "x", "[hidden]"),
        ("storage.gcs.credentials.json", "x", "[hidden]"),
        ("rsm.config.storage.proxy.passphrase", "x", "[hidden]"),
        ("storage.shared-key", "x", "[hidden]"),
        ("rsm.config.encryption.key", "x", "[hidden]"),
        ("rsm.config.encryption.key.pair.id", "x", "x"),
        ("ssl.key.password", "", ""),
        ("encryption.key.pairs.a.private.key.file", "/a.pem", "/a.pem"),
        ("sasl.oauthbearer.token.endpoint.url", "https://u:p@h/x", "https://[hidden]@h/x"),
        ("key.prefix", "a/b", "a/b"),
        ("override", "rsm.config.secret.access.key=x", "rsm.config.secret.access.key=[hidden]"),
        ("aiven-private-key", "id=/a.pem", "id=/a.pem"),
        ("spark-conf", "spark.x.credentials.provider=a.B", "spark.x.credentials.provider=a.B"),
    ],
)
def test_which_values_are_hidden(name: str, value: str, expected: str) -> None:
    assert shown(name, value) == expected


FILES = {
    "tierctl.toml": "tierctl_settings",
    "server.properties": "broker_file",
    "client.properties": "client_file",
    "topics.properties": "topic_file",
}


def checked(*args: object, code: int, **options: Any) -> list[dict[str, Any]]:
    """Run doctor with the profile `files`, and return its results about files of settings."""
    ran = tierctl("doctor", "--output", "json", *args, **options)
    assert ran.code == code, ran.raw_err
    return [each for each in json.loads(ran.out) if each["check"] in FILES.values()]


def test_doctor_reads_every_file_that_a_profile_names(folder: Path) -> None:
    """The profile in use names no files; others do."""
    found = checked("--profile", "none", cwd=folder, code=0)
    assert {each["subject"]: (each["check"], each["severity"]) for each in found} == {
        name: (check, "ok") for name, check in FILES.items()
    }
    for name, check in FILES.items():
        text = (folder / name).read_text()
        (folder / name).unlink()
        missing = checked("--config-file", "tierctl.toml", "--profile", "none", cwd=folder, code=3)
        (problem,) = [each for each in missing if each["severity"] == "error"]
        assert (problem["check"], problem["subject"]) == (check, name)
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)


@pytest.mark.parametrize(
    ("line", "words", "hint"),
    [
        ('attempts = ["1", "2"]', "takes one value", "--attempts"),
        ("state-dir = true", "expected text or a number, found true", "--state-dir"),
        ('partition = [["a"]]', "expected text or a number, found a list in a list", "--partition"),
        ("topic-id = [false]", "expected text or a number, found false", "--topic-id"),
        ('aiven-private-key = "a\\u0000b"', "without the character U+0000", "--aiven-private-key"),
        ('output = "tabel"', "'tabel'", "--output"),
        ("metdata = 1", "no option 'metdata'", '"metadata"'),
        ("qqqqq = 1", "no option 'qqqqq'", "see --help-all of a command, or tierctl-settings(7)"),
        ('profile = "x"', "no option 'profile' in a profile", "TIERCTL_PROFILE"),
        ("apply = true", "apply = true: ", "--apply"),
        ("max_deletes = 1", "max-deletes = 1: ", "--max-deletes"),
        ("no-header = {a = 1}", "no_header: expected text", "command line"),
        ("[profils.x]", "no key 'profils'", '"profiles"'),
        ('no_header = true\n"no-header" = true', "no-header", "remove"),
    ],
)
def test_a_wrong_line_of_tierctl_toml_is_found_and_the_other_lines_are_read(
    line: str, words: str, hint: str, folder: Path, tmp_path: Path
) -> None:
    file = folder / "tierctl.toml"
    before, none = file.read_text().count("\n"), ("--profile", "none")
    file.write_text(f'{file.read_text()}{line}\n[profiles.other]\nthread = 1\nbroker-config = "none"\n')
    found = {
        each["subject"]: each for each in checked(*none, cwd=folder, code=3) if each["severity"] == "error"
    }
    lines = [f"tierctl.toml, line {before + more}" for more in (1, 2)]
    at = next(found[each] for each in lines if each in found and words in found[each]["found"])
    assert hint in at["fix"]
    assert {each["check"] for each in found.values()} == {"tierctl_settings", "broker_file"}
    assert "none" in found
    assert any("thread" in each["fix"] for each in found.values())
    assert len(found) == 3
    # Every other command ends with the problem, unless it concerns another profile.
    if "expected" in words or "U+" in words:
        (tmp_path / "tierctl.toml").write_text(f"[profiles.default]\n{line}\n")
        ran = tierctl("segments", "--metadata", tmp_path, cwd=tmp_path)
        assert (ran.code, "tierctl.toml, line 2: " in ran.err and ": expected" in ran.err) == (2, True)
    if "apply" in line or "max_deletes" in line or "profils" in line:
        assert tierctl("segments", "--metadata", folder, cwd=folder).code == 2


@pytest.mark.parametrize(
    ("lines", "words", "hint"),
    [
        ("plan-out = \n", "not TOML: invalid value", "quotes"),
        ("[profiles.staging]\n", "twice", "once"),
        ("threads = 1\nthreads = 2\n", "overwrite", "once"),
    ],
)
def test_what_is_not_toml_is_told_with_its_line(lines: str, words: str, hint: str, folder: Path) -> None:
    file = folder / "tierctl.toml"
    text = f"{file.read_text()}{lines}"
    file.write_text(f"{text}[profiles.other]\nthread = 1\n")
    results = checked("--profile", "none", cwd=folder, code=3)
    (found,) = (each for each in results if each["severity"] == "error")
    assert found["subject"] == f"tierctl.toml, line {text.count(chr(10))}"
    assert (words in found["found"], hint in found["fix"]) == (True, True)
    ran = tierctl("segments", "--metadata", folder, cwd=folder)
    assert (ran.code, found["subject"] in ran.err) == (2, True)


@pytest.mark.parametrize("data", [b"\xff", b"\xef\xbb\xbf[profiles.default]\n"])
def test_a_file_in_another_encoding_is_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "tierctl.toml").write_bytes(data)
    ran = tierctl("segments", cwd=tmp_path)
    assert (ran.code, "hint: save it as UTF-8 without a byte order mark" in ran.err) == (2, True)


@pytest.mark.parametrize(("chosen", "line"), [("staging", ""), ("nob", ", line 1")])
def test_a_profile_that_is_not_there(chosen: str, line: str, folder: Path) -> None:
    """The line that chooses a profile is the place of the error only if it names this one."""
    file = folder / "tierctl.toml"
    file.write_text(file.read_text().replace('profile = "staging"', f'profile = "{chosen}"'))
    for words in (("--profile", "nob"), *([()] if line else [])):
        ran = tierctl("segments", *words, cwd=folder)
        assert ran.code == 2
        assert f"tierctl.toml{line}: no profile 'nob'" in ran.err
        assert "known profiles: files, none, staging" in ran.err


def test_the_environment_is_checked(folder: Path) -> None:
    env = environment(TIERCTL_METDATA="/x", TIERCTL_APPLY="1")
    found = checked("--profile", "none", cwd=folder, env=env, code=3)
    assert {each["subject"] for each in found if each["severity"] == "error"} == {
        "TIERCTL_METDATA",
        "TIERCTL_APPLY",
    }


@pytest.mark.parametrize("value", ["LIMIT_FACTOR=0", "LIMIT=x", "OUTPUT=JSON", "VERBOSE=true"])
def test_a_value_of_the_environment_that_an_own_option_refuses(value: str) -> None:
    """Of the other options config show prints it, and exits with code 3: doctor has fewer of them."""
    name, _, text = value.partition("=")
    env = environment(**{f"TIERCTL_{name}": text})
    for command in (("doctor",), ("config", "show")):
        ran = tierctl(*command, env=env)
        assert (ran.code, f"--{name.lower().replace('_', '-')}" in ran.err) == (2, True)
    assert rows(env=environment(TIERCTL_THREADS="x"), code=3)["option", "threads"][0].startswith("refused: ")


@pytest.mark.parametrize("number", [errno.ENAMETOOLONG, errno.ESTALE])
def test_a_home_that_can_not_be_examined(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network home may be stale; a name that is too long is none of a file."""
    home, stat = tmp_path / "home", Path.stat

    def failing(path: Path, **how: Any) -> os.stat_result:
        if home in path.parents:
            raise OSError(number, os.strerror(number), str(path))
        return stat(path, **how)

    monkeypatch.setattr(Path, "stat", failing)
    ran = tierctl("segments", env=environment(XDG_CONFIG_HOME=str(home)))
    assert (ran.code, ran.out) == (2, "")
    assert ("--metadata is missing" in ran.err) is (number == errno.ENAMETOOLONG)
    assert ran.err.count("error: ") == ran.err.count("hint: ") == 1


def test_the_home_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """sudo may keep HOME, whose content the new user may not even see: there is no tierctl.toml then."""
    home = tmp_path / "home"
    without_right_to_look_into(home, monkeypatch)
    ran = tierctl("segments", env=environment(HOME=str(home)))
    assert (ran.code, ran.out) == (2, "")
    assert "--metadata is missing" in ran.err
