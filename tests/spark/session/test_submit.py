"""`tierctl submit` and the options of engines: wrong values, and command lines for each kind of cluster."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tierctl import files
from tierctl.errors import UsageError
from tierctl.spark.session.jvm import SparkSettings, is_credential

from tests.cli.shell import Ran, environment, tierctl, tierctl_process
from tests.spark.clusters import java_environment, spark_home
from tests.spark.worlds import Capture

K8S = ("--master", "k8s://https://127.0.0.1:1", "--container-image", "me/spark:4")


def submit(folder: Path, *args: object) -> Ran:
    return tierctl("submit", "--submit-dir", folder, *args)


def line_of(folder: Path, *args: object) -> list[str]:
    ran = submit(folder, "--quiet", *args)
    assert (ran.code, ran.err) == (0, ""), ran.err
    words = shlex.split(ran.out.replace("\\\n", ""))
    assert words.pop(0).endswith("spark-submit")
    return words


def conf_of(line: list[str]) -> dict[str, str]:
    found = [line[at + 1] for at, word in enumerate(line) if word == "--conf"]
    return dict(text.split("=", 1) for text in found)


def test_a_command_that_always_runs_on_spark(tmp_path: Path) -> None:
    where = ("--metadata", "/data/metadata", "--warehouse", "/data/tables")
    line = line_of(tmp_path, "--master", "yarn", "--", "pipeline", "run", *where)
    assert line[-6:] == ["pipeline", "run", *where]


def test_nobody_else_may_write_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_umask", lambda: 0)
    line_of(tmp_path, "--master", "yarn", "--", "segments", "--metadata", "/data/metadata")
    assert [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()] == [0o644] * 3


def test_the_folder_may_have_log_settings_of_spark(tmp_path: Path) -> None:
    (tmp_path / "log4j2.properties").write_text("rootLogger.level = error\n")
    assert line_of(tmp_path, "--master", "yarn", "--", "status", "--metadata", "s3://x/y")
    assert (tmp_path / "log4j2.properties").read_text() == "rootLogger.level = error\n"


@pytest.mark.parametrize(
    ("command", "named"),
    [("cache show /f", "cache show"), ("sweep --metadata /m --remote /t -o json", "sweep")],
)
def test_a_printed_line_is_summed_up(command: str, named: str, tmp_path: Path) -> None:
    """Stdout has the line only, which a shell may read."""
    line = ("--master", "yarn", "--no-check", "--", *command.split())
    ran = submit(tmp_path, *line)
    assert ran.code == 0
    assert ran.summary.startswith(f"submit: runs on Spark: tierctl {named} (")
    assert ran.out == submit(tmp_path, "--quiet", *line).out
    env = environment(TIERCTL_OUTPUT="json")
    last = tierctl("submit", "--submit-dir", tmp_path, *line, env=env).raw_err.splitlines()[-1]
    assert json.loads(last)["summary"]["message"] == f"runs on Spark: tierctl {named}"


def test_a_line_for_yarn(tmp_path: Path) -> None:
    resources = (
        "--num-executors",
        8,
        "--executor-cores",
        2,
        "--executor-memory",
        "4g",
        "--driver-memory",
        "2g",
    )
    archive = ("--python-archive", "hdfs:///env.tar.gz")
    yarn = ("--master", "yarn", "--deploy-mode", "cluster", *resources, *archive)
    line = line_of(
        tmp_path, *yarn, "--", "sweep", "--metadata", "/data/a b", "--remote", "s3://x/y", "--apply"
    )
    text = " ".join(line)
    assert "--master yarn --deploy-mode cluster" in text
    assert "--num-executors 8 --executor-cores 2 --executor-memory 4g --driver-memory 2g" in text
    assert "--archives hdfs:///env.tar.gz#environment" in text
    there = "./environment/bin/python"
    assert conf_of(line) == {
        "spark.yarn.appMasterEnv.PYSPARK_PYTHON": there,
        "spark.executorEnv.PYSPARK_PYTHON": there,
    }
    main = line.index(str(tmp_path / "tierctl-main.py"))
    command = ["sweep", "--engine", "spark", "--metadata", "/data/a b", "--remote", "s3://x/y", "--apply"]
    assert line[main + 1 :] == command
    package = Path(line[line.index("--py-files") + 1])
    assert package.read_bytes()[:2] == b"PK"


@pytest.mark.parametrize(
    ("args", "conf"),
    [
        (("--master", "spark://h:7077"), {"spark.pyspark.python": sys.executable}),
        (("--master", "yarn"), {"spark.pyspark.driver.python": sys.executable}),
        (
            ("--master", "yarn", "--python-archive", "env.tar.gz"),
            {
                "spark.pyspark.driver.python": sys.executable,
                "spark.pyspark.python": "./environment/bin/python",
            },
        ),
        (
            (*K8S, "--spark-conf", "spark.kubernetes.namespace=tiers"),
            {
                "spark.pyspark.driver.python": sys.executable,
                "spark.kubernetes.container.image": "me/spark:4",
                "spark.kubernetes.namespace": "tiers",
            },
        ),
        (
            (*K8S, "--deploy-mode", "cluster", "--spark-conf", "spark.kubernetes.file.upload.path=s3a://b/c"),
            {
                "spark.kubernetes.container.image": "me/spark:4",
                "spark.kubernetes.file.upload.path": "s3a://b/c",
            },
        ),
        # The operator's settings take precedence over tierctl's.
        (
            ("--master", "spark://h:7077", "--spark-conf", "spark.pyspark.python=/opt/python"),
            {"spark.pyspark.python": "/opt/python"},
        ),
    ],
)
def test_interpreters_and_settings(
    args: tuple[str, ...], conf: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "env.tar.gz").touch()
    monkeypatch.chdir(tmp_path)
    assert conf_of(line_of(tmp_path, *args, "segments", "--metadata", "x")) == conf


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--master", "yarn"), "no command"),
        (("segments", "--metadata", "x"), "--master is missing"),
        (("--master", "yarn", "sweeep"), 'did you mean "sweep"?'),
        (("--master", "yarn", "schedule"), "schedule: this command can't run on Spark"),
        (("--master", "yarn", "segments", "--metdata", "x"), "No such option: --metdata"),
        (("--master", "yarn", "segments", "--engine", "local"), "submit can't be used with --engine local"),
        (("--master", "yarn", "segments", "--master", "yarn"), "must be before the command"),
        (("--master", "sc://h", "segments"), "can't use a Spark Connect server"),
        (("--master", "spark://h", "--deploy-mode", "cluster", "segments"), "runs no Python drivers"),
        (("--master", "k8s://https://h", "segments"), "--container-image is missing"),
        ((*K8S, "--deploy-mode", "cluster", "segments"), "pods don't see"),
        (("--master", "spark://h", "--num-executors", "3", "segments"), "--spark-conf spark.cores.max=N"),
        (("--master", "spark://h", "--container-image", "me/spark", "segments"), "only Kubernetes"),
        (("--master", "yarn", "--container-image", "me/spark", "segments"), "only Kubernetes"),
        (("--master", "local[2]", "--executor-memory", "3g", "segments"), "--driver-memory its memory"),
        (("--master", "local[2]", "--executor-cores", "3", "segments"), "local[N] sets their number"),
        (("--master", "yarn", "--executor-memory", "lots", "segments"), '"lots" is not a size'),
        (("--master", "yarn", "--driver-memory", "512", "segments"), '"512" is not a size'),
        (("--master", "yarn", "--submit-dir", "a,b", "segments"), "--submit-dir: spark-submit divides a,b/"),
        (("--master", "yarn", "--python-archive", "a,b.zip", "segments"), "--python-archive: spark-submit"),
        (("--master", "yarn", "--submit-dir", "a#b", "segments"), "--submit-dir: spark-submit reads a#b/"),
        (("--master", "yarn", "--python-archive", "s3a://b/e.zip#e", "segments"), "up to the #"),
        (("--master", "yarn", "--python-archive", "env.tar.gz", "segments"), "env.tar.gz: no such file"),
        (("--master", "yarn", "--spark-conf", "spark.speculation=true", "sweep"), "stored or deleted twice"),
        (
            ("--master", "yarn", "sweep", "--override", "rsm.config.storage.aws.secret.access.key=k"),
            "credentials",
        ),
        (("--master", "yarn", "sweep", "--remote", "s3://me:pa55@bucket/x"), "must not contain a user"),
    ],
)
def test_what_is_refused(args: tuple[str, ...], message: str, tmp_path: Path) -> None:
    ran = submit(tmp_path / "new", *args)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert "pa55" not in ran.err
    assert not (tmp_path / "new").exists()


def test_a_file_with_a_key_is_no_credential(tmp_path: Path) -> None:
    key = ("--aiven-private-key=k1=/keys/k1.pem", "--metadata", "kafka://h:1", "--remote", "s3://b/t")
    line = line_of(tmp_path, "--master", "yarn", "--no-check", "--", "fetch", "--topic", "orders", *key)
    assert key[0] in line


def test_the_command_has_the_profile_of_the_line(tmp_path: Path) -> None:
    file = tmp_path / "tierctl.toml"
    file.write_text('[profiles.staging]\nmetadata = "/m"\n')
    asked = ("--master", "yarn", "--profile", "staging", "--config-file", file, "--", "cache", "build")
    line = line_of(tmp_path, *asked)
    command = line[line.index("cache") :]
    assert command[:2] == ["cache", "build"]
    assert command[command.index("--profile") + 1] == "staging"
    assert command[command.index("--config-file") + 1] == str(file)


def test_a_user_without_a_home_folder_names_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    words = ("--master", "yarn", "segments")
    ran = tierctl("submit", *words, env=environment())
    assert (ran.code, ran.out, "--submit-dir" in ran.err) == (2, "", True), ran.err
    assert submit(tmp_path, *words).code == 0


def test_files_are_written_once(tmp_path: Path) -> None:
    line_of(tmp_path, "--master", "yarn", "segments")
    times = {file: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    line_of(tmp_path, "--master", "yarn", "segments")
    assert {file: file.stat().st_mtime_ns for file in tmp_path.iterdir()} == times
    assert len(times) == 3


def test_variables_of_spark_submit(tmp_path: Path) -> None:
    """A driver without memory ends, and the line's master counts, not a Spark Connect server.

    What the operator set for the JVM comes last, and so it counts.
    """
    program = tmp_path / "home" / "bin" / "spark-submit"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "${SPARK_REMOTE-none}" "$SPARK_SUBMIT_OPTS"\n')
    program.chmod(0o755)
    own = {"SPARK_SUBMIT_OPTS": "-XX:-ExitOnOutOfMemoryError", "SPARK_REMOTE": "sc://h"}
    env = environment(SPARK_HOME=str(tmp_path / "home"), **own)
    words = ("submit", "--submit-dir", tmp_path / "kept", "--master", "yarn", "--run", "--", "segments")
    ran = tierctl_process(*words, cwd=tmp_path, env=env)
    remote, first, *_, last = ran.out.split()
    assert remote == "none"
    assert (first, last) == ("-XX:+ExitOnOutOfMemoryError", "-XX:-ExitOnOutOfMemoryError"), ran.err


@pytest.mark.slow
@pytest.mark.matrix
def test_a_command_run_by_spark_submit(standalone: str, capture: Capture, tmp_path: Path) -> None:
    metadata = capture("tiered-cluster") / "after"
    command = ("segments", "--metadata", metadata, "-o", "jsonl")
    small = ("--spark-conf", "spark.cores.max=1", "--spark-conf", "spark.ui.enabled=false")
    where = ("--submit-dir", tmp_path / "kept", "--master", standalone, "--run", *small)
    env = java_environment()

    def run(*args: object) -> Ran:
        return tierctl_process("submit", *where, "--", *args, cwd=tmp_path, env=env, timeout_s=400)

    ran = run(*command)
    assert ran.code == 0, ran.err
    assert ran.lines == tierctl(*command).lines
    # The first one belongs to the JVM.
    assert not [
        line for line in ran.err.splitlines() if not line.startswith(("WARNING: Using", "note: waiting for"))
    ]
    bad = run("segments", "--metadata", tmp_path)
    assert (bad.code, bad.out) == (10, "")
    assert f"error: {tmp_path} has no metadata topic" in bad.err


HADOOP_SITE = """<configuration>
<property><name>yarn.resourcemanager.address</name><value>127.0.0.1:1</value></property>
<property><name>yarn.resourcemanager.connect.max-wait.ms</name><value>1</value></property>
<property><name>yarn.resourcemanager.connect.retry-interval.ms</name><value>1</value></property>
<property><name>ipc.client.connect.max.retries</name><value>0</value></property>
</configuration>
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "understood"),
    [
        (
            ("--master", "yarn", "--deploy-mode", "cluster", "--num-executors", "3"),
            ("org.apache.spark.deploy.yarn.YarnClusterApplication", "(spark.executor.instances,3)"),
        ),
        pytest.param(
            (*K8S, "--deploy-mode", "cluster", "--spark-conf", "spark.kubernetes.file.upload.path={uploads}"),
            (
                "org.apache.spark.deploy.k8s.submit.KubernetesClientApplication",
                "spark.kubernetes.container.image",
            ),
            marks=pytest.mark.matrix,
        ),
    ],
    ids=["yarn", "kubernetes"],
)
def test_spark_submit_understands_the_line(
    args: tuple[str, ...], understood: tuple[str, ...], tmp_path: Path
) -> None:
    spark_home()
    hadoop = tmp_path / "hadoop"
    hadoop.mkdir()
    for name in ("yarn-site.xml", "core-site.xml"):
        (hadoop / name).write_text(HADOOP_SITE)
    archive = tmp_path / "env.tar.gz"
    archive.touch()
    given = [word.format(uploads=tmp_path.as_uri()) for word in args]
    more = ("--python-archive", archive, "--spark-conf", "spark.kubernetes.submission.connectionTimeout=2000")
    ran = submit(tmp_path, *given, *more, "sweep", "--metadata", "x")
    program, *words = shlex.split(ran.out.replace("\\\n", ""))
    done = subprocess.run(
        [program, "--verbose", *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment(HADOOP_CONF_DIR=str(hadoop), SPARK_LOCAL_IP="127.0.0.1"),
    )
    said = done.stdout + done.stderr
    assert done.returncode != 0
    for text in (*understood, f"{archive}#environment", "tierctl-main.py", "sweep"):
        assert text in said, said[-4000:]
    # spark-submit tried to connect to the cluster, which does not exist.
    assert "Connection refused" in said, said[-4000:]


SPARK = ("--engine", "spark")


@pytest.mark.parametrize(
    ("args", "message", "hint"),
    [
        (("--master", "local[2]"), "--master needs --engine spark", "leave --master out"),
        (("--spark-conf", "spark.x=1"), "--spark-conf needs --engine spark", "leave --spark-conf out"),
        ((*SPARK, "--spark-conf", "spark.executor.memory"), "expected spark.KEY=VALUE", "memory=4g"),
        ((*SPARK, "--spark-conf", "executor.memory=1g"), "expected spark.KEY=VALUE", "memory=4g"),
        *(
            ((*SPARK, "--master", master), f"'{master}': no master of Spark", "spark://host:port")
            for master in (
                "mesos://x",
                "local[two]",
                "local[2",
                "local-cluster[2,1]",
                "spark://",
                "yarn-client",
            )
        ),
        (
            (*SPARK, "--master", "sc://h;token=abc"),
            "must not contain a token",
            "SPARK_CONNECT_AUTHENTICATE_TOKEN",
        ),
        (
            (*SPARK, "--master", "sc://h", "--spark-conf", "spark.executor.memory=1g"),
            "a Spark Connect server has its own value",
            "spark.sql.*",
        ),
    ],
)
def test_usage_errors(args: tuple[str, ...], message: str, hint: str, tmp_path: Path) -> None:
    ran = tierctl("sweep", "--metadata", tmp_path, "--remote", tmp_path, *args)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert hint in ran.err


@pytest.mark.parametrize("command", ["copy", "sweep", "delete"])
def test_no_speculation_where_things_change(command: str, tmp_path: Path) -> None:
    speculation = (*SPARK, "--spark-conf", "spark.speculation=true")
    ran = tierctl(command, "--metadata", tmp_path, "--log-dir", tmp_path, *speculation)
    assert ran.code == 2
    assert "no segment may be stored or deleted twice at a time" in ran.err
    assert tierctl("verify", "--metadata", tmp_path, *speculation).code == 10


def test_a_profile_for_spark_does_not_disturb_runs_without_it(tmp_path: Path) -> None:
    env = environment(TIERCTL_MASTER="spark://h:1", TIERCTL_SPARK_CONF="spark.executor.memory=1g")
    ran = tierctl("verify", "--metadata", tmp_path, env=env)
    assert (ran.code, "has no metadata topic" in ran.err) == (10, True)
    ran = tierctl(
        "verify",
        "--metadata",
        tmp_path,
        env=env | {"TIERCTL_SPARK_CONF": "nonsense"} | {"TIERCTL_ENGINE": "spark"},
    )
    assert (ran.code, "expected spark.KEY=VALUE" in ran.err) == (2, True)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("spark.hadoop.fs.s3a.bucket.b.session.token", "0pen-sesame", True),
        ("spark.authenticate.secret", "0pen-sesame", True),
        ("spark.hadoop.fs.azure.account.key.acct.dfs.core.windows.net", "0pen-sesame", True),
        ("spark.ssl.keyPassword", "0pen-sesame", True),
        ("spark.executorEnv.AWS_ACCESS_KEY_ID", "0pen-sesame", True),
        ("spark.executorEnv.AZURE_STORAGE_KEY", "0pen-sesame", True),
        ("spark.hadoop.fs.azure.account.connection.string", "0pen-sesame", True),
        ("spark.hadoop.fs.azure.sas.container.account", "0pen-sesame", True),
        ("spark.x.private-key", "0pen-sesame", True),
        ("spark.executor.extraJavaOptions", "-Djavax.net.ssl.trustStorePassword=x", True),
        ("spark.executor.extraJavaOptions", "-Dfs.s3a.secret.key=x", True),
        ("spark.executor.extraJavaOptions", "-Dfs.azure.account.key.a.dfs.core.windows.net=x", True),
        ("spark.executorEnv.HTTPS_PROXY", "http://me:word@proxy:3128", True),
        ("spark.executorEnv.FOO", "AKIAIOSFODNN7EXAMPLE", True),
        ("spark.kubernetes.authenticate.driver.oauthTokenFile", "/var/run/token", False),
        ("spark.hadoop.fs.s3a.aws.credentials.provider", "com.amazonaws.auth.Instance", False),
        ("spark.authenticate", "true", False),
        ("spark.authenticate.enableSaslEncryption", "true", False),
        ("spark.security.credentials.hive.enabled", "false", False),
        ("spark.kubernetes.driver.secrets.aws", "/etc/aws", False),
        ("spark.kubernetes.executor.secretKeyRef.AWS_ACCESS_KEY_ID", "aws:id", False),
        ("spark.executor.memory", "4g", False),
        ("spark.executorEnv.HTTPS_PROXY", "http://proxy:3128", False),
        ("spark.ssl.keyStore", "/etc/key.jks", False),
        ("spark.sql.shuffle.partitions", "2", False),
        ("spark.kerberos.keytab", "/etc/k.keytab", False),
    ],
)
def test_what_looks_like_a_credential(name: str, value: str, *, expected: bool) -> None:
    """tests/cli/test_config.py has the names of secrets."""
    assert is_credential(name, value) is expected
    if expected:
        with pytest.raises(UsageError) as caught:
            SparkSettings(conf={name: value})
        assert value not in caught.value.message
