"""A shop: orders come in, Spark sums them up in windows of event time, and the sums are shown.

Run by `make demo`. It starts a node that keeps everything in memory, runs the pipeline in
examples/pipelines/revenue.py on Spark, and sends orders for half a minute. Some orders come late
and correct windows that were summed up already; some come far too late and are left out; a few are
no orders at all and end in the dead letters. What Spark writes to the topic `revenue` is read back
and shown as it comes; in the end it is compared with what was sent, and drawn.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from headwater import Admin, Consumer, Producer

HEADWATER = str(Path(sys.executable).with_name("headwater"))
PIPELINE = Path(__file__).with_name("pipelines") / "revenue.py"
PICTURE = Path(__file__).resolve().parents[1] / "build" / "demo.png"

PRODUCTS = {"coffee": 4.5, "tea": 3.2, "cake": 5.9, "juice": 3.8}
WINDOW_SECONDS = 5
ORDERS_A_SECOND = 100
LATE_SHARE = 0.08  # by up to 12 s: late, but within the watermark of 20 s
FAR_TOO_LATE = 20
BROKEN = 5
PATIENCE_SECONDS = 240.0

Window = tuple[datetime, str]  # when it begins, and the product


@dataclass
class Shop:
    """What was sent, and what came back."""

    seconds: float
    sent: int = 0
    late: int = 0
    expected: dict[Window, float] = field(default_factory=lambda: defaultdict(float))
    late_revenue: dict[Window, float] = field(default_factory=lambda: defaultdict(float))
    results: dict[Window, float] = field(default_factory=dict)
    updates: int = 0
    dead_letters: list[str] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def agrees(self) -> bool:
        return len(self.dead_letters) >= BROKEN and all(
            abs(self.results.get(window, 0.0) - revenue) < 0.01
            for window, revenue in self.expected.items()
        )

    async def until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not done():
                self.news.clear()
                await self.news.wait()


def say(what: str, text: str) -> None:
    print(f"{what:<9} {text}", flush=True)


@contextmanager
def running(command: list[str], ready: str) -> Iterator[str]:
    """A process for as long as the block lasts; gives the first line that begins with `ready`."""
    with tempfile.TemporaryFile("w+") as complaints:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=complaints, text=True)
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith(ready):
                    break
            else:
                complaints.seek(0)
                raise SystemExit(f"{' '.join(command)} did not start:\n{complaints.read()}")
            yield line.strip()
        finally:
            process.terminate()
            try:
                process.communicate(timeout=90)
            except subprocess.TimeoutExpired:
                process.kill()


async def first_order(producer: Producer, shop: Shop) -> None:
    """One order, and its result: from now on Spark is warm."""
    at = time.time()
    order = {"id": 0, "product": "coffee", "price": 4.5, "at": _text(at)}
    producer.submit("orders", json.dumps(order), key="coffee")
    shop.sent += 1
    shop.expected[_window(at), "coffee"] += 4.5
    await shop.until(lambda: bool(shop.results))


async def send_orders(producer: Producer, shop: Shop, begin: float) -> None:
    """Orders with the time at which they were made; some of them come late."""
    chance = random.Random(2026)
    first = shop.sent
    while (now := time.time()) < begin + shop.seconds:
        product = chance.choice(list(PRODUCTS))
        price = round(PRODUCTS[product] * chance.uniform(0.8, 1.2), 2)
        is_late = chance.random() < LATE_SHARE and now - begin > 12
        at = now - (chance.uniform(5, 12) if is_late else 0)
        order = {"id": shop.sent, "product": product, "price": price, "at": _text(at)}
        producer.submit("orders", json.dumps(order), key=product)
        window = (_window(at), product)
        shop.sent += 1
        shop.late += is_late
        shop.expected[window] += price
        if is_late:
            shop.late_revenue[window] += price
        due = begin + (shop.sent - first) / ORDERS_A_SECOND
        await asyncio.sleep(max(0.0, due - time.time()))
    for number in range(BROKEN):
        producer.submit("orders", f"this is no order {number}", key="?")
    for number in range(FAR_TOO_LATE):
        order = {"id": -number, "product": "tea", "price": 1.0, "at": _text(begin - 300)}
        producer.submit("orders", json.dumps(order), key="tea")
    await producer.flush()


async def read_results(consumer: Consumer, shop: Shop) -> None:
    async for record in consumer:
        shop.news.set()
        if record.topic != "revenue":
            reason = dict(record.headers)["headwater.reason"] or b""
            shop.dead_letters.append(reason.decode())
            continue
        result = json.loads(record.value)
        window = (datetime.fromisoformat(result["start"]), result["product"])
        shop.results[window] = result["revenue"]
        shop.updates += 1


async def show(shop: Shop, begin: float) -> None:
    """The last windows as a table: in place on a terminal, otherwise now and then."""
    in_place = sys.stdout.isatty()
    lines = 0
    while True:
        await asyncio.sleep(1 if in_place else 10)
        if (seconds := time.time() - begin) > shop.seconds:
            continue  # the whole table comes at the end
        table = _table(shop, seconds)
        if in_place and lines:
            print(f"\x1b[{lines}F\x1b[J", end="")
        print("\n".join(table), flush=True)
        lines = len(table)


def _table(shop: Shop, seconds: float) -> list[str]:
    windows = sorted({begins for begins, _ in shop.results})[-6:]
    rows = [
        "",
        f"  {seconds:4.0f} s   {shop.sent:,} orders sent, {shop.late} of them late;"
        f" {shop.updates} results from Spark",
        "  window      " + "".join(f"{product:>10}" for product in PRODUCTS),
    ]
    for begins in windows:
        cells = []
        for product in PRODUCTS:
            revenue = shop.results.get((begins, product))
            mark = "*" if (begins, product) in shop.late_revenue else " "
            cells.append("          " if revenue is None else f"{revenue:>9.2f}{mark}")
        rows.append(f"  {begins:%H:%M:%S}    " + "".join(cells))
    return [*rows, "  * corrected by orders that came late"]


async def shop_hours(address: str, shop: Shop, began: float) -> None:
    topics = ["revenue", "revenue.dead-letters"]
    async with (
        Producer(address) as producer,
        Consumer(address, group="demo", topics=topics, auto_offset_reset="earliest") as consumer,
    ):
        reading = asyncio.create_task(read_results(consumer, shop))
        showing = None
        try:
            await first_order(producer, shop)
            say("pipeline", f"the first result is there after {time.monotonic() - began:.1f} s")
            begin = time.time()
            showing = asyncio.create_task(show(shop, begin))
            await send_orders(producer, shop, begin)
            await shop.until(shop.agrees)
        except TimeoutError:
            raise SystemExit("the results do not agree with what was sent") from None
        finally:
            for task in filter(None, (showing, reading)):
                task.cancel()


def draw(shop: Shop, picture: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    windows = sorted({begins for begins, _ in shop.expected})
    figure, axes = pyplot.subplots(figsize=(9, 4.5))
    below = [0.0] * len(windows)
    labels = [f"{begins:%H:%M:%S}" for begins in windows]
    for product in PRODUCTS:
        heights = [
            shop.results[window] - shop.late_revenue.get(window, 0.0)
            if (window := (begins, product)) in shop.results
            else 0.0
            for begins in windows
        ]
        axes.bar(labels, heights, bottom=below, label=product)
        below = [low + height for low, height in zip(below, heights, strict=True)]
    late = [
        sum(shop.late_revenue.get((begins, product), 0.0) for product in PRODUCTS)
        for begins in windows
    ]
    axes.bar(labels, late, bottom=below, color="lightgrey", hatch="//", label="came late")
    axes.set_title("Revenue by window of event time, as Spark wrote it to the topic")
    axes.set_ylabel("revenue")
    axes.legend(ncols=5, loc="upper center", bbox_to_anchor=(0.5, -0.15), frameon=False)
    figure.autofmt_xdate(rotation=45)
    figure.tight_layout()
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=120)


def _window(at: float) -> datetime:
    return datetime.fromtimestamp(at - at % WINDOW_SECONDS, UTC)


def _text(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


async def prepare(address: str) -> None:
    async with Admin(address) as admin:
        await admin.create_topic("orders", partitions=2)
        await admin.create_topic("revenue")


def main() -> None:
    parser = ArgumentParser(description="Orders through a pipeline on Spark.")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long orders are sent")
    parser.add_argument("--picture", type=Path, default=PICTURE, help="where to draw")
    options = parser.parse_args()
    began = time.monotonic()
    shop = Shop(options.seconds)
    node = [HEADWATER, "start", "--memory", "--listen", "127.0.0.1:0"]
    with tempfile.TemporaryDirectory() as folder, running(node, "ready: ") as line:
        address = line.split()[1]
        say("node", f"ready on {address} after {time.monotonic() - began:.1f} s")
        asyncio.run(prepare(address))
        say("pipeline", f"{PIPELINE.name} starts on Spark")
        pipeline = [HEADWATER, "pipeline", "run", str(PIPELINE), "--bootstrap", address]
        pipeline += ["--checkpoints", folder, "--master", "local[2]"]
        with running(pipeline, "revenue: orders -> revenue"):
            say("pipeline", f"orders -> revenue runs after {time.monotonic() - began:.1f} s")
            asyncio.run(shop_hours(address, shop, began))
            print("\n".join(_table(shop, shop.seconds)), end="\n\n")
            subprocess.run([HEADWATER, "pipeline", "list", "--bootstrap", address], check=True)
            print()
    say("late", f"{shop.late} orders came late and corrected {len(shop.late_revenue)} sums;")
    say("", f"{FAR_TOO_LATE} more came after the watermark, too late for any window")
    say("dead", f"{len(shop.dead_letters)} records were no orders: {shop.dead_letters[0]}")
    say("checked", f"{len(shop.expected)} sums agree with the {shop.sent:,} orders that were sent")
    draw(shop, options.picture)
    say("picture", str(options.picture))
    say("done", f"in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
