"""The topology of `harness.streams_kills`, and the process that runs it: a join, windows with a
Python function, and a processor.

    python -m harness.streams_kills_app BOOTSTRAP FOLDER MASTER

A query that fails is started again, as a service would.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from headwater.spark import spark_session
from headwater.streams import App, Processor, f, tumbling
from headwater.streams.processor import Context, Record, State
from headwater.streams.running import TopicEnvironment, prepare

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

ORDERS, PAYMENTS = "orders", "payments"
PAID, WINDOWS, TOTALS, DEAD = "paid", "windows", "totals", "kills.dead-letters"
INPUTS, OUTPUTS = (ORDERS, PAYMENTS), (PAID, WINDOWS, TOTALS, DEAD)
MINUTES = 5  # of a window
_LATE = "2 hours"  # nothing is late: what a kill leaves behind is read later
_BATCH = {"maxOffsetsPerTrigger": "500", "tasks": "2", "latestOffset.waitMs": "1000"}


@dataclass
class Order:
    id: int
    customer: str
    amount: int
    at: datetime


@dataclass
class Payment:
    id: int
    payment: int
    paid_at: datetime


@dataclass
class Total:
    """The sum of the first `orders` orders of a customer."""

    customer: str
    orders: int
    amount: int


class Running(Processor[str, Order, Total]):
    orders: State[int] = State(default=0)
    amount: State[int] = State(default=0)

    def process(self, record: Record[str, Order], ctx: Context[str]) -> Iterator[Total]:
        self.orders.set(self.orders.get(0) + 1)
        self.amount.set(self.amount.get(0) + record.value.amount)
        yield Total(ctx.key, self.orders.get(0), self.amount.get(0))


@dataclass
class Window:
    """The number and the sum of a customer's orders in a window."""

    customer: str
    number: int
    orders: int
    amount: int


def window_of(at: datetime) -> int:
    return int(at.timestamp()) // (60 * MINUTES)


def add(window: Window, order: Order) -> Window:
    orders, amount = window.orders + 1, window.amount + order.amount
    return Window(order.customer, window_of(order.at), orders, amount)


def topology() -> App:
    app = App("kills")
    orders = app.stream(ORDERS, Order, time="at", late=_LATE, options=_BATCH)
    payments = app.stream(PAYMENTS, Payment, time="paid_at", late=_LATE, options=_BATCH)
    paid = orders.join(payments, on="id", within="1 hour")
    paid.map(f.concat_ws(":", f.col("id"), f.col("payment")), to=str).to(PAID)
    windows = orders.group_by_key().window(tumbling(f"{MINUTES} minutes"))
    windows.aggregate(Window("", 0, 0, 0), add, to=Window).to_stream().to(WINDOWS)
    orders.process(Running).to(TOTALS)
    return app


def main() -> None:
    bootstrap, folder, master = sys.argv[1:]
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
    spark = spark_session("kills", master=master, shuffle_partitions=2, settings=settings)
    spark.sparkContext.setLogLevel("ERROR")
    environment = TopicEnvironment(bootstrap=bootstrap, checkpoints=f"{folder}/checkpoints")
    queries = prepare(spark, topology().plan(), environment)
    running: dict[int, StreamingQuery] = {}
    while True:
        for number, query in enumerate(queries):
            known = running.get(number)
            if known is not None and known.isActive:
                continue
            if known is not None:
                print(f"{query.plan.name} failed: {known.exception()}", flush=True)
            running[number] = query.start()
        time.sleep(0.5)


if __name__ == "__main__":
    main()
