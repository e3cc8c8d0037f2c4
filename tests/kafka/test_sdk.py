"""The client libraries are imported when they are used; a missing one has a hint."""

import subprocess
import sys

import pytest
from tierctl.errors import UsageError
from tierctl.kafka import sdk
from tierctl.kafka.client_settings import ClientSettings
from tierctl.kafka.cluster import Cluster


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk, "find_spec", lambda _package: None)
    for name in ("confluent_kafka", "confluent_admin"):
        monkeypatch.delitem(vars(sdk), name, raising=False)
    with pytest.raises(UsageError, match="confluent_kafka, which is not installed") as caught:
        Cluster(ClientSettings(bootstrap_servers=("localhost:1",)))
    assert caught.value.hint == "pip install tierctl[kafka]"


def test_commands_without_a_cluster_load_no_client_library() -> None:
    code = (
        "import sys, tierctl.kafka.cluster, tierctl.metadata.topic.cluster_topic;"
        "print([m for m in ('confluent_kafka', 'kafka', 'cryptography') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_there_is_no_other_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'pandas'"):
        _ = sdk.pandas
