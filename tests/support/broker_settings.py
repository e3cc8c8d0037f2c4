"""server.properties of the brokers that tests start."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

NODE_ID = 7
USER, PASSWORD = "alice", 'al;ice"s \\ secret'
METADATA_PARTITIONS = 5

SERVER = """process.roles={roles}
node.id={node_id}
controller.quorum.voters={voters}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL
log.dirs={log_dir}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
log.initial.task.delay.ms=500
log.retention.check.interval.ms=1000
log.segment.delete.delay.ms=500
log.cleaner.backoff.ms=500
"""
TIERED = """remote.log.storage.system.enable=true
remote.log.storage.manager.class.name=org.apache.kafka.server.log.remote.storage.LocalTieredStorage
remote.log.metadata.manager.listener.name=PLAINTEXT
rsm.config.dir={remote_dir}
rsm.config.delete.on.close=false
rlmm.config.remote.log.metadata.topic.replication.factor=1
rlmm.config.remote.log.metadata.topic.num.partitions={metadata_partitions}
rlmm.config.remote.log.metadata.topic.min.isr=1
remote.log.manager.task.interval.ms=500
"""
TIERED_TOPIC = {"remote.storage.enable": "true", "local.retention.bytes": "1", "segment.bytes": "1048576"}
SECURED = """ssl.keystore.location={keystore}
ssl.keystore.password={password}
ssl.keystore.type=PKCS12
ssl.truststore.location={truststore}
ssl.truststore.password={password}
ssl.truststore.type=PKCS12
listener.name.ssl.ssl.client.auth=required
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512,OAUTHBEARER
listener.name.sasl_ssl.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{user_password}";
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl_ssl.oauthbearer.sasl.jaas.config=\
org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \
unsecuredLoginStringClaim_sub="thePrincipal";
"""


_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def login(mechanism: str, password: str = PASSWORD) -> dict[str, str]:
    """Return a Kafka client's settings for a login as USER."""
    who = f'username="{USER}" password="{jaas_quoted(password)}"'
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"{_LOGIN_MODULES[mechanism]} required {who};",
    }


def write_client_file(folder: Path, settings: Mapping[str, str]) -> Path:
    """Write a client.properties as an operator does; return the file."""
    path = folder / "client.properties"
    lines = [f"{key}={value.replace(chr(92), chr(92) * 2)}\n" for key, value in settings.items()]
    path.write_text("".join(lines))
    return path


def dotted(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings from keyword arguments: retention_ms="1" is retention.ms=1."""
    return {key.replace("_", "."): value for key, value in settings.items()}


def jaas_quoted(text: str) -> str:
    """Return `text` escaped for the quotation marks of a JAAS option."""
    return text.replace("\\", "\\\\").replace('"', '\\"')
