"""`headwater streams serve`: tables by HTTP, as any program reads them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from headwater.blocking import Admin, Producer
from headwater.cli.connection import Cluster
from headwater.cli.main import main
from headwater.cli.pipeline_registry import Registry, machine
from headwater.spark.pipeline_status import STREAMS, TOPIC, TOPIC_CONFIGS, Status
from headwater.testing import EmbeddedBroker

TABLE = "shop-totals-changelog"
KEYS = ("cake", "coffee", "milk", "tea")
Get = Callable[..., Any]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=1, configs=TOPIC_CONFIGS)
            admin.create_topic(TABLE, partitions=2, configs={"cleanup.policy": "compact"})
            admin.create_topic("shop-odd-changelog", partitions=1)
        with Registry(Cluster(broker.bootstrap, {})) as registry:
            registry.claim(
                Status(
                    name="shop",
                    kind=STREAMS,
                    run=uuid.uuid4().hex,
                    host="here",
                    machine=machine(),
                    pid=os.getpid(),
                    topics=(TABLE, "shop-odd-changelog", "shop-join-1-repartition"),
                )
            )
        with Producer(broker.bootstrap) as producer:
            for number, key in enumerate(KEYS):
                producer.submit(TABLE, json.dumps({"total": number}), key=key)
            producer.submit(TABLE, json.dumps({"total": 9}), key="gone/away")
            producer.submit("shop-odd-changelog", b"\xff\xfe", key=b"\x00\x00\x00\x07")
            producer.submit("shop-odd-changelog", "plain", key="a b")
        yield broker


@pytest.fixture(scope="module")
def get(broker: EmbeddedBroker) -> Iterator[Get]:
    command = [sys.executable, "-P", "-m", "headwater.cli.main", "streams", "serve", "shop"]
    command += ["--bootstrap", broker.bootstrap, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = process.stdout.readline().split()
        assert ready[0] == "ready:"
        base = ready[1].removesuffix("/tables")

        def read(path: str, code: int = 200) -> Any:
            try:
                answer = urlopen(base + path, timeout=60)
            except HTTPError as error:
                answer = error
            with answer:
                found = json.loads(answer.read())
            assert answer.status == code, found
            return found

        yield read
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_the_tables_are_listed(get: Get) -> None:
    tables = {each["table"]: each for each in get("/tables")["tables"]}
    assert set(tables) == {"totals", "odd"}
    assert tables["totals"]["topic"] == TABLE
    assert tables["totals"]["keys"] == len(KEYS) + 1
    assert sum(tables["totals"]["positions"].values()) == len(KEYS) + 1


def test_a_key_and_a_missing_one(get: Get) -> None:
    found = get("/tables/totals/tea")
    assert (found["key"], found["value"]) == ("tea", {"total": 3})
    assert {"timestamp", "partition", "offset"} < set(found)
    assert get("/tables/totals/gone%2Faway")["value"] == {"total": 9}
    assert "has no key wine" in get("/tables/totals/wine", 404)["error"]
    assert "there is no table sums; there is totals, odd" in get("/tables/sums", 404)["error"]


def test_ranges_are_in_the_order_of_keys(get: Get) -> None:
    def keys(query: str) -> list[str]:
        return [each["key"] for each in get(f"/tables/totals?{query}")["rows"]]

    assert keys("from=coffee&to=milk") == ["coffee", "gone/away", "milk"]
    assert keys("prefix=c") == ["cake", "coffee"]
    assert keys("limit=2&reverse=true") == ["tea", "milk"]
    assert keys("limit=0") == []
    assert "unknown form=" in get("/tables/totals?form=a", 400)["error"]
    assert "expected 0 to" in get("/tables/totals?limit=-1", 400)["error"]
    assert "give prefix=, or" in get("/tables/totals?prefix=a&to=b", 400)["error"]
    assert "expected true or false" in get("/tables/totals/tea?fresh=now", 400)["error"]


def test_bytes_that_are_no_text_are_hexadecimal(get: Get) -> None:
    rows = {each["key"]: each["value"] for each in get("/tables/odd")["rows"]}
    assert rows == {"0x00000007": "0xfffe", "a b": "plain"}
    assert get("/tables/odd/0x00000007")["value"] == "0xfffe"
    assert get("/tables/odd/a%20b")["value"] == "plain"


def test_what_was_committed_before_the_request_is_there(get: Get, broker: EmbeddedBroker) -> None:
    with Producer(broker.bootstrap) as producer:
        for number in range(20):
            producer.send(TABLE, json.dumps({"total": number}), key="fresh")
            assert get("/tables/totals/fresh?fresh=true")["value"] == {"total": number}


def test_a_long_answer_comes_in_parts_and_whole(get: Get, broker: EmbeddedBroker) -> None:
    with Producer(broker.bootstrap) as producer:
        for number in range(2000):
            producer.submit(TABLE, json.dumps(number), key=f"many-{number:04}")
    get("/tables/totals/tea?fresh=true")
    rows = get("/tables/totals?prefix=many-&limit=2000")["rows"]
    assert [each["value"] for each in rows] == list(range(2000))
    assert len(get("/tables/totals?prefix=many-")["rows"]) == 1000


def test_an_address_that_others_reach_needs_a_word(
    broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["streams", "serve", "shop", "--bootstrap", broker.bootstrap]
    assert main([*command, "--listen", "0.0.0.0:0"]) == 2
    assert "everybody who reaches this address could read the app's tables" in (
        capsys.readouterr().err
    )
    assert main([*command, "--table", "sums"]) == 1
    assert "--table sums: shop has totals, odd" in capsys.readouterr().err
