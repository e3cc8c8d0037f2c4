"""Settings of Kafka's clients: which are accepted or refused; secrets are never logged."""

import base64
import json
import logging
import shlex
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tierctl import kafka as sdk
from tierctl.errors import UsageError
from tierctl.kafka import leader_log, librdkafka
from tierctl.kafka.client_settings import (
    BearerLogin,
    ClientSettings,
    PasswordLogin,
    Right,
    SecurityProtocol,
    parse_jaas,
)
from tierctl.metadata.server_properties import ServerSettings, cluster_client, metadata_clients
from tierctl.model.location import TopicLocation

from tests.support.certificates import Certificates, make_certificates

SECRET = "do-not-tell"
PLAIN = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="{SECRET}";'
SCRAM = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="{SECRET}";'
SASL = {"security.protocol": "SASL_PLAINTEXT", "bootstrap.servers": "b:1"}
PLAIN_BY, TLS = {"sasl.mechanism": "PLAIN"}, {"security.protocol": "SSL"}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates") / "made")


class TestJaas:
    @pytest.mark.parametrize(
        ("text", "name", "options"),
        [
            ('a.b.Plain required username="u" password="p";', "Plain", {"username": "u", "password": "p"}),
            ("a.Plain REQUIRED;", "Plain", {}),
            ("X sufficient a=b c='d e';", "X", {"a": "b", "c": "d e"}),
            (r'X required p="a\"b\\c;=d";', "X", {"p": r'a"b\c;=d'}),
            (r'X required p="tab\tnew\nend\101\60";', "X", {"p": "tab\tnew\nendA0"}),
            ("X required p='say \"hi\"';", "X", {"p": 'say "hi"'}),
            ('X required // comment p="no"\n q="yes";', "X", {"q": "yes"}),
            ('X required /* p="no"; */ q="yes";', "X", {"q": "yes"}),
            ("\n  X\n  required\n  q = w ;\n", "X", {"q": "w"}),
            ('X required p="";', "X", {"p": ""}),
            ('X required p="ünïcode ✓";', "X", {"p": "ünïcode ✓"}),
            ('X required a="1"; Y required b="2";', "X", {"a": "1"}),
        ],
    )
    def test_understood(self, text: str, name: str, options: dict[str, str]) -> None:
        module = parse_jaas(text)
        assert (module.short_name, module.options) == (name, options)
        assert all(value not in repr(module) for value in options.values() if len(value) > 1)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "X",
            f'X required p="{SECRET}"',
            f'X p="{SECRET}";',
            f"X required {SECRET};",
            f"X required p= {SECRET} = x;",
            f'X required p="{SECRET}',
            f'X required p=;"{SECRET}"',
            f'"X" required p="{SECRET}";',
            f'X required {{p="{SECRET}"}};',
        ],
    )
    def test_refused_without_being_repeated(self, text: str) -> None:
        with pytest.raises(UsageError) as caught:
            parse_jaas(text)
        assert SECRET not in caught.value.message + str(caught.value.hint)


BEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
BEARER = {
    **SASL,
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "https://id/token",
}


