"""The command that a run suggests in its last line: it has the places of the run, so it runs as printed."""

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.errors import ExitCode

from tests.cli.shell import Ran, environment, tierctl

Capture = Callable[[str], Path]
WHERE = "--metadata {root}/before --remote {root}/before-remote"
LOGS = "--log-dir {root}/before"


def following(ran: Ran) -> list[str]:
    """Return the words of the suggested command; none if the run suggests no command."""
    return shlex.split(ran.summary.partition("; next: ")[2])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"verify {WHERE} {LOGS}", f"verify --deep {WHERE} {LOGS}"),
        (f"status {WHERE} --log-dir {{root}}/after", f"verify {WHERE} --log-dir {{root}}/after"),
        (
            f"report --output json {WHERE} --log-dir {{root}}/after",
            f"verify {WHERE} --log-dir {{root}}/after",
        ),
        (
            f"verify {WHERE} --log-dir {{root}}/after --layout kafka",
            f"delete --mark --topic-id {{deleted}} {WHERE} --layout kafka --log-dir {{root}}/after",
        ),
        (
            f"sweep {WHERE} --log-start-offset orders-0=1800 --topic orders --plan-out '{{tmp}}/a plan'",
            f"apply '{{tmp}}/a plan' {WHERE}",
        ),
        (
            f"--profile p --config-file {{tmp}}/t.toml verify {LOGS}",
            f"verify --deep {LOGS} --profile p --config-file {{tmp}}/t.toml",
        ),
        (
            f"verify --profile p --config-file {{tmp}}/t.toml {LOGS}",
            f"verify --deep {LOGS} --profile p --config-file {{tmp}}/t.toml",
        ),
        (
            "config show --broker-config {tmp}/server.properties",
            "doctor --broker-config {tmp}/server.properties",
        ),
    ],
)
def test_it_runs_as_it_is_printed(line: str, expected: str, capture: Capture, tmp_path: Path) -> None:
    root = capture("tiered-cluster")
    (tmp_path / "t.toml").write_text(
        f"[profiles.p]\nmetadata = '{root}/before'\nremote = '{root}/before-remote'\n"
    )
    (tmp_path / "server.properties").write_text("log.cleanup.policy=delete\n")
    deleted = "u6uHqOrgTh-HLODx2Wo0EA"
    names = {"root": root, "tmp": tmp_path, "deleted": deleted}
    ran = tierctl(*shlex.split(line.format(**names)))
    assert following(ran) == shlex.split(f"tierctl {expected.format(**names)}"), ran.err
    again = tierctl(*following(ran)[1:], cwd=tmp_path)
    assert again.code in {ExitCode.OK, ExitCode.PARTIAL, ExitCode.REFUSED}, again.err


def test_values_of_the_environment_are_not_repeated(capture: Capture) -> None:
    root = capture("tiered-cluster")
    given = environment(TIERCTL_METADATA=str(root / "before"), TIERCTL_REMOTE=str(root / "before-remote"))
    ran = tierctl("verify", env=given)
    assert following(ran) == ["tierctl", "verify", "--deep"]
    assert tierctl(*following(ran)[1:], env=given).code == 0


def test_a_copy_to_another_tier_is_verified_there(capture: Capture, tmp_path: Path) -> None:
    root = capture("tiered-cluster")
    (tmp_path / "metadata").mkdir()
    source = ("--metadata", root / "before", "--from-remote", root / "before-remote", "--topic", "orders")
    target = ("--to-metadata", tmp_path / "metadata", "--remote", tmp_path / "tier")
    ran = tierctl("copy", *source, *target, "--apply")
    assert ran.code == 0, ran.err
    words = ["tierctl", "verify", *map(str, ("--metadata", tmp_path / "metadata", *target[2:]))]
    assert following(ran) == words
    assert tierctl(*words[1:]).code == 0


def test_a_plan_that_would_be_refused_is_not_suggested(capture: Capture, tmp_path: Path) -> None:
    root, configs = capture("tiered-cluster"), tmp_path / "topics.properties"
    configs.write_text("orders.retention.ms=1\n")
    where = WHERE.format(root=root).split()
    ran = tierctl("sweep", *where, "--topic", "orders", "--topic-configs", configs, "--now", "+1d")
    assert "note: --apply would refuse this: the plan is decided as of" in ran.err
    assert ": a plan, nothing changed: 1" in ran.summary
    assert following(ran) == []
