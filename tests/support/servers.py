"""Real stores for tests: an S3 server and an HDFS cluster, started once a session on free loopback ports.

    def test_listing(s3_server: S3Server) -> None:
        store = S3Store(s3_client(), s3_server.bucket(), "")

S3 is versitygw, built with Go into `.cache/programs`, or s3proxy from Maven Central where Go is missing; HDFS
is Hadoop's MiniDFSCluster. What can't be started is skipped with a line that says so; with CI=true that is a
failure. Only processes started here are ended, each by itself; credentials are in the environment only.
"""

import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self, TypeVar
from uuid import uuid4

import pytest

from tests.support.java import copy_jars, java
from tests.support.made_once import make_once

VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
S3PROXY = ("org.gaul", "s3proxy", "4.1.0", "<classifier>jar-with-dependencies</classifier>")
HADOOP = (
    ("org.apache.hadoop", "hadoop-client-minicluster", "3.4.2", ""),
    ("org.apache.hadoop", "hadoop-client-runtime", "3.4.2", ""),
    ("org.mockito", "mockito-core", "4.11.0", ""),
    ("junit", "junit", "4.13.2", ""),
    ("javax.xml.bind", "jaxb-api", "2.3.1", ""),
    ("org.slf4j", "slf4j-simple", "1.7.36", ""),
    # Only YARN needs these.
    ("org.bouncycastle", "bcpkix-jdk18on", "1.78.1", ""),
    ("ch.qos.reload4j", "reload4j", "1.2.25", ""),
)
KEY, SECRET = "tierctl-test", "tierctl-test-secret"
BUILD_TIMEOUT_S = 900
START_TIMEOUT_S = 60

_CACHE = Path(__file__).parents[2] / ".cache"


def cannot(what: str, reason: str) -> None:
    """Skip the test and state what is not tested; fail it under CI=true."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(f"NOT TESTED AGAINST {what}: {reason}")


def free_port() -> int:
    """Return an unused port of the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def process(
    command: Sequence[str], log: Path, ready: Callable[[], bool], timeout_s: float = START_TIMEOUT_S
) -> Iterator[None]:
    """Run a server during the block, from the moment it is ready; end it by its process id."""
    with log.open("wb") as out:
        server = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=log.parent)
    try:
        deadline = time.monotonic() + timeout_s
        while not ready():
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"{command[0]} did not start:\n{log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.05)
        yield
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait(20)


def answers(port: int) -> bool:
    """Return whether a server listens on the port."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def jars(name: str, artifacts: Sequence[tuple[str, str, str, str]]) -> Path | None:
    """Return a folder with artifacts from Maven Central and their dependencies; None if unavailable."""
    target = _CACHE / name
    if target.is_dir() or shutil.which("mvn") is None:
        return target if target.is_dir() else None
    return _made(target, partial(copy_jars, artifacts))


def _made(target: Path, make: Callable[[Path], None]) -> Path | None:
    with suppress(subprocess.SubprocessError):
        return make_once(target, make)
    return None


def hadoop_jars(what: str) -> Path:
    """Return the jars of Hadoop's small clusters; without them, skip the tests of `what`."""
    found = jars("hadoop-3.4.2-hdfs-yarn", HADOOP)
    if found is None or shutil.which("java") is None:
        cannot(what, "Java and Maven are needed, and Maven Central")
    assert found is not None
    return found


