"""The registry of settings; no other module names a setting of Kafka."""

import ast
import re
from pathlib import Path

import pytest
import tierctl
from tierctl.errors import UsageError
from tierctl.model.settings import SETTINGS, TABLES, broker, clients, topic
from tierctl.model.settings.scopes import Scope, Table, Type

ROOT = Path(tierctl.__file__).parent


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.scope)
def test_every_row_is_complete(table: Table) -> None:
    assert len({row.name for row in table}) == len(table.rows)
    for row in table:
        assert row.scope is table.scope
        assert row.treatment.startswith(("acted on: ", "read and ignored: "))
        assert len(row.use) > 15
        assert row.values
        assert row.since
        for value in (row.default, row.assumed):
            if value is not None and row.type is not Type.LIST:
                assert row.parse(str(value).lower() if isinstance(value, bool) else str(value)) == value


def test_settings_that_are_read_and_ignored() -> None:
    ignored = {row.name for row in SETTINGS if not row.acted_on}
    assert ignored >= {
        "remote.log.reader.threads",
        "remote.log.reader.max.pending.tasks",
        "remote.log.storage.manager.class.path",
        "remote.log.metadata.manager.class.path",
        "remote.partition.remover.task.interval.ms",
    }


@pytest.mark.parametrize(
    ("row", "text", "value"),
    [
        (topic.RETENTION_MS, " 7 ", 7),
        (topic.RETENTION_MS, "-1", -1),
        (topic.RETENTION_BYTES, str((1 << 63) - 1), (1 << 63) - 1),
        (topic.REMOTE_STORAGE_ENABLE, "TRUE", True),
        (topic.CLEANUP_POLICY, "", ()),
        (topic.CLEANUP_POLICY, "compact, delete", ("compact", "delete")),
        (broker.TASK_RETRY_JITTER, "0.5", 0.5),
        (clients.SECURITY_PROTOCOL, "SASL_SSL", "SASL_SSL"),
    ],
)
def test_values(row: object, text: str, value: object) -> None:
    assert row.parse(text) == value  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("row", "text", "message"),
    [
        (topic.RETENTION_MS, "-2", "retention.ms='-2' is not a whole number of at least -1"),
        (topic.RETENTION_BYTES, str(1 << 63), "is not a whole number of at most 9223372036854775807$"),
        (topic.RETENTION_BYTES, "1k", "is not a whole number$"),
        (topic.REMOTE_STORAGE_ENABLE, "1", "is not true or false"),
        (broker.CUSTOM_METADATA_MAX_BYTES, str(1 << 31), "of at least 0 and at most 2147483647$"),
        (broker.TASK_RETRY_JITTER, "0.6", "is not a number from 0 to 0.5"),
        (broker.TASK_RETRY_JITTER, "nan", "is not a number from 0 to 0.5"),
        (clients.CHUNK_SIZE, "0", "is not a whole number from 1 to 1073741823"),
        (topic.TABLE.rows["compression.gzip.level"], "0", "is not a whole number from 1 to 9, or -1"),
        (topic.CLEANUP_POLICY, "delete,compcat", "is not one of compact, delete"),
        (clients.SECURITY_PROTOCOL, "TLS", "is not one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
    ],
)
def test_invalid_values(row: object, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        row.parse(text)  # type: ignore[attr-defined]


def test_stated_assumed_and_default_values() -> None:
    assert topic.RETENTION_MS.given({}) is None
    assert topic.RETENTION_MS.value({}) == -1
    assert topic.RETENTION_MS.default == 604_800_000
    assert broker.TASK_INTERVAL_MS.value({}) == 30_000
    assert broker.TASK_INTERVAL_MS.value({broker.TASK_INTERVAL_MS.name: "5"}) == 5
    with pytest.raises(KeyError):
        broker.METADATA_MANAGER_LISTENER.value({})


def test_a_row_is_defined_once_and_says_what_is_done_with_it() -> None:
    table = Table(Scope.TOPIC)
    table.flag("a.flag", default=False, ignored="tests ignore it")
    with pytest.raises(ValueError, match=r"a\.flag"):
        table.flag("a.flag", default=False, ignored="tests ignore it")
    with pytest.raises(ValueError, match=r"b\.flag"):
        table.flag("b.flag", default=False)


OTHER_LIBRARIES = {
    "kafka/librdkafka.py": "settings of librdkafka, which has names of its own and some in common with Kafka",
    "kafka/leader_log.py": "settings of kafka-python by the names that --command-config has",
    "kafka/topic_client.py": "settings of librdkafka's producer",
}
"""Files that may name settings of other libraries, with the reason."""

NAME = re.compile(r"[a-z0-9.]+[a-z0-9]")
FAMILIES = ("remote.", "rlmm.", "rsm.", "log.retention.", "log.local.", "local.retention.", "ssl.", "sasl.")
"""Prefixes of Kafka's setting names."""


def _named_settings(file: Path) -> set[str]:
    """Return the settings in string literals of a module: registered ones, and others with a prefix."""
    names = {row.name for row in SETTINGS}
    literals = {
        node.value
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return {
        text for text in literals if text in names or (text.startswith(FAMILIES) and NAME.fullmatch(text))
    }


def test_only_the_registry_names_settings() -> None:
    found = {
        str(file.relative_to(ROOT)): names
        for file in sorted(ROOT.rglob("*.py"))
        if (ROOT / "model" / "settings") not in file.parents and (names := _named_settings(file))
    }
    allowed = OTHER_LIBRARIES.keys()
    assert {file: names for file, names in found.items() if file not in allowed} == {}
    assert allowed <= found.keys()
