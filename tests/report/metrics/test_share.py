"""The alert rules and the dashboard use metrics that tierctl writes, and Prometheus accepts them."""

import json
import re
import shutil
from pathlib import Path

import pytest
import tierctl
from tierctl.report.prometheus import FAMILIES

from tests.support.promtool import run_promtool

SHARE = Path(tierctl.__file__).parent / "share"
ALERTS = SHARE / "prometheus" / "tierctl-alerts.yml"
DASHBOARD = SHARE / "grafana" / "tierctl-dashboard.json"
METRIC = re.compile(r"\b(?:tierctl|kafka_server)_[a-z_]+\b")


def expressions() -> list[str]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


@pytest.mark.matrix
def test_the_alerts_fire_when_they_should(tmp_path: Path) -> None:
    shutil.copy(ALERTS, tmp_path)
    tests = Path(__file__).with_name("alerts_test.yml").read_text().replace("ALERTS]", f"{ALERTS.name}]")
    (tmp_path / "test.yml").write_text(tests)
    assert "SUCCESS" in run_promtool("test", "rules", str(tmp_path / "test.yml"))


def test_every_alert_has_a_test() -> None:
    names = re.findall(r"alert: (\w+)", ALERTS.read_text())
    tested = Path(__file__).with_name("alerts_test.yml").read_text()
    assert len(names) == 10
    assert [name for name in names if f'alertname="{name}"' not in tested] == []


@pytest.mark.matrix
def test_prometheus_can_parse_the_dashboard(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": text.replace("$instance", ".*").replace("$topic", ".*")}
        for number, text in enumerate(expressions())
    ]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(rules)} rules found" in run_promtool("check", "rules", str(file))


def test_they_ask_for_metrics_that_are_written() -> None:
    asked = set(METRIC.findall("\n".join([ALERTS.read_text(), *expressions()])))
    assert asked - FAMILIES.keys() == set()
    titles = [panel["title"] for panel in json.loads(DASHBOARD.read_text())["panels"]]
    assert len(titles) == len(set(titles))
