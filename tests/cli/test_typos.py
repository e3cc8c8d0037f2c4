"""A mistyped name of a setting, layout or profile never ends with exit code 0, in any command."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import environment, tierctl
from tests.cli.test_selection import COMMANDS as SELECTING

ROOT, TMP = "{root}", "{tmp}"
COMMANDS = SELECTING | {
    "cache show": ("cache", "show", "--state-dir={tmp}"),
    "cache verify": ("cache", "verify", "--state-dir={tmp}"),
    "offsets check": ("offsets", "check", "--state-dir={tmp}", "--metadata={root}/before"),
    "pipeline run": ("pipeline", "run", "--metadata={root}/before", "--warehouse={tmp}/tables"),
    "apply": ("apply", "{tmp}/plan", "--metadata={root}/before", "--remote={root}/before-remote"),
}
OF_A_TIER = ("verify with a store", "copy", "sweep", "delete", "fetch", "segments --sizes", "apply")
FILES = {
    "topics.properties": "orders.retention.byts=5\n",
    "bounds.properties": "orders.retention.ms=-2\n",
    "ignored.properties": "orders.max.message.bytes=-1\n",
    "server.properties": "remote.log.manager.task.retry.jitter=7\n",
    "good.toml": "[profiles.default]\n",
    "choice.toml": 'profil = "staging"\n[profiles.staging]\n',
    "table.toml": "[profil.default]\n",
    "bad.toml": '[profiles.default]\nmetdata = "/x"\n',
}


@pytest.fixture
def words(capture: Callable[[str], Path], tmp_path: Path) -> dict[str, str]:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return {"root": str(capture("tiered-cluster")), "tmp": str(tmp_path)}


def refused(command: str, typo: tuple[str, ...], words: dict[str, str], nearest: str, **more: Any) -> None:
    ran = tierctl(*(arg.format(**words) for arg in (*COMMANDS[command], *typo)), **more)
    assert (ran.code, ran.out) == (2, ""), ran.err
    assert nearest in ran.err


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("typo", "nearest"),
    [
        (("--config-file", "{tmp}/good.toml", "--profile", "defualt"), "default"),
        (("--config-file", "{tmp}/bad.toml"), "metadata"),
        (("--config-file", "{tmp}/choice.toml"), "did you mean 'profile'?"),
        (("--config-file", "{tmp}/table.toml"), "did you mean 'profile"),
        (("--profil", "default"), "--profile"),
    ],
    ids=["profile", "key of a profile", "key of tierctl.toml", "table of tierctl.toml", "option"],
)
def test_profiles(command: str, typo: tuple[str, ...], nearest: str, words: dict[str, str]) -> None:
    refused(command, typo, words, nearest)


@pytest.mark.parametrize("command", COMMANDS)
def test_variables(command: str, words: dict[str, str]) -> None:
    refused(command, (), words, "TIERCTL_METADATA", env=environment(TIERCTL_METDATA="/x"))


@pytest.mark.parametrize("command", OF_A_TIER)
def test_layouts(command: str, words: dict[str, str]) -> None:
    refused(command, ("--layout", "kafak"), words, "'kafka'")


@pytest.mark.parametrize("command", ["copy", "sweep", "verify"])
@pytest.mark.parametrize(
    ("file", "nearest"),
    [
        ("topics.properties", 'did you mean "retention.bytes"?'),
        ("bounds.properties", "at least -1"),
        ("ignored.properties", "at least 0"),
    ],
)
def test_topic_settings(command: str, file: str, nearest: str, words: dict[str, str]) -> None:
    refused(command, ("--topic-configs", f"{TMP}/{file}"), words, nearest)


@pytest.mark.parametrize("command", ["sweep", "copy", "verify", "status", "explain", "report", "doctor"])
def test_names_of_topics_in_their_settings(command: str, words: dict[str, str], tmp_path: Path) -> None:
    args = ("explain", "orders", "0") if command == "explain" else (command,)
    places = ("--metadata={root}/before", "--remote={root}/before-remote", "--log-dir={root}/before")
    where = [place.format(**words) for place in places]
    file = tmp_path / "names.properties"
    file.write_text("ordres.remote.storage.enable=true\nclicks.remote.storage.enable=true\n")
    ran = tierctl(*args, *where, "--topic-configs", file)
    assert (ran.code, ran.out) == (2, ""), ran.err
    assert 'did you mean "orders"?' in ran.err


def test_verify_deep_needs_the_tier(words: dict[str, str]) -> None:
    ran = tierctl("verify", "--metadata={root}/before".format(**words), "--deep")
    assert (ran.code, ran.out) == (2, "")
    assert "--remote is missing" in ran.err


def test_sweep_needs_something_to_decide_from(words: dict[str, str]) -> None:
    ran = tierctl("sweep", "--metadata={root}/before".format(**words))
    assert (ran.code, ran.out) == (2, "")
    assert "--remote and --log-dir are missing" in ran.err


@pytest.mark.parametrize("command", ["copy", "sweep", "delete"])
@pytest.mark.parametrize(
    ("override", "nearest"),
    [
        ("remote.log.manager.task.retry.jiter=0.1", 'did you mean "remote.log.manager.task.retry.jitter"?'),
        ("remote.log.manager.task.retry.jitter=0.6", "from 0 to 0.5"),
        ("remote.log.manager.task.retry.jitter", "expected NAME=VALUE"),
    ],
)
def test_overrides(command: str, override: str, nearest: str, words: dict[str, str]) -> None:
    refused(command, ("--override", override), words, nearest)


@pytest.mark.parametrize("command", ["segments", "verify", "copy", "sweep", "delete", "fetch"])
def test_a_brokers_own_file(command: str, words: dict[str, str], tmp_path: Path) -> None:
    """An invalid value is an error; a name that no version of Kafka has is a warning."""
    refused(command, ("--config", f"{TMP}/server.properties"), words, "from 0 to 0.5")
    (tmp_path / "server.properties").write_text("num.io.threads=8\nlog.retention.hour=5\nbroker.id=1\n")
    args = (*SELECTING[command], "--config", f"{TMP}/server.properties")
    err = tierctl(*(arg.format(**words) for arg in args)).err
    assert err.count("no Kafka from 3.9 to 4.4 has the setting") == 1
    assert 'the setting "log.retention.hour"; did you mean "log.retention.hours"?' in err


@pytest.mark.parametrize(
    "command", ["segments", "verify", "copy", "sweep", "delete", "fetch", "status", "report"]
)
def test_a_log_directory_that_does_not_exist(command: str, words: dict[str, str]) -> None:
    args = SELECTING.get(command, (command, "--metadata={root}/before"))
    ran = tierctl(*(arg.format(**words) for arg in (*args, "--log-dir={tmp}/braker-1")))
    assert (ran.code, ran.out) == (10, ""), ran.err
    assert "braker-1: no such folder" in ran.err


@pytest.mark.parametrize("command", ["sweep", "verify", "copy", "explain"])
def test_a_folder_that_is_no_log_directory(command: str, words: dict[str, str]) -> None:
    args = SELECTING.get(command, (command, "orders", "0", "--metadata={root}/before"))
    kept = [arg.format(**words) for arg in args if "log-dir" not in arg]
    ran = tierctl(*kept, "--log-dir", words["tmp"])
    assert "has neither partitions nor meta.properties" in ran.err
    assert ("no --log-dir has a log of " in ran.err) == (command in {"sweep", "explain"})


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


def test_sweep_says_once_that_no_age_is_stated(words: dict[str, str], tmp_path: Path) -> None:
    said = "retention.ms is not stated"
    for text, times in (("", 1), ("orders.retention.ms=-1\n", 0)):
        (tmp_path / "topics").write_text(f"orders.remote.storage.enable=true\n{text}")
        args = (*SELECTING["sweep"], "--topic=orders", "--topic-configs={tmp}/topics")
        ran = tierctl(*(arg.format(**words) for arg in args))
        assert ran.err.count(said) == times, ran.err


def test_the_default_that_sweep_does_not_assume_is_marked(tmp_path: Path) -> None:
    file = tmp_path / "topics"
    file.write_text("orders.remote.storage.enable=true\n")
    ran = tierctl("config", "check", "--topic-configs", file, "--output", "jsonl")
    assert "retention.ms=604800000 (brokers' default; sweep assumes -1)" in ran.out
