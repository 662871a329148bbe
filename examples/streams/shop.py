"""A shop: joins, windows, a live table, a processor with a timer, and bad records.

headwater streams run examples/streams/shop.py
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from headwater.streams import App, Context, Processor, Record, State, f, tumbling


@dataclass
class Order:
    order_id: int
    country: str
    total: float
    at: datetime


@dataclass
class Payment:
    order_id: int
    method: str
    at: datetime


@dataclass
class Customer:
    name: str
    country: str


@dataclass
class Reading:
    celsius: float
    at: datetime


@dataclass
class Alarm:
    door: str
    since: datetime


app = App("shop")

# Two streams, joined within a time, and summed up in windows.
orders = app.stream("orders", Order, time="at", late="1 minute")
payments = app.stream("payments", Payment, time="at", late="1 minute")
paid = orders.join(payments.select("order_id", "method"), on="order_id", within="10 minutes")
revenue = paid.group_by("country").window(tumbling("5 minutes")).sum("total")
revenue.final().to("revenue")

# A table that any process can query.
by_country = orders.group_by("country")
totals = by_country.agg(orders=f.count("total"), total=f.sum("total"), name="totals")

# A stream and a table: each order with its customer, as of the time of the order.
customers = app.table("customers", Customer)
orders.join(customers.select("name"), how="left").to("orders-with-names")


# Python functions, where columns are not enough. A record for which one raises is a dead letter.
def checked(order: Order) -> Order:
    if order.total <= 0:
        raise ValueError(f"order {order.order_id} costs {order.total}")
    return order


large = orders.map(checked).filter(lambda order: order.total > 1000)
large.to("large-orders")


class Silence(Processor[str, Reading, Alarm]):
    """Raises an alarm when a door has sent nothing for five minutes."""

    last: State[datetime]

    def process(self, record: Record[str, Reading], ctx: Context[str]) -> None:
        self.last.set(record.value.at)
        ctx.timer(record.value.at + timedelta(minutes=5))

    def on_timer(self, at: datetime, ctx: Context[str]) -> Iterator[Alarm]:
        last = self.last.get()
        if last is not None and last + timedelta(minutes=5) <= at:
            yield Alarm(ctx.key, last)


readings = app.stream("readings", Reading, time="at", late="10 seconds")
readings.process(Silence).to("alarms")
