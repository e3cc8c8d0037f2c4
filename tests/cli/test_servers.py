"""One --bootstrap-server is enough for every command; servers that refuse connections are named."""

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.cli.app import leaves
from tierctl.cli.entry import run
from tierctl.commands import FetchRequest, FormatRequest, RestoreCheckRequest, SegmentsRequest
from tierctl.kafka import librdkafka
from tierctl.storage.stores import base

from tests.cli.shell import environment, tierctl


def test_a_cluster_has_the_metadata_topic() -> None:
    assert SegmentsRequest(bootstrap_server="a:1,b:2").metadata == "kafka://a:1,b:2"
    assert SegmentsRequest(bootstrap_server="a:1", metadata="folder").metadata == "folder"
    assert SegmentsRequest(metadata="kafka://a:1").cluster_servers == "kafka://a:1"
    for other in (
        FormatRequest(bootstrap_server="a:1"),
        FetchRequest(bootstrap_server="a:1", rebuild=True),
        RestoreCheckRequest(bootstrap_server="a:1"),
    ):
        assert other.metadata is None


@pytest.mark.parametrize(
    ("command", "address", "why"),
    [
        ("segments", "nowhere", "--bootstrap-server: 'nowhere' is no host:port"),
        ("verify", "a:1/b", "--bootstrap-server: 'a:1/b' is no host:port"),
        ("pipeline run --warehouse warehouse", "me@a:1", "a user"),
    ],
)
def test_commands_connect_to_it(command: str, address: str, why: str, tmp_path: Path) -> None:
    ran = tierctl(*command.split(), "--bootstrap-server", address, cwd=tmp_path)
    assert (ran.code, ran.out) == (2, ""), ran.err
    assert why in ran.err
    assert "--bootstrap-server" in ran.err
    assert "--metadata" not in ran.err


def test_every_command_that_reads_metadata_has_both_options() -> None:
    lacking = {
        " ".join(words)
        for words, command in leaves()
        if "metadata" in (names := {each.name for each in command.options})
        and "bootstrap_server" not in names
    }
    assert lacking <= {"restore new-ids", "restore log", "restore into"}


@pytest.mark.parametrize(
    ("stated", "typed", "expected"),
    [
        ({"METADATA": "kafka://a:x"}, ["--bootstrap-server", "b:y"], "b:y"),
        ({"BOOTSTRAP_SERVER": "a:x"}, ["--metadata", "kafka://b:y"], "b:y"),
        ({"METADATA": "kafka://a:x", "BOOTSTRAP_SERVER": "c:z"}, ["--bootstrap-server", "b:y"], "a:x"),
    ],
)
def test_a_typed_cluster_replaces_another_one(
    stated: dict[str, str], typed: list[str], expected: str
) -> None:
    """Only settings that name two clusters mean two: one for the metadata topic, one for the topics."""
    env = environment(**{f"TIERCTL_{name}": value for name, value in stated.items()})
    ran = tierctl("segments", *typed, env=env)
    assert (ran.code, ran.out) == (2, "")
    assert expected in ran.err


@pytest.fixture
def port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.fixture
def aws(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Return S3 settings for a server that does not run."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")


@pytest.fixture
def words(port: int, capture: Callable[[str], Path], tmp_path: Path) -> dict[str, str]:
    """Return the addresses and files that replace the names in the command lines."""
    host = f"127.0.0.1:{port}"
    setting = "rlmm.config.remote.log.metadata.common.client.bootstrap.servers"
    for name, text in (("CLIENT", f"bootstrap.servers={host}\n"), ("SERVER", f"{setting}={host}\n")):
        (tmp_path / name).write_text(text)
    files = {name: str(tmp_path / name) for name in ("CLIENT", "SERVER")}
    files["OUTPUT"] = str(tmp_path / "topics.yaml")
    return {"HOST": host, "BEFORE": str(capture("tiered-cluster") / "before")} | files


@pytest.mark.parametrize(
    ("options", "named_by"),
    [
        (["segments", "--metadata", "kafka://HOST"], "--metadata"),
        (["backup-config", "--bootstrap-server", "HOST", "--output-file", "OUTPUT"], "--bootstrap-server"),
        (["segments", "--metadata", "kafka://", "--command-config", "CLIENT"], "bootstrap.servers in CLIENT"),
        (["segments", "--metadata", "kafka://", "--broker-config", "SERVER"], "bootstrap.servers in SERVER"),
        (["verify", "--metadata", "BEFORE", "--remote", "s3://bucket/tier"], "AWS_ENDPOINT_URL_S3"),
        (["sweep", "--metadata", "BEFORE", "--remote", "hdfs://HOST/tier"], "--remote"),
    ],
)
@pytest.mark.usefixtures("aws")
def test_a_refused_connection_is_reported_at_once(
    options: list[str],
    named_by: str,
    words: dict[str, str],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time in which a server may be restarting is shorter here."""
    monkeypatch.setattr(librdkafka, "_UNREACHABLE_FOR_S", 0.1)
    monkeypatch.setattr(base, "REFUSED_FOR_S", 0.1)
    for word, value in words.items():
        options = [option.replace(word, value) for option in options]
        named_by = named_by.replace(word, value)
    assert run(options) == 5
    err = capfd.readouterr().err
    assert f"accepts connections at {words['HOST']} ({named_by}): Connection refused\n" in err
