"""The shop of `headwater demo`: sends orders and payments, follows the table of sums, shows it."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from headwater import Admin, Consumer, Producer
from headwater.cli.errors import CommandError
from headwater.streams.view import TableView

PRODUCTS = {"coffee": 4.5, "tea": 3.2, "cake": 5.9, "juice": 3.8}
FAR_TOO_LATE = 20
_WINDOW_SECONDS = 5
_ORDERS_A_SECOND = 100
_LATE_SHARE = 0.08  # by up to 12 s: late, but within the watermark of 20 s
_UNPAID_SHARE = 0.05
_BROKEN = 5
_PATIENCE_SECONDS = 240.0

_TABLE = "shop-revenue-changelog"
_DEAD_LETTERS = "shop.dead-letters"

Window = tuple[datetime, str]  # when it begins, and the product


@dataclass
class ProductWindow:
    """A key of the table."""

    key: str
    start: datetime
    end: datetime


@dataclass
class Revenue:
    """A value of the table."""

    orders: int
    revenue: float


@dataclass
class Shop:
    """The orders that were sent, and the sums of the table."""

    seconds: float
    begin: float = 0.0  # the time of the first order but one, which only warms up Spark
    sent: int = 0
    late: int = 0
    unpaid: int = 0
    expected: dict[Window, float] = field(default_factory=lambda: defaultdict(float))
    late_revenue: dict[Window, float] = field(default_factory=lambda: defaultdict(float))
    results: dict[Window, float] = field(default_factory=dict)
    updates: int = 0
    dead_letters: list[str] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def agrees(self) -> bool:
        return len(self.dead_letters) >= _BROKEN and all(
            abs(self.results.get(window, 0.0) - revenue) < 0.01
            for window, revenue in self.expected.items()
        )

    def windows(self) -> list[datetime]:
        """Returns the windows that orders were sent for, in order. The first one is complete: that
        of the order before it, which warms up Spark, is left out."""
        return sorted({begins for begins, _ in self.expected if begins >= _window(self.begin)})

    async def until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while not done():
                self.news.clear()
                await self.news.wait()


async def create_topics(address: str) -> None:
    async with Admin(address) as admin:
        await admin.create_topic("orders", partitions=2)
        await admin.create_topic("payments", partitions=2)


async def transactional_ids(address: str) -> list[str]:
    """Returns the transactional producers: the app, once it has committed."""
    async with Admin(address) as admin:
        return [each.transactional_id for each in await admin.list_transactions()]


async def open_shop(address: str, shop: Shop, on_warm: Callable[[], None]) -> None:
    """Sends orders and follows the table until they agree. Calls `on_warm` at the first sum."""
    async with (
        Producer(address) as producer,
        TableView(address, _TABLE, key=ProductWindow, value=Revenue) as view,
        Consumer(
            address,
            group="demo",
            topics=[_DEAD_LETTERS],
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer,
    ):
        following = asyncio.create_task(_follow(view, shop))
        reading = asyncio.create_task(_read_dead_letters(consumer, shop))
        showing = None
        try:
            await _first_order(producer, shop)
            on_warm()
            shop.begin = next_window(time.time())
            await asyncio.sleep(shop.begin - time.time())
            showing = asyncio.create_task(_show(shop, shop.begin))
            await _send_orders(producer, shop, shop.begin)
            await shop.until(shop.agrees)
        except TimeoutError:
            raise CommandError("the results do not agree with what was sent") from None
        finally:
            for task in filter(None, (showing, following, reading)):
                task.cancel()


async def _first_order(producer: Producer, shop: Shop) -> None:
    """Sends one order and waits for its sum: from then on Spark is warm."""
    at = time.time()
    _order(producer, number=0, product="coffee", price=4.5, at=at)
    _pay(producer, number=0, at=at)
    shop.sent += 1
    shop.expected[_window(at), "coffee"] += 4.5
    await shop.until(lambda: bool(shop.results))


async def _send_orders(producer: Producer, shop: Shop, begin: float) -> None:
    """Sends orders with the time at which they were made, some of them late, and payments."""
    chance = random.Random(2026)
    first = shop.sent
    while (now := time.time()) < begin + shop.seconds:
        product = chance.choice(list(PRODUCTS))
        price = round(PRODUCTS[product] * chance.uniform(0.8, 1.2), 2)
        is_late = chance.random() < _LATE_SHARE and now - begin > 12
        at = now - (chance.uniform(5, 12) if is_late else 0)
        _order(producer, number=shop.sent, product=product, price=price, at=at)
        if chance.random() < _UNPAID_SHARE:
            shop.unpaid += 1
        else:
            paid_at = at + chance.uniform(0, 1)
            _pay(producer, number=shop.sent, at=paid_at)
            window = (_window(paid_at), product)
            shop.expected[window] += price
            shop.late += is_late
            if is_late:
                shop.late_revenue[window] += price
        shop.sent += 1
        due = begin + (shop.sent - first) / _ORDERS_A_SECOND
        await asyncio.sleep(max(0.0, due - time.time()))
    for number in range(_BROKEN):
        producer.submit("orders", f"this is not an order {number}", key="?")
    for number in range(FAR_TOO_LATE):
        _order(producer, number=-1 - number, product="tea", price=1.0, at=begin - 300)
        _pay(producer, number=-1 - number, at=begin - 300)
    await producer.flush()


def _order(producer: Producer, *, number: int, product: str, price: float, at: float) -> None:
    order = {"id": number, "product": product, "price": price, "at": _text(at)}
    producer.submit("orders", json.dumps(order), key=product)


def _pay(producer: Producer, *, number: int, at: float) -> None:
    producer.submit("payments", json.dumps({"id": number, "paid_at": _text(at)}), key=str(number))


async def _follow(view: TableView[ProductWindow, Revenue], shop: Shop) -> None:
    async for change in view.changes():
        if change.new is not None:
            shop.results[change.key.start, change.key.key] = change.new.revenue
            shop.updates += 1
        shop.news.set()


async def _read_dead_letters(consumer: Consumer, shop: Shop) -> None:
    async for record in consumer:
        reason = dict(record.headers)["headwater.reason"] or b""
        shop.dead_letters.append(reason.decode())
        shop.news.set()


async def _show(shop: Shop, begin: float) -> None:
    """Shows the last windows as a table: in place on a terminal, otherwise every 10 seconds."""
    in_place = sys.stdout.isatty()
    lines = 0
    while True:
        await asyncio.sleep(1 if in_place else 10)
        if (seconds := time.time() - begin) > shop.seconds:
            continue  # the whole table is printed at the end
        shown = table(shop, seconds)
        if in_place and lines:
            print(f"\x1b[{lines}F\x1b[J", end="")
        print("\n".join(shown), flush=True)
        lines = len(shown)


def table(shop: Shop, seconds: float) -> list[str]:
    shown = {begins for begins, _ in shop.results}
    windows = [begins for begins in shop.windows() if begins in shown][-6:]
    rows = [
        "",
        f"  {seconds:4.0f} s   {shop.sent:,} orders sent, {shop.late} of them late;"
        f" {shop.updates} updates of the table",
        "  window      " + "".join(f"{product:>10}" for product in PRODUCTS),
    ]
    for begins in windows:
        cells = []
        for product in PRODUCTS:
            revenue = shop.results.get((begins, product))
            mark = "*" if (begins, product) in shop.late_revenue else " "
            cells.append("          " if revenue is None else f"{revenue:>9.2f}{mark}")
        rows.append(f"  {begins:%H:%M:%S}    " + "".join(cells))
    return [*rows, "  * corrected by late orders"]


def next_window(at: float) -> float:
    """Returns the time at which the first window after `at` begins."""
    return at - at % _WINDOW_SECONDS + _WINDOW_SECONDS


def _window(at: float) -> datetime:
    return datetime.fromtimestamp(at - at % _WINDOW_SECONDS, UTC)


def _text(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
