"""The topology of `headwater demo`: orders are joined with their payments, and what was paid for is
summed up by product in event-time windows. The sums are a table, which any process can follow.
`headwater streams run` runs it like any other app."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from headwater.streams import App, f, tumbling


@dataclass
class Order:
    id: int
    product: str
    price: float
    at: datetime


@dataclass
class Payment:
    id: int
    paid_at: datetime


app = App("shop", every="1 second")
orders = app.stream("orders", Order, time="at", late="20 seconds")
payments = app.stream("payments", Payment, time="paid_at", late="20 seconds")
paid = orders.join(payments, on="id", within="10 seconds")
windows = paid.group_by("product").window(tumbling("5 seconds"))
windows.agg(orders=f.count("id"), revenue=f.round(f.sum("price"), 2), name="revenue")
