"""Prometheus itself scrapes a node, and takes its alerts and the queries of its dashboard.

Debian's package is fetched and unpacked, not installed.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from harness.kafka_jars import cache_folder
from harness.nodes import free_port
from headwater.blocking import Producer
from headwater.testing import EmbeddedBroker

EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "monitoring"
_PATIENCE = 60.0
_NAMES_OF_KAFKA = re.compile(
    "label names should be written in|non-histogram and non-summary|"
    r"^kafka_\w+ metric names should not contain abbreviated units"
)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of `prometheus` and `promtool`."""
    folder = cache_folder() / "prometheus"
    programs = folder / "usr" / "bin"
    if not (programs / "promtool").exists():
        if shutil.which("apt-get") is None:
            pytest.skip("Prometheus comes from Debian, and there is no apt-get")
        download = tmp_path_factory.mktemp("deb")
        done = subprocess.run(["apt-get", "download", "prometheus"], cwd=download, check=False)
        found = list(download.glob("prometheus_*.deb"))
        if done.returncode or not found:
            pytest.skip("apt-get cannot download the package prometheus")
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["dpkg", "-x", str(found[0]), str(folder)], check=True)
    return programs


@pytest.fixture(scope="module")
def at() -> Iterator[str]:
    with EmbeddedBroker({"headwater.metrics.listen": "127.0.0.1:0"}, topics={"t": 3}) as broker:
        with Producer(broker.bootstrap) as producer:
            for _ in range(100):
                producer.send("t", value=b"x")
        assert broker.metrics_address is not None
        yield broker.metrics_address


def test_promtool_takes_all_metrics_and_minds_only_names_of_kafka(programs: Path, at: str) -> None:
    with urllib.request.urlopen(f"http://{at}/metrics") as response:
        text = response.read()
    command = [str(programs / "promtool"), "check", "metrics"]
    done = subprocess.run(command, input=text, capture_output=True, check=False)
    complaints = (done.stdout + done.stderr).decode().strip().splitlines()
    assert not [line for line in complaints if not _NAMES_OF_KAFKA.search(line)]


def test_promtool_takes_the_alerts(programs: Path) -> None:
    command = [str(programs / "promtool"), "check", "rules", str(EXAMPLES / "alerts.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_scrapes_evaluates_alerts_and_answers_the_dashboard(
    programs: Path, at: str, tmp_path: Path
) -> None:
    config = (EXAMPLES / "prometheus.yml").read_text()
    config = re.sub(r"( +- )127\.0\.0\.1:9404\n(?: +- 127.*\n)*", rf"\g<1>{at}\n", config)
    config = config.replace(
        "scrape_interval: 15s", "scrape_interval: 1s\n  evaluation_interval: 1s"
    )
    (tmp_path / "prometheus.yml").write_text(config)
    shutil.copy(EXAMPLES / "alerts.yml", tmp_path)
    port = free_port()
    process = subprocess.Popen(
        [
            programs / "prometheus",
            f"--config.file={tmp_path}/prometheus.yml",
            f"--storage.tsdb.path={tmp_path}/data",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stderr=subprocess.DEVNULL,
    )

    def ask(path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}") as response:
            return json.load(response)["data"]

    def samples() -> list[Any]:
        return list(
            ask("query?query=" + quote("count_over_time(headwater_info[1m]) > 2"))["result"]
        )

    try:
        until(samples, "three scrapes")
        (target,) = ask("targets")["activeTargets"]
        assert (target["health"], target["lastError"]) == ("up", "")
        until(lambda: all(rule["health"] == "ok" for rule in _rules(ask)), "the alerts")
        assert not [rule["name"] for rule in _rules(ask) if rule["state"] == "firing"]
        for panel in json.loads((EXAMPLES / "dashboard.json").read_text())["panels"]:
            for each in panel.get("targets", ()):
                query = each["expr"].replace("$__rate_interval", "1m").replace("$job", ".*")
                ask("query?query=" + quote(query.replace("$instance", ".*")))  # raises if refused
    finally:
        process.terminate()
        process.wait(_PATIENCE)


def _rules(ask: Callable[[str], Any]) -> list[Any]:
    return [rule for group in ask("rules")["groups"] for rule in group["rules"]]


def until(look: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            if look():
                return
        except OSError:
            pass  # it has not begun to listen
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.2)
