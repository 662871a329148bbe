"""`headwater streams` where no Spark is needed: list, describe, stop, reset, replay."""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater.blocking import Admin, Consumer, Producer, TopicPartition
from headwater.cli.connection import Cluster
from headwater.cli.main import main
from headwater.cli.pipeline_registry import Registry, machine
from headwater.spark.pipeline_status import (
    STOP_KEY,
    STOPPED,
    STREAMS,
    TOPIC,
    TOPIC_CONFIGS,
    Status,
)
from headwater.streams.fingerprint import FILE
from headwater.testing import EmbeddedBroker

Run = Callable[..., str]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with EmbeddedBroker() as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=1, configs=TOPIC_CONFIGS)
        yield Cluster(broker.bootstrap, {})


@pytest.fixture
def out(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command, and returns what it says."""

    def run(*words: str, code: int = 0) -> str:
        command = ["streams", *words]
        if words[0] != "describe" or not words[1].endswith(".py"):
            command += ["--bootstrap", cluster.bootstrap]
        found = main(command)
        said = capsys.readouterr()
        assert found == code, said.err
        return said.out if code == 0 else said.err

    return run


def app(name: str, **fields: object) -> Status:
    given: dict[str, object] = {
        "host": "here",
        "machine": machine(),
        "pid": os.getpid(),
        "file": "/apps/shop.py",
        "reads": ("orders",),
        "writes": "revenue",
        "dead_letters": f"{name}.dead-letters",
        "queries": ({"name": "revenue", "lag": 3, "late_rows": 2, "watermark": "10:00"},),
    }
    return Status(name=name, kind=STREAMS, run=uuid.uuid4().hex, **(given | fields))  # type: ignore[arg-type]


def test_an_app_is_listed_and_described_and_is_no_pipeline(
    cluster: Cluster, out: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    with Registry(cluster) as registry:
        registry.claim(app("listed", lag=3, late_rows=2))
        assert "listed" in out("list")
        described = out("describe", "listed")
        assert "orders" in described
        assert described.splitlines()[-1].split() == [
            "revenue", "-", "3", "-", "-", "-", "-", "-", "2", "10:00",
        ]  # fmt: skip
        assert main(["pipeline", "list", "--bootstrap", cluster.bootstrap]) == 0
        assert "listed" not in capsys.readouterr().out
    assert "there is no app nobody" in out("describe", "nobody", code=1)


def test_the_plan_of_a_file_needs_neither_a_cluster_nor_spark(tmp_path: Path, out: Run) -> None:
    file = tmp_path / "shop.py"
    file.write_text(
        "from headwater.streams import App\n"
        'app = App("shop")\n'
        'app.stream("lines", str).group_by("value").count(name="counts")\n'
    )
    assert "counts      [state] aggregate count(lit(1))" in out("describe", str(file)).replace(
        "counts                 ", "counts      "
    )
    plan = json.loads(out("describe", str(file), "--output", "json"))
    assert plan["queries"][0]["writes"] == ["shop-counts-changelog"]
    file.write_text(
        "from headwater.streams import App\n"
        'app = App("shop")\n'
        'app.stream("lines", str).group_by("word").count(name="counts")\n'
    )
    assert f"{file}, line 3: group_by: there is no column 'word'" in out(
        "describe", str(file), code=2
    )
    file.write_text("x = 1\n")
    assert f"{file} has no app" in out("describe", str(file), code=2)


def test_a_missing_topic_is_found_before_spark_starts(
    cluster: Cluster, tmp_path: Path, out: Run
) -> None:
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic("visits")
    file = tmp_path / "shop.py"
    text = (
        "from headwater.streams import App\n"
        'app = App("missing")\n'
        'visits = app.stream("visits", str)\n'
    )
    file.write_text(f'{text}visits.merge(app.stream("nowhere", str)).to("copy")\n')
    said = "reads topic nowhere, which does not exist\n  `headwater topic create nowhere`"
    assert said in out("run", str(file), code=1)
    file.write_text(f'{text}visits.join(app.global_table("nowhere", str), on="value").to("copy")\n')
    assert said in out("run", str(file), code=1)
    with Admin(cluster.bootstrap) as admin:
        assert not [each.name for each in admin.list_topics() if each.name.startswith("missing")]


def test_files_with_dataclasses_are_planned(tmp_path: Path, out: Run) -> None:
    root = Path(__file__).parents[2]
    for name in ("shop", "words", "baskets"):
        assert f"app {name}: " in out("describe", str(root / f"examples/streams/{name}.py"))
    demo = root / "src/headwater/cli/demo_streams/shop.py"
    assert "[state] inner join by id" in out("describe", str(demo))
    file = tmp_path / "orders.py"  # and without `from __future__ import annotations`
    file.write_text(
        "from dataclasses import dataclass\n"
        "from headwater.streams import App\n"
        "@dataclass\n"
        "class Order:\n"
        "    total: float\n"
        'app = App("orders")\n'
        'app.stream("orders", Order).filter(lambda order: order.total > 1).to("large")\n'
    )
    assert "topic large" in out("describe", str(file))


def test_reset_deletes_checkpoints_and_internal_topics(
    cluster: Cluster, out: Run, tmp_path: Path
) -> None:
    for query in ("revenue", "counts"):
        (tmp_path / "resettable" / query / "commits").mkdir(parents=True)
        (tmp_path / "resettable" / query / "commits" / "0").write_text("v1")
        (tmp_path / "resettable" / query / FILE).write_text("{}")
    (tmp_path / "resettable" / "photos").mkdir()
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic("resettable-counts-changelog")
        with Registry(cluster) as registry:
            status = app(
                "resettable",
                checkpoint=str(tmp_path / "resettable"),
                topics=("resettable-counts-changelog",),
            )
            registry.claim(status)
            refused = out("reset", "resettable", "--yes", code=1)
            assert "app resettable is already running" in refused
            assert "`headwater streams stop resettable`" in refused
            registry.write(_stopped(status))
        shown = out("reset", "resettable", "--query", "revenue")
        assert "revenue: 1 finished batch in" in shown
        assert "nothing has changed yet" in shown
        assert "no checkpoint of it" in out("reset", "resettable", "--query", "photos", code=1)
        out("reset", "resettable", "--query", "revenue", "--yes")
        left = sorted(each.name for each in (tmp_path / "resettable").iterdir() if each.is_dir())
        assert left == ["counts", "photos"]
        out("reset", "resettable", "--yes")
        assert not (tmp_path / "resettable" / "counts").exists()
        assert (tmp_path / "resettable" / "photos").exists()
        assert "resettable-counts-changelog" not in {each.name for each in admin.list_topics()}


def _stopped(status: Status) -> Status:
    return replace(status, state=STOPPED)


def test_stop_asks_the_run_wherever_it_is(cluster: Cluster, out: Run) -> None:
    from headwater.cli.streams_run import _StopRequests

    with Registry(cluster) as registry:
        status = app("stoppable", host="elsewhere", machine="another one")
        registry.claim(status)
        ended = threading.Event()
        with _StopRequests(cluster, status) as stops:

            def serve() -> None:
                while not stops.is_requested():
                    ended.wait(0.05)
                registry.write(_stopped(status))

            thread = threading.Thread(target=serve)
            thread.start()
            assert out("stop", "stoppable") == "app stoppable: stopped\n"
            thread.join()
    assert "is not running: it is stopped" in out("stop", "stoppable", code=1)
    assert STOP_KEY not in out("list")


def test_dead_letters_are_replayed_once_as_the_records_that_they_were(
    cluster: Cluster, out: Run
) -> None:
    with Admin(cluster.bootstrap) as admin:
        for topic in ("lines", "replayed.dead-letters"):
            admin.create_topic(topic)
    with Producer(cluster.bootstrap) as producer:
        for number in range(3):
            headers = {
                "trace": b"1",
                "headwater.topic": b"lines",
                "headwater.reason": b"operator shout: ValueError: too loud",
            }
            producer.send(
                "replayed.dead-letters", f"boom {number}", key="k", headers=headers, timestamp=1000
            )
        producer.send("replayed.dead-letters", "of several", headers={"headwater.reason": b"?"})
    with Registry(cluster) as registry:
        registry.claim(app("replayed"))
    shown = out("replay-dead-letters", "replayed")
    assert "too loud" in shown
    assert "nothing was sent yet" in shown
    assert "replayed 2 dead letters" in out(
        "replay-dead-letters", "replayed", "--max", "2", "--yes"
    )
    last = out("replay-dead-letters", "replayed", "--yes")
    assert "replayed 1 dead letter\n" in last
    assert "left out 1 letter" in last
    assert "no dead letters that were not replayed" in out("replay-dead-letters", "replayed")
    partition = TopicPartition("lines", 0)
    with Consumer(cluster.bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        records: list[Any] = []
        while len(records) < 3:
            records += consumer.poll(timeout_ms=1000)
    assert [(each.key, each.value, each.timestamp) for each in records] == [
        (b"k", f"boom {number}".encode(), 1000) for number in range(3)
    ]
    assert [dict(each.headers) for each in records] == [{"trace": b"1"}] * 3
