"""Topologies of columns in Spark's real-time mode, through Spark's own Kafka connector."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.spark_jars import spark_jars
from headwater.blocking import Consumer, Producer
from headwater.cli.main import main
from tests.support.programs import running

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
        with running(command, tmp_path) as app:

            def values(topic: str, last: bytes) -> list[bytes]:
                return app.values(consumer, topic, lambda found: last in found)

            assert values("loud", b"BE")[:2] == [b"TO", b"BE"]
            # It is running now, in a batch that has not ended.
            producer.send("spoken", "not")
            producer.send("seen", "to")
            producer.flush()
            assert values("loud", b"NOT") == [b"TO", b"BE", b"TO", b"NOT"]
            # Each change of a count, at least once.
            assert list(dict.fromkeys(values("times", b"3"))) == [b"1", b"2", b"3"]
            assert main(["streams", "stop", "fast", *bootstrap]) == 0
            assert "fast: stopped after" in app.end()


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
