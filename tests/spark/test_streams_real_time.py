"""Topologies of columns in Spark's real-time mode, through Spark's own Kafka connector."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.spark_jars import spark_jars
from headwater.blocking import Consumer, Producer
from headwater.cli.main import main
from headwater.model import TopicPartition

if TYPE_CHECKING:
    from headwater.testing import EmbeddedBroker

pytestmark = pytest.mark.timeout(900)

APP = """
from headwater.streams import App, f

handlers = {"on_deserialization_error": "continue", "on_processing_error": "continue"}
app = App("fast", latency="real-time", **handlers)
app.stream("spoken", str).map(f.upper("value"), to=str).to("loud")
words = app.stream("seen", str).flat_map(f.explode(f.split("value", " ")))
words.group_by("value").count().to("times")
"""
IN_PYTHON = """
from headwater.streams import App

app = App("slow", latency="real-time")
app.stream("spoken", str).map(lambda text: text.upper(), to=str, name="shout").to("loud")
"""


def until(app: subprocess.Popen[str], consumer: Consumer, topic: str, wanted: bytes) -> list[bytes]:
    """Returns the values of a topic up to one that must come while the app runs."""
    place = TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek_to_beginning(place)
    found: list[bytes] = []
    while wanted not in found:
        assert app.poll() is None, found
        found += [each.value or b"" for each in consumer.poll(timeout_ms=1000)]
    return found


def test_columns_run_in_real_time(shared_broker: EmbeddedBroker, tmp_path: Path) -> None:
    (tmp_path / "fast.py").write_text(APP)
    bootstrap = ["--bootstrap", shared_broker.bootstrap]
    for topic in ("spoken", "seen", "loud", "times"):
        assert main(["topic", "create", topic, "--partitions", "1", *bootstrap]) == 0
    command = [
        *(sys.executable, "-m", "headwater.cli.main", "streams", "run", str(tmp_path / "fast.py")),
        *("--master", "local[3]", "--checkpoints", str(tmp_path / "progress")),
        *("--conf", f"spark.jars={','.join(map(str, spark_jars()))}"),
        *("--conf", "spark.sql.shuffle.partitions=1", *bootstrap),
    ]
    with (
        Producer(shared_broker.bootstrap) as producer,
        Consumer(shared_broker.bootstrap) as consumer,
    ):
        for word in ("to", "be", "to"):
            producer.send("spoken", word)
            producer.send("seen", word)
        producer.flush()
        app = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            assert until(app, consumer, "loud", b"BE")[:2] == [b"TO", b"BE"]
            # It is running now, in a batch that has not ended.
            producer.send("spoken", "not")
            producer.send("seen", "to")
            producer.flush()
            assert until(app, consumer, "loud", b"NOT") == [b"TO", b"BE", b"TO", b"NOT"]
            # Each change of a count, at least once.
            assert list(dict.fromkeys(until(app, consumer, "times", b"3"))) == [b"1", b"2", b"3"]
            assert main(["streams", "stop", "fast", *bootstrap]) == 0
            out, error = app.communicate(timeout=120)
        finally:
            app.kill()
    assert app.returncode == 0, out + error
    assert "fast: stopped after" in out


def test_what_cannot_run_in_real_time_is_refused_with_the_reason(
    shared_broker: EmbeddedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "slow.py").write_text(IN_PYTHON)
    command = ["streams", "run", str(tmp_path / "slow.py")]
    assert main([*command, "--bootstrap", shared_broker.bootstrap]) == 2
    said = capsys.readouterr().err
    assert 'slow.py, line 5: shout: latency="real-time" is not possible' in said
    assert "is a Python function, which Spark does not support there" in said
    assert "use columns (f.…) instead, or leave out latency=" in said
