"""Kafka Connect writes what it reads exactly once, though its worker is killed."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from conformance.test_transactions import committed_values
from harness import kafka_jars
from harness.clusters import Cluster
from harness.nodes import free_port, wait_until
from headwater.blocking import Admin

_WORKER = "org.apache.kafka.connect.cli.ConnectDistributed"
_STRINGS = "org.apache.kafka.connect.storage.StringConverter"
_OPTIONS = ("-Xmx384M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LINES = 500

pytestmark = pytest.mark.timeout(900)

Run = Callable[[str, Path], "subprocess.Popen[bytes]"]


@pytest.fixture
def run(jars: Path, tmp_path: Path) -> Iterator[Run]:
    """Starts workers whose output goes to files, and ends them with the claim."""
    more = (kafka_jars.file_connector(kafka_jars.kafka_version()),)
    with ExitStack() as stack:

        def start(name: str, properties: Path) -> subprocess.Popen[bytes]:
            command = kafka_jars.java_command(
                jars, _WORKER, str(properties), options=_OPTIONS, more=more
            )
            output = stack.enter_context((tmp_path / f"{name}.out").open("wb"))
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        yield start


def test_connect_writes_each_line_of_a_file_once(
    cluster: Cluster, run: Run, tmp_path: Path
) -> None:
    """The worker is killed in the middle, with three nodes together with the leader of its topic,
    and another one goes on."""
    bootstrap, copies = cluster.bootstrap, len(cluster.nodes)
    with Admin(bootstrap) as admin:
        admin.create_topic("lines", partitions=1, replication=copies)
        leader = admin.describe_topic("lines").partitions[0].leader or 1
    rest = f"http://127.0.0.1:{free_port()}"
    properties = _worker_properties(tmp_path, bootstrap, rest, copies)
    source = tmp_path / "source.txt"
    lines: list[str] = []

    def append(count: int) -> None:
        new = [f"line {number}" for number in range(len(lines), len(lines) + count)]
        lines.extend(new)
        with source.open("a") as file:
            file.writelines(f"{line}\n" for line in new)

    def wrote(count: int) -> bool:
        # The connector holds back the whole lines in its buffer until the file grows again.
        append(1)
        return len(committed_values(bootstrap, "lines")) >= count

    append(_LINES)
    connector = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(source),
        "topic": "lines",
        "batch.size": "10",
        "transaction.boundary": "poll",
    }
    worker = run("worker", properties)
    wait_until(lambda: _put(f"{rest}/connectors/lines/config", connector), "a connector")
    wait_until(lambda: wrote(100), "the first lines")
    worker.kill()
    worker.wait()
    if copies > 1:
        cluster.kill(leader)
    append(_LINES)
    run("next-worker", properties)
    wait_until(lambda: wrote(2 * _LINES), "the lines of both workers")
    if copies > 1:
        cluster.restart(leader)
    found = committed_values(bootstrap, "lines")
    assert found == [line.encode() for line in lines[: len(found)]]


def _worker_properties(folder: Path, bootstrap: str, rest: str, copies: int) -> Path:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "workers",
        "key.converter": _STRINGS,
        "value.converter": _STRINGS,
        "exactly.once.source.support": "enabled",
        "listeners": rest,
        "session.timeout.ms": "10000",
        "scheduled.rebalance.max.delay.ms": "0",
    }
    for kind in ("offset", "config", "status"):
        settings[f"{kind}.storage.topic"] = f"connect-{kind}"
        settings[f"{kind}.storage.replication.factor"] = str(copies)
    path = folder / "worker.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


def _put(url: str, body: dict[str, str]) -> bool:
    """Returns whether the worker accepted it; one that is still starting refuses the connection."""
    request = urllib.request.Request(url, json.dumps(body).encode(), method="PUT")
    request.add_header("Content-Type", "application/json")
    with suppress(OSError), urllib.request.urlopen(request, timeout=60) as answer:
        return bool(answer.status < 300)
    return False