class TestClientSettings:
    def test_nothing_is_plaintext(self) -> None:
        settings = ClientSettings.from_properties({"bootstrap.servers": "a:1, b:2"})
        assert settings.bootstrap == "a:1,b:2"
        assert settings.security_protocol is SecurityProtocol.PLAINTEXT
        assert (settings.login, settings.tls) == (None, None)
        with pytest.raises(UsageError, match="no bootstrap servers"):
            _ = ClientSettings().bootstrap

    @pytest.mark.parametrize("before", ["SASL_SSL://", "PLAINTEXT://", "EXTERNAL_2://", "my-listener.x://"])
    def test_a_listener_before_an_address_is_left_out(self, before: str, tmp_path: Path) -> None:
        """As printed by consoles of managed clusters, and as in advertised.listeners."""
        (path := tmp_path / "client.properties").write_text(
            f"bootstrap.servers={before}a:1, {before}[::1]:2\n"
        )
        assert ClientSettings.of("", path).bootstrap == "a:1,[::1]:2"
        assert ClientSettings.of(f"b:3,{before}c:4").bootstrap == "b:3,c:4"
        # --bootstrap-server names the metadata topic, too.
        uri = f"kafka://{before}b:3,{before}[::1]:4/"
        assert ClientSettings.of(uri).bootstrap == "b:3,[::1]:4"
        assert ClientSettings.of(TopicLocation(uri=uri).servers).bootstrap == "b:3,[::1]:4"
        with pytest.raises(UsageError, match="'a' is no host:port"):
            ClientSettings.of(f"{before}a")

    @pytest.mark.parametrize(
        ("mechanism", "jaas"), [("PLAIN", PLAIN), ("SCRAM-SHA-256", SCRAM), ("scram-sha-512", SCRAM)]
    )
    def test_logins(self, mechanism: str, jaas: str) -> None:
        given = {**SASL, "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}
        settings = ClientSettings.from_properties(given)
        assert settings.login == PasswordLogin(mechanism=mechanism.upper(), username="a", password=SECRET)
        assert SECRET not in repr(settings)
        assert leader_log.configuration(settings)["sasl_plain_password"] == SECRET
        assert librdkafka.configuration(settings, Path())["sasl.password"] == SECRET

    def test_a_name_with_signs_of_scram(self) -> None:
        """As of a certificate's subject. librdkafka escapes it by itself (RFC 5802, saslname)."""
        assert (
            sdk.kafka_python is not None
        )  # It imports the others, without the warning of one of its modules.
        from kafka.net.sasl.scram import SaslMechanismScram

        def configs(mechanism: str, jaas: str) -> tuple[dict[str, Any], dict[str, Any]]:
            named = jaas.replace('"a"', '"CN=app,OU=x"')
            given = {**SASL, "sasl.mechanism": mechanism, "sasl.jaas.config": named}
            settings = ClientSettings.from_properties(given)
            return leader_log.configuration(settings), librdkafka.configuration(settings, Path())

        ours, of_librdkafka = configs("SCRAM-SHA-256", SCRAM)
        assert SaslMechanismScram(**ours).auth_bytes().startswith(b"n,,n=CN=3Dapp=2COU=3Dx,r=")
        assert of_librdkafka["sasl.username"] == "CN=app,OU=x"
        assert configs("PLAIN", PLAIN)[0]["sasl_plain_username"] == "CN=app,OU=x"

    def test_bearer(self) -> None:
        unsigned = {**BEARER, "sasl.jaas.config": f'{BEARER_MODULE} unsecuredLoginStringClaim_sub="me";'}
        assert ClientSettings.from_properties(unsigned).login == BearerLogin(subject="me")
        jaas = f'{BEARER_MODULE} clientId="c" clientSecret="{SECRET}" scope="s";'
        settings = ClientSettings.from_properties({**BEARER, "sasl.jaas.config": jaas})
        config = librdkafka.configuration(settings, Path())
        assert config["sasl.oauthbearer.client.secret"] == SECRET
        assert (config["sasl.oauthbearer.method"], config["sasl.oauthbearer.scope"]) == ("oidc", "s")
        assert SECRET not in repr(settings)

    def test_bearer_by_the_settings_of_kafka_4_1(self) -> None:
        """KIP-1139: the settings count before the options of JAAS, which need not be there (ConfigOrJaas)."""
        prefix = "sasl.oauthbearer.client.credentials.client"
        given = {
            **BEARER,
            "sasl.jaas.config": f"{BEARER_MODULE};",
            f"{prefix}.id": "my client",
            f"{prefix}.secret": f"{SECRET}+/%",
            "sasl.oauthbearer.scope": "read write",
        }
        settings = ClientSettings.from_properties(given)
        expected = BearerLogin(
            token_endpoint_url="https://id/token",
            client_id="my client",
            client_secret=f"{SECRET}+/%",
            scope="read write",
        )
        assert settings.login == expected
        assert SECRET not in repr(settings)
        old = f'{BEARER_MODULE} clientId="old" clientSecret="old" scope="old";'
        assert ClientSettings.from_properties(given | {"sasl.jaas.config": old}).login == expected
        encoded = ClientSettings.from_properties(given | {"sasl.oauthbearer.header.urlencode": "true"})
        config = librdkafka.configuration(encoded, Path())
        assert config["sasl.oauthbearer.client.id"] == "my+client"
        assert config["sasl.oauthbearer.client.secret"] == f"{SECRET}%2B%2F%25"

    @pytest.mark.parametrize("login", ['clientId="c" clientSecret="s"', "unsecuredLoginStringClaim_sub=me"])
    def test_texts_for_the_broker_beside_the_token(self, login: str) -> None:
        """Options extension_…, which Java's login handlers send, and both client libraries (KIP-342)."""
        jaas = f'{BEARER_MODULE} {login} extension_logicalCluster="lkc-1" extension_identityPoolId="pool-2";'
        settings = ClientSettings.from_properties({**BEARER, "sasl.jaas.config": jaas})
        config = librdkafka.configuration(settings, Path())
        if "clientId" in login:
            assert config["sasl.oauthbearer.extensions"] == "logicalCluster=lkc-1,identityPoolId=pool-2"
        else:
            assert config["sasl.oauthbearer.config"] == (
                "principal=me extension_logicalCluster=lkc-1 extension_identityPoolId=pool-2"
            )
        provider = leader_log.configuration(settings)["sasl_oauth_token_provider"]
        assert provider.extensions() == {"logicalCluster": "lkc-1", "identityPoolId": "pool-2"}

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("sasl.oauthbearer.token.endpoint.url", "file:///run/token"),
            ("sasl.oauthbearer.jwt.retriever.class", "org.example.JwtBearerJwtRetriever"),
            ("sasl.oauthbearer.assertion.file", "/run/assertion"),
            ("sasl.oauthbearer.assertion.claim.iss", "me"),
        ],
    )
    def test_another_way_to_a_token_is_refused(self, name: str, value: str, tmp_path: Path) -> None:
        """Not as a lack of clientId, which such a login does not need, or as one by id and secret."""
        for jaas in (f"{BEARER_MODULE};", f'{BEARER_MODULE} clientId="c" clientSecret="s";'):
            given = {**BEARER, "sasl.jaas.config": jaas, name: value}
            (path := tmp_path / "c.properties").write_text("\n".join(f"{k}={v}" for k, v in given.items()))
            with pytest.raises(UsageError, match=rf"line \d: this {name} is not supported: expected an endp"):
                ClientSettings.of("", path)

    @pytest.mark.parametrize(
        ("more", "reason"),
        [
            ({"security.protocol": "TLS"}, "security.protocol=TLS is none of"),
            ({}, "sasl.mechanism=GSSAPI is not supported"),
            (PLAIN_BY, "sasl.jaas.config is missing"),
            (PLAIN_BY | {"sasl.jaas.config": SCRAM}, "PLAIN needs PlainLoginModule, not Scram"),
            (PLAIN_BY | {"sasl.jaas.config": "PlainLoginModule required username=a;"}, "no password"),
            (
                # KIP-48: the broker would look for a user with the name of the token.
                {
                    "sasl.mechanism": "SCRAM-SHA-256",
                    "sasl.jaas.config": SCRAM.replace(";", " tokenauth=True;"),
                },
                r"a delegation token \(tokenauth\), which is not supported",
            ),
            ({"bootstrap.servers": "broker"}, "'broker' is no host:port"),
            ({"bootstrap.servers": "broker:99999"}, "is no host:port"),
            ({"bootstrap.servers": "[::1"}, "is no host:port"),
            ({"bootstrap.servers": "::1]:9092"}, "is no host:port"),
            (TLS | {"request.timeout.ms": "soon"}, "request.timeout.ms=.soon. is not a whole number"),
            ({"config.providers": "file", "sasl.jaas.config": "${file:/x:y}"}, "config provider"),
            (
                {"config.providers": "env", "security.protocol": "${env:P}"},
                "protocol refers to a config prov",
            ),
            (TLS | {"ssl.truststore.type": "BCFKS"}, "BCFKS is not supported"),
            (TLS | {"ssl.endpoint.identification.algorithm": "ldaps"}, "neither https nor"),
            (TLS | {"ssl.truststore.location": "/none"}, "/none can't be read"),
            (TLS | {"ssl.truststore.certificates": "x"}, "holds no certificates"),
        ],
    )
    def test_refused(self, more: dict[str, str], reason: str) -> None:
        with pytest.raises(UsageError, match=reason):
            _ = ClientSettings.from_properties({**SASL, **more})

    @pytest.mark.parametrize(
        ("given", "taken"),
        [
            # Java closes no connection; kafka-python would look for idle ones without a pause.
            ({"connections.max.idle.ms": "-1"}, {"connections.max.idle.ms": "2147483647"}),
            ({"connections.max.idle.ms": "9" * 18}, {"connections.max.idle.ms": "2147483647"}),
            ({"metadata.max.age.ms": "0"}, {"metadata.max.age.ms": "1"}),
            ({"metadata.max.age.ms": "604800000"}, {"metadata.max.age.ms": "86400000"}),
            ({"metadata.max.age.ms": "+5000"}, {"metadata.max.age.ms": "5000"}),
            ({"retry.backoff.ms": "0"}, {"retry.backoff.ms": "1"}),
            ({"retry.backoff.max.ms": "600000"}, {"retry.backoff.max.ms": "300000"}),
            ({"socket.connection.setup.timeout.ms": "500"}, {"socket.connection.setup.timeout.ms": "1000"}),
            # CommonClientConfigs.warnDisablingExponentialBackoff: the same wait each time.
            (
                {"reconnect.backoff.ms": "2000"},
                {"reconnect.backoff.ms": "2000", "reconnect.backoff.max.ms": "2000"},
            ),
            (
                {"reconnect.backoff.ms": "2000", "reconnect.backoff.max.ms": "500"},
                {"reconnect.backoff.ms": "2000", "reconnect.backoff.max.ms": "2000"},
            ),
            # Without a wait, librdkafka would connect to a broker that is down thousands of times a second.
            (
                {"reconnect.backoff.ms": "0"},
                {"reconnect.backoff.ms": "0", "reconnect.backoff.max.ms": "1000"},
            ),
            (
                {"reconnect.backoff.ms": "100", "reconnect.backoff.max.ms": "86400000"},
                {"reconnect.backoff.ms": "100", "reconnect.backoff.max.ms": "3600000"},
            ),
        ],
    )
    def test_numbers_that_only_javas_clients_take(self, given: dict[str, str], taken: dict[str, str]) -> None:
        from confluent_kafka.admin import AdminClient

        settings = ClientSettings.from_properties({"bootstrap.servers": "127.0.0.1:1", **given})
        assert settings.more == taken
        librdkafka.make_client(AdminClient, settings)
        config = leader_log.configuration(settings)
        for name in taken.keys() & {"connections.max.idle.ms", "retry.backoff.ms", "reconnect.backoff.ms"}:
            assert config[name.replace(".", "_")] == int(taken[name])

    def test_both_libraries_resolve_names_as_the_file_states(self) -> None:
        """With the canonical names, an alias of all brokers need not stand in their certificates."""
        name, value = "client.dns.lookup", "resolve_canonical_bootstrap_servers_only"
        settings = ClientSettings.from_properties({"bootstrap.servers": "a:1", name: value})
        assert leader_log.configuration(settings)["client_dns_lookup"] == value
        assert librdkafka.configuration(settings, Path())[name] == value

    def test_a_number_that_is_none_names_its_line(self, tmp_path: Path) -> None:
        path = tmp_path / "client.properties"
        path.write_text("bootstrap.servers=a:1\nretry.backoff.ms=100L\n")
        with pytest.raises(UsageError, match=r"properties, line 2: retry.backoff.ms='100L' is not a whole"):
            ClientSettings.of("", path)

    def test_unknown_settings_are_ignored(self) -> None:
        given = {
            "bootstrap.servers": "a:1",
            "fetch.min.bytes": "1",
            "client.id": "me",
            "key.deserializer": "x",
        }
        settings = ClientSettings.from_properties(given, "client.properties")
        assert librdkafka.configuration(settings, Path())["client.id"] == "me"

    def test_librdkafka_refusing_a_value_is_a_usage_error_without_it(self) -> None:
        from confluent_kafka.admin import AdminClient

        settings = ClientSettings(bootstrap_servers=("a:1",), more={"reconnect.backoff.ms": SECRET})
        with pytest.raises(UsageError, match="refused its settings"):
            librdkafka.make_client(AdminClient, settings)


