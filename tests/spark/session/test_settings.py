"""--engine, --master and --spark-conf: wrong values are refused before Spark is started."""

from pathlib import Path

import pytest
from tierctl.errors import UsageError
from tierctl.spark.session.jvm import SparkSettings, is_credential

from tests.cli.shell import environment, tierctl

SPARK = ("--engine", "spark")


@pytest.mark.parametrize(
    ("args", "message", "hint"),
    [
        (("--master", "local[2]"), "--master needs --engine spark", "leave --master out"),
        (("--spark-conf", "spark.x=1"), "--spark-conf needs --engine spark", "leave --spark-conf out"),
        ((*SPARK, "--spark-conf", "spark.executor.memory"), "expected spark.KEY=VALUE", "memory=4g"),
        ((*SPARK, "--spark-conf", "executor.memory=1g"), "expected spark.KEY=VALUE", "memory=4g"),
        ((*SPARK, "--master", "mesos://x"), "'mesos://x': no master of Spark", "spark://host:port"),
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
        (
            (*SPARK, "--spark-conf", "spark.hadoop.fs.s3a.secret.key=x"),
            "must not contain credentials",
            "instance role",
        ),
    ],
)
@pytest.mark.parametrize("command", ["segments", "sweep"])
def test_usage_errors(command: str, args: tuple[str, ...], message: str, hint: str, tmp_path: Path) -> None:
    ran = tierctl(command, "--metadata", tmp_path, "--remote", tmp_path, *args)
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
        ("spark.hadoop.fs.s3a.access.key", "AKIA", True),
        ("spark.hadoop.fs.s3a.secret.key", "0pen-sesame", True),
        ("spark.hadoop.fs.s3a.bucket.b.session.token", "0pen-sesame", True),
        ("spark.hadoop.fs.azure.account.key.acct.dfs.core.windows.net", "0pen-sesame", True),
        ("spark.hadoop.fs.azure.sas.fixed.token.c", "0pen-sesame", True),
        ("spark.authenticate.secret", "0pen-sesame", True),
        ("spark.ssl.keyPassword", "0pen-sesame", True),
        ("spark.ssl.trustStorePassword", "0pen-sesame", True),
        ("spark.executorEnv.AWS_SECRET_ACCESS_KEY", "0pen-sesame", True),
        ("spark.executorEnv.AWS_ACCESS_KEY_ID", "0pen-sesame", True),
        ("spark.yarn.appMasterEnv.AWS_SESSION_TOKEN", "0pen-sesame", True),
        ("spark.kubernetes.authenticate.driver.oauthToken", "0pen-sesame", True),
        ("spark.hadoop.google.cloud.auth.service.account.private.key.id", "0pen-sesame", True),
        ("spark.executor.extraJavaOptions", "-Djavax.net.ssl.trustStorePassword=x", True),
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
    assert is_credential(name, value) is expected
    if expected:
        with pytest.raises(UsageError) as caught:
            SparkSettings(conf={name: value})
        assert value not in caught.value.message
