"""A running Kafka cluster: clients with Kafka's own settings, admin, leaders, topic reader and publisher.

Other packages use `cluster.Cluster`, `client_settings.ClientSettings` and the classes for one topic. The
client libraries are imported at their first use, as `sdk.confluent_kafka.Consumer` after
`from tierctl import kafka as sdk`; a missing one raises UsageError, which names the extra to install.
"""

import warnings
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tierctl.errors import UsageError

_MODULES = {
    "confluent_kafka": "confluent_kafka",
    "confluent_admin": "confluent_kafka.admin",
    "kafka_python": "kafka",
    "kafka_errors": "kafka.errors",
    "kafka_consumer_protocol": "kafka.protocol.consumer",
    "kafka_metadata_protocol": "kafka.protocol.metadata",
    "kafka_oauth": "kafka.net.sasl.oauth",
    "serialization": "cryptography.hazmat.primitives.serialization",
    "pkcs12": "cryptography.hazmat.primitives.serialization.pkcs12",
    "x509": "cryptography.x509",
}


def require(package: str) -> None:
    """Raise UsageError if `package` is not installed."""
    if find_spec(package) is None:
        raise UsageError(
            f"a cluster needs {package}, which is not installed", hint="pip install tierctl[kafka]"
        )


def __getattr__(name: str) -> Any:
    """Import the module of `name` now: commands that use no cluster must not load it."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require(_MODULES[name].partition(".")[0])
    with warnings.catch_warnings():
        # kafka-python loads its schemas with a function that Python 3.11 deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        module = import_module(_MODULES[name])
    globals()[name] = module
    return module
