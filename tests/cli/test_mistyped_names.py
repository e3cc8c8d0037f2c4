"""A mistyped name in any option of any command never ends with exit code 0.

The commands and their options are those of the command tree: a new command, or a new option that is not in
the tables here, fails `test_every_option_is_known`.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from tierctl.cli.app import leaves

from tests.cli.shell import tierctl

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
ALWAYS_TRIED = ("topic", "remote", "topic_configs", "override")
"""The options of which `make test` tries the first value; `make matrix` tries all."""


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


def ran(name: str, words: dict[str, str], option: Any = None, value: str = "") -> Any:
    """Run the command of `name`; with `option`, its value is `value`."""
    base = list(BASES[name])
    if option is not None:
        flag = max(option.opts, key=len)
        base = [f"{flag}={value}", *(word for word in base if not word.startswith(f"{flag}="))]
    return tierctl(*name.split(), *(word.format(**words) for word in base))


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
