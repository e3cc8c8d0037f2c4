"""A URI with credentials is refused by every option, and no message, log or output has the credentials."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl import commands
from tierctl.errors import UsageError

from tests.cli.shell import environment, tierctl

SECRET = "wJalrXUtnFEMI"
URIS = (
    f"s3://AKIAEXAMPLE:{SECRET}@bucket/tier",
    f"s3://AKIAEXAMPLE:{SECRET}/with/slashes@bucket/tier",
    f"s3://{SECRET}@bucket/tier",
    f"kafka://user:{SECRET}@broker:9092",
    f"abfs://container@account/folder?sv=2024&sig={SECRET}",
    f"abfs://container:{SECRET}@account/folder",
    f"s3://bucket/tier?X-Amz-Signature={SECRET}",
    f"https://user:{SECRET}@host/x",
)
PLACES: dict[str, tuple[str, ...]] = {
    "metadata": ("segments", "--metadata", "{uri}"),
    "remote": ("verify", "--metadata", "/m", "--remote", "{uri}"),
    "source tier": ("copy", "--metadata", "/m", "--remote", "/t", "--from-remote", "{uri}"),
    "target metadata": ("copy", "--metadata", "/m", "--remote", "/t", "--to-metadata", "{uri}"),
    "log directory": ("verify", "--metadata", "/m", "--log-dir", "{uri}"),
    "state directory": ("status", "--metadata", "/m", "--state-dir", "{uri}"),
    "servers": ("status", "--bootstrap-server", "{uri}"),
    "warehouse": ("pipeline", "run", "--metadata", "/m", "--warehouse", "{uri}"),
    "config show": ("config", "show", "status", "--metadata", "{uri}"),
    "schedule": ("schedule", "--cron", "--no-check", "status", "--metadata", "{uri}"),
    "submit": ("submit", "--print", "verify", "--metadata", "/m", "--remote", "{uri}"),
    "Spark": ("verify", "--metadata", "/m", "--engine", "spark", "--spark-conf", "spark.x={uri}"),
    "file": ("format", "{uri}"),
    "plan": ("apply", "{uri}"),
    "no command": ("{uri}",),
    "no option": ("verify", "--remot={uri}"),
    "too many": ("verify", "{uri}"),
}


@pytest.mark.parametrize(
    ("place", "uri"), [*((place, URIS[0]) for place in PLACES), *(("remote", uri) for uri in URIS[1:])]
)
def test_credentials_are_refused_and_never_printed(place: str, uri: str, tmp_path: Path) -> None:
    log = tmp_path / "t.log"
    for more in (("--output", "json"), ()):
        ran = tierctl(
            *(word.format(uri=uri) for word in PLACES[place]), *more, "--log-file", log, cwd=tmp_path
        )
        assert ran.code == 2
        assert SECRET not in ran.out + ran.err + (log.read_text() if log.exists() else "")


@pytest.mark.parametrize("uri", URIS[:1])
def test_credentials_in_the_environment_and_a_profile_are_refused(uri: str, tmp_path: Path) -> None:
    file = tmp_path / "profiles.toml"
    file.write_text(f'[profiles.default]\nremote = "{uri}"\n')
    file.chmod(0o600)
    for args, more in ((("--config-file", file), {}), ((), {"TIERCTL_REMOTE": uri})):
        for command in (("verify", "--metadata", "/m"), ("doctor",)):
            ran = tierctl(*command, *args, env=environment(**more), cwd=tmp_path)
            # doctor goes on after a wrong line of tierctl.toml, and reports it.
            code = 3 if command == ("doctor",) and args else 2
            assert (ran.code, SECRET in ran.out + ran.err) == (code, False), command


@pytest.mark.parametrize(("uri", "field"), [(URIS[0], "metadata"), (URIS[4], "remote")])
def test_requests_refuse_credentials(uri: str, field: str, capture: Callable[[str], Path]) -> None:
    places = {"metadata": str(capture("tiered-cluster") / "before"), "remote": "/t"}
    request = commands.SweepRequest(**(places | {field: uri}))
    with pytest.raises(UsageError) as refused:
        commands.sweep(request)
    assert SECRET not in f"{refused.value} {refused.value.hint}"


@pytest.mark.parametrize(
    "uri", ["s3://bucket/folder@2024", "hdfs://nn:8020/a@b", "abfs://container@account/folder", "/a@b:c"]
)
def test_other_uris_are_accepted(uri: str, capture: Callable[[str], Path]) -> None:
    where = ("--metadata", capture("tiered-cluster") / "before", "--remote", uri)
    ran = tierctl("schedule", "--cron", "--no-check", "verify", *where)
    assert (ran.code, uri in ran.out) == (0, True)
