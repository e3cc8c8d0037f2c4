"""Throw-away certificates for tests of TLS, made by keytool and openssl when they are needed."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

PASSWORD = "store-secret"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """An authority, and the keys of a server and a client that it signed, in Kafka's formats.

    `wrong_ca` is another authority, which signed none of them.
    """

    folder: Path
    password: str = PASSWORD

    @property
    def server_keystore(self) -> Path:
        """Return the server's key and chain, PKCS12."""
        return self.folder / "server.p12"

    @property
    def truststore(self) -> Path:
        """Return the authority alone, PKCS12 as keytool writes it."""
        return self.folder / "trust.p12"

    @property
    def trust(self) -> dict[str, str]:
        """Return a Kafka client's settings that trust the authority."""
        return {
            "ssl.truststore.location": str(self.truststore),
            "ssl.truststore.password": self.password,
            "ssl.truststore.type": "PKCS12",
        }

    @property
    def jks_truststore(self) -> Path:
        """Return the authority alone, in Java's own format."""
        return self.folder / "trust.jks"

    @property
    def ca(self) -> Path:
        """Return the authority, PEM."""
        return self.folder / "ca.pem"

    @property
    def wrong_ca(self) -> Path:
        """Return another authority, PEM."""
        return self.folder / "other.pem"

    @property
    def client_keystore(self) -> Path:
        """Return the client's key and chain, PKCS12."""
        return self.folder / "client.p12"

    @property
    def client_pem(self) -> Path:
        """Return the client's encrypted key and chain in one PEM file, like Kafka's PEM key stores."""
        return self.folder / "client-both.pem"


def make_certificates(folder: Path) -> Certificates:
    """Make all files in `folder`, for localhost, valid for two days."""
    folder.mkdir(parents=True)
    made = Certificates(folder=folder)
    for name in ("ca", "other"):
        _openssl(
            folder,
            f"req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=tests-{name} "
            f"-keyout {name}.key -out {name}.pem",
        )
    for name in ("server", "client"):
        (folder / f"{name}.ext").write_text("subjectAltName=DNS:localhost\n")
        _openssl(folder, f"req -newkey rsa:2048 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr")
        _openssl(
            folder,
            f"x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 "
            f"-extfile {name}.ext -out {name}.pem",
        )
        _openssl(
            folder,
            f"pkcs12 -export -in {name}.pem -inkey {name}.key -certfile ca.pem -name {name} "
            f"-out {name}.p12 -passout pass:{PASSWORD}",
        )
    _openssl(folder, f"pkcs8 -topk8 -in client.key -out client-key.pem -passout pass:{PASSWORD}")
    both = [folder / "client-key.pem", folder / "client.pem", folder / "ca.pem"]
    made.client_pem.write_text("".join(path.read_text() for path in both))
    for store, kind in ((made.truststore, "PKCS12"), (made.jks_truststore, "JKS")):
        kept = ("-keystore", str(store), "-storetype", kind, "-storepass", PASSWORD)
        _run(folder, "keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", "ca.pem", *kept)
    return made


def _openssl(folder: Path, arguments: str) -> None:
    _run(folder, "openssl", *arguments.split())


def _run(folder: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