def go_tool(name: str, module: str, *, tags: Sequence[str] = ()) -> Path | None:
    """Return a program built from a pinned Go module; None if unavailable."""
    target = _CACHE / "programs" / name
    if not target.is_dir() and shutil.which("go") is None:
        return None

    def build(folder: Path) -> None:
        subprocess.run(
            ["go", "install", "-tags", ",".join(tags), module],
            env=os.environ | {"GOBIN": str(folder), "GOFLAGS": "-trimpath"},
            capture_output=True,
            timeout=BUILD_TIMEOUT_S,
            check=True,
        )

    found = _made(target, build)
    return None if found is None else next(found.iterdir())


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running server; its endpoint and credentials are in the environment.

    `certificate` is the PEM file, with key, of the server and its clients; None without TLS.
    """

    port: int
    folder: Path
    certificate: Path | None = None

    @property
    def endpoint(self) -> str:
        """Return the URL of the server."""
        return f"{'https' if self.certificate else 'http'}://127.0.0.1:{self.port}"

    def bucket(self) -> str:
        """Create an empty bucket; return its name."""
        from tierctl.storage.stores.s3.client import s3_client

        name = f"tier-{uuid4().hex[:12]}"
        s3 = s3_client()
        s3.create_bucket(Bucket=name)
        s3.close()
        return name


def s3_environment(server: Any) -> dict[str, str]:
    trusted = {} if server.certificate is None else {"AWS_CA_BUNDLE": str(server.certificate)}
    return trusted | {
        "AWS_ENDPOINT_URL_S3": server.endpoint,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def _s3_command(
    folder: Path, port: int, certificate: Path | None = None, *, versioned: bool = False
) -> list[str]:
    data = folder / "data"
    data.mkdir()
    gateway = go_tool("versitygw", VERSITYGW)
    if gateway is not None:
        where = ["--port", f"127.0.0.1:{port}", "--access", KEY, "--secret", SECRET]
        if certificate is not None:
            where += ["--cert", str(certificate), "--key", str(certificate)]
        versions = folder / "versions"
        versions.mkdir()
        options = ["--versioning-dir", str(versions)] if versioned else []
        return [str(gateway), *where, "--quiet", "posix", *options, str(data)]
    if versioned:
        cannot("S3 WITH VERSIONS", "Go is missing, and s3proxy keeps no versions")
    proxy = jars("s3proxy", [S3PROXY])
    if proxy is None or shutil.which("java") is None:
        cannot("S3", "neither Go (versitygw) nor Java and Maven (s3proxy) are there, or they can't download")
    settings = {
        **_s3proxy_listener(folder, port, certificate),
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.identity": KEY,
        "s3proxy.credential": SECRET,
        "jclouds.provider": "filesystem-nio2",
        "jclouds.filesystem.basedir": str(data),
    }
    file = folder / "s3proxy.conf"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    # Only the complete jar: its parts are in the same folder and would be loaded twice.
    (whole,) = proxy.glob("s3proxy-*-jar-with-dependencies.jar")
    return java(str(whole), "org.gaul.s3proxy.Main", "--properties", str(file), heap="256m")


def _s3proxy_listener(folder: Path, port: int, certificate: Path | None) -> dict[str, str]:
    if certificate is None:
        return {"s3proxy.endpoint": f"http://127.0.0.1:{port}"}
    store = folder / "s3proxy.p12"
    _openssl("pkcs12", "-export", "-in", certificate, "-out", store, "-passout", f"pass:{SECRET}")
    return {
        "s3proxy.secure-endpoint": f"https://127.0.0.1:{port}",
        "s3proxy.keystore-path": str(store),
        "s3proxy.keystore-password": SECRET,
    }


def _certificate(folder: Path) -> Path:
    """Return a self-signed certificate of the loopback address, with its key; clients trust it."""
    if shutil.which("openssl") is None:
        cannot("S3 OVER TLS", "openssl makes the certificate, and is not there")
    key, made = folder / "key.pem", folder / "tls.pem"
    # Clients in Rust refuse a server certificate that is an authority, which is openssl's default.
    facts = ("-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE")
    wanted = ("-subj", "/CN=tests", *facts, "-keyout", key, "-out", made)
    _openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *wanted)
    made.write_text(made.read_text() + key.read_text())
    return made


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)


class HttpServer:
    """A server of this process on a free loopback port, during the block; `handler.owner` is this object.

    With a `certificate` and its key, it serves over TLS.
    """

    def __init__(self, handler: type[BaseHTTPRequestHandler], certificate: Path | None = None) -> None:
        self.certificate = certificate
        bound = type("_Bound", (handler,), {"owner": self, "log_message": lambda *_: None})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), bound)
        self._server.daemon_threads = True
        self.endpoint = f"{'https' if certificate else 'http'}://127.0.0.1:{self._server.server_port}"
        if certificate is not None:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(certificate)
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextmanager
def s3_running(folder: Path, *, tls: bool = False, versioned: bool = False) -> Iterator[S3Server]:
    """Run an S3 server during the block; `folder` must exist."""
    certificate = _certificate(folder) if tls else None
    port = free_port()
    command = _s3_command(folder, port, certificate, versioned=versioned)
    with process(command, folder / "log", lambda: answers(port)):
        yield S3Server(port, folder, certificate)


Server = TypeVar("Server")


def found(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """Return the server of S3, and set its address and credentials in the environment."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in s3_environment(server).items():
        monkeypatch.setenv(name, value)
    return server


@pytest.fixture(scope="session")
def s3_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Return the session's S3 server."""
    with s3_running(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def s3_tls_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Return the session's S3 server with TLS."""
    with s3_running(tmp_path_factory.mktemp("s3-tls"), tls=True) as server:
        yield server


@pytest.fixture
def s3_server(s3_session: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """Return the session's S3 server, with its address and credentials in the environment."""
    return found(s3_session, monkeypatch)


@pytest.fixture
def s3_tls_server(s3_tls_session: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """Return the session's S3 server with TLS, with address, credentials and CA in the environment."""
    return found(s3_tls_session, monkeypatch)


@pytest.fixture(scope="session")
def s3_versioned_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Return the session's S3 server that supports versioning."""
    with s3_running(tmp_path_factory.mktemp("s3-versioned"), versioned=True) as server:
        yield server


@pytest.fixture
def s3_versioned_server(s3_versioned_session: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """Return that server, with its address and credentials in the environment."""
    return found(s3_versioned_session, monkeypatch)


def keys_in(bucket: str) -> list[str]:
    """Return the keys of a bucket of the server in the environment."""
    return [each["Key"] for each in s3_call("list_objects_v2", bucket).get("Contents", [])]


def s3_call(name: str, bucket: str, **more: Any) -> Any:
    """Call a method of boto3's client about a bucket of the server in the environment."""
    from tierctl.storage.stores.s3.client import s3_client

    s3 = s3_client()
    try:
        return getattr(s3, name)(Bucket=bucket, **more)
    finally:
        s3.close()


@pytest.fixture(scope="session")
def hdfs_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the session's HDFS as hdfs://host:port."""
    hadoop = hadoop_jars("HDFS")
    folder = tmp_path_factory.mktemp("hdfs")
    port, http_port, details = free_port(), free_port(), folder / "details.json"
    options = ("--add-opens", "java.base/java.lang=ALL-UNNAMED")
    manager = "org.apache.hadoop.test.MiniDFSClusterManager"
    command = java(f"{hadoop}/*", *options, manager, "-datanodes", "1", "-format")
    command += ["-nnport", str(port), "-httpport", str(http_port), "-writeDetails", str(details)]

    def ready() -> bool:
        return details.is_file() and details.stat().st_size > 0

    with process(command, folder / "log", ready):
        yield f"hdfs://127.0.0.1:{port}"


@pytest.fixture
def hdfs(hdfs_session: str) -> str:
    """Return an existing, empty folder of the session's HDFS."""
    from tierctl.storage.stores.hdfs import hdfs_client

    folder = f"/{uuid4().hex[:12]}"
    hdfs_client(hdfs_session).mkdirs(folder, create_parent=True)
    return hdfs_session + folder
