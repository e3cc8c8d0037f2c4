"""A mistyped name in any option of any command never ends with exit code 0, and names like it are suggested.

The commands and their options are those of the command tree: a new command, or a new option that is not in
the tables here, fails `test_every_option_is_known`.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
from tierctl.cli.app import leaves

from tests.cli.shell import Ran, tierctl

METADATA, TIER, LOGS = "--metadata={root}/before", "--remote={root}/before-remote", "--log-dir={root}/before"
CONFIGS, FLAT, OFFSETS = "--topic-configs={tmp}/good", "{tmp}/flat", "{tmp}/_rlmm_committed_offsets"
ALL = (METADATA, TIER, LOGS, CONFIGS)
BASES = {
    "status": ALL,
    "explain": ("orders", "0", *ALL),
    "report": ALL,
    "doctor": ALL,
    "segments": (METADATA, TIER, "--sizes"),
    "verify": ALL,
    "format": (METADATA,),
    "fetch": (METADATA, TIER, "--topic=orders", "--limit=1"),
    "copy": ALL,
    "sweep": ALL,
    "delete": (METADATA, TIER),
    "apply": ("{tmp}/plan", *ALL),
    "rebuild": ("--metadata={tmp}/new", TIER, LOGS),
    "schedule": ("--cron", "sweep", *ALL),
    "submit": ("--master=yarn", "--submit-dir={tmp}/submit", "sweep", *ALL),
    "pipeline run": (METADATA, "--warehouse={tmp}/tables"),
    "config show": (CONFIGS,),
    "cache show": (FLAT,),
    "cache verify": (FLAT,),
    "cache build": (METADATA, "--out={tmp}/flat"),
    "cache compact": (FLAT,),
    "offsets show": (OFFSETS,),
    "offsets check": (OFFSETS, METADATA),
    "offsets repair": (OFFSETS, METADATA),
}
"""A command line of each command that finds all its names."""

FORMS = (
    *("segments --all", "segments --sizes", "segments --offsets", "segments --check", "segments --time=0"),
    *("segments --epoch=0 --offset=0", "segments --offset=0", f"fetch {LOGS}", "verify --deep"),
    *("fetch --raw-segment=AAAAAAAAAAAAAAAAAAAAAQ", "fetch --index=offset --output=json"),
    *("fetch --auxiliary-state=1000", "format --order=time"),
)
"""Other command lines with a selection, which read in another way."""

BESIDE_BROKERS = {"backup-config", "restore into", "restore new-ids", "restore log", "restore check"}
"""Commands that need a cluster or a node, so that tests/live and tests/apply try them."""

BAD_FILES = ("{tmp}/missing", "{tmp}/unknown-setting")
NAMES: dict[str, tuple[str, ...]] = {
    "topic": ("ordrs", "clik*"),
    "partition": ("99",),
    "topic_id": ("AAAAAAAAAAAAAAAAAAAAAQ",),
    "remote": ("{root}/befor-remote", "{tmp}/empty", "{root}"),
    "metadata": ("{root}/befor",),
    "log_dir": ("{root}/befor", "{tmp}"),
    "topic_configs": (*BAD_FILES, "{tmp}/unknown-topic", "{tmp}/client"),
    "broker_config": ("{tmp}/missing", "{tmp}/wrong-value", "{tmp}/client"),
    "command_config": ("{tmp}/missing", "{tmp}/good"),
    "aiven_private_key": ("{tmp}/missing",),
    "override": ("log.retention.hour=5",),
    "columns": ("topik", "topic,segmnt"),
    "sort": ("topik",),
    "profile": ("staging",),
    "config_file": ("{tmp}/missing",),
    "kind": ("leked_segment",),
    "skip": ("clok",),
    "assume": ("ordrs.retention.ms=1", "orders.retention.mss=1", "orders.local.retention.ms=1"),
    "what_if": ("ordrs.retention.ms=1", "orders.retention.mss=1"),
    "from_remote": ("{root}/befor-remote",),
    "segment": ("AAAAAAAAAAAAAAAAAAAAAQ",),
    "raw_segment": ("AAAAAAAAAAAAAAAAAAAAAQ",),
    "i_know_it_is_deleted": ("AAAAAAAAAAAAAAAAAAAAAQ",),
    "log_start_offset": ("ordrs-0=5",),
    "style": ("kafak",),
    "master": ("yran",),
}
"""Mistyped values of each option whose value is a name."""

NO_NAMES = frozenset(
    {
        # Files and folders that the command creates if they do not exist.
        *("state_dir", "plan_out", "out", "html", "metrics_file", "log_file", "submit_dir", "warehouse"),
        # Conditions on the records that are printed; other records of the topic are none the worse.
        *("segment_id", "offset", "types", "states", "from_offset", "until", "properties", "sep", "vs"),
        # Numbers with units, and times.
        *("now_ms", "time_ms", "from_time_ms", "to_time_ms", "interval", "interval_s", "max_age_ms"),
        *("orphan_age_ms", "throttle_copy", "throttle_fetch", "budget_bytes", "sample_percent"),
        *("watch", "lock_timeout", "interval_ms", "executor_memory", "driver_memory"),
        # Used by the copy from another tier, a cluster or Spark only; a wrong one fails there.
        *("to_metadata", "to_command_config", "bootstrap_server", "spark_conf", "python_archive"),
        *("container_image", "formatter_jar"),
        # Compared with the plan that is read.
        "digest",
        # Free text, or a key of a record.
        *("user", "erase_report", "set_offset", "log_start", "tables", "kafka_version"),
    }
)
NOT_KNOWABLE = {
    # A rebuild makes the metadata; settings alone state no topics.
    ("rebuild", "metadata", "{root}/befor"),
    ("config show", "topic_configs", "{tmp}/unknown-topic"),
    # It prints the value itself, and with another one the cluster is asked.
    ("config show", "metadata", "{root}/befor"),
    # The file that is named is read.
    *((f"offsets {name}", "log_dir", "{tmp}") for name in ("show", "check", "repair")),
}
LISTING_PROBLEMS = {"doctor"}
"""Commands whose rows are the problems."""
ALWAYS_TRIED = ("remote", "topic_configs", "override")
"""The options of which `make test` tries the first value; `make matrix` tries all."""
REFUSED = {
    "broker-config": ("remote.log.manager.task.retry.jitter=7", "from 0 to 0.5"),
    "command-config": ("security.protocl=SSL", 'did you mean "security.protocol"?'),
    "topic-configs": ("ordres.remote.storage.enable=true\nclicks.retention.ms=5", 'did you mean "orders"?'),
}
"""A wrong line of each file of settings; tests/verify/test_setting_files.py has every kind of problem."""
LATER = {
    "schedule": ("schedule", "--cron"),
    "submit": ("submit", "--master=yarn", "--submit-dir={tmp}/submit", "--"),
}
"""Commands that print how to run another one later."""


COMMANDS = {" ".join(words): command for words, command in leaves()}


def is_checked_by_type(option: Any) -> bool:
    described = option.type_descriptor
    kinds = {described.annotation, *get_args(described.annotation)}
    return described.is_choice or bool(kinds & {int, float, bool})


def options(command: Any) -> list[Any]:
    return [param for param in command.params if param.param_type_name == "option"]


def test_every_option_is_known() -> None:
    assert set(COMMANDS) == BASES.keys() | BESIDE_BROKERS
    free = {
        option.name for name in BASES for option in options(COMMANDS[name]) if not is_checked_by_type(option)
    }
    assert free - NAMES.keys() - NO_NAMES == set(), "say whether the values of these options are names"


@pytest.fixture(scope="module")
def words(capture: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    tmp = tmp_path_factory.mktemp("names")
    files = {
        "good": "orders.retention.ms=5\norders.remote.storage.enable=true\n",
        "unknown-setting": "orders.retention.byts=5\n",
        "unknown-topic": "ordrs.retention.bytes=5\n",
        "client": "bootstrap.servers=broker1:9092\n",
        "enabled": "orders.remote.storage.enable=true\n",
        "wrong-value": "remote.log.manager.task.retry.jitter=7\n",
    }
    for name, text in files.items():
        (tmp / name).write_text(text)
    (tmp / "empty" / "kafka-tiered-storage").mkdir(parents=True)
    found = {"root": str(capture("tiered-cluster")), "tmp": str(tmp)}
    (tmp / "_rlmm_committed_offsets").write_text("0\n1\n3 5\n")
    ready = ("cache", "build", METADATA, "--out", FLAT), ("sweep", *ALL, "--plan-out={tmp}/plan")
    for line in ready:
        assert tierctl(*(word.format(**found) for word in line)).code == 0
    return found


def run(line: Sequence[str], words: dict[str, str], *more: object) -> Ran:
    """Run a command line after its places are filled in."""
    return tierctl(*(str(word).format(**words) for word in (*line, *more)))


def ran(name: str, words: dict[str, str], option: Any = None, value: str = "") -> Ran:
    """Run the command of `name`; with `option`, its value is `value`."""
    base = list(BASES[name])
    if option is not None:
        flag = max(option.opts, key=len)
        base = [f"{flag}={value}", *(word for word in base if not word.startswith(f"{flag}="))]
    return run((*name.split(), *base), words)


def typos(name: str) -> Iterator[tuple[Any, str]]:
    """Yield each option of a command whose value is a name, with each mistyped value."""
    for option in options(COMMANDS[name]):
        for value in NAMES.get(option.name, ()):
            if (name, option.name, value) not in NOT_KNOWABLE:
                yield option, value


def refuse(name: str, tried: Iterator[tuple[Any, str]], words: dict[str, str]) -> None:
    accepted = []
    for option, value in tried:
        result = ran(name, words, option, value)
        if result.code in {0, 1} or ("error: " not in result.err and name not in LISTING_PROBLEMS):
            accepted.append((option.name, value, result.code, result.err[-200:]))
    assert accepted == []


@pytest.mark.parametrize("name", BASES)
def test_mistyped_names(name: str, words: dict[str, str]) -> None:
    first = {option: NAMES[option][0] for option in ALWAYS_TRIED}
    refuse(name, ((o, value) for o, value in typos(name) if first.get(o.name) == value), words)


@pytest.mark.matrix
@pytest.mark.parametrize("name", BASES)
def test_all_mistyped_names(name: str, words: dict[str, str]) -> None:
    assert ran(name, words).code in ({0, 3} if name in LISTING_PROBLEMS else {0})
    refuse(name, typos(name), words)


SELECTING = {
    **{
        name: (*name.split(), *BASES[name])
        for name in BASES
        if "topic" in {option.name for option in options(COMMANDS[name])}
    },
    **{line: (*line.split(), METADATA, *(() if line.startswith("format") else (TIER,))) for line in FORMS},
}
"""The command lines with a selection."""


@pytest.mark.parametrize("name", SELECTING)
def test_an_unknown_topic_is_named_with_similar_ones(name: str, words: dict[str, str]) -> None:
    line = (word for word in SELECTING[name] if not word.startswith("--topic="))
    result = run(tuple(line), words, "--topic=oders")
    assert (result.code, result.out) == (10, "")
    if name == "apply":
        assert "the plan has no step for topic oders" in result.err
        return
    assert 'error: unknown topic "oders"' in result.err
    assert "known topics with similar names: orders" in result.err


@pytest.mark.parametrize("option", REFUSED)
def test_a_wrong_line_is_refused_by_runs_that_change_something(
    option: str, words: dict[str, str], tmp_path: Path
) -> None:
    """doctor has a problem; commands that read note the lines that no broker or client uses."""
    file, (text, fix) = tmp_path / "refused.properties", REFUSED[option]
    file.write_text(f"{text}\n")
    result = run(("sweep", METADATA, TIER, LOGS), words, f"--{option}={file}")
    assert (result.code, result.out) == (2, "")
    assert fix in result.err
    found = run(("doctor", METADATA, LOGS), words, f"--{option}={file}")
    assert found.code == (3 if option != "topic-configs" else 2)
    assert fix in found.out + found.err
    if option == "command-config":
        noted = run(("segments", METADATA), words, f"--{option}={file}")
        assert (noted.code, fix in noted.err) == (0, True), noted.err


def test_a_setting_that_no_version_of_kafka_has_is_a_warning(words: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.io.threads=8\nlog.retention.hour=5\nbroker.id=1\n")
    result = run(("sweep", METADATA, TIER), words, f"--broker-config={file}")
    assert result.err.count("no Kafka from 3.9 to 4.4 has the setting") == 1
    assert 'the setting "log.retention.hour"; did you mean "log.retention.hours"?' in result.err


def test_log_directories_that_have_nothing_of_this_tier(
    words: dict[str, str], capture: Callable[[str], Path]
) -> None:
    for log_dir, message in (
        (words["tmp"] + "/braker-1", "braker-1: no such folder"),
        (words["tmp"], "is no broker's log directory: it has neither partitions nor meta.properties"),
        (capture("untiered-broker") / "local", "no --log-dir has a topic of the "),
    ):
        result = run(("sweep", METADATA, TIER), words, f"--log-dir={log_dir}")
        assert (result.code, result.out) == (10, ""), result.err
        assert message in result.err
    result = run(("sweep", METADATA), words)
    assert (result.code, "--remote and --log-dir are missing" in result.err) == (2, True)


def test_a_state_directory_of_something_else(
    words: dict[str, str], capture: Callable[[str], Path], tmp_path: Path
) -> None:
    other = capture("finite-metadata") / "before"
    assert tierctl("segments", "--metadata", other, "--state-dir", tmp_path).code == 0
    for state, code, message in (
        (tmp_path, 4, "belongs to metadata topic"),
        ("{root}/before", 2, "is a broker's log directory"),
    ):
        for command in (("verify", METADATA), ("sweep", METADATA, TIER)):
            result = run(command, words, f"--state-dir={state}")
            assert (result.code, result.out) == (code, ""), result.err
            assert message in result.err


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("copy {of_tier} --log-dir={root}/before --topic=oders", 10, 'unknown topic "oders"'),
        ("verify --metadata={root}/before --remote={root}/befor-remote", 5, "there is no tier at"),
        ("sweep {of_tier} --layout=aiven", 2, "has layout kafka"),
        ("submit --run --master=yarn -- verify {of_tier}-2", 5, "there is no tier at"),
        ("sweep {of_tier} --override=log.retention.hour=5", 2, "log.retention.hours"),
        ("apply {tmp}/plans {of_tier}", 2, "No such file or directory"),
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
    before = LATER["submit" if line[0] in "cv" else "schedule"]
    given = line.replace("{of_tier}", f"{METADATA} {TIER}").split()
    result = run((*before, *given), words)
    assert (result.code, result.out) == (code, ""), result.err
    assert message in result.err
    unchecked = run((before[0], "--no-check", *before[1:], *given), words)
    assert unchecked.code == 0, unchecked.err
    assert "were not checked" in unchecked.err


def test_names_that_cannot_be_checked_here(words: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The command may run on another machine."""
    monkeypatch.setattr("tierctl.kafka.librdkafka._UNREACHABLE_FOR_S", 0.1)
    where = ("--metadata=kafka://localhost:1", "--remote=/srv/tier", "--topic=oders")
    for before in LATER.values():
        result = run((*before, "sweep", *where), words)
        assert result.code == 0, result.err
        assert "the names of topics and tiers in the command were not checked: " in result.err


def test_the_default_that_sweep_does_not_assume_is_marked(words: dict[str, str]) -> None:
    result = run(("doctor", CONFIGS.replace("good", "enabled"), "--output", "jsonl"), words)
    assert "retention.ms=604800000 (brokers' default; sweep assumes -1)" in result.out
