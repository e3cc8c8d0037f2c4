"""Decisions and output that depend on --kafka-version and on the broker settings of --broker-config."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.wire.metadata.values import decode

from tests.cli.shell import tierctl
from tests.wire.metadata.java_text import to_string
from tests.wire.metadata.samples import golden


@pytest.mark.parametrize(("version", "copied"), [(None, 6), ("4.3", 8)])
def test_the_lag_of_brokers_delays_copies(
    version: str | None, copied: int, capture: Callable[..., Path], tmp_path: Path
) -> None:
    """The broker copied 8 segments of `plain`. tests/model/test_settings.py has which setting counts."""
    root = capture("copy-lag", version="4.4.0")
    (tmp_path / "server.properties").write_text("log.remote.copy.lag.ms=7200000\n")
    (tmp_path / "topics").write_text("plain.remote.storage.enable=true\n")
    (tmp_path / "metadata").mkdir()
    ran = tierctl(
        *("copy", "--log-dir", root / "local", "--metadata", tmp_path / "metadata", "--topic", "plain"),
        *("--remote", tmp_path / "tier", "--topic-configs", tmp_path / "topics"),
        *(
            "--broker-config",
            tmp_path / "server.properties",
            "--now",
            (root / "looked_at_ms").read_text().strip(),
        ),
        *(() if version is None else ("--kafka-version", version)),
        *("--output", "json"),
    ).ok()
    assert len(ran.json["steps"]) == copied


@pytest.mark.parametrize(
    ("version", "shown"),
    [((), True), (("--kafka-version", "4.0"), True), (("--kafka-version", "3.9"), False)],
)
def test_the_text_of_style_kafka_is_the_versions(version: tuple[str, ...], shown: bool) -> None:
    values = list(golden("kafka"))
    given = "\n".join(value.hex() for value in values).encode()
    ran = tierctl("format", "--input", "hex", "--style", "kafka", *version, stdin=given)
    texts = [line.partition("value: ")[2] for line in ran.lines]
    assert texts == [to_string(decode(value, "kafka"), txn_index=shown) for value in values]
