"""A mistyped name of a setting, layout or profile never ends with exit code 0, in any command."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import tierctl
from tests.cli.test_selection import COMMANDS as SELECTING

TMP = "{tmp}"
FILES = {
    "topics.properties": "orders.retention.byts=5\n",
    "bounds.properties": "orders.retention.ms=-2\n",
    "draft.properties": "orders.local.log.retention.bytes=5\n",
    "ignored.properties": "orders.max.message.bytes=-1\n",
    "server.properties": "remote.log.manager.task.retry.jitter=7\n",
    "choice.toml": 'profil = "staging"\n[profiles.staging]\n',
    "table.toml": "[profil.default]\n",
    "inner.toml": '[profiles.default]\nprofile = "staging"\n',
    "quiet.toml": '[profiles.default]\nquiet = "maybe"\n',
    "bad.toml": '[profiles.default]\nmetdata = "/x"\n',
}
RSM = "org.apache.kafka.server.log.remote.storage.RemoteStorageManager"
TIERING = (
    "remote.log.storage.system.enable=true\nremote.log.storage.manager.class.name=x.Y\n"
    "remote.log.metadata.manager.listener.name=SASL_SSL\n"
)


@pytest.fixture
def words(capture: Callable[[str], Path], tmp_path: Path) -> dict[str, str]:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return {"root": str(capture("tiered-cluster")), "tmp": str(tmp_path)}


def refused(command: str, typo: tuple[str, ...], words: dict[str, str], nearest: str, **more: Any) -> None:
    ran = tierctl(*(arg.format(**words) for arg in (*SELECTING[command], *typo)), **more)
    assert (ran.code, ran.out) == (2, ""), ran.err
    assert nearest in ran.err


@pytest.mark.parametrize(
    ("file", "nearest"),
    [
        ("bad.toml", "metadata"),
        ("choice.toml", 'did you mean "profile"?'),
        ("table.toml", 'did you mean "profile'),
        ("inner.toml", "no option 'profile'"),
        ("quiet.toml", "unable to interpret input: found 'maybe'"),
    ],
)
def test_profiles(file: str, nearest: str, words: dict[str, str]) -> None:
    """All commands read their options by the same code; test_mistyped_names.py tries each of them."""
    refused("segments", ("--config-file", f"{TMP}/{file}"), words, nearest)


@pytest.mark.parametrize(
    ("file", "nearest"),
    [
        ("topics.properties", 'did you mean "retention.bytes"?'),
        ("bounds.properties", "at least -1"),
        ("draft.properties", "write orders.local.retention.bytes"),
        ("ignored.properties", "at least 0"),
    ],
)
def test_topic_settings(file: str, nearest: str, words: dict[str, str]) -> None:
    refused("sweep", ("--topic-configs", f"{TMP}/{file}"), words, nearest)


@pytest.mark.parametrize("command", ["sweep", "verify", "doctor"])
def test_names_of_topics_in_their_settings(command: str, words: dict[str, str], tmp_path: Path) -> None:
    places = ("--metadata={root}/before", "--remote={root}/before-remote", "--log-dir={root}/before")
    where = [place.format(**words) for place in places]
    file = tmp_path / "names.properties"
    file.write_text("ordres.remote.storage.enable=true\nclicks.remote.storage.enable=true\n")
    ran = tierctl(command, *where, "--topic-configs", file)
    assert (ran.code, ran.out) == (2, ""), ran.err
    assert 'did you mean "orders"?' in ran.err


def test_sweep_needs_something_to_decide_from(words: dict[str, str]) -> None:
    ran = tierctl("sweep", "--metadata={root}/before".format(**words))
    assert (ran.code, ran.out) == (2, "")
    assert "--remote and --log-dir are missing" in ran.err


@pytest.mark.parametrize(
    ("override", "nearest"),
    [
        ("remote.log.manager.task.retry.jiter=0.1", 'did you mean "remote.log.manager.task.retry.jitter"?'),
        ("remote.log.manager.task.retry.jitter=0.6", "from 0 to 0.5"),
        ("remote.log.manager.task.retry.jitter", "expected NAME=VALUE"),
    ],
)
def test_overrides(override: str, nearest: str, words: dict[str, str]) -> None:
    refused("sweep", ("--override", override), words, nearest)


@pytest.mark.parametrize("command", ["segments", "sweep"])
def test_a_brokers_own_file(command: str, words: dict[str, str], tmp_path: Path) -> None:
    """An invalid value is an error; a name that no version of Kafka has is a warning."""
    refused(command, ("--broker-config", f"{TMP}/server.properties"), words, "from 0 to 0.5")
    (tmp_path / "server.properties").write_text("num.io.threads=8\nlog.retention.hour=5\nbroker.id=1\n")
    args = (*SELECTING[command], "--broker-config", f"{TMP}/server.properties")
    err = tierctl(*(arg.format(**words) for arg in args)).err
    assert err.count("no Kafka from 3.9 to 4.4 has the setting") == 1
    assert 'the setting "log.retention.hour"; did you mean "log.retention.hours"?' in err


REFUSED = {
    "broker-config": [
        ("remote.log.storage.system.enabled=true", 'did you mean "remote.log.storage.system.enable"?'),
        ("rsm.config.chunk.sizes=1", 'did you mean "rsm.config.chunk.size"?'),
        ("rlmm.config.remote.log.metadata.topic.num.partition=5", 'metadata.topic.num.partitions"?'),
        ("rsm.confg.chunk.sizes=1", 'did you mean "rsm.config.chunk.size"?'),
        ("rlmm.confg.remote.log.metadata.topic.num.partitions=5", '"rlmm.config.remote.log.metadata.topic'),
        ("remote.lg.storage.system.enable=true", 'did you mean "remote.log.storage.system.enable"?'),
        ("process.roles=controller", "remote.log.storage.system.enable=true on all controllers"),
        (f"remote.log.storage.manager.class.name={RSM}", "io.aiven.kafka.tieredstorage.RemoteStorageManager"),
        (f"{TIERING}listeners=SASL_SSL://:1", "rlmm.config.remote.log.metadata.common.client."),
    ],
    "command-config": [("security.protocl=SSL", 'did you mean "security.protocol"?')],
    "topic-configs": [("__consumer_offsets.remote.storage.enable=true", "from the internal topic")],
}


@pytest.mark.parametrize(
    ("option", "case"), [(option, case) for option, cases in REFUSED.items() for case in cases]
)
def test_settings_that_brokers_refuse_or_ignore(
    option: str, case: tuple[str, str], words: dict[str, str], tmp_path: Path
) -> None:
    """Commands that change something end with exit code 2; doctor has a problem."""
    file, (text, fix) = tmp_path / "refused.properties", case
    file.write_text(text + "\n")
    refused("sweep", (f"--{option}={file}",), words, fix)
    found = tierctl("doctor", f"--{option}", file)
    assert found.code == 3
    assert any(line.startswith("error") and fix in line for line in found.out.splitlines()), found.out


@pytest.mark.parametrize("option", ["broker-config", "command-config"])
def test_reading_commands_note_what_is_ignored(option: str, words: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "refused.properties"
    text, fix = REFUSED[option][0]
    file.write_text(text + "\n")
    ran = tierctl(*(arg.format(**words) for arg in SELECTING["segments"]), f"--{option}", file)
    assert (ran.code, fix in ran.err) == (0, True), ran.err


def test_log_directories_that_have_nothing_of_this_tier(
    words: dict[str, str], capture: Callable[[str], Path]
) -> None:
    where = [place.format(**words) for place in ("--metadata={root}/before", "--remote={root}/before-remote")]
    for log_dir, message in (
        (words["tmp"] + "/braker-1", "braker-1: no such folder"),
        (words["tmp"], "is no broker's log directory: it has neither partitions nor meta.properties"),
        (capture("untiered-broker") / "local", "no --log-dir has a topic of the "),
    ):
        ran = tierctl("sweep", *where, "--log-dir", log_dir)
        assert (ran.code, ran.out) == (10, ""), ran.err
        assert message in ran.err


def test_a_state_directory_of_something_else(words: dict[str, str], capture: Callable[[str], Path]) -> None:
    read = ("verify", "--metadata={root}/before".format(**words), "--state-dir")
    other, state = capture("finite-metadata") / "before", words["tmp"] + "/state"
    assert tierctl("segments", "--metadata", other, "--state-dir", state).code == 0
    ran = tierctl(*read, state)
    assert (ran.code, ran.out) == (4, ""), ran.err
    assert "belongs to metadata topic" in ran.err


@pytest.mark.parametrize("command", ["segments", "sweep"])
def test_a_log_directory_as_state_directory(command: str, words: dict[str, str]) -> None:
    args = (*SELECTING[command], "--state-dir={root}/before")
    ran = tierctl(*(arg.format(**words) for arg in args))
    assert (ran.code, ran.out) == (2, ""), ran.err
    assert "is a broker's log directory" in ran.err


@pytest.mark.parametrize("source", ["--topic-configs={tmp}/topics", "--metadata={root}/before", "both"])
def test_doctor_without_a_cluster(source: str, words: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "topics").write_text("orders.remote.storage.enable=true\n")
    both = ("--topic-configs={tmp}/topics", "--metadata={root}/before")
    where = [each.format(**words) for each in (both if source == "both" else (source,))]
    ran = tierctl("doctor", *where, "--topic", "ordrs")
    assert (ran.code, ran.out) == (10, ""), ran.err
    assert 'unknown topic "ordrs"' in ran.err
    assert "known topics with similar names: orders" in ran.err
    assert tierctl("doctor", *where, "--topic", "orders").code in (0, 3)


LATER = {
    "schedule": ("schedule", "--cron"),
    "submit": ("submit", "--master=yarn", "--submit-dir={tmp}/submit", "--"),
}
"""Commands that print how to run another one later."""


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("copy {of_tier} --log-dir={root}/before --topic=oders", 10, 'unknown topic "oders"'),
        ("sweep {of_tier} --topic=orders --partition=7", 10, "no partition 7"),
        ("verify --metadata={root}/before --remote={root}/befor-remote", 5, "there is no tier at"),
        ("sweep {of_tier} --layout=aiven", 2, "has layout kafka"),
        ("sweep {of_tier} --topic-configs={tmp}/topics.properties", 2, 'did you mean "retention.bytes"?'),
        ("sweep {of_tier} --broker-config={tmp}/server.properties", 2, "from 0 to 0.5"),
        ("sweep {of_tier} --override=log.retention.hour=5", 2, "log.retention.hours"),
        ("sweep {of_tier} --log-dir={root}/befor", 10, "no such folder"),
        ("sweep {of_tier} --profile=staging", 2, "no profile 'staging'"),
        ("apply {tmp}/plan {of_tier}", 2, "No such file or directory"),
        (
            "copy {of_tier}-2 --from-remote={root}/befor-remote --to-metadata={tmp}/new",
            *(5, "there is no tier at"),
        ),
    ],
)
def test_names_in_a_command_that_runs_later(
    line: str, code: int, message: str, words: dict[str, str]
) -> None:
    """Commands that begin with c or v are printed by submit, the others by schedule."""
    command = "submit" if line[0] in "cv" else "schedule"
    of_tier = "--metadata={root}/before --remote={root}/before-remote".format(**words)
    before = [word.format(**words) for word in LATER[command]]
    given = [word.format(of_tier=of_tier, **words) for word in line.split()]
    given = [part for word in given for part in word.split()]
    ran = tierctl(*before, *given)
    assert (ran.code, ran.out) == (code, ""), ran.err
    assert message in ran.err
    if "profile" in line and command == "schedule":
        return
    unchecked = tierctl(before[0], "--no-check", *before[1:], *given)
    assert unchecked.code == 0, unchecked.err
    assert "were not checked" in unchecked.err


@pytest.mark.parametrize("command", LATER)
def test_names_that_cannot_be_checked_here(command: str, words: dict[str, str]) -> None:
    """The command may run on another machine."""
    before = [word.format(**words) for word in LATER[command]]
    for metadata in ("/srv/metadata", "kafka://localhost:1"):
        ran = tierctl(*before, "sweep", "--metadata", metadata, "--remote=/srv/tier", "--topic=oders")
        assert ran.code == 0, ran.err
        assert "the names of topics and tiers in the command were not checked: " in ran.err


def test_the_default_that_sweep_does_not_assume_is_marked(tmp_path: Path) -> None:
    file = tmp_path / "topics"
    file.write_text("orders.remote.storage.enable=true\n")
    ran = tierctl("doctor", "--topic-configs", file, "--output", "jsonl")
    assert "retention.ms=604800000 (brokers' default; sweep assumes -1)" in ran.out
