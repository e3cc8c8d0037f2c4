"""The jar, built once a session against the oldest Kafka it is meant for."""

from pathlib import Path

import pytest
from tierctl.formatter.build import build

from tests.kafka import fetch_release

OLDEST = "3.9.1"


@pytest.fixture(scope="session")
def jar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("formatter") / "formatter.jar"
    build(target, f"{fetch_release(OLDEST).jars}/*")
    return target