def test_the_command_that_grants_a_right_is_that_of_a_shell() -> None:
    """Any client can give a consumer group any name."""
    name = "a b; $(reboot)"
    assert shlex.split(Right("Describe", group=name).command)[-2:] == ["--group", name]


class TestStores:
    """Trust and key stores in all formats that Kafka accepts; both clients get the same certificates."""

    def tls(self, certificates: Certificates, **settings: str) -> Any:
        given = {key.replace("_", "."): value for key, value in settings.items()}
        found = ClientSettings.from_properties({"security.protocol": "SSL", **given})
        assert certificates.password not in repr(found)
        assert "PRIVATE KEY" not in repr(found)
        return found.tls

    def test_truststores(self, certificates: Certificates) -> None:
        ca = certificates.ca.read_text()
        trust, password = str(certificates.truststore), certificates.password
        by_pkcs12 = self.tls(certificates, ssl_truststore_location=trust, ssl_truststore_password=password)
        pem = str(certificates.ca)
        by_file = self.tls(certificates, ssl_truststore_location=pem, ssl_truststore_type="PEM")
        inline = self.tls(certificates, ssl_truststore_certificates=ca)
        both = self.tls(certificates, ssl_truststore_certificates=ca + certificates.wrong_ca.read_text())
        assert by_pkcs12.truststore_pem == by_file.truststore_pem == inline.truststore_pem == ca
        assert both.truststore_pem.count("BEGIN CERTIFICATE") == 2
        assert len(leader_log.tls_context(both).get_ca_certs()) == 2

    def test_keystores(self, certificates: Certificates) -> None:
        password = certificates.password
        store, pem = str(certificates.client_keystore), str(certificates.client_pem)
        by_pkcs12 = self.tls(certificates, ssl_keystore_location=store, ssl_keystore_password=password)
        by_pem = self.tls(certificates, ssl_keystore_location=pem, ssl_key_password=password)
        text = certificates.client_pem.read_text()
        inline = self.tls(
            certificates,
            ssl_keystore_key=text,
            ssl_keystore_certificate_chain=text,
            ssl_key_password=password,
        )
        assert by_pkcs12.key_pair.key_pem == by_pem.key_pair.key_pem == inline.key_pair.key_pem
        assert by_pkcs12.key_pair.chain_pem == by_pem.key_pair.chain_pem
        assert by_pem.key_pair.chain_pem.count("BEGIN CERTIFICATE") == 2

    def test_jks_is_refused_by_name_with_the_way_out(self, certificates: Certificates) -> None:
        for key in ("truststore", "keystore"):
            with pytest.raises(UsageError, match="JKS") as caught:
                self.tls(certificates, **{f"ssl_{key}_location": str(certificates.jks_truststore)})
            assert "keytool -importkeystore -srckeystore" in str(caught.value.hint)

    def test_wrong_passwords_and_files(self, certificates: Certificates, tmp_path: Path) -> None:
        noise = tmp_path / "noise"
        noise.write_bytes(b"\x30\x82noise")
        store, pem = str(certificates.client_keystore), str(certificates.client_pem)
        trust = {
            "ssl_keystore_location": str(certificates.truststore),
            "ssl_keystore_password": "store-secret",
        }
        no_pkcs12, no_key = "can't be opened as PKCS12", "private key can't be read"
        for settings, reason in (
            ({"ssl_truststore_location": store, "ssl_truststore_password": SECRET}, no_pkcs12),
            ({"ssl_keystore_location": pem, "ssl_key_password": SECRET}, no_key),
            ({"ssl_keystore_location": pem}, no_key),
            ({"ssl_keystore_location": str(certificates.ca)}, no_key),
            ({"ssl_truststore_location": str(noise)}, no_pkcs12),
            (trust, "holds no key"),
        ):
            with pytest.raises(UsageError, match=reason) as caught:
                self.tls(certificates, **settings)
            assert SECRET not in caught.value.message + str(caught.value.hint)

    def test_no_key_lies_on_the_disk(
        self, certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        store = str(certificates.client_keystore)
        tls = self.tls(certificates, ssl_keystore_location=store, ssl_keystore_password=certificates.password)
        leader_log.tls_context(tls)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(("algorithm", "verifies"), [("https", True), ("HTTPS", True), ("", False)])
    def test_endpoint_identification(
        self, certificates: Certificates, algorithm: str, verifies: bool
    ) -> None:
        tls = self.tls(certificates, ssl_endpoint_identification_algorithm=algorithm)
        assert tls.verifies_hostname is verifies
        assert leader_log.tls_context(tls).check_hostname is verifies
        settings = ClientSettings(bootstrap_servers=("a:1",), tls=tls)
        config = librdkafka.configuration(settings, Path())
        assert config["ssl.endpoint.identification.algorithm"] == ("https" if verifies else "none")

    def test_certificates_without_all_extensions(
        self, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As Python 3.13 makes a context; Java and librdkafka take what it refuses."""

        def strict(**given: Any) -> ssl.SSLContext:
            context = made(**given)
            context.verify_flags |= ssl.VERIFY_X509_STRICT
            return context

        made = ssl.create_default_context
        monkeypatch.setattr(ssl, "create_default_context", strict)
        context = leader_log.tls_context(self.tls(certificates))
        assert not context.verify_flags & ssl.VERIFY_X509_STRICT
        assert context.verify_mode is ssl.CERT_REQUIRED


def counts(settings: ServerSettings) -> tuple[object, ...]:
    topic = settings.topic
    return topic.num_partitions, topic.replication_factor, topic.min_isr, topic.retention_ms


class TestServerSettings:
    COMMON = "remote.log.metadata.common.client."

    def test_a_brokers_own_file(self) -> None:
        settings = ServerSettings.from_properties(
            {
                "listeners": "PLAINTEXT://:9092,RLM://0.0.0.0:9093",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT, RLM:SASL_PLAINTEXT",
                "remote.log.metadata.manager.listener.name": "RLM",
                "remote.log.storage.system.enable": "true",
                "remote.log.manager.task.interval.ms": "1000",
                "rlmm.config.remote.log.metadata.topic.num.partitions": "7",
                "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
                "rlmm.config.remote.log.metadata.topic.min.isr": "1",
                f"rlmm.config.{self.COMMON}sasl.mechanism": "PLAIN",
                f"rlmm.config.{self.COMMON}sasl.jaas.config": PLAIN,
                "rlmm.config.remote.log.metadata.producer.delivery.timeout.ms": "5000",
                "rlmm.config.remote.log.metadata.consumer.fetch.max.bytes": "1",
                "rsm.config.dir": "/x",
            }
        )
        assert settings.clients.admin.bootstrap == "localhost:9093"
        assert settings.clients.consumer.security_protocol is SecurityProtocol.SASL_PLAINTEXT
        assert settings.clients.producer.delivery_timeout_ms == 5000
        assert settings.clients.consumer.delivery_timeout_ms == 120_000
        assert counts(settings) == (7, 1, 1, -1)
        assert settings.expected_partitions == 7
        assert SECRET not in repr(settings)

    def test_defaults(self) -> None:
        settings = ServerSettings.from_properties({})
        assert counts(settings) == (50, 3, 2, -1)
        assert settings.expected_partitions is None

    def test_prefixes(self) -> None:
        count = "remote.log.metadata.topic.num.partitions"
        # As in KIP-405: brokers do not pass them on, and make the metadata topic with 50 partitions.
        as_kip = ServerSettings.from_properties({count: "3", f"{self.COMMON}bootstrap.servers": "kip:1"})
        assert (as_kip.expected_partitions, as_kip.clients.admin.bootstrap_servers) == (None, ())
        assert as_kip.topic.num_partitions == 50
        no_prefix = {"remote.log.metadata.manager.impl.prefix": "", count: "3"}
        assert ServerSettings.from_properties(no_prefix).expected_partitions == 3
        both = ServerSettings.from_properties({count: "3", f"rlmm.config.{count}": "4"})
        assert both.expected_partitions == 4
        other = ServerSettings.from_properties(
            {"remote.log.metadata.manager.impl.prefix": "x.", f"x.{count}": "5", f"rlmm.config.{count}": "4"}
        )
        assert other.expected_partitions == 5

    def test_a_text_like_a_reference_is_the_password_without_config_providers(self) -> None:
        """Brokers take it as it is."""
        given = {"sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN.replace(SECRET, "${env:PW}")}
        settings = ServerSettings.from_properties(
            {
                "remote.log.metadata.manager.listener.name": "RLM",
                "listeners": "RLM://here:1",
                "listener.security.protocol.map": "RLM:SASL_PLAINTEXT",
                **{f"rlmm.config.{self.COMMON}{name}": value for name, value in given.items()},
            }
        )
        login = settings.clients.readable().admin.login
        assert isinstance(login, PasswordLogin)
        assert login.password == "${env:PW}"

    @pytest.mark.parametrize(
        ("given", "bootstrap", "protocol"),
        [
            # Brokers without the setting listen here.
            ({"manager": "PLAINTEXT"}, "localhost:9092", "PLAINTEXT"),
            (
                {"manager": "rlm_x", "listeners": "RLM_X://:1", "map": "A:SSL , rlm_x : ssl"},
                "localhost:1",
                "SSL",
            ),
            ({"manager": "RLM", "listeners": "RLM://[::1]:1", "map": "RLM:SSL"}, "[::1]:1", "SSL"),
        ],
    )
    def test_the_listener_as_brokers_read_it(
        self, given: dict[str, str], bootstrap: str, protocol: str
    ) -> None:
        """The map of protocols may have blanks around its colons (Csv.parseCsvMap)."""
        names = {
            "manager": "remote.log.metadata.manager.listener.name",
            "listeners": "listeners",
            "map": "listener.security.protocol.map",
        }
        settings = ServerSettings.from_properties({names[key]: value for key, value in given.items()})
        assert settings.clients.admin.bootstrap == bootstrap
        assert settings.clients.admin.security_protocol == protocol

    @pytest.mark.parametrize(
        ("more", "reason"),
        [
            # The brokers' login may stand in the file of java.security.auth.login.config.
            ({}, "sasl.mechanism=GSSAPI is not supported"),
            ({"sasl.mechanism": "SCRAM-SHA-512"}, "sasl.jaas.config is missing"),
            ({"security.protocol": "SSL", "ssl.truststore.location": "{jks}"}, "is a JKS store"),
            ({"security.protocol": "SSL", "ssl.keystore.location": "/none"}, "/none can't be read"),
            ({"request.timeout.ms": "soon", "security.protocol": "SSL"}, "'soon' is not a whole number"),
            *(
                # It is no password.
                ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}, r"line 7: .* refers to a config prov")
                for jaas in (PLAIN.replace(SECRET, "${env:PW}"), "${file:/run/secrets:jaas}")
            ),
        ],
    )
    def test_a_login_that_is_not_understood_is_refused_where_it_is_used(
        self, more: dict[str, str], reason: str, tmp_path: Path
    ) -> None:
        """Not with --command-config, and not where only the number of partitions is asked for."""
        (jks := tmp_path / "broker.jks").write_bytes(b"\xfe\xed\xfe\xed")
        (broker := tmp_path / "server.properties").write_text(
            "config.providers=env,file\n"
            "remote.log.metadata.manager.listener.name=RLM\nlisteners=RLM://here:1\n"
            "listener.security.protocol.map=RLM:SASL_SSL\n"
            "rlmm.config.remote.log.metadata.topic.num.partitions=7\n"
            + "".join(
                f"rlmm.config.{self.COMMON}{name}={more[name].replace('{jks}', str(jks))}\n" for name in more
            )
        )
        server = ServerSettings.read(broker)
        assert server.expected_partitions == 7
        with pytest.raises(UsageError, match=reason):
            metadata_clients("", None, server, option="--metadata")
        with pytest.raises(UsageError, match=reason):
            cluster_client("b:1", broker_config=broker)
        (own := tmp_path / "client.properties").write_text("request.timeout.ms=5\n")
        found = metadata_clients("", own, server, option="--metadata").admin
        assert (found.bootstrap, found.request_timeout_ms) == ("here:1", 5)

    def test_own_servers_before_the_listener_and_advertised_before_bound(self) -> None:
        given = {
            "remote.log.metadata.manager.listener.name": "PLAINTEXT",
            "listeners": "PLAINTEXT://0.0.0.0:1",
            "advertised.listeners": "PLAINTEXT://here:2",
        }
        assert ServerSettings.from_properties(given).clients.admin.bootstrap == "here:2"
        given[f"rlmm.config.{self.COMMON}bootstrap.servers"] = "there:3"
        settings = ServerSettings.from_properties(given)
        assert settings.clients.admin.bootstrap == "there:3"
        assert settings.clients.at("named:4", "--metadata").producer.bootstrap == "named:4"

    @pytest.mark.parametrize("value", ["many", "0"])
    def test_refused(self, value: str) -> None:
        with pytest.raises(UsageError, match="is not a whole number of at least 1"):
            ServerSettings.from_properties({"rlmm.config.remote.log.metadata.topic.num.partitions": value})


class TestTokens:
    def test_unsigned(self) -> None:
        token = leader_log.fetch_token(BearerLogin(subject="me"), now_s=1000.0)
        head, claims, signature = token.split(".")
        decoded = [json.loads(base64.urlsafe_b64decode(part + "==")) for part in (head, claims)]
        assert decoded == [{"alg": "none"}, {"sub": "me", "iat": 1000.0, "exp": 4600.0}]
        assert signature == ""

    def test_no_http_address_is_refused(self) -> None:
        with pytest.raises(UsageError, match="no http"):
            leader_log.fetch_token(BearerLogin(token_endpoint_url="file:///etc/passwd"), now_s=0)


@pytest.fixture(autouse=True)
def told(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Check that no secret is logged, at any level."""
    with caplog.at_level(logging.DEBUG):
        yield
    assert SECRET not in caplog.text
