"""The client libraries are imported when they are used; a missing one has a hint."""

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
