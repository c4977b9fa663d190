"""The runbook: every query is one that Prometheus reads, over metrics that we tell; every alert has its part."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from tests import pages
from tests.docs.readers import ROOT

PAGE = pages.read("runbook")
QUERIES = re.findall(r"^```promql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
RULES = yaml.safe_load((ROOT / "deploy" / "monitoring" / "rules.yaml").read_text(encoding="utf-8"))["spec"]
_METRIC = re.compile(r"\bmpijob[:_][a-z0-9_:]+")
_ENDINGS = re.compile(r"_(total|bucket|sum|count)$")


def told() -> set[str]:
    """Return the names of all metrics that the exporter tells, and of those that rules record."""
    folder = ROOT / "src" / "mpijob" / "client" / "integrations"
    sources = [folder / name for name in ("prometheus_exporter.py", "metric_sources.py")]
    names = {name for source in sources for name in re.findall(r'"(mpijob_\w+)"', source.read_text())}
    return names | {
        rule["record"] for group in RULES["groups"] for rule in group["rules"] if "record" in rule
    }


@pytest.mark.req("C-docs", "C-metrics")
@pytest.mark.parametrize("query", QUERIES)
def test_a_query_of_the_runbook_asks_for_metrics_that_there_are(query: str) -> None:
    asked = {name if ":" in name else _ENDINGS.sub("", name) for name in _METRIC.findall(query)}
    assert asked or "kube_resourcequota" in query  # kube-state-metrics tells that one
    assert asked <= told()


@pytest.mark.req("C-docs")
def test_prometheus_reads_every_query_of_the_runbook(tmp_path: Path) -> None:
    assert len(QUERIES) >= 10
    rules = [{"record": f"a:query:{at}", "expr": query} for at, query in enumerate(QUERIES)]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "runbook", "rules": rules}]}))
    done = subprocess.run(["promtool", "check", "rules", file], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"{len(QUERIES)} rules found" in done.stdout


@pytest.mark.req("C-docs")
def test_every_alert_has_its_part_in_the_runbook() -> None:
    alerts = {rule["alert"] for group in RULES["groups"] for rule in group["rules"] if "alert" in rule}
    assert set(re.findall(r"^### (\w+)$", PAGE, re.MULTILINE)) == alerts
