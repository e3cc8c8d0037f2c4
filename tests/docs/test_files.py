"""Every command line without a broker runs on captured data, with the output that the document shows."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from tierctl.cli.docs.examples import questions

from tests.cli.shell import environment, tierctl
from tests.docs.documents import DOCUMENTS, README, Command, Document
from tests.docs.running import check, run_all, write_profile
from tests.support.formatted import formatted_node, saved_topics

TOPICS = "".join(
    f"{topic}.remote.storage.enable=true\n{topic}.local.retention.bytes=1\n"
    for topic in ("orders", "payments")
)
FOLDERS = {
    "/var/lib/kafka/data": "data",
    "s3://archive/tier": "tier-of-data",
    "s3://archive/warehouse": "warehouse",
    "s3://new/tier": "new-tier",
    "/srv/new-metadata": "new-metadata",
    "/var/lib/tierctl": "state",
    "/var/lib/prometheus/node-exporter": "node-exporter",
}
"""The folders that replace names in command lines."""


@pytest.fixture
def names(capture: Callable[[str], Path], tmp_path: Path) -> Mapping[str, object]:
    """Return copies of captured data and empty folders; `broker` is the log directory of the first run."""
    sources = {
        "data": capture("tiered-cluster") / "before",
        "tier-of-data": capture("tiered-cluster") / "before-remote",
        "broker": capture("untiered-broker") / "local",
    }
    for name, source in sources.items():
        shutil.copytree(source, tmp_path / name)
    (tmp_path / "node-exporter").mkdir()
    (tmp_path / "new-broker").mkdir()
    (tmp_path / "new-broker" / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=new\n")
    formatted_node(tmp_path / "new-node")
    (tmp_path / "topics.yaml").write_text(saved_topics(tmp_path / "tier-of-data"))
    (tmp_path / "topics.properties").write_text(f"{TOPICS}orders.retention.bytes=1000000\n")
    return {name: tmp_path / folder for name, folder in FOLDERS.items()}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_command_lines_run(document: Document, names: Mapping[str, object], tmp_path: Path) -> None:
    if document is not README and document.blocks("toml"):
        write_profile(document, names, tmp_path)
    elsewhere = ("asks_cluster", "runs_spark", "is_stock_consumer")
    mine = (each for each in document.commands if not any(getattr(each, name) for name in elsewhere))
    run_all(mine, names, tmp_path)


def test_questions_are_answered(names: Mapping[str, object], tmp_path: Path) -> None:
    """Run them with the profile of the README, in their order, with captured data instead of its cluster."""
    write_profile(README, {**names, "kafka://broker1:9092": tmp_path / "data"}, tmp_path)
    env = environment(HOME=str(tmp_path), TIERCTL_TOPIC_CONFIGS="topics.properties")
    assert tierctl("cache", "build", cwd=tmp_path, env=env).code == 0
    for each in questions("first", "more"):
        command = Command("questions.toml", each.command, ())
        if command.asks_cluster:
            continue
        ran = tierctl(*each.command.split()[1:], cwd=tmp_path, env=env)
        check(command, ran, {})
        assert ran.out or ran.summary, each.command
