"""The monitoring page, the dashboard and the alerts speak of metrics that a node serves."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_node_metrics import get, metrics_of
from tests.support.dashboards import CONFLUENT, STRIMZI
from tests.support.processes import NodeProcess
from tools.metrics_page import families, table

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "monitoring.md"
EXAMPLES = ROOT / "examples" / "monitoring"

_NAME = re.compile(r"\b(?:kafka|headwater|process)_\w+")
_SUFFIX = re.compile(r"_(bucket|sum|count)$")


@pytest.fixture(scope="module")
def served() -> set[str]:
    return set(families())


def test_the_page_lists_what_a_node_serves() -> None:
    """`python tools/metrics_page.py` prints the table."""
    listed = PAGE.read_text().partition("## All metrics\n\n")[2]
    assert listed == table()


def unknown(text: str, served: set[str]) -> set[str]:
    return {
        name
        for name in _NAME.findall(text)
        if name not in served and _SUFFIX.sub("", name) not in served
    }


def test_the_page_names_only_what_there_is(served: set[str]) -> None:
    text = PAGE.read_text().replace("kafka_exporter", "")
    named = {name for name in unknown(text, served) if not name.endswith("_")}
    assert named == stays_empty()


def stays_empty() -> set[str]:
    """The names in the page's table of panels that stay empty."""
    _, found, text = PAGE.read_text().partition("These panels stay empty:\n\n")
    assert found
    rows = text.partition("\n\n")[0].splitlines()[2:]
    return {name for row in rows for name in _NAME.findall(row.split(" | ")[0])}


@pytest.mark.parametrize(
    ("path", "asked"), [("/metrics", STRIMZI), ("/metrics?names=confluent", CONFLUENT)]
)
def test_dashboards_of_others_find_what_they_ask_for_or_the_page_says_why_not(
    path: str, asked: list[str]
) -> None:
    found = set(families(path))
    missing = {name for name in asked if name not in found}
    assert missing <= stays_empty()
    assert not found & stays_empty()


def test_no_panel_is_said_to_stay_empty_that_nobody_has() -> None:
    assert stays_empty() <= {*STRIMZI, *CONFLUENT}


def test_each_panel_of_the_dashboard_shows_something_that_is_served(served: set[str]) -> None:
    dashboard: dict[str, Any] = json.loads((EXAMPLES / "dashboard.json").read_text())
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert len(panels) > 20
    for panel in panels:
        for target in panel["targets"]:
            expression = target["expr"]
            assert _NAME.findall(expression), expression
            assert not unknown(expression, served), expression
            assert expression.count("(") == expression.count(")"), expression
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_each_alert_watches_something_that_is_served(served: set[str]) -> None:
    text = (EXAMPLES / "alerts.yml").read_text()
    expressions = re.findall(r"^ +expr: (.*)$", text, re.MULTILINE)
    assert len(expressions) == text.count("- alert: ") > 10
    for expression in expressions:
        assert expression.startswith("up{") or _NAME.findall(expression), expression
        assert not unknown(expression, served), expression


def test_the_commands_of_the_page_do_what_it_says(tmp_path: Path) -> None:
    commands = re.findall(r"^curl -s (\S+)$", PAGE.read_text(), re.MULTILINE)
    assert len(commands) == 3
    (export,) = re.findall(r"^headwater start (--set \S+)$", PAGE.read_text(), re.MULTILINE)
    with NodeProcess(tmp_path, *export.split(), "--metrics", "127.0.0.1:0") as node:
        assert node.ready_line is not None
        (at,) = metrics_of(node.ready_line)
        for url in commands:
            status, _, text = get(at, "/" + url.rpartition("/")[2])
            assert status == 200
            assert text


def test_prometheus_scrapes_the_ports_that_the_cluster_gets() -> None:
    text = (EXAMPLES / "prometheus.yml").read_text()
    ports = [int(port) for port in re.findall(r"- 127\.0\.0\.1:(\d+)", text)]
    assert ports == [9404, 9405, 9406]
    assert "alerts.yml" in text
    assert "headwater start --nodes 3 --metrics 127.0.0.1:9404" in text
