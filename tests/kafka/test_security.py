"""SASL and TLS with a real broker and both client libraries; wrong settings end with exit code 11."""

import gc
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tierctl.errors import AuthenticationError, ExitCode, MetadataError, TierctlError
from tierctl.kafka.client_settings import ClientSettings
from tierctl.kafka.cluster import Cluster
from tierctl.kafka.leader_log import EARLIEST_LOCAL
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.model import TopicPartition

from tests.metadata.events import started
from tests.metadata.topics import manager_at
from tests.support.broker import PASSWORD, Broker, Brokers
from tests.support.broker_settings import login, write_client_file
from tests.support.certificates import Certificates

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

_BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


@pytest.fixture(scope="module")
def secured(brokers: Brokers) -> Broker:
    """Return a broker that tiers, with SASL_SSL and SSL listeners."""
    broker = brokers.shared(secured=True)
    broker.create_topic("guarded")
    broker.wait_for(
        "the metadata topic", lambda: METADATA_TOPIC in broker.admin.list_topics(timeout=5).topics
    )
    return broker


@pytest.fixture
def certificates(secured: Broker) -> Certificates:
    assert secured.certificates is not None
    return secured.certificates


@pytest.fixture(autouse=True)
def unsaid(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Check that no password is logged or printed; end the clients, which would log in again and again."""
    with caplog.at_level(logging.DEBUG):
        yield
    gc.collect()
    said = caplog.text + "".join(capfd.readouterr())
    assert PASSWORD not in said
    assert "store-secret" not in said


def write(folder: Path, settings: dict[str, str]) -> Path:
    return write_client_file(folder, {"request.timeout.ms": "5000", **settings})


def use(uri: str, config: Path, number: int) -> None:
    """Publish, read back, and send a request that only kafka-python supports."""
    manager = manager_at(f"kafka://{uri}", writable=True, command_config=config)
    event = started(number)
    manager.publish([event])
    assert event in manager.state.segments_of(event.topic_id_partition)
    manager.close()
    cluster = Cluster(ClientSettings.of(uri, config))
    partition = TopicPartition("guarded", 0)
    assert cluster.leaders.offsets([partition], EARLIEST_LOCAL) == {partition: 0}
    cluster.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_passwords(secured: Broker, certificates: Certificates, tmp_path: Path, mechanism: str) -> None:
    use(secured.bootstrap_sasl, write(tmp_path, login(mechanism) | certificates.trust), len(mechanism))


def test_bearer_tokens(secured: Broker, certificates: Certificates, tmp_path: Path) -> None:
    bearer = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f'{_BEARER} required unsecuredLoginStringClaim_sub="tests";',
    }
    use(secured.bootstrap_sasl, write(tmp_path, bearer | certificates.trust), 20)


def test_client_certificates(secured: Broker, certificates: Certificates, tmp_path: Path) -> None:
    keystore = {
        "security.protocol": "SSL",
        "ssl.keystore.location": str(certificates.client_keystore),
        "ssl.keystore.password": certificates.password,
        "ssl.keystore.type": "PKCS12",
    }
    use(secured.bootstrap_ssl, write(tmp_path, keystore | certificates.trust), 21)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (login("PLAIN", "wrong"), "Authentication failed"),
        pytest.param(login("SCRAM-SHA-512", "wrong"), "Authentication failed", marks=pytest.mark.matrix),
        (login("SCRAM-SHA-256"), "SCRAM-SHA-256"),
        (login("PLAIN") | {"ssl.truststore.location": "WRONG"}, "certificate verify failed"),
        ({"security.protocol": "SSL"}, "SSL"),
    ],
)
def test_refused_at_once_with_exit_11(
    secured: Broker, certificates: Certificates, tmp_path: Path, settings: dict[str, str], reason: str
) -> None:
    settings = certificates.trust | settings
    if settings["ssl.truststore.location"] == "WRONG":
        settings |= {"ssl.truststore.location": str(certificates.wrong_ca), "ssl.truststore.type": "PEM"}
    config = write(tmp_path, settings)
    uri = secured.bootstrap_sasl if "sasl.mechanism" in settings else secured.bootstrap_ssl
    for call in (
        lambda: manager_at(f"kafka://{uri}", command_config=config),
        lambda: Cluster(ClientSettings.of(uri, config)).cluster_id(),
    ):
        began = time.monotonic()
        with pytest.raises(AuthenticationError, match=reason) as caught:
            call()
        assert caught.value.exit_code is ExitCode.AUTHENTICATION
        assert time.monotonic() - began < 5
        assert_silent(caught.value)


def assert_silent(error: TierctlError) -> None:
    text = f"{error!r} {error.message} {error.hint} {error.__cause__!r}"
    assert PASSWORD not in text
    assert "wrong" not in text.replace("wrongly", "")


def test_a_host_of_another_name(secured: Broker, certificates: Certificates, tmp_path: Path) -> None:
    port = secured.bootstrap_sasl.rpartition(":")[2]
    settings = login("PLAIN") | certificates.trust
    with pytest.raises(AuthenticationError, match="certificate"):
        manager_at(f"kafka://127.0.0.1:{port}", command_config=write(tmp_path, settings))
    unchecked = settings | {"ssl.endpoint.identification.algorithm": ""}
    manager_at(f"kafka://127.0.0.1:{port}", command_config=write(tmp_path, unchecked)).close()


WITHOUT_TLS = "accepts connections and closes them, without an answer to security.protocol="
WITH_TLS = "SSL handshake failed: Disconnected"


@pytest.mark.parametrize(
    ("listener", "protocol", "expected"),
    [
        ("bootstrap_sasl", "PLAINTEXT", (MetadataError, WITHOUT_TLS)),
        pytest.param("bootstrap_sasl", "SSL", (MetadataError, WITHOUT_TLS), marks=pytest.mark.matrix),
        ("bootstrap", "SASL_SSL", (AuthenticationError, WITH_TLS)),
    ],
)
def test_the_protocol_of_another_listener(
    secured: Broker, tmp_path: Path, listener: str, protocol: str, expected: tuple[type[TierctlError], str]
) -> None:
    """The error comes long before the request's time is over, with a hint about the protocol."""
    assert secured.certificates is not None
    settings = login("PLAIN") | secured.certificates.trust | {"security.protocol": protocol}
    config, (kind, message) = write(tmp_path, settings | {"request.timeout.ms": "60000"}), expected
    with pytest.raises(kind) as caught:
        manager_at(f"kafka://{getattr(secured, listener)}", command_config=config)
    assert message in caught.value.message
    assert "security.protocol" in (caught.value.hint or "")
