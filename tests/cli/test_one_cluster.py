"""--bootstrap-server is enough for every command, as for Kafka's tools: it names the metadata topic, too."""

from pathlib import Path

import pytest
from tierctl.cli.app import leaves
from tierctl.commands import FetchRequest, FormatRequest, RestoreCheckRequest, SegmentsRequest

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
