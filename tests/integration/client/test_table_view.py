"""A table in this process: the latest value of each key, followed on a node."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest

from headwater import Producer, blocking
from headwater.client.errors import ClientClosed, ClientError
from headwater.streams.serde import LONG, SerdeError, serde_of
from headwater.streams.view import BlockingTableView, Change, TableView, ViewError
from headwater.testing import EmbeddedBroker
from tests.support.fake_broker import story
from tests.support.members import QUICK_BROKER


@dataclass(frozen=True)
class Place:
    country: str
    number: int


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(QUICK_BROKER) as made:
        yield made


@pytest.fixture
def table(broker: EmbeddedBroker, topic: str) -> str:
    with blocking.Admin(broker.bootstrap) as admin:
        admin.create_topic(topic, partitions=3, configs={"cleanup.policy": "compact"})
    return topic


def write(broker: EmbeddedBroker, topic: str, values: dict[str, int | None]) -> None:
    with blocking.Producer(broker.bootstrap) as producer:
        for key, value in values.items():
            producer.submit(topic, key=key, value=None if value is None else str(value))
        producer.flush()


@story
async def test_a_view_has_what_was_written_and_follows(broker: EmbeddedBroker, table: str) -> None:
    await asyncio.to_thread(write, broker, table, {"tea": 1, "coffee": 2, "cake": 3})
    await asyncio.to_thread(write, broker, table, {"tea": 4, "cake": None})
    async with TableView(broker.bootstrap, table, key=str, value=int) as view:
        assert (view.get("tea"), view.get("cake"), view.get("cake", 0)) == (4, None, 0)
        assert view.scan() == [("coffee", 2), ("tea", 4)]
        assert len(view) == 2
        assert "cake" not in view
        with pytest.raises(KeyError):
            view["cake"]
        changes = view.changes()
        await asyncio.to_thread(write, broker, table, {"cake": 5, "tea": None})
        await view.refresh()
        assert view.scan() == [("cake", 5), ("coffee", 2)]
        found = {await anext(changes), await anext(changes)}
        assert found == {Change("cake", None, 5), Change("tea", 4, None)}
        entry = view.entry("cake")
        assert entry is not None
        assert entry.value == 5
        assert entry.timestamp > 0
    with pytest.raises(ClientClosed):
        view.get("tea")
    assert [each async for each in changes] == []


@story
async def test_what_is_not_committed_is_not_seen(broker: EmbeddedBroker, table: str) -> None:
    async with (
        Producer(broker.bootstrap, transactional_id=f"{table}-writer") as producer,
        TableView(broker.bootstrap, table, key=str, value=int) as view,
    ):
        async with producer.transaction():
            producer.submit(table, key="a", value="1")
            producer.submit(table, key="b", value="2")
            await producer.flush()
            await view.refresh()
            assert len(view) == 0
        await view.refresh()  # also past the markers behind the records
        assert view.scan() == [("a", 1), ("b", 2)]
        with suppress(LookupError):
            async with producer.transaction():
                producer.submit(table, key="a", value="9")
                raise LookupError
        await view.refresh()
        assert view["a"] == 1


@story
async def test_an_empty_table_is_ready_and_a_missing_one_is_said(
    broker: EmbeddedBroker, table: str
) -> None:
    async with TableView(broker.bootstrap, table, key=str, value=str) as view:
        assert view.scan() == []
        assert view.positions() == {} or set(view.positions().values()) == {0}
    missing = TableView(
        broker.bootstrap, f"{table}-missing", key=str, value=str, allow_auto_create_topics=False
    )
    with pytest.raises(ClientError, match=f"{table}-missing"):
        await missing.start(timeout_ms=500)


@story
async def test_ranges_are_in_the_order_of_keys(broker: EmbeddedBroker, table: str) -> None:
    async with Producer(broker.bootstrap, value_serializer=LONG.encode) as producer:
        for number in (10, 9, 1, 2, 100):
            producer.submit(table, key=str(number), value=number)
    async with TableView(broker.bootstrap, table, key=int, value=LONG) as view:
        assert view.range(2, 10) == [(2, 2), (9, 9), (10, 10)]
        assert view.range(last=2) == [(1, 1), (2, 2)]
        assert view.range(first=10, reverse=True) == [(100, 100), (10, 10)]
        assert view.scan(limit=2) == [(1, 1), (2, 2)]
        await asyncio.to_thread(write, broker, table, {"3": None, "1": None})
        await view.refresh()
        assert [key for key, _ in view.scan()] == [2, 9, 10, 100]


@story
async def test_keys_that_are_records_are_sorted_by_their_fields(
    broker: EmbeddedBroker, table: str
) -> None:
    places = [Place("de", 10), Place("at", 7), Place("de", 9)]
    async with Producer(broker.bootstrap, key_serializer=serde_of(Place).encode) as producer:
        for place in places:
            producer.submit(table, key=place, value=place.country)
    async with TableView(broker.bootstrap, table, key=Place, value=str) as view:
        assert [key for key, _ in view.scan()] == sorted(
            places, key=lambda each: (each.country, each.number)
        )
        assert view.range(Place("de", 0), Place("de", 9)) == [(Place("de", 9), "de")]


@story
async def test_text_keys_are_found_by_prefix(broker: EmbeddedBroker, table: str) -> None:
    await asyncio.to_thread(write, broker, table, {"a:1": 1, "a:2": 2, "b:1": 3, "a": 0})
    async with TableView(broker.bootstrap, table, key=str, value=int) as view:
        assert view.scan("a:") == [("a:1", 1), ("a:2", 2)]
        assert view.scan("a", limit=1, reverse=True) == [("a:2", 2)]
        assert view.scan("c") == []


@story
async def test_a_random_history_ends_as_the_latest_values(
    broker: EmbeddedBroker, table: str
) -> None:
    chance = random.Random(17)
    expected: dict[str, int] = {}
    async with TableView(broker.bootstrap, table, key=str, value=int) as view:
        for _ in range(6):
            changes = {
                f"key-{chance.randrange(300):03}": chance.choice([None, chance.randrange(1000)])
                for _ in range(150)
            }
            await asyncio.to_thread(write, broker, table, changes)
            for key, value in changes.items():
                expected.pop(key, None)
                if value is not None:
                    expected[key] = value
            await view.refresh()
            assert view.scan() == sorted(expected.items())


@story
async def test_values_of_another_type_are_named_and_too_many_keys_refused(
    broker: EmbeddedBroker, table: str
) -> None:
    await asyncio.to_thread(write, broker, table, {"a": 1, "b": 2, "c": 3})
    async with TableView(broker.bootstrap, table, key=str, value=Place) as view:
        with pytest.raises(SerdeError, match=r"the value of key 'a' at partition \d, offset \d: "):
            view.get("a")
    with pytest.raises(ViewError, match="more than 2 keys"):
        await TableView(broker.bootstrap, table, key=str, value=int, keys_max=2).start()
    with pytest.raises(TypeError, match="a view sets group itself"):
        TableView(broker.bootstrap, table, key=str, value=int, group="g")


def test_the_blocking_view_is_the_same(broker: EmbeddedBroker, table: str) -> None:
    write(broker, table, {"tea": 1, "cake": 2})
    with BlockingTableView(broker.bootstrap, table, key=str, value=int) as view:
        assert view.get("tea") == view["tea"] == 1
        assert view.range("a", "d") == [("cake", 2)]
        write(broker, table, {"tea": 7})
        view.refresh()
        assert view.get("tea") == 7
        assert len(view) == 2
    with pytest.raises(ClientClosed):
        view.get("tea")
